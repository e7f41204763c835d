"""torch.save's file by hand: an assembler for pickles and a zip writer whose every field can be made to lie."""
import struct
import zlib


class Pickle:
    """Opcodes of protocol 2, one method each; `raw` takes any bytes."""

    def __init__(self, protocol=2):
        self.out = bytearray(b"\x80" + bytes([protocol]))

    def raw(self, data):
        self.out += data
        return self

    def text(self, value):
        data = value.encode("utf-8", "surrogatepass")
        return self.raw(b"X" + struct.pack("<I", len(data)) + data)

    def whole(self, value):
        return self.raw(b"J" + struct.pack("<i", value)) if -2**31 <= value < 2**31 else self.long(value)

    def long(self, value):
        data = value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)
        return self.raw(b"\x8a" + bytes([len(data)]) + data)

    def name(self, module, name):
        return self.raw(b"c" + module.encode() + b"\n" + name.encode() + b"\n")

    def wholes(self, values):
        self.raw(b"(")
        for value in values:
            self.whole(value)
        return self.raw(b"t")

    def storage(self, key="0", kind="BFloat16Storage", place="cpu", count=8, module="torch"):
        self.raw(b"(").text("storage").name(module, kind).text(key).text(place).whole(count)
        return self.raw(b"tQ")

    def tensor(self, shape, strides=None, offset=0, **storage):
        if strides is None:
            strides, step = [], 1
            for size in reversed(shape):
                strides.insert(0, step)
                step *= size
        self.name("torch._utils", "_rebuild_tensor_v2").raw(b"(").storage(**storage).whole(offset)
        self.wholes(shape).wholes(strides).raw(b"\x89").name("collections", "OrderedDict").raw(b")RtR")
        return self

    def end(self):
        return bytes(self.out) + b"."


class Zip:
    """Members in order; `patch(field, value)` changes what the next member's record or the end record says."""

    def __init__(self, folder="archive"):
        self.folder, self.body, self.records = folder, bytearray(), []

    def add(self, name, data, *, method=0, flags=0, crc=None, local_name=None, stored=None, size=None, packed=None, offset=None, extra=b"", whole_name=None):
        name = (whole_name if whole_name is not None else f"{self.folder}/{name}").encode()
        local = name if local_name is None else local_name.encode()
        content = data if stored is None else stored
        crc = zlib.crc32(data) if crc is None else crc
        at = len(self.body)
        size = len(data) if size is None else size
        packed = len(content) if packed is None else packed
        self.body += struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, flags, method, 0, 0, crc, packed, size, len(local), len(extra)) + local + extra + content
        self.records.append(struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, flags, method, 0, 0, crc, packed, size, len(name), len(extra), 0, 0, 0, 0,
                                        at if offset is None else offset) + name + extra)
        return self

    def end(self, *, count=None, directory_size=None, directory_at=None, disk=0, comment=b"", zip64=None, locator_at=None, prefix=b"", between=b""):
        directory = b"".join(self.records)
        at = len(self.body) if directory_at is None else directory_at
        count = len(self.records) if count is None else count
        size = len(directory) if directory_size is None else directory_size
        out = bytes(self.body) + between + directory
        if zip64 is not None:
            where = len(out) if locator_at is None else locator_at
            fields = {"count": len(self.records), "size": len(directory), "at": len(self.body)} | zip64
            out += struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, fields["count"], fields["count"], fields["size"], fields["at"])
            out += struct.pack("<IIQI", 0x07064B50, 0, where, 1)
            count, size, at = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF
        return prefix + out + struct.pack("<IHHHHIIH", 0x06054B50, disk, disk, count & 0xFFFF, count & 0xFFFF, size, at, len(comment)) + comment
