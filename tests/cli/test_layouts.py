"""pack --layout: FP4 layers in the layout of block-scaled MMA, read by the other commands."""

import json

import numpy as np
from safetensors import safe_open

NVFP4 = "modelopt_nvfp4_mixtral_unequal"


def test_blockscaled_file_is_read_by_other_commands(swordfish, data, tmp_path):
    out = tmp_path / "b.safetensors"
    code, _, err = swordfish("pack", data(NVFP4), "-o", out, "--layout", "sm1xx-blockscaled/1", "--fuse")
    assert code == 0, err
    with safe_open(out, "np") as f:
        assert f.metadata()["swordfish.layout"] == "sm1xx-blockscaled/1"
    code, text, err = swordfish("verify", out, "--m", "1", "--format", "json")
    assert code == 0, err
    summary = json.loads(text)["summary"]
    assert summary["failed"] == 0 and summary["layers"] > 0
    assert "sm1xx-blockscaled/1" in swordfish("inspect", out)[1]
    for source, dense in ((data(NVFP4), "a.safetensors"), (out, "c.safetensors")):
        code, _, err = swordfish("dequantize", source, "-o", tmp_path / dense)
        assert code == 0, err
    with safe_open(tmp_path / "a.safetensors", "np") as a, safe_open(tmp_path / "c.safetensors", "np") as c:
        assert set(a.keys()) == set(c.keys())
        for name in a.keys():
            assert np.array_equal(a.get_tensor(name), c.get_tensor(name)), name


def test_a_packed_file_converts_to_the_same_bytes(swordfish, data, tmp_path):
    layouts = {"m": "mma64/1", "b": "sm1xx-blockscaled/1"}
    for name, layout in layouts.items():
        assert swordfish("pack", data(NVFP4), "-o", tmp_path / name, "--layout", layout, "--fuse")[0] == 0
    for source, to in (("m", "b"), ("b", "m")):
        code, _, err = swordfish("pack", tmp_path / source, "-o", tmp_path / "c", "--layout", layouts[to], "--force")
        assert code == 0, err
        assert (tmp_path / "c").read_bytes() == (tmp_path / to).read_bytes()


def test_layout_without_fp4_is_unavailable(swordfish, data, tmp_path):
    code, _, err = swordfish("pack", data("gptq_b4_g32_n40"), "-o", tmp_path / "x", "--layout", "sm1xx-blockscaled/1")
    assert code == 4 and "FP4" in err
    assert swordfish("pack", data(NVFP4), "-o", tmp_path / "x", "--layout", "marlin")[0] == 2
