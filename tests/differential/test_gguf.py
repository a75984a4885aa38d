"""GGUF files: tensor list, shapes, types and bytes equal to those of the Python package `gguf`, and the same files refused."""
import pathlib
import struct

import gguf
import numpy as np
import pytest
from container import tool  # noqa: F401 (a fixture)

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "fixtures"
FIXTURES = SHARED if SHARED.is_dir() else ROOT / "tests" / "data" / "fixtures"
FILES = sorted(FIXTURES.glob("gguf_*/*.gguf"))
MODELS = [p for p in FILES if "-of-" not in p.name or "-00001-of-" in p.name]  # of a split model, the first


def parts(path):
    """The files of a model."""
    return sorted(path.parent.glob(path.name.replace("-00001-of-", "-*-of-")))


def test_there_are_fixtures():
    assert MODELS


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.parent.name)
def test_tensors(tool, path):
    reference = [t for p in parts(path) for t in gguf.GGUFReader(p).tensors]
    found = tool.list([path])[0]
    assert "error" not in found, found
    assert [t["name"] for t in found["tensors"]] == [t.name for t in reference]
    raws = {p: p.read_bytes() for p in parts(path)}
    for mine, theirs in zip(found["tensors"], reference):
        assert mine["type"] == theirs.tensor_type.name
        assert mine["shape"] == [int(d) for d in theirs.shape[::-1]]
        assert mine["bytes"] == theirs.n_bytes
        raw = raws[pathlib.Path(mine["file"])][mine["offset"]:mine["offset"] + mine["bytes"]]
        assert raw == theirs.data.tobytes(), mine["name"]
    assert tool.read(path, reference[-1].name) == reference[-1].data.tobytes()


def write(path, edit=None, **arrays):
    """A file of the package's own writer, with its bytes edited."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("answer", 42)
    writer.add_array("list", [1, 2, 3])
    writer.add_array("words", ["a", "b" * 5000])
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    if edit:
        path.write_bytes(edit(path.read_bytes()))
    return path


def test_files_of_the_writer(tool, tmp_path):
    rng = np.random.default_rng(5)
    arrays = {"f32": rng.standard_normal((3, 5)).astype(np.float32), "f16": rng.standard_normal((2, 2, 4)).astype(np.float16),
              "i8": rng.integers(-9, 9, (7,)).astype(np.int8), "i32": rng.integers(-9, 9, (1, 3)).astype(np.int32), "f64": rng.standard_normal((2,))}
    path = write(tmp_path / "m.gguf", **arrays)
    found = tool.list([path])[0]
    assert "error" not in found, found
    for t in found["tensors"]:
        assert t["shape"] == list(arrays[t["name"]].shape)
        assert tool.read(path, t["name"]) == arrays[t["name"]].tobytes()


# What this package's reader refuses, Swordfish refuses too.
EDITS = {
    "magic": lambda b: b"GGML" + b[4:],
    "version 1": lambda b: b[:4] + struct.pack("<I", 1) + b[8:],
    "version 4": lambda b: b[:4] + struct.pack("<I", 4) + b[8:],
    "duplicate tensor": lambda b: b.replace(b"\x01\0\0\0\0\0\0\0y", b"\x01\0\0\0\0\0\0\0x"),
    "type 200": lambda b: b.replace(struct.pack("<IQ", 0, 0), struct.pack("<IQ", 200, 0)),
    "cut in the header": lambda b: b[:60],
    "cut in the data": lambda b: b[:-40],
}


@pytest.mark.parametrize("name", EDITS)
def test_refused_by_both(tool, tmp_path, name):
    arrays = {"x": np.ones((4, 4), np.float32), "y": np.ones((4, 4), np.float32)}
    good = write(tmp_path / "good.gguf", **arrays)
    assert "tensors" in tool.list([good])[0]
    bad = write(tmp_path / "bad.gguf", EDITS[name], **arrays)
    assert bad.read_bytes() != good.read_bytes()
    with pytest.raises(Exception):
        gguf.GGUFReader(bad)
    assert "error" in tool.list([bad])[0]
