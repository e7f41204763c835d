"""About ninety safetensors files that are malformed or odd. Each: name, bytes, what the reference library says, what the
tool must say. The two differ only where the reference takes a file in which a user loses data without a word."""
import json
import struct

ACCEPT, REJECT, EITHER = True, False, None


def file(header, data=b"", size=None):
    """A file of a header (object or text) and its data."""
    text = header if isinstance(header, bytes) else header.encode() if isinstance(header, str) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def entry(dtype="F32", shape=(1,), begin=0, end=4):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def cases():
    four = b"\0\0\x80?"
    good = {"a": entry()}
    text = json.dumps(good, separators=(",", ":"))
    one = lambda body, data=four: file('{"a":' + body + "}", data)
    item = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'

    # --- the frame -----------------------------------------------------------------------------------------------------
    yield "frame_empty_file", b"", REJECT, REJECT
    yield "frame_seven_bytes", b"\x02\0\0\0\0\0\0", REJECT, REJECT
    yield "frame_length_only", struct.pack("<Q", 2), REJECT, REJECT
    yield "frame_length_zero", struct.pack("<Q", 0), REJECT, REJECT
    yield "frame_length_zero_and_data", struct.pack("<Q", 0) + four, REJECT, REJECT
    yield "frame_length_past_end", file(text, four, size=len(text) + 5), REJECT, REJECT
    yield "frame_length_100_million_and_1", file(text, four, size=100_000_001), REJECT, REJECT
    yield "frame_length_u64_max", file(text, four, size=2**64 - 1), REJECT, REJECT
    yield "frame_length_i64_min", file(text, four, size=2**63), REJECT, REJECT
    yield "frame_length_too_short", file(text, four, size=len(text) - 1), REJECT, REJECT
    yield "frame_header_cut", file(text)[:-3], REJECT, REJECT
    yield "frame_plain", file(good, four), ACCEPT, ACCEPT
    yield "frame_padded", file(text + "   ", four), ACCEPT, ACCEPT
    yield "frame_odd_header_length", file(text + " " * (7 - len(text) % 8), four), ACCEPT, ACCEPT
    yield "frame_whitespace_inside", file(json.dumps(good, indent=3), four), ACCEPT, ACCEPT
    yield "frame_newlines_and_tabs_after", file(text + "\n\t\r ", four), ACCEPT, ACCEPT
    yield "frame_leading_space", file("  " + text, four), ACCEPT, ACCEPT
    yield "frame_leading_newline", file("\n" + text, four), ACCEPT, ACCEPT

    # --- the JSON -------------------------------------------------------------------------------------------------------
    yield "json_not_utf8", file(b'{"\xff":' + item.encode() + b"}", four), REJECT, REJECT
    yield "json_utf8_surrogate", file(b'{"\xed\xa0\x80":' + item.encode() + b"}", four), REJECT, REJECT
    yield "json_lone_escaped_surrogate", file('{"\\ud800":' + item + "}", four), REJECT, REJECT
    yield "json_escaped_pair", file('{"\\ud834\\udd1e":' + item + "}", four), ACCEPT, ACCEPT
    yield "json_bom", file(b"\xef\xbb\xbf" + text.encode(), four), REJECT, REJECT
    yield "json_nul_padding", file(text + "\0\0", four), REJECT, REJECT
    yield "json_trailing_text", file(text + "x", four), REJECT, REJECT
    yield "json_two_objects", file(text + text, four), REJECT, REJECT
    yield "json_array", file("[]"), REJECT, REJECT
    yield "json_number", file("1"), REJECT, REJECT
    yield "json_null", file("null"), REJECT, REJECT
    yield "json_string", file('"a"'), REJECT, REJECT
    yield "json_nan_in_shape", one('{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}'), REJECT, REJECT
    yield "json_trailing_comma", file('{"a":' + item + ",}", four), REJECT, REJECT
    yield "json_single_quotes", file("{'a':" + item + "}", four), REJECT, REJECT
    yield "json_comment", file("{/*x*/" + text[1:], four), REJECT, REJECT
    yield "json_control_character_in_name", file('{"a\nb":' + item + "}", four), REJECT, REJECT
    yield "json_bad_escape", file('{"\\x61":' + item + "}", four), REJECT, REJECT
    yield "json_unterminated", file(text[:-1], four), REJECT, REJECT
    yield "json_deep_nesting", file('{"a":' + "[" * 2000 + "]" * 2000 + "}", four), REJECT, REJECT
    yield "json_entry_is_a_list", one('["F32",[1],[0,4]]'), ACCEPT, EITHER
    yield "json_entry_is_null", one("null"), REJECT, REJECT
    yield "json_entry_is_a_number", one("4"), REJECT, REJECT

    # --- the fields -----------------------------------------------------------------------------------------------------
    for name, dtype in {"lower_case": "f32", "torch": "float32", "fn_suffix": "F8_E4M3FN", "c128": "C128", "empty": "", "space": "F32 ", "bf8": "BF8"}.items():
        yield f"dtype_{name}", one(json.dumps(entry(dtype))), REJECT, REJECT
    yield "dtype_number", one('{"dtype":1,"shape":[1],"data_offsets":[0,4]}'), REJECT, REJECT
    yield "dtype_missing", one('{"shape":[1],"data_offsets":[0,4]}'), REJECT, REJECT
    yield "shape_missing", one('{"dtype":"F32","data_offsets":[0,4]}'), REJECT, REJECT
    yield "offsets_missing", one('{"dtype":"F32","shape":[1]}'), REJECT, REJECT
    yield "shape_negative", one('{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}'), REJECT, REJECT
    yield "shape_float", one('{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}'), REJECT, REJECT
    yield "shape_exponent", one('{"dtype":"F32","shape":[1e0],"data_offsets":[0,4]}'), REJECT, REJECT
    yield "shape_string", one('{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}'), REJECT, REJECT
    yield "shape_not_a_list", one('{"dtype":"F32","shape":1,"data_offsets":[0,4]}'), REJECT, REJECT
    yield "shape_past_u64", one('{"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,4]}'), REJECT, REJECT
    yield "shape_wrong_for_bytes", one(json.dumps(entry(shape=(2,)))), REJECT, REJECT
    yield "shape_product_overflows", one(json.dumps(entry(shape=(2**40, 2**40)))), REJECT, REJECT
    yield "shape_bytes_overflow", one(json.dumps(entry(shape=(2**62,)))), REJECT, REJECT
    yield "shape_product_wraps_to_one", one(json.dumps(entry(shape=(2**32, 2**32 + 0, 1)))), REJECT, REJECT
    yield "shape_leading_zero_number", one('{"dtype":"F32","shape":[01],"data_offsets":[0,4]}'), REJECT, REJECT
    yield "shape_scalar", one(json.dumps(entry(shape=()))), ACCEPT, ACCEPT
    # The library takes any number of axes; the tool carries 8 (src/formats/safetensors/FORMAT.md).
    yield "shape_many_ones", one(json.dumps(entry(shape=(1,) * 40))), ACCEPT, REJECT
    yield "shape_zero", file({"a": entry(shape=(0,), end=0)}), ACCEPT, ACCEPT
    yield "shape_zero_times_huge", file({"a": entry(shape=(0, 2**62), end=0)}), ACCEPT, ACCEPT
    yield "shape_zero_with_bytes", one(json.dumps(entry(shape=(0,)))), REJECT, REJECT
    yield "offsets_one", one('{"dtype":"F32","shape":[1],"data_offsets":[4]}'), REJECT, REJECT
    yield "offsets_three", one('{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}'), REJECT, REJECT
    yield "offsets_negative", one('{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}'), REJECT, REJECT
    yield "offsets_float", one('{"dtype":"F32","shape":[1],"data_offsets":[0,4.0]}'), REJECT, REJECT
    yield "offsets_reversed", one('{"dtype":"F32","shape":[1],"data_offsets":[4,0]}'), REJECT, REJECT
    yield "offsets_begin_late", file({"a": entry(begin=1, end=5)}, b"\0" + four), REJECT, REJECT
    yield "offsets_hole", file({"a": entry(), "b": entry(begin=5, end=9)}, b"\0" * 9), REJECT, REJECT
    yield "offsets_overlap", file({"a": entry(), "b": entry(begin=2, end=6)}, b"\0" * 6), REJECT, REJECT
    yield "offsets_shared", file({"a": entry(), "b": entry()}, four), REJECT, REJECT
    yield "offsets_u64_max", one(json.dumps(entry(begin=2**64 - 4, end=2**64 - 1))), REJECT, REJECT
    yield "offsets_past_end", file(good, four[:3]), REJECT, REJECT
    yield "offsets_no_data", file(good), REJECT, REJECT
    yield "data_one_byte_too_many", file(good, four + b"\0"), REJECT, REJECT
    yield "data_without_tensors", file("{}", four), REJECT, REJECT
    yield "field_unknown_extra", one('{"dtype":"F32","shape":[1],"data_offsets":[0,4],"note":{"x":[1]}}'), ACCEPT, ACCEPT
    yield "field_twice", one('{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}'), REJECT, REJECT
    yield "order_other_than_offsets", file({"b": entry(begin=4, end=8), "a": entry()}, four * 2), ACCEPT, ACCEPT
    yield "unaligned_tensor", file({"a": entry("U8", (1,), 0, 1), "b": entry(begin=1, end=5)}, b"\0" + four), ACCEPT, ACCEPT
    yield "bool_two", file({"a": entry("BOOL", (1,), 0, 1)}, b"\2"), ACCEPT, ACCEPT
    yield "empty_tensor_between", file({"a": entry(), "e": entry(shape=(0, 3), begin=4, end=4), "b": entry(begin=4, end=8)}, four * 2), ACCEPT, ACCEPT

    # --- names, metadata, sub-byte ------------------------------------------------------------------------------------------
    yield "name_twice", file('{"a":' + item + ',"a":' + item + "}", four), ACCEPT, REJECT
    yield "name_twice_escaped", file('{"a":' + item + ',"\\u0061":' + item + "}", four), ACCEPT, REJECT
    yield "name_empty", file({"": entry()}, four), ACCEPT, ACCEPT
    yield "name_nul_and_newline", file({"a\0b\nc": entry()}, four), ACCEPT, ACCEPT
    yield "name_path", file({"../../etc/passwd": entry()}, four), ACCEPT, ACCEPT
    yield "name_unicode", file({"naïve ☃ 𝄞": entry()}, four), ACCEPT, ACCEPT
    yield "no_tensors", file("{}"), ACCEPT, ACCEPT
    yield "metadata_plain", file({"__metadata__": {"format": "pt"}, **good}, four), ACCEPT, ACCEPT
    yield "metadata_null", file({"__metadata__": None, **good}, four), ACCEPT, ACCEPT
    yield "metadata_number_value", file({"__metadata__": {"step": 1}, **good}, four), REJECT, REJECT
    yield "metadata_null_value", file({"__metadata__": {"step": None}, **good}, four), REJECT, REJECT
    yield "metadata_list", file({"__metadata__": ["a"], **good}, four), REJECT, REJECT
    yield "metadata_twice", file('{"__metadata__":{},"__metadata__":{},"a":' + item + "}", four), REJECT, REJECT
    yield "metadata_key_twice", file('{"__metadata__":{"x":"1","x":"2"},"a":' + item + "}", four), ACCEPT, REJECT
    yield "metadata_as_tensor", file({"__metadata__": entry()}, four), REJECT, REJECT
    yield "f4_whole_bytes", file({"a": entry("F4", (2, 3), 0, 3)}, b"\1\2\3"), ACCEPT, ACCEPT
    yield "f4_half_byte", file({"a": entry("F4", (3,), 0, 2)}, b"\1\2"), REJECT, REJECT
    yield "f6_whole_bytes", file({"a": entry("F6_E2M3", (4,), 0, 3)}, b"\1\2\3"), ACCEPT, ACCEPT
    yield "f6_part_of_a_byte", file({"a": entry("F6_E3M2", (3,), 0, 3)}, b"\1\2\3"), REJECT, REJECT
