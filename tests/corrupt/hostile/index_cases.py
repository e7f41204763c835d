"""Indexes (model.safetensors.index.json) that are malformed, hostile or merely odd, over three good shards.

Each case: name, wanted verdict, and a function that changes the directory. A case is refused where a reader could load
other tensors than the writer meant, reach outside the directory, or do unbounded work; it is taken where nothing is lost."""
import json
import os

TAKE, REFUSE = True, False
INDEX = "model.safetensors.index.json"


def text(change):
    """The index's text, changed."""
    def apply(folder):
        path = os.path.join(folder, INDEX)
        with open(path, "rb") as file:
            before = file.read()
        after = change(before)
        with open(path, "wb") as file:
            file.write(after if isinstance(after, bytes) else after.encode())
    return apply


def document(change):
    """The index as an object, changed in place or replaced."""
    def apply(before):
        value = json.loads(before)
        return json.dumps(change(value) or value)
    return text(apply)


def mapped(file):
    """The first tensor's file is called otherwise."""
    def apply(value):
        value["weight_map"][first(value)] = file
    return document(apply)


def total(size):
    return document(lambda value: {"metadata": {"total_size": size}, "weight_map": value["weight_map"]})


def raw_total(word):
    return text(lambda before: json.dumps({"weight_map": json.loads(before)["weight_map"]})[:-1] + ', "metadata": {"total_size": ' + word + "}}")


def first(value):
    return next(iter(value["weight_map"]))


def swap(value):
    """Two tensors of different files change places in the map."""
    names = list(value["weight_map"])
    a, b = names[0], names[-1]
    where = value["weight_map"]
    where[a], where[b] = where[b], where[a]


def twice(same):
    """A name stands twice, with the same file or another one."""
    def apply(before):
        where = json.loads(before)["weight_map"]
        name, file = next(iter(where.items()))
        other = file if same else list(where.values())[-1]
        return json.dumps({"weight_map": where})[:-2] + "," + json.dumps(name) + ":" + json.dumps(other) + "}}"
    return text(apply)


def replace_shard(kind):
    def apply(folder):
        path = os.path.join(folder, "model-00002-of-00003.safetensors")
        with open(path, "rb") as file:
            data = file.read()
        os.remove(path)
        if kind == "directory":
            os.mkdir(path)
        elif kind == "dangling":
            os.symlink("nowhere", path)
        elif kind == "loop":
            os.symlink(os.path.basename(path), path)
        elif kind == "empty":
            open(path, "wb").close()
        elif kind == "cut":
            with open(path, "wb") as file:
                file.write(data[:-1])
        elif kind == "cut_header":
            with open(path, "wb") as file:
                file.write(data[:40])
        elif kind == "longer":
            with open(path, "wb") as file:
                file.write(data + b"\0")
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "of_another_shard":
            with open(os.path.join(folder, "model-00001-of-00003.safetensors"), "rb") as file:
                other = file.read()
            with open(path, "wb") as file:
                file.write(other)
    return apply


