"""Writes a Megatron-Core iteration whose `.metadata` has any number of chunks, by streaming the opcodes that Python's pickle
gives for torch's classes (protocol 4, every object memoized, cached plans behind), without torch. The data file is sparse."""
import json
import os
import struct

METADATA = "torch.distributed.checkpoint.metadata"
PLANNER = "torch.distributed.checkpoint.planner"
MARK, TUPLE, REDUCE, NEWOBJ, BUILD, NONE = b"(", b"t", b"R", b"\x81", b"b", b"N"
EMPTY_DICT, EMPTY_LIST, EMPTY_TUPLE, SETITEMS, APPENDS, MEMOIZE, STOP = b"}", b"]", b")", b"u", b"e", b"\x94", b"."
BATCH = 1000                                                     # of pickle's own writer


def integer(value):
    if value < 256:
        return b"K" + bytes([value])
    if value < 65536:
        return b"M" + struct.pack("<H", value)
    if value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


class Pickle:
    """Emits to a file; remembers globals and strings as pickle does."""

    def __init__(self, out):
        self.out, self.memos, self.known = out, 0, {}
        self.out.write(b"\x80\x04")

    def get(self, key, make):
        if key in self.known:
            index = self.known[key]
            return b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index)
        data = make()
        self.known[key] = self.memos
        self.memos += 1
        return data + MEMOIZE

    def text(self, value):
        data = value.encode()
        return self.get(value, lambda: (b"\x8c" + bytes([len(data)]) if len(data) < 256 else b"X" + struct.pack("<I", len(data))) + data)

    def named(self, module, name):
        if (module, name) in self.known:
            return self.get((module, name), None)
        parts = self.text(module) + self.text(name)
        return parts + self.get((module, name), lambda: b"\x93")

    def memo(self, data):
        self.memos += 1
        return data + MEMOIZE

    def new(self, module, name):
        return self.memo(self.named(module, name) + EMPTY_TUPLE + NEWOBJ)

    def state(self, *items):
        """An object's dict of (name, emitted value): the values must be emitted in this order, hence functions."""
        data = self.memo(EMPTY_DICT) + MARK
        for name, value in items:
            data += self.text(name) + (value() if callable(value) else value)
        return data + SETITEMS + BUILD

    def size(self, *values):
        data = self.named("torch", "Size")
        inner = b"".join(map(integer, values))
        data += self.memo(inner + {1: b"\x85", 2: b"\x86", 3: b"\x87"}[len(values)])
        data = self.memo(data + b"\x85")
        return self.memo(data + REDUCE)

    def reduce(self, module, name, argument):
        data = self.memo(self.named(module, name) + argument() + b"\x85")
        return self.memo(data + REDUCE)

    def properties(self):
        data = self.new(METADATA, "TensorProperties") + MARK + self.named("torch", "bfloat16")
        data += self.reduce("torch.serialization", "_get_layout", lambda: self.text("torch.strided")) + b"\x89"
        data += self.reduce(METADATA, "_MEM_FORMAT_ENCODING", lambda: integer(0)) + b"\x89"
        return self.memo(data + TUPLE) + BUILD

    def chunk(self, name, place, sizes):
        """The chunk of a tensor; in the cached plans it is the same object once more."""
        key = (name, place)
        if key in self.known:
            return self.get(key, None)
        data = self.named(METADATA, "ChunkStorageMetadata") + EMPTY_TUPLE + NEWOBJ
        data = self.get(key, lambda: data)
        return data + self.state(("offsets", lambda: self.size(*place)), ("sizes", lambda: self.size(*sizes)))

    def index(self, name, place):
        return self.new(METADATA, "MetadataIndex") + self.state(
            ("fqn", lambda: self.text(name)), ("offset", lambda: self.size(*place)), ("index", NONE))


def write(folder, tensors, chunks, rows=2, columns=8, plans=True):
    """`tensors` of [chunks, rows, columns] bf16, one chunk a layer; returns the bytes of `.metadata`."""
    os.makedirs(folder)
    blob = 2 * rows * columns + 640
    names = [f"decoder.layers.module_{n:05d}.some_projection.weight" for n in range(tensors)]
    path = os.path.join(folder, ".metadata")
    with open(path, "wb", buffering=1 << 20) as out:
        p = Pickle(out)

        def batches(items, end):
            for at in range(0, len(items), BATCH):
                out.write(MARK)
                for item in items[at:at + BATCH]:
                    yield item
                out.write(end)

        out.write(p.new(METADATA, "Metadata") + p.memo(EMPTY_DICT) + MARK)
        out.write(p.text("state_dict_metadata") + p.memo(EMPTY_DICT))
        for name in batches(names, SETITEMS):
            out.write(p.text(name) + p.new(METADATA, "TensorStorageMetadata") + p.memo(EMPTY_DICT) + MARK)
            out.write(p.text("properties") + p.properties() + p.text("size") + p.size(chunks, rows, columns))
            out.write(p.text("chunks") + p.memo(EMPTY_LIST))
            for n in batches(range(chunks), APPENDS):
                out.write(p.chunk(name, (n, 0, 0), (1, rows, columns)))
            out.write(SETITEMS + BUILD)
        out.write(p.text("planner_data") + NONE + p.text("storage_data") + p.memo(EMPTY_DICT))
        pairs = range(tensors * chunks)
        for i in batches(pairs, SETITEMS):
            out.write(p.index(names[i // chunks], (i % chunks, 0, 0)))
            out.write(p.new("torch.distributed.checkpoint.filesystem", "_StorageInfo") + p.state(
                ("relative_path", lambda: p.text("__0_0.distcp")), ("offset", integer(i * blob)), ("length", integer(blob))))
        out.write(p.text("storage_meta") + NONE)
        if plans:
            plan_class = ("megatron.core.dist_checkpointing.strategies.torch", "MCoreSavePlan")
            out.write(p.text("all_local_plans") + p.memo(EMPTY_LIST) + MARK + p.new(*plan_class) + p.memo(EMPTY_DICT) + MARK)
            out.write(p.text("items") + p.memo(EMPTY_LIST))
            for i in batches(pairs, APPENDS):
                out.write(p.new(PLANNER, "WriteItem") + p.state(
                    ("index", lambda i=i: p.index(names[i // chunks], (i % chunks, 0, 0))),
                    ("type", lambda: p.reduce(PLANNER, "WriteItemType", lambda: integer(2))), ("bytes_io_data", NONE),
                    ("tensor_data", lambda i=i: p.new(PLANNER, "TensorWriteData") + p.state(
                        ("chunk", lambda: p.chunk(names[i // chunks], (i % chunks, 0, 0), (1, rows, columns))),
                        ("properties", p.properties), ("size", lambda: p.size(chunks, rows, columns))))))
            out.write(SETITEMS + BUILD + APPENDS)
        out.write(SETITEMS + BUILD + STOP)
    with open(os.path.join(folder, "__0_0.distcp"), "wb") as out:
        out.truncate(tensors * chunks * blob)
    with open(os.path.join(folder, "metadata.json"), "w") as out:
        json.dump({"sharded_backend": "torch_dist", "sharded_backend_version": 1}, out)
    return os.path.getsize(path)
