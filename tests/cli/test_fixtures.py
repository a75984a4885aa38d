"""Every fixture through the program: inspect, dequantize against the values of the tool that wrote it, verify, pack and back."""
import json

import numpy as np
import pytest
from safetensors import safe_open

from conftest import checkpoint_path, fixture_folders


def read_f32(path):
    with safe_open(path, "np") as f:
        return {name: f.get_tensor(name) for name in f.keys()}


def ulps(a, b):
    """Distance in units in the last place of fp32, -0 equal to 0."""
    def ordered(x):
        i = x.astype(np.float32).view(np.int32).astype(np.int64)
        return np.where(i < 0, -(i & 0x7FFFFFFF), i)
    return np.abs(ordered(a) - ordered(b))


@pytest.mark.parametrize("folder", fixture_folders(), ids=lambda p: p.name)
def test_fixture(swordfish, tmp_path, folder):
    meta = json.loads((folder / "meta.json").read_text())
    path = checkpoint_path(folder)
    out = tmp_path / "dense.safetensors"
    args = ["--hf-names"] if any(".self_attn." in n for n in read_f32(folder / "expected.safetensors")) and path.suffix == ".gguf" else []
    code, _, err = swordfish("dequantize", path, "-o", out)
    if meta["expect"] == "refuse":
        assert code == 3 and err.strip() and not out.exists()
        return
    if meta["expect"] == "either" and code != 0:
        assert code == 3 and err.strip() and not out.exists()
        return
    assert code == 0, err
    ours = read_f32(out)
    if args:
        code, _, err = swordfish("dequantize", path, "-o", tmp_path / "hf.safetensors", *args)
        assert code == 0, err
        hf = read_f32(tmp_path / "hf.safetensors")
        ours.update({n: v for n, v in hf.items() if n not in ours})
    not_packed = {entry.split(":")[0] for entry in swordfish.json("inspect", path)["not_packed"]}
    expected = {n: v for n, v in read_f32(folder / "expected.safetensors").items() if n not in not_packed}
    compared = 0
    for name, values in expected.items():
        if name not in ours:
            assert path.suffix == ".gguf", f"{name} is missing"
            continue
        assert ours[name].shape == values.shape, name
        assert ulps(ours[name], values).max(initial=0) <= meta.get("tolerance_ulp", 0), name
        compared += 1
    assert compared > 0

    # Packed, every other command reads the result; through the packed tensor the values are the same bits.
    packed = tmp_path / "packed.safetensors"
    code, _, err = swordfish("pack", path, "-o", packed)
    assert code == 0, err
    code, _, err = swordfish("dequantize", packed, "-o", tmp_path / "again.safetensors")
    assert code == 0, err
    again = read_f32(tmp_path / "again.safetensors")
    for name, values in read_f32(out).items():
        assert np.array_equal(again[name].view(np.int32), values.view(np.int32)), name

    report = swordfish.json("verify", path, "--m", "1,5")
    assert report["summary"]["failed"] == 0 and report["summary"]["layers"] == len(report["layers"]) > 0
    assert all(row["round_trip"] and row["ok"] for row in report["layers"])
    assert swordfish.json("verify", packed, "--m", "3")["summary"]["failed"] == 0
    assert len(swordfish.json("inspect", packed)["layers"]) == len(swordfish.json("inspect", path)["layers"])
