"""pytorch_model.bin files that are malformed, hostile or merely odd, made from a good model of a few tensors.

Each case: name, wanted verdict, and the file's bytes. Nothing in a file is ever run; a file is taken only where every
tensor is the one that torch.load would give. Where the wanted verdict is stricter than torch's, STRICTER says why."""
import struct
import zlib

from torch_file import Pickle, Zip

TAKE, REFUSE = True, False

# Files that torch.load(weights_only=True) refuses, and we take: nothing of theirs is run or lost.
LOOSER = {
    "zip_no_version": "the version decides nothing",
    "only_named_torch_load": "a name is no call",
    "only_named_numpy_reconstruct": "a name is no call",
}

# Files that torch.load(weights_only=True) takes, and we do not.
STRICTER = {
    "zip_bytes_behind": "the end record is searched from the end, and two readers may find two",
    "zip_two_archives": "two readers may find two directories",
    "zip_bytes_before_the_end_record": "two readers may find two directories",
    "zip_local_name_differs": "a member that is called otherwise where it lies",
    "zip_members_overlap": "a member that is called otherwise where it lies",
    "zip_big_endian": "torch turns the bytes; a tensor is carried as it is stored",
    "pickle_protocol_255": "no such protocol",
    "pickle_list_in_itself": "no mapping of names to tensors",
    "pickle_dict_in_itself": "no tensors",
    "zip_name_twice": "which of the two is meant is not told",
    "zip_pickle_twice": "which of the two is meant is not told",
    "zip_deflated_storage": "torch.save never compresses, and a bound on what unpacks is lost",
    "zip_deflated_pickle": "torch.save never compresses, and a bound on what unpacks is lost",
    "root_list": "no mapping of names to tensors",
    "root_none": "no mapping of names to tensors",
    "root_tensor": "no mapping of names to tensors",
    "root_number": "no mapping of names to tensors",
    "root_text": "no mapping of names to tensors",
    "root_empty_dict": "no tensors",
    "key_number": "a tensor has no name",
    "key_none": "a tensor has no name",
    "key_tuple": "a tensor has no name",
    "value_list_of_tensors": "a tensor has no name",
    "name_unknown": "a tensor that no rule claims",
    "name_twice": "which of the two is meant is not told",
    "tensor_missing": "a tensor of the model is missing",
    "tensor_shape_other": "a tensor of another shape than the model's",
    "tensor_strides_zero_rank_differs": "shape and strides do not fit",
}


