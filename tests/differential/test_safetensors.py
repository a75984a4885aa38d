"""safetensors files, accepted or refused by the Python package `safetensors` and by Swordfish: equal but for the rows below."""
import json
import random
import struct

import pytest
from container import tool  # noqa: F401 (a fixture)
import safetensors

WIDTH = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
         "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8}

# What Swordfish refuses and the reference reader accepts, with words of our message (formats.md 1.2 and 1.4).
STRICTER = ["duplicate tensor", "__metadata__: duplicate key", "entry: expected object, found array", "rank larger than 64", "at most 2^63-1 is allowed"]


def theirs(raw):
    """{name: (dtype, shape, bytes)} or None."""
    try:
        return {name: (t["dtype"], list(t["shape"]), bytes(t["data"])) for name, t in safetensors.deserialize(raw)}
    except (safetensors.SafetensorError, ValueError, OverflowError):
        return None


def ours(found, raw):
    if "error" in found:
        return None
    return {t["name"]: (t["type"], t["shape"], raw[t["offset"]:t["offset"] + t["bytes"]]) for t in found["tensors"]}


def file(header, data, length=None):
    header = header if isinstance(header, bytes) else header.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def valid(rng):
    """(list of [name, entry], data) of a random valid file."""
    names = rng.sample(["a", "b", "w.weight", "", "é", "x/y", "\u0000", "t\"q", "__meta__", "lm_head.weight", "z" * 300], rng.randint(0, 6))
    items, at = [], 0
    for name in names:
        dtype = rng.choice(list(WIDTH))
        shape = [rng.choice([0, 1, 2, 3, 4, 8]) for _ in range(rng.randint(0, 4))]
        count = 1
        for d in shape:
            count *= d
        if count * WIDTH[dtype] % 8:
            shape.append(8)
            count *= 8
        size = count * WIDTH[dtype] // 8
        items.append([name, entry(dtype, shape, at, at + size)])
        at += size
    rng.shuffle(items)
    if rng.random() < 0.4:
        items.insert(rng.randint(0, len(items)), ["__metadata__", rng.choice([None, {}, {"format": "pt"}, {"a": "é", "b": ""}])])
    return items, rng.randbytes(at)


def text(items, rng):
    space = rng.choice([(",", ":"), (", ", ": "), (" ,\n", "\t:\r")])
    body = space[0].join(json.dumps(k, ensure_ascii=rng.random() < 0.5) + space[1] + json.dumps(v, separators=space) for k, v in items)
    return rng.choice(["", " ", "\n\t "]) + "{" + body + "}" + " " * rng.choice([0, 0, 3, 8])


def mutate_items(items, rng):
    """One change to the structure of a header."""
    if not items:
        return items
    i = rng.randrange(len(items))
    name, e = items[i]
    if name == "__metadata__":
        items[i][1] = rng.choice([7, [], "x", {"a": 1}, {"a": None}, {"a": ["b"]}, True, {"a": "b"}])
        return items
    kind = rng.randrange(14)
    if kind == 0:
        e["dtype"] = rng.choice(["u8", "F7", "", "U8 ", "F8_E4M3FN", 8, None, ["U8"], "I64", "BF16"])
    elif kind == 1 and e["shape"]:
        e["shape"][rng.randrange(len(e["shape"]))] = rng.choice([0, 1, 7, -1, 1.0, "1", None, 2 ** 31, 2 ** 32, 2 ** 60, 2 ** 63 - 1, 2 ** 63, 2 ** 64 - 1, 2 ** 64, [1]])
    elif kind == 2:
        e["shape"] = rng.choice([[], [0], [1], None, 4, "4", {}, [2 ** 32, 2 ** 32, 2], [2 ** 61], [0, 2 ** 62, 4], [1] * 20])
    elif kind == 3:
        e["data_offsets"][rng.randrange(2)] += rng.choice([-8, -1, 1, 8, 2 ** 40, 2 ** 63])
    elif kind == 4:
        e["data_offsets"] = [o + rng.choice([-8, -1, 1, 8]) for o in e["data_offsets"][:1]] * 2
    elif kind == 5:
        e["data_offsets"] = rng.choice([[0], [0, 1, 2], [], None, "01", {"a": 1}, e["data_offsets"][::-1], [0.0, 1.0], [True, False]])
    elif kind == 6:
        e.pop(rng.choice(list(e)))
    elif kind == 7:
        e[rng.choice(["extra", "Dtype", "strides", ""])] = rng.choice([1, -1, 1.5, None, "x", [1, [2]], {"a": {"a": 1}}, True])
    elif kind == 8:
        items.append([name, json.loads(json.dumps(e))])
    elif kind == 9:
        items[i][1] = rng.choice([[e["dtype"], e["shape"], e["data_offsets"]], 7, None, "U8", []])
    elif kind == 10:
        items.append([rng.choice(["", "new"]), entry("U8", [0], *[e["data_offsets"][rng.randrange(2)]] * 2)])
    elif kind == 11:
        items.pop(i)
    elif kind == 12:
        items.append(["__metadata__", {}])
        items.append(["__metadata__", rng.choice([{}, None])])
    else:
        j = rng.randrange(len(items))
        if items[j][0] != "__metadata__":
            items[i][1], items[j][1] = items[j][1], items[i][1]
    return items


