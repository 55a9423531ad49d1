# Options one by one.
h.set_opt_mode(True)
h.set_full_info(True)
h.connect_uri(uri)

names = []
h.opt_list(lambda name, description: names.append((name, description)))
assert names == [("disk", "a disk for tests")], names

contexts = []
h.add_meta_context("bimetal:")
h.opt_list_meta_context(contexts.append)
assert contexts == ["bimetal:tier", "bimetal:dirty", "bimetal:heat"], contexts
h.clear_meta_contexts()
contexts.clear()
h.opt_list_meta_context(contexts.append)
assert contexts == ["base:allocation", "bimetal:tier", "bimetal:dirty", "bimetal:heat"], contexts

h.set_export_name("nothing")
try:
    h.opt_info()
    raise AssertionError("an unknown export was found")
except nbd.Error:
    pass
h.set_export_name("disk")
h.opt_info()
assert h.get_canonical_export_name() == "disk"
assert h.get_export_description() == "a disk for tests"
assert h.get_block_size(nbd.SIZE_MINIMUM) == 512
assert h.get_block_size(nbd.SIZE_PREFERRED) == 4096
assert h.get_block_size(nbd.SIZE_MAXIMUM) == 32 << 20
h.opt_go()
assert h.pread(512, 0) == bytes(512)
h.shutdown()

h = nbd.NBD()
h.set_opt_mode(True)
h.connect_uri(uri)
h.opt_abort()