def pickled(items, change=None):
    """{name: tensor k over storage k}; `change` maps a name to a function that writes something else in its place."""
    out = Pickle().raw(b"}(")
    for k, (name, (_, shape, data)) in enumerate(items.items()):
        out.text(name)
        if change and name in change:
            change[name](out, str(k), shape, len(data) // 2)
        else:
            out.tensor(shape, key=str(k), count=len(data) // 2)
    return out.raw(b"u")


def archive(items, pickle, storages=None):
    out = Zip().add("data.pkl", pickle)
    for k, (_, _, data) in enumerate(items.values()):
        out.add(f"data/{k}", (storages or {}).get(k, data))
    return out.add("version", b"3\n")


def cases(items):
    names = list(items)
    first = names[0]
    shape, data = items[first][1], items[first][2]
    pickle = pickled(items).end()
    good = archive(items, pickle).end()
    with_pickle = lambda p: archive(items, p).end()
    other = lambda change: with_pickle(pickled(items, {first: change}).end())

    yield "good", TAKE, good
    yield from zip_cases(items, pickle, good)

    # --- what a pickle could do -------------------------------------------------------------------------------------------
    attacks = {
        "os_system": lambda p: p.name("os", "system").raw(b"(").text("touch hacked").raw(b"tR0"),
        "posix_system": lambda p: p.name("posix", "system").raw(b"(").text("touch hacked").raw(b"tR0"),
        "builtins_eval": lambda p: p.name("builtins", "eval").raw(b"(").text("1").raw(b"tR0"),
        "builtins_getattr": lambda p: p.name("builtins", "getattr").raw(b"0"),
        "builtin_old_name": lambda p: p.name("__builtin__", "exec").raw(b"0"),
        "subprocess_popen": lambda p: p.name("subprocess", "Popen").raw(b"(").text("id").raw(b"t\x810"),
        "inst": lambda p: p.raw(b"(").text("id").raw(b"ios\nsystem\n0"),
        "obj": lambda p: p.raw(b"(").name("os", "system").text("id").raw(b"o0"),
        "stack_global": lambda p: p.text("os").text("system").raw(b"\x930"),
        "dotted_name": lambda p: p.name("torch", "_utils.os.system").raw(b"0"),
        "torch_load": lambda p: p.name("torch", "load").raw(b"(").text("x").raw(b"tR0"),
        "torch_hub": lambda p: p.name("torch.hub", "load").raw(b"0"),
        "importlib": lambda p: p.name("importlib", "import_module").raw(b"0"),
        "runpy": lambda p: p.name("runpy", "_run_code").raw(b"0"),
        "extension_code": lambda p: p.raw(b"\x82\x010"),
        "build_on_a_global": lambda p: p.name("collections", "OrderedDict").raw(b"}").text("__setstate__").raw(b"Ns").raw(b"b0"),
        "function_of_the_file": lambda p: p.name("evil", "run").raw(b"(").text("x").raw(b"tR0"),
        "space_in_a_name": lambda p: p.name("torch os", "FloatStorage").raw(b"0"),
    }
    for name, attack in attacks.items():
        body = attack(Pickle().raw(b"}(")).out
        yield f"run_{name}", REFUSE, with_pickle(bytes(body) + pickled(items).end()[4:])
    # A name is not a call: settings are kept as inert names, and nothing is imported for them.
    for name, module, what in (("torch_load", "torch", "load"), ("numpy_reconstruct", "numpy.core.multiarray", "_reconstruct")):
        yield f"only_named_{name}", TAKE, with_pickle(bytes(Pickle().name(module, what).raw(b"0").out) + pickled(items).end()[2:])
    yield "weight_of_an_unknown_class", REFUSE, other(lambda p, key, s, n: p.name("evil", "Weight").raw(b"(").text("x").raw(b"tR"))
    # --- the machine ---------------------------------------------------------------------------------------------------------
    yield "pickle_empty", REFUSE, with_pickle(b"")
    yield "pickle_stop_alone", REFUSE, with_pickle(b"\x80\x02.")
    yield "pickle_no_stop", REFUSE, with_pickle(pickle[:-1])
    yield "pickle_cut", REFUSE, with_pickle(pickle[:len(pickle) // 2])
    yield "pickle_protocol_255", REFUSE, with_pickle(b"\x80\xff" + pickle[2:])
    yield "pickle_unknown_opcode", REFUSE, with_pickle(b"\x80\x02\xfe" + pickle[2:])
    yield "pickle_pop_of_nothing", REFUSE, with_pickle(b"\x80\x020" + pickle[2:])
    yield "pickle_tuple_without_mark", REFUSE, with_pickle(b"\x80\x02t" + pickle[2:])
    yield "pickle_memo_of_nothing", REFUSE, with_pickle(b"\x80\x02h\x07" + pickle[2:])
    yield "pickle_memo_number_huge", REFUSE, with_pickle(b"\x80\x02Nr\xff\xff\xff\xff0j\xfe\xff\xff\xff" + pickle[2:])
    yield "pickle_text_longer_than_the_file", REFUSE, with_pickle(b"\x80\x02X\xff\xff\xff\x7f" + pickle[2:])
    yield "pickle_text8_of_2_to_63", REFUSE, with_pickle(b"\x80\x04\x8d" + struct.pack("<Q", 2**63) + pickle[2:])
    yield "pickle_bytes8_of_2_to_60", REFUSE, with_pickle(b"\x80\x04\x8e" + struct.pack("<Q", 2**60) + pickle[2:])
    yield "pickle_long4_negative", REFUSE, with_pickle(b"\x80\x02\x8b\xff\xff\xff\xff" + pickle[2:])
    yield "pickle_long4_of_a_gigabyte", REFUSE, with_pickle(b"\x80\x02\x8b\x00\x00\x00\x40" + pickle[2:])
    yield "pickle_number_no_number", REFUSE, with_pickle(b"\x80\x02I12x\n0" + pickle[2:])
    yield "pickle_text_no_utf8", REFUSE, with_pickle(b"\x80\x02X\x02\0\0\0\xff\xfe0" + pickle[2:])
    yield "pickle_deep_tuples", TAKE, with_pickle(b"\x80\x02" + b"(" * 500_000 + b"t" * 500_000 + b"0" + pickle[2:])
    yield "pickle_deep_lists", TAKE, with_pickle(b"\x80\x02" + b"]" * 500_000 + b"a" * 499_999 + b"0" + pickle[2:])
    yield "pickle_many_marks", REFUSE, with_pickle(b"\x80\x02" + b"(" * 2_000_000)
    # Each list holds the one before twice: 2^64 leaves in 400 bytes.
    laughs = b"\x80\x02]q\0" + b"".join(b"]" + b"q" + bytes([k + 1]) + b"(h" + bytes([k]) + b"h" + bytes([k]) + b"e" for k in range(64))
    yield "pickle_billion_laughs", REFUSE, with_pickle(laughs + b".")
    yield "pickle_list_in_itself", REFUSE, with_pickle(b"\x80\x02]q\0h\0a.")
    yield "pickle_dict_in_itself", REFUSE, with_pickle(b"\x80\x02}q\0" + bytes(Pickle().text("x").out[2:]) + b"h\0s.")
    yield "pickle_second_after_the_stop", TAKE, with_pickle(pickle + b"cos\nsystem\n.")
    # --- what it describes ---------------------------------------------------------------------------------------------------
    yield "root_list", REFUSE, with_pickle(b"\x80\x02].")
    yield "root_none", REFUSE, with_pickle(b"\x80\x02N.")
    yield "root_number", REFUSE, with_pickle(b"\x80\x02K\x07.")
    yield "root_text", REFUSE, with_pickle(Pickle().text("model").end())
    yield "root_tensor", REFUSE, with_pickle(Pickle().tensor(shape, key="0", count=len(data) // 2).end())
    yield "root_empty_dict", REFUSE, with_pickle(b"\x80\x02}.")
    yield "key_number", REFUSE, with_pickle(pickled(items).raw(b"(K\x07").tensor([1], key="0", count=len(data) // 2).raw(b"u").end())
    yield "key_none", REFUSE, with_pickle(pickled(items).raw(b"(N").tensor([1], key="0", count=len(data) // 2).raw(b"u").end())
    yield "key_tuple", REFUSE, with_pickle(pickled(items).raw(b"((K\x07t").tensor([1], key="0", count=len(data) // 2).raw(b"u").end())
    yield "name_unknown", REFUSE, with_pickle(pickled(items).raw(b"(").text("model.unheard_of.weight").tensor([1], key="0", count=len(data) // 2).raw(b"u").end())
    yield "name_twice", REFUSE, with_pickle(pickled(items).raw(b"(").text(first).tensor(list(reversed(shape)), key="0", count=len(data) // 2).raw(b"u").end())
    yield "tensor_missing", REFUSE, with_pickle(pickled(dict(list(items.items())[:-1])).end())
    yield "tensor_shape_other", REFUSE, other(lambda p, key, s, n: p.tensor([n], key=key, count=n))
    yield "value_list_of_tensors", REFUSE, other(lambda p, key, s, n: p.raw(b"](").tensor(s, key=key, count=n).raw(b"e"))
    yield "tensor_offset_negative", REFUSE, other(lambda p, key, s, n: p.tensor(s, offset=-1, key=key, count=n))
    yield "tensor_offset_past_the_end", REFUSE, other(lambda p, key, s, n: p.tensor(s, offset=1, key=key, count=n))
    yield "tensor_offset_2_to_62", REFUSE, other(lambda p, key, s, n: p.tensor(s, offset=2**62, key=key, count=n))
    yield "tensor_size_negative", REFUSE, other(lambda p, key, s, n: p.tensor([-1, *s[1:]], key=key, count=n))
    yield "tensor_size_2_to_62", REFUSE, other(lambda p, key, s, n: p.tensor([2**62, *s[1:]], strides=[0, 1], key=key, count=n))
    yield "tensor_sizes_that_overflow", REFUSE, other(lambda p, key, s, n: p.tensor([2**32, 2**32], strides=[0, 0], key=key, count=n))
    yield "tensor_strides_past_the_end", REFUSE, other(lambda p, key, s, n: p.tensor(s, strides=[s[1] + 1, 1], key=key, count=n))
    yield "tensor_strides_negative", REFUSE, other(lambda p, key, s, n: p.tensor(s, strides=[-1, 1], key=key, count=n))
    yield "tensor_strides_that_overflow", REFUSE, other(lambda p, key, s, n: p.tensor(s, strides=[2**62, 2**62], key=key, count=n))
    yield "tensor_strides_zero_rank_differs", REFUSE, other(lambda p, key, s, n: p.tensor(s, strides=[], key=key, count=n))
    yield "tensor_of_two_million_axes", REFUSE, other(lambda p, key, s, n: p.tensor([1] * 2_000_00, strides=[1] * 2_000_00, key=key, count=n))
    yield "tensor_storage_of_no_member", REFUSE, other(lambda p, key, s, n: p.tensor(s, key="nowhere", count=n))
    yield "tensor_storage_above", REFUSE, other(lambda p, key, s, n: p.tensor(s, key="../data.pkl", count=n))
    yield "storage_kind_unknown", REFUSE, other(lambda p, key, s, n: p.tensor(s, kind="HalfBakedStorage", key=key, count=n))
    yield "storage_of_another_module", REFUSE, other(lambda p, key, s, n: p.tensor(s, module="os", key=key, count=n))
    yield "storage_count_negative", REFUSE, other(lambda p, key, s, n: p.tensor(s, key=key, count=-n))
    yield "storage_count_2_to_62", REFUSE, other(lambda p, key, s, n: p.tensor(s, key=key, count=2**62))
    yield "storage_count_too_large", REFUSE, other(lambda p, key, s, n: p.tensor(s, key=key, count=n + 1))
    yield "storage_two_dtypes", REFUSE, with_pickle(
        pickled(items, {first: lambda p, key, s, n: p.tensor(s, kind="FloatStorage", key="1", count=n)}).end())
    yield "storage_of_a_gpu", TAKE, other(lambda p, key, s, n: p.tensor(s, place="cuda:7", key=key, count=n))
    yield "storage_short", REFUSE, archive(items, pickle, {0: data[:-1]}).end()
    yield "storage_empty", REFUSE, archive(items, pickle, {0: b""}).end()
    yield "persistent_id_text", REFUSE, other(lambda p, key, s, n: p.raw(b"Pstorage\n"))
    yield "persistent_id_number", REFUSE, other(lambda p, key, s, n: p.raw(b"K\x07Q"))
    yield "persistent_id_of_three", REFUSE, other(lambda p, key, s, n: p.raw(b"(").text("storage").text(key).text("cpu").raw(b"tQ"))
    yield "rebuild_with_one_argument", REFUSE, other(lambda p, key, s, n: p.name("torch._utils", "_rebuild_tensor_v2").raw(b"(K\x07tR"))
    yield "rebuild_without_a_storage", REFUSE, other(
        lambda p, key, s, n: p.name("torch._utils", "_rebuild_tensor_v2").raw(b"(NK\0").wholes(s).wholes([1, 1]).raw(b"\x89}tR"))
    yield "shared_storage", TAKE, with_pickle(pickled(items, {names[-1]: lambda p, key, s, n: p.tensor(s, key=key, count=n)}).end())


def zip_cases(items, pickle, good):
    parts = lambda: archive(items, pickle)
    data = next(iter(items.values()))[2]
    start = lambda **first: Zip().add("data.pkl", pickle, **first)

    def rest(out, skip=()):
        for k, (_, _, content) in enumerate(items.values()):
            if k not in skip:
                out.add(f"data/{k}", content)
        return out.add("version", b"3\n")

    packed = zlib.compress(pickle)[2:-4]
    squeezed = zlib.compress(data)[2:-4]
    bomb = zlib.compress(bytes(50_000_000), 9)[2:-4]
    yield "zip_nothing", REFUSE, b""
    yield "zip_text", REFUSE, b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    for name, size in {"first_byte": 1, "local_header": 20, "first_member": 200, "middle": len(good) // 2, "before_end_record": len(good) - 22,
                       "inside_end_record": len(good) - 7, "last_byte": len(good) - 1}.items():
        yield f"zip_cut_at_{name}", REFUSE, good[:size]
    yield "zip_zeros_in_the_directory", REFUSE, good[:-60] + bytes(38) + good[-22:]
    yield "zip_bytes_behind", REFUSE, good + b"\0"
    yield "zip_bytes_before", REFUSE, parts().end(prefix=b"#!/bin/sh\n")
    yield "zip_end_record_alone", REFUSE, good[-22:]
    yield "zip_two_archives", REFUSE, good[:-22] + good
    yield "zip_count_too_large", REFUSE, parts().end(count=len(items) + 3)
    yield "zip_count_65535", REFUSE, parts().end(count=65535)
    yield "zip_count_too_small", REFUSE, parts().end(count=1)
    yield "zip_directory_outside", REFUSE, parts().end(directory_at=2**31)
    yield "zip_directory_elsewhere", REFUSE, parts().end(directory_at=0)
    yield "zip_directory_too_long", REFUSE, parts().end(directory_size=2**31)
    yield "zip_bytes_before_the_end_record", REFUSE, good[:-22] + bytes(10) + good[-22:]
    yield "zip_disk_number", REFUSE, parts().end(disk=3)
    yield "zip64_count_2_to_63", REFUSE, parts().end(zip64={"count": 2**63})
    yield "zip64_count_2_to_32", REFUSE, parts().end(zip64={"count": 2**32})
    yield "zip64_size_2_to_64", REFUSE, parts().end(zip64={"size": 2**64 - 1})
    yield "zip64_directory_outside", REFUSE, parts().end(zip64={"at": 2**62})
    yield "zip64_locator_outside", REFUSE, parts().end(zip64={}, locator_at=2**62)
    yield "zip64_locator_at_nothing", REFUSE, parts().end(zip64={}, locator_at=4)
    yield "zip64_true", TAKE, parts().end(zip64={})
    extra = struct.pack("<HHQQ", 1, 16, 2**62, 2**62)
    yield "zip64_member_of_2_to_62", REFUSE, rest(start(extra=extra, size=0xFFFFFFFF, packed=0xFFFFFFFF)).end()
    extra = struct.pack("<HHQQ", 1, 4, len(pickle), len(pickle))
    yield "zip64_field_too_short", REFUSE, rest(start(extra=extra, size=0xFFFFFFFF, packed=0xFFFFFFFF)).end()
    yield "zip_extra_longer_than_itself", REFUSE, rest(start(extra=struct.pack("<HH", 1, 0xFFF0), size=0xFFFFFFFF, packed=0xFFFFFFFF)).end()
    yield "zip_deflated_pickle", REFUSE, rest(start(method=8, stored=packed)).end()
    yield "zip_deflated_storage", REFUSE, rest(start().add("data/0", data, method=8, stored=squeezed), skip=(0,)).end()
    yield "zip_deflate_bomb", REFUSE, rest(start().add("data/0", bytes(50_000_000), method=8, stored=bomb), skip=(0,)).end()
    yield "zip_method_unknown", REFUSE, rest(start(method=99)).end()
    yield "zip_encrypted", REFUSE, rest(start(flags=1)).end()
    yield "zip_two_sizes", REFUSE, rest(start(size=len(pickle) - 1)).end()
    yield "zip_name_twice", REFUSE, rest(start().add("data/0", bytes(len(data)))).end()
    yield "zip_pickle_twice", REFUSE, rest(start().add("data.pkl", b"\x80\x02}.")).end()
    yield "zip_local_name_differs", REFUSE, rest(start(local_name="archive/data.pkx")).end()
    yield "zip_name_above", REFUSE, parts().add("x", b"x", whole_name="../outside").end()
    yield "zip_name_absolute", REFUSE, parts().add("x", b"x", whole_name="/tmp/outside").end()
    yield "zip_name_empty", REFUSE, parts().add("x", b"x", whole_name="").end()
    yield "zip_members_overlap", REFUSE, rest(start().add("data/0", data, offset=0, local_name="archive/data/0"), skip=(0,)).end()
    yield "zip_member_in_the_directory", REFUSE, rest(start().add("data/0", data, size=2**31, packed=2**31), skip=(0,)).end()
    yield "zip_member_offset_outside", REFUSE, rest(start().add("data/0", data, offset=2**31), skip=(0,)).end()
    yield "zip_no_pickle", REFUSE, rest(Zip()).end()
    yield "zip_no_storage", REFUSE, rest(start(), skip=(0,)).end()
    yield "zip_no_version", TAKE, Zip.end(_without_version(items, pickle))
    yield "zip_big_endian", REFUSE, parts().add("byteorder", b"big").end()
    yield "zip_script", REFUSE, parts().add("constants.pkl", b"\x80\x02).").end()
    yield "zip_old_tar", REFUSE, bytes(257) + b"ustar\x0000" + bytes(2000)


def _without_version(items, pickle):
    out = Zip().add("data.pkl", pickle)
    for k, (_, _, content) in enumerate(items.values()):
        out.add(f"data/{k}", content)
    return out
