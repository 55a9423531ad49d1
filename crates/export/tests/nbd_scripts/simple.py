# An old client: simple replies, export chosen by EXPORT_NAME, with and without the 124 zeros.
import errno

def session(flags):
    h = nbd.NBD()
    h.set_strict_mode(0)
    h.set_request_structured_replies(False)
    h.set_handshake_flags(flags)
    h.connect_uri(uri)
    return h

for flags in (0, nbd.HANDSHAKE_FLAG_NO_ZEROES, nbd.HANDSHAKE_FLAG_FIXED_NEWSTYLE):
    h = session(flags)
    assert not h.get_structured_replies_negotiated()
    assert not h.can_df()
    assert h.get_size() == 8 << 20
    data = bytes(range(256)) * (3 << 12)
    h.pwrite(data, 4096)
    assert h.pread(len(data), 4096) == data
    h.zero(4096, 4096)
    assert h.pread(8192, 0) == bytes(8192)
    for bad in (lambda: h.pread(512, 8 << 20), lambda: h.pread(512, 0, nbd.CMD_FLAG_DF),
                lambda: h.block_status(512, 0, lambda *_: 0)):
        try:
            bad()
            raise AssertionError("not refused")
        except nbd.Error as error:
            assert error.errnum in (errno.EINVAL, errno.ENOTSUP), error.errnum
    assert h.pread(512, 8192) == data[4096:4608]
    h.flush()
    h.shutdown()