def cases():
    yield "good", TAKE, text(lambda b: b)
    # --- the text ---
    yield "empty", REFUSE, text(lambda b: b"")
    yield "blanks", REFUSE, text(lambda b: b"  \n")
    yield "cut_in_the_middle", REFUSE, text(lambda b: b[:len(b) // 2])
    yield "cut_before_the_end", REFUSE, text(lambda b: b.rstrip()[:-1])
    yield "text_behind", REFUSE, text(lambda b: b + b"x")
    yield "two_documents", REFUSE, text(lambda b: b + b)
    yield "byte_order_mark", REFUSE, text(lambda b: b"\xef\xbb\xbf" + b)
    yield "no_utf8", REFUSE, text(lambda b: b.replace(b"norm", b"n\xffrm", 1))
    yield "lone_surrogate", REFUSE, text(lambda b: b.replace(b"model.norm", b"model.\\ud800", 1))
    yield "nul_behind", REFUSE, text(lambda b: b + b"\0")
    yield "trailing_comma", REFUSE, text(lambda b: b.replace(b"}\n}", b"},\n}", 1) if b"}\n}" in b else b.rstrip()[:-1] + b",}")
    yield "single_quotes", REFUSE, text(lambda b: b.replace(b'"', b"'"))
    yield "comment", REFUSE, text(lambda b: b.replace(b"{", b"{ // no\n", 1))
    yield "control_character", REFUSE, text(lambda b: b.replace(b"model.norm", b"model.\x01norm", 1))
    yield "deep_nesting", REFUSE, text(lambda b: b'{"metadata":' + b"[" * 200_000 + b"]" * 200_000 + b"," + b.lstrip()[1:])
    yield "deep_nesting_unclosed", REFUSE, text(lambda b: b"[" * 1_000_000)
    yield "many_blanks", TAKE, text(lambda b: b.replace(b"{", b"{" + b" " * 1_000_000, 1))
    yield "root_list", REFUSE, document(lambda v: [v])
    yield "root_null", REFUSE, text(lambda b: b"null")
    yield "root_number", REFUSE, text(lambda b: b"17")
    yield "root_string", REFUSE, text(lambda b: b'"weight_map"')
    # --- its members ---
    yield "no_weight_map", REFUSE, document(lambda v: {"metadata": v["metadata"]})
    yield "empty_object", REFUSE, document(lambda v: {"x": 1})
    yield "weight_map_null", REFUSE, document(lambda v: {"weight_map": None})
    yield "weight_map_list", REFUSE, document(lambda v: {"weight_map": list(v["weight_map"].items())})
    yield "weight_map_string", REFUSE, document(lambda v: {"weight_map": "model-00001-of-00003.safetensors"})
    yield "weight_map_empty", REFUSE, document(lambda v: {"weight_map": {}})
    yield "weight_map_twice", REFUSE, text(lambda b: json.dumps({"weight_map": json.loads(b)["weight_map"]})[:-1] + ',"weight_map":{}}')
    yield "other_members", TAKE, document(lambda v: v | {"comment": [1, {"x": None}]})
    yield "no_metadata", TAKE, document(lambda v: {"weight_map": v["weight_map"]})
    yield "metadata_null", TAKE, document(lambda v: {"metadata": None, "weight_map": v["weight_map"]})
    yield "total_size_text", TAKE, total("many")
    yield "total_size_float", TAKE, total(12.5)
    yield "total_size_2_to_70", TAKE, total(2**70)
    yield "total_size_nan", REFUSE, raw_total("NaN")
    yield "total_size_1e999", REFUSE, raw_total("1e999")
    # --- names and files: a tensor that lies in one file only is that tensor, wherever the map says it is ---
    yield "name_twice_same_file", REFUSE, twice(True)
    yield "name_twice_other_file", REFUSE, twice(False)
    yield "name_of_a_megabyte", REFUSE, document(lambda v: v["weight_map"].update({"x" * 1_000_000: "model-00001-of-00003.safetensors"}))
    yield "name_that_no_file_holds", REFUSE, document(lambda v: v["weight_map"].update({"model.extra.weight": "model-00001-of-00003.safetensors"}))
    yield "name_left_out", TAKE, document(lambda v: v["weight_map"].pop(first(v)) and v)
    yield "two_names_exchanged", TAKE, document(swap)
    yield "two_hundred_thousand_files", REFUSE, document(lambda v: v["weight_map"].update({f"t{i}": f"f{i}.safetensors" for i in range(200_000)}))
    for name, file in {"number": 5, "null": None, "list": ["model-00001-of-00003.safetensors"], "true": True, "object": {}}.items():
        yield f"file_{name}", REFUSE, mapped(file)
    for name, file in {
        "empty": "", "dot": ".", "dots": "..", "absolute": "/etc/passwd", "above": "../good/model-00001-of-00003.safetensors",
        "above_inside": "sub/../../good/model-00001-of-00003.safetensors", "here": "./model-00001-of-00003.safetensors",
        "backslash": "..\\model-00001-of-00003.safetensors", "nul": "model-00001-of-00003.safetensors\0x", "missing": "model-00009-of-00003.safetensors",
        "slash_at_the_end": "model-00001-of-00003.safetensors/", "config": "config.json", "the_index": INDEX,
        "long": "m" * 300 + ".safetensors", "url": "https://example.com/model.safetensors", "proc": "/proc/self/mem", "device": "/dev/zero",
    }.items():
        yield f"file_{name}", REFUSE, mapped(file)
    for kind in ("directory", "dangling", "loop", "empty", "cut", "cut_header", "longer", "pipe", "of_another_shard"):
        yield f"shard_{kind}", REFUSE, replace_shard(kind)
