# Every command and flag, with structured replies. The export is 8 MiB of zeros.
import errno

h.set_strict_mode(0)
h.add_meta_context("base:allocation")
h.add_meta_context("bimetal:tier")
h.connect_uri(uri)
assert h.get_structured_replies_negotiated()
size = h.get_size()
assert size == 8 << 20
assert h.can_multi_conn() and h.can_fast_zero() and h.can_cache() and h.can_df()

def fails(expected, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except nbd.Error as error:
        assert error.errnum == expected, (error.errnum, expected, error.string)
        return
    raise AssertionError("%s was not refused" % call)

def status(length, at, flags=0):
    found = {}
    def extent(context, offset, entries, err):
        assert offset == at
        found[context] = list(zip(entries[0::2], entries[1::2]))
    h.block_status(length, at, extent, flags)
    return found

# Reads and writes, of all sizes, with force unit access.
for length in (512, 4096, 65536, 1 << 20, 3 << 20):
    data = bytes((length // 512 + i) & 255 for i in range(256)) * (length // 256)
    h.pwrite(data, 512, nbd.CMD_FLAG_FUA)
    assert h.pread(length, 512) == data
    assert h.pread(length, 512, nbd.CMD_FLAG_DF) == data
h.flush()

# A structured read arrives in chunks that cover it exactly.
def covered(length, at, flags=0):
    chunks = []
    def chunk(data, offset, status, err):
        chunks.append((offset, len(data), status))
    h.pread_structured(length, at, chunk, flags)
    chunks.sort()
    position = at
    for offset, count, _ in chunks:
        assert offset == position, chunks
        position += count
    assert position == at + length
    return chunks

assert len(covered(4 << 20, 0, nbd.CMD_FLAG_DF)) == 1
assert any(status == nbd.READ_HOLE for _, _, status in covered(8 << 20, 0))

# Zeros and trims.
h.pwrite(b"x" * 65536, 0)
h.zero(4096, 4096)
h.zero(4096, 12288, nbd.CMD_FLAG_NO_HOLE)
h.zero(4096, 20480, nbd.CMD_FLAG_FAST_ZERO)
h.zero(512, 32768 + 512, nbd.CMD_FLAG_FUA)
h.trim(4096, 28672, nbd.CMD_FLAG_FUA)
data = h.pread(65536, 0)
for at, length in ((4096, 4096), (12288, 4096), (20480, 4096), (33280, 512), (28672, 4096)):
    assert data[at:at + length] == bytes(length), at
    data = data[:at] + b"x" * length + data[at + length:]
assert data == b"x" * 65536
fails(errno.ENOTSUP, h.zero, 4096, 0, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FAST_ZERO)
assert h.pread(512, 0) == b"x" * 512
h.zero(size, 0)
h.cache(1 << 20, 0)

# Where things are.
h.pwrite(b"y" * 8192, 8192)
found = status(65536, 0)
assert found["base:allocation"] == [(8192, 3), (8192, 0), (49152, 3)], found
assert [length for length, _ in found["bimetal:tier"]] == [8192, 8192, 49152], found
assert found["bimetal:tier"][0][1] == 3 and found["bimetal:tier"][2][1] == 3
one = status(65536, 8192, nbd.CMD_FLAG_REQ_ONE)
assert one["base:allocation"] == [(8192, 0)], one
fails(errno.EINVAL, status, 0, 0)

# What is refused, and that the connection stays usable.
fails(errno.EINVAL, h.pread, 512, size)
fails(errno.EINVAL, h.pread, 512, 100)
fails(errno.ENOSPC, h.pwrite, b"z" * 512, size)
fails(errno.ENOSPC, h.pwrite, b"z" * 65536, size - 512)
# More than a socket holds: an answer that came before all of it was sent would end libnbd's connection.
fails(errno.ENOSPC, h.pwrite, b"z" * (8 << 20), size - 512)
fails(errno.EINVAL, h.pwrite, b"z" * ((4 << 20) + 1), 0)
fails(errno.EINVAL, h.pwrite, b"z" * 100, 0)
fails(errno.EINVAL, h.trim, 4096, size)
fails(errno.EINVAL, h.cache, 4096, size - 512)
fails(errno.EINVAL, h.pread, 512, 0, nbd.CMD_FLAG_NO_HOLE)
fails(errno.EINVAL, h.pwrite, b"z" * 512, 0, nbd.CMD_FLAG_DF)
fails(errno.EINVAL, h.pread, 512, 2 ** 63 - 512)
assert h.pread(8192, 8192) == b"y" * 8192

# Many requests at once, answered as they end.
buffers = []
for i in range(200):
    buf = nbd.Buffer.from_bytearray(bytearray([i]) * 4096)
    buffers.append((i, buf, h.aio_pwrite(buf, i * 4096)))
while h.aio_in_flight() > 0:
    h.poll(-1)
for _, _, cookie in buffers:
    assert h.aio_command_completed(cookie)
buffers.clear()
for i in range(200):
    buf = nbd.Buffer(4096)
    buffers.append((i, buf, h.aio_pread(buf, i * 4096)))
while h.aio_in_flight() > 0:
    h.poll(-1)
for i, buf, cookie in buffers:
    assert h.aio_command_completed(cookie)
    assert buf.to_bytearray() == bytearray([i]) * 4096
h.shutdown()