def mutate_bytes(raw, rng):
    """One change to the bytes of a file."""
    kind = rng.randrange(6)
    at = rng.randrange(len(raw)) if raw else 0
    if kind == 0:
        return raw[:at]
    if kind == 1:
        return raw + rng.randbytes(rng.choice([1, 8]))
    if kind == 2:
        return raw[:at] + rng.randbytes(1) + raw[at + 1:]
    if kind == 3:
        n = struct.unpack("<Q", raw[:8])[0]
        return struct.pack("<Q", rng.choice([0, n - 1 if n else 0, n + 1, 2 ** 63, 2 ** 64 - 1, 100_000_000, 100_000_001])) + raw[8:]
    n = struct.unpack("<Q", raw[:8])[0]  # inside the header, its length kept right
    at = 8 + rng.randrange(n + 1)
    if kind == 4:
        new = raw[8:at] + rng.choice([b",", b"}", b"\"", b"\0", b"\\", b"\xff", b"0", b"-", b" ", b"\xef\xbb\xbf", b"\\ud800", b"{}", b"1e5"]) + raw[at:8 + n]
    else:
        new = raw[8:at] + raw[at + 1:8 + n]
    return struct.pack("<Q", len(new)) + new + raw[8 + n:]


def cases():
    rng = random.Random(20240607)
    out = []
    for _ in range(150):
        items, data = valid(rng)
        out.append(file(text(items, rng), data))
    for _ in range(1500):
        items, data = valid(rng)
        items = mutate_items(items, rng)
        if rng.random() < 0.3:
            try:
                items = mutate_items(items, rng)
            except (AttributeError, IndexError, KeyError, TypeError):
                pass  # the first change left nothing to make this one on
        out.append(file(text(items, rng), data))
    for _ in range(1500):
        items, data = valid(rng)
        out.append(mutate_bytes(file(text(items, rng), data), rng))
    return out


# Beside the random files: each row by hand. (header, data)
BY_HAND = [
    ("{}", b""), ("", b""), (" ", b""), ("[]", b""), ("null", b""), ("{}{}", b""), ("\ufeff{}", b""), ("{}\0", b""), ("{} \t\r\n", b""), ("{}\x0b", b""),
    ('{"__metadata__":{"a":"1","a":"2"}}', b""), ('{"__metadata__":{"a":"\\ud800"}}', b""), ('{"\\ud83d\\ude00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    ('{"a\\udc00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"), ('{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}', b"x"),
    ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[-0,1]}}', b"x"), ('{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}', b"x"),
    ('{"a":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}', b"x"), ('{"a":{"dtype":"U8","shape":[+1],"data_offsets":[0,1]}}', b"x"),
    ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"dtype":"U8"}}', b"x"), ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1,"x":2}}', b"x"),
    ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":-1.5e-3}}', b"x"), ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":[}}', b"x"),
    ('{"a":{"dtype":"U8","shape":[0,18446744073709551615],"data_offsets":[0,0]}}', b""), ('{"a":{"dtype":"U8","shape":' + str([1] * 65) + ',"data_offsets":[0,1]}}', b"x"),
    ('{"a":{"d\\u0074ype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"), ('{"a":{"dtype":"\\u00558","shape":[1],"data_offsets":[0,1]}}', b"x"),
    ('{"__metadata__":null,"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"), ('{"__metadata__":{"a":"\x01"}}', b""), ('{"__metadata__":{"a":"\x7f"}}', b""),
    ('{"a":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}}', b"x"), ('{"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}}', b"xxx"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("safetensors")


def compare(tool, folder, raws):
    """Counts of (accepted by both, refused by both, stricter); fails on the first difference that is no row of STRICTER."""
    paths = []
    for i, raw in enumerate(raws):
        paths.append(folder / f"{i}.safetensors")
        paths[-1].write_bytes(raw)
    counts = [0, 0, 0]
    for path, raw, found in zip(paths, raws, tool.list(paths)):
        reference, mine = theirs(raw), ours(found, raw)
        if reference is not None and mine is None and any(words in found["error"] for words in STRICTER):
            counts[2] += 1
            continue
        assert mine == reference, f"{path}: {found.get('error', 'accepted')}: {raw[:600]!r}"
        counts[0 if mine is not None else 1] += 1
    return counts


def test_random_files(tool, folder):
    accepted, refused, stricter = compare(tool, folder, cases())
    assert accepted > 300 and refused > 1000 and stricter > 20  # the mix means something


def test_files_by_hand(tool, folder):
    compare(tool, folder, [file(header, data) for header, data in BY_HAND])


@pytest.mark.parametrize("header, data, words", [
    ('{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}}', b"xx", STRICTER[0]),
    ('{"__metadata__":{"a":"1","a":"2"}}', b"", STRICTER[1]),
    ('{"a":["U8",[2],[0,2]]}', b"xx", STRICTER[2]),
    ('{"a":{"dtype":"U8","shape":' + str([1] * 65) + ',"data_offsets":[0,1]}}', b"x", STRICTER[3]),
    ('{"a":{"dtype":"U8","shape":[0,18446744073709551615],"data_offsets":[0,0]}}', b"", STRICTER[4]),
])
def test_stricter_rows(tool, folder, header, data, words):
    """Each row of STRICTER is a real difference: accepted there, refused here with these words."""
    raw = file(header, data)
    path = folder / "stricter.safetensors"
    path.write_bytes(raw)
    assert theirs(raw) is not None
    assert words in tool.list([path])[0]["error"]


def test_a_zero_dimension_after_a_huge_one(tool, folder):
    """formats.md 1.4 is more lenient in one place: any 0 makes the size 0, where the reference multiplies from the left and overflows."""
    raw = file('{"a":{"dtype":"U8","shape":[9223372036854775807,4,0],"data_offsets":[0,0]}}', b"")
    path = folder / "zero.safetensors"
    path.write_bytes(raw)
    assert theirs(raw) is None
    assert "tensors" in tool.list([path])[0]
