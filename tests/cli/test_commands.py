"""The commands' output, options and exit codes."""
import csv
import io
import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from conftest import ROOT

GPTQ = "gptq_b4_g32_n40"
UNEQUAL = "modelopt_nvfp4_mixtral_unequal"
COMMANDS = ["inspect", "verify", "dequantize", "pack", "load", "quantize", "synth", "explain", "bench", "devices"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(swordfish, command):
    code, out, _ = swordfish(command, "--help")
    assert code == 0 and f"Example: swordfish {command}" in out


def test_version_and_usage(swordfish):
    assert swordfish("--version")[1].startswith("swordfish 0.")
    assert swordfish()[0] == 2
    code, _, err = swordfish("inspekt")
    assert code == 2 and "inspekt" in err
    assert swordfish("verify")[0] == 2
    assert swordfish("verify", "x", "--m", "0")[0] == 2


def test_formats_agree(swordfish, data):
    rows = swordfish.json("inspect", data(GPTQ))["layers"]
    code, out, _ = swordfish("inspect", data(GPTQ), "--format", "csv")
    table = list(csv.DictReader(io.StringIO(out)))
    assert code == 0 and [r["name"] for r in table] == [r["name"] for r in rows]
    code, out, _ = swordfish("inspect", data(GPTQ))
    assert code == 0 and all(r["name"] in out for r in rows)


def test_nothing_on_stderr_without_a_terminal(swordfish, data):
    code, _, err = swordfish("verify", data(GPTQ), "--m", "1")
    assert code == 0 and err == ""


def test_progress_bar_on_a_terminal(swordfish, data, tmp_path):
    ours, theirs = pty.openpty()
    with open(tmp_path / "out", "wb") as out:
        process = subprocess.Popen([swordfish.path, "verify", str(data(GPTQ)), "--m", "1"], stdout=out, stderr=theirs)
    os.close(theirs)
    err = b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # EIO: the program has closed its end
            break
        if not chunk:
            break
        err += chunk
    os.close(ours)
    assert process.wait() == 0
    assert b"verifying [" in err and b"100 %" in err and b"verifying" not in (tmp_path / "out").read_bytes()


def test_inspect_shows_unequal_globals(swordfish, data):
    report = swordfish.json("inspect", data(UNEQUAL))
    assert any("different globals" in line for line in report["suspicious"])
    assert any(row.get("global") for row in report["layers"])


def test_inspect_tells_of_zeros_of_the_other_gptq_version(swordfish, data, tmp_path):
    assert not any("zero points" in line for line in swordfish.json("inspect", data(GPTQ), "--values")["suspicious"])
    other = tmp_path / "other"
    shutil.copytree(data(GPTQ), other)
    (other / "quantize_config.json").unlink(missing_ok=True)
    config = json.loads((other / "config.json").read_text())
    config["quantization_config"].update(sym=True, checkpoint_format="gptq_v2", format="gptq_v2")
    (other / "config.json").write_text(json.dumps(config))
    found = swordfish.json("inspect", other, "--values")["suspicious"]
    assert any(".qzeros" in line and "gptq v1" in line for line in found), found


def test_inspect_scans_the_values_of_a_packed_file(swordfish, data, tmp_path):
    packed = tmp_path / "packed.safetensors"
    assert swordfish("pack", data(GPTQ), "-o", packed)[0] == 0
    assert swordfish.json("inspect", packed, "--values")["suspicious"] == []
    raw = bytearray(packed.read_bytes())
    header = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
    scales = next(name for name in header if name.endswith(".scales"))
    at = 8 + int.from_bytes(raw[:8], "little") + header[scales]["data_offsets"][0]
    raw[at:at + 2] = b"\x00\x7e"  # an F16 NaN
    packed.write_bytes(raw)
    assert swordfish.json("inspect", packed)["suspicious"] == []
    found = swordfish.json("inspect", packed, "--values")["suspicious"]
    assert len(found) == 1 and scales.removesuffix(".scales") in found[0] and "NaN" in found[0]


def test_inspect_prints_what_could_be_read_then_refuses(swordfish, data, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(data(GPTQ), broken)
    config = json.loads((broken / "config.json").read_text())
    config["quantization_config"]["bits"] = 3
    (broken / "config.json").write_text(json.dumps(config))
    (broken / "quantize_config.json").unlink(missing_ok=True)
    report = swordfish.json("inspect", broken, code=3)
    assert report["summary"]["tensors"] > 0 and "bits" in report["summary"]["refused"]
    assert swordfish("verify", broken)[0] == 3


def test_verify_layers_and_kernel(swordfish, data):
    report = swordfish.json("verify", data(GPTQ), "--layers", r"q_proj$", "--m", "1,4", "--kernel", "reference")
    assert report["summary"]["layers"] >= 1 and all(r["name"].endswith("q_proj") for r in report["layers"])
    assert all(c["kernel"] == "reference" for r in report["layers"] for c in r["checks"])
    assert swordfish("verify", data(GPTQ), "--layers", "no_such_layer")[0] == 2
    for command in (["verify"], ["pack", "-o", "unused"], ["dequantize", "-o", "unused"], ["explain"], ["bench"]):
        code, _, err = swordfish(command[0], data(GPTQ), *command[1:], "--layers", "(")
        assert code == 2 and "--layers" in err
    assert swordfish("verify", data(GPTQ), "--kernel", "no_such_kernel")[0] in (2, 4)
    assert swordfish("verify", data(GPTQ), "--device", "cuda:7")[0] == 4
    assert swordfish("verify", data(GPTQ), "--device", "tpu")[0] == 2
    assert swordfish("verify", data(GPTQ), "--act", "fp16", "--m", "2")[0] == 0


def test_lists(swordfish, data):
    for rows in ("1,,2", ",", "1,", ",1", "", "1,x", "1, 2", "2.5", "1e3", "1,0", "99999999999999999999"):
        code, _, err = swordfish("verify", data(GPTQ), "--m", rows)
        assert code == 2 and "--m" in err, rows
    for command in (["bench", "--shapes", "64x64"], ["explain", "--n", "64", "--k", "64"]):
        assert swordfish(*command, "--m", "1,,2")[0] == 2
    for shapes in ("64x64,,64x128", "64x64,", ","):
        code, _, err = swordfish("bench", "--shapes", shapes)
        assert code == 2 and "--shapes" in err, shapes
    # A list is one argument: what follows it is the path.
    assert swordfish.json("verify", "--m", "1,3", data(GPTQ))["summary"]["m"] == [1, 3]


def test_bench_seconds_are_a_number(swordfish):
    for seconds in ("nan", "-nan", "inf", "0", "-1", "3601", "soon", ""):
        code, _, err = swordfish("bench", "--shapes", "64x64", "--seconds", seconds)
        assert code == 2 and "--seconds" in err, seconds


def test_nothing_packable_is_exit_4(swordfish, tmp_path):
    import gguf
    path = tmp_path / "plain.gguf"
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_tensor("blk.0.ffn_down.weight", np.ones((32, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert swordfish("verify", path)[0] == 4
    assert swordfish("pack", path, "-o", tmp_path / "out.safetensors")[0] == 4
    assert not (tmp_path / "out.safetensors").exists()


def test_missing_input_is_refused(swordfish, tmp_path):
    for command in (["inspect"], ["verify"], ["pack", "-o", tmp_path / "o"], ["dequantize", "-o", tmp_path / "o"]):
        code, _, err = swordfish(command[0], tmp_path / "nowhere", *command[1:])
        assert code == 3 and "nowhere" in err


@pytest.mark.parametrize("dtype,np_type", [("fp32", np.float32), ("fp16", np.float16), ("bf16", None)])
def test_dequantize_types(swordfish, data, tmp_path, dtype, np_type):
    out = tmp_path / "d.safetensors"
    code, _, err = swordfish("dequantize", data(GPTQ), "-o", out, "--dtype", dtype)
    assert code == 0, err
    header = json.loads(out.read_bytes()[8:8 + int.from_bytes(out.read_bytes()[:8], "little")])
    types = {v["dtype"] for k, v in header.items() if k != "__metadata__"}
    assert types == {{"fp32": "F32", "fp16": "F16", "bf16": "BF16"}[dtype]}
    if np_type is np.float16:
        swordfish("dequantize", data(GPTQ), "-o", tmp_path / "f.safetensors")
        with safe_open(out, "np") as half, safe_open(tmp_path / "f.safetensors", "np") as full:
            for name in full.keys():
                assert np.array_equal(half.get_tensor(name), full.get_tensor(name).astype(np.float16))


def test_dequantize_reports_overflow_to_infinity(swordfish, tmp_path):
    folder = tmp_path / "big"
    folder.mkdir()
    # int4 group-32 weights times a scale of 60000: beyond fp16
    packed = np.full((8, 4), 0x7FFFFFFF, np.int32)
    save_file({"model.layers.0.mlp.down_proj.weight_packed": packed, "model.layers.0.mlp.down_proj.weight_scale": np.full((8, 1), 6e4, np.float32),
               "model.layers.0.mlp.down_proj.weight_shape": np.array([8, 32], np.int64)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"quantization_config": {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed", "ignore": [],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}}}}}))
    code, out, err = swordfish("dequantize", folder, "-o", tmp_path / "o.safetensors", "--dtype", "fp16")
    assert code == 0 and "infinit" in (out + err)
    assert "infinit" not in "".join(swordfish("dequantize", folder, "-o", tmp_path / "p.safetensors")[1:])


def test_pack_refuses_to_overwrite(swordfish, data, tmp_path):
    out = tmp_path / "p.safetensors"
    assert swordfish("pack", data(GPTQ), "-o", out)[0] == 0
    first = out.read_bytes()
    code, _, err = swordfish("pack", data(GPTQ), "-o", out)
    assert code == 2 and "--force" in err and out.read_bytes() == first
    assert swordfish("pack", data(GPTQ), "-o", out, "--force")[0] == 0
    assert os.listdir(tmp_path) == ["p.safetensors"]
    with safe_open(out, "np") as f:
        assert f.metadata()["swordfish.layout"] == "mma64/1"


def test_pack_into_a_missing_folder_is_said(swordfish, data, tmp_path):
    code, _, err = swordfish("pack", data(GPTQ), "-o", tmp_path / "no" / "p.safetensors")
    assert code != 0 and "no" in err


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_killed_pack_leaves_nothing(swordfish, tmp_path, signal_number):
    source = tmp_path / "src"
    source.mkdir()
    swordfish_quantizable(source, 4096, 4096, 6)
    code, _, err = swordfish("quantize", source, "-o", tmp_path / "q", "--scheme", "int4")
    assert code == 0, err
    out = tmp_path / "out"
    out.mkdir()
    for delay in (0.0, 0.02, 0.05, 0.1):
        process = subprocess.Popen([swordfish.path, "pack", str(tmp_path / "q"), "-o", str(out / "p.safetensors")], stdout=subprocess.DEVNULL)
        time.sleep(delay)
        process.send_signal(signal_number)
        process.wait()
        left = os.listdir(out)
        assert left in ([], ["p.safetensors"]), left
        if left:  # it had finished: then it is whole
            assert swordfish("inspect", out / "p.safetensors")[0] == 0
            os.remove(out / "p.safetensors")


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("force", [False, True])
def test_killed_quantize_leaves_nothing(swordfish, tmp_path, signal_number, force):
    """Nothing beside the whole result, or, with --force, beside the earlier one."""
    source = tmp_path / "src"
    source.mkdir()
    swordfish_quantizable(source, 2048, 4096, 4)
    out = tmp_path / "out"
    out.mkdir()
    args = [swordfish.path, "quantize", str(source), "-o", str(out / "q"), "--scheme", "int4"]
    if force:
        assert subprocess.run(args, stdout=subprocess.DEVNULL).returncode == 0
    killed_at_work = 0
    for delay in (0.0, 0.0, 0.01, 0.03):
        process = subprocess.Popen([*args, "--force"], stdout=subprocess.DEVNULL)
        while process.poll() is None and not any(".part-" in name for name in os.listdir(out)):
            time.sleep(0.001)
        time.sleep(delay)
        killed_at_work += process.poll() is None
        process.send_signal(signal_number)
        process.wait()
        left = os.listdir(out)
        assert left == ["q"] if force else left in ([], ["q"]), left
        if left:
            assert swordfish("inspect", out / "q")[0] == 0
    assert killed_at_work > 0


def swordfish_quantizable(folder, n, k, layers):
    rng = np.random.default_rng(5)
    tensors = {f"model.layers.{i}.mlp.down_proj.weight": rng.standard_normal((n, k), np.float32).astype(np.float16) for i in range(layers)}
    tensors["model.norm.weight"] = np.ones(k, np.float16)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": k}))


@pytest.mark.parametrize("args,tolerance", [
    (["--scheme", "int4"], 0.12), (["--scheme", "int4", "--asymmetric", "--group", "32"], 0.12), (["--scheme", "int8"], 0.01),
    (["--scheme", "int8", "--group", "0"], 0.02), (["--scheme", "nvfp4"], 0.12), (["--scheme", "mxfp4"], 0.16)])
def test_quantize_then_verify(swordfish, tmp_path, args, tolerance):
    source = tmp_path / "src"
    source.mkdir()
    swordfish_quantizable(source, 96, 256, 1)
    code, _, err = swordfish("quantize", source, "-o", tmp_path / "q", *args)
    assert code == 0, err
    assert swordfish.json("verify", tmp_path / "q")["summary"]["failed"] == 0
    swordfish("dequantize", tmp_path / "q", "-o", tmp_path / "d.safetensors")
    name = "model.layers.0.mlp.down_proj.weight"
    with safe_open(tmp_path / "d.safetensors", "np") as d, safe_open(source / "model.safetensors", "np") as s, \
            safe_open(tmp_path / "q" / "model.safetensors", "np") as q:
        w, back = s.get_tensor(name).astype(np.float32), d.get_tensor(name)
        assert "model.norm.weight" in q.keys()
    assert np.linalg.norm(w - back) / np.linalg.norm(w) < tolerance
    assert swordfish("quantize", source, "-o", tmp_path / "q", *args)[0] == 2  # no overwriting


def test_explain(swordfish, data):
    rows = swordfish.json("explain", "--n", "4096", "--k", "4096", "--m", "1,64")["explain"]
    for m in (1, 64):
        of_m = [r for r in rows if r["m"] == m]
        assert sum(r["chosen"] for r in of_m) == 1 and all(r["reason"] for r in of_m)
        assert [r["kernel"] for r in of_m] == [k["kernel"] for k in swordfish.json("explain", "--list")["kernels"]]
    rows = swordfish.json("explain", data(GPTQ), "--layers", "q_proj", "--kernel", "reference")["explain"]
    assert all(r["chosen"] == (r["kernel"] == "reference") for r in rows)
    assert swordfish("explain")[0] == 2
    assert swordfish("explain", "--n", "0", "--k", "5")[0] == 2


def test_bench_formats(swordfish):
    args = ["bench", "--shapes", "256x512", "--m", "1,4", "--seconds", "0.05"]
    report = swordfish.json(*args)
    assert len(report["points"]) == 2 and all(p["us"] > 0 and p["gb_per_second"] > 0 for p in report["points"])
    code, out, err = swordfish(*args, "--format", "benchmark")
    assert code == 0, err
    google = json.loads(out)
    assert google["context"]["num_cpus"] > 0 and all("real_time" in b and b["time_unit"] == "us" for b in google["benchmarks"])


def test_devices(swordfish):
    devices = swordfish.json("devices")["devices"]
    assert devices[0]["device"] == "cpu" and devices[0]["threads"] >= 1 and devices[0]["uses"]
    assert len(devices) >= 2
    for gpu in devices[1:]:  # each can be used, or it is said why not
        assert gpu["device"].startswith("cuda") and bool(gpu.get("uses")) != bool(gpu["unusable"])


@pytest.fixture
def no_gpu(swordfish):
    if any(d.get("uses") for d in swordfish.json("devices")["devices"][1:]):
        pytest.skip("this machine has a GPU that can be used")


def test_without_a_gpu_its_commands_say_so(swordfish, data, no_gpu):
    for command in (["verify", data(GPTQ)], ["bench", "--shapes", "64x64"], ["bench", "--shapes", "64x64", "--peer", "cublas"],
                    ["explain", "--n", "64", "--k", "64"]):
        code, _, err = swordfish(*command, "--device", "cuda")
        assert code == 4 and "cuda:0 cannot be used: " in err, err
    assert swordfish("bench", "--shapes", "64x64", "--peer", "cublas")[0] == 2


def test_explain_for_a_gpu_that_is_not_here(swordfish):
    rows = swordfish.json("explain", "--n", "4096", "--k", "4096", "--m", "1,64", "--gpu", "sm_90:132")["explain"]
    assert [r["kernel"] for r in rows if r["chosen"]] == ["sm80_mma_decode", "sm80_mma_middle"]
    assert swordfish("explain", "--n", "64", "--k", "64", "--gpu", "sm_75:40")[0] == 2


def test_nothing_of_the_driver_is_needed_to_start(swordfish):
    """A build with CUDA starts without a driver, and its runtime is its own: not asked of the machine, not offered to others."""
    library = pathlib.Path(swordfish.path).parent.parent / "lib" / "libswordfish.so"
    for path in (swordfish.path, library):
        needed = subprocess.run(["readelf", "--dynamic", "--wide", path], check=True, capture_output=True, text=True).stdout
        assert "NEEDED" in needed and not any(word in needed for word in ("libcuda", "libcudart", "libcublas", "libnvidia"))
    symbols = subprocess.run(["nm", "--dynamic", library], check=True, capture_output=True, text=True).stdout
    assert " sf_run" in symbols and not any(line.split()[-1].startswith(("cuda", "cu")) for line in symbols.splitlines())


def test_readme_table_is_printed_from_the_kernel_table(swordfish):
    assert subprocess.run(["python3", str(ROOT / "scripts" / "support_table.py"), "--check", swordfish.path]).returncode == 0


def test_output_that_cannot_be_written_is_the_machines_fault(swordfish, data, tmp_path):
    source = tmp_path / "src"
    source.mkdir()
    swordfish_quantizable(source, 64, 256, 1)
    for command in (["pack", data(GPTQ)], ["dequantize", data(GPTQ)], ["quantize", source, "--scheme", "int8"]):
        code, _, err = swordfish(*command, "-o", tmp_path / "no" / "p.safetensors")
        assert code == 4 and "no" in err


def test_a_symbolic_link_is_not_replaced(swordfish, data, tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("precious")
    link.symlink_to(target)
    for command in ("pack", "dequantize"):
        code, _, err = swordfish(command, data(GPTQ), "-o", link, "--force")
        assert code == 2 and "symbolic link" in err and link.is_symlink() and target.read_text() == "precious"


def test_packing_a_packed_file_is_usage(swordfish, data, tmp_path):
    assert swordfish("pack", data(GPTQ), "-o", tmp_path / "p")[0] == 0
    code, _, err = swordfish("pack", tmp_path / "p", "-o", tmp_path / "q")
    assert code == 2 and "packed file in layout mma64/1 already" in err
    code, _, err = swordfish("pack", tmp_path / "p", "-o", tmp_path / "q", "--fuse", "--layout", "sm1xx-blockscaled/1")
    assert code == 2 and "--fuse" in err


def test_results_that_cannot_be_printed(swordfish, data, tmp_path):
    command = f"'{swordfish.path}' inspect '{data(GPTQ)}'"
    for line in (f"{command} | true; exit ${{PIPESTATUS[0]}}", f"{command} >/dev/full", f"{command} >&-"):
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
        # a reader that has not yet closed its end may still take everything
        assert done.returncode == 4 or ("| true" in line and done.returncode == 0), (line, done)
    # Without standard streams no result or message may end up in the files that the program opens.
    subprocess.run(["bash", "-c", f"'{swordfish.path}' pack '{data(GPTQ)}' -o '{tmp_path}/closed' <&- >&- 2>&-"])
    assert swordfish("pack", data(GPTQ), "-o", tmp_path / "open")[0] == 0
    assert (tmp_path / "closed").read_bytes() == (tmp_path / "open").read_bytes()


def test_options_that_would_be_ignored_are_usage(swordfish, data, tmp_path):
    assert swordfish("explain", data(GPTQ), "--n", "64", "--k", "64")[0] == 2
    assert swordfish("bench", data(GPTQ), "--shapes", "64x64")[0] == 2
    source = tmp_path / "src"
    source.mkdir()
    swordfish_quantizable(source, 64, 256, 1)
    for option in (["--group", "32"], ["--asymmetric"], ["--scale-type", "fp16"]):
        code, _, err = swordfish("quantize", source, "-o", tmp_path / "q", "--scheme", "nvfp4", *option)
        assert code == 2 and option[0] in err
    code, _, err = swordfish("dequantize", data(GPTQ), "-o", tmp_path / "d", "--hf-names")
    assert code == 0 and "--hf-names" in err


def test_quantize_keeps_a_configuration_that_only_python_reads(swordfish, tmp_path):
    source = tmp_path / "src"
    source.mkdir()
    swordfish_quantizable(source, 64, 256, 1)
    (source / "config.json").write_text('{"limit": [0.0, Infinity, -Infinity, NaN], "note": "not finite: NaN \\"Infinity", "eps": 1e-05}')
    assert swordfish("quantize", source, "-o", tmp_path / "q", "--scheme", "int4")[0] == 0
    text = (tmp_path / "q" / "config.json").read_text()
    config = json.loads(text)
    assert config["limit"][:3] == [0.0, float("inf"), float("-inf")] and config["limit"][3] != config["limit"][3]
    assert config["note"] == 'not finite: NaN "Infinity' and config["eps"] == 1e-05
    assert config["quantization_config"]["format"] == "pack-quantized"
    assert swordfish("inspect", tmp_path / "q")[0] == 0
    (source / "config.json").write_text('{"limit": Infinit}')
    assert swordfish("quantize", source, "-o", tmp_path / "r", "--scheme", "int4")[0] == 3


def test_products_beyond_fp16_are_infinite_and_right(swordfish, tmp_path):
    source = tmp_path / "src"
    source.mkdir()
    save_file({"model.layers.0.mlp.down_proj.weight": np.full((64, 256), 3e4, np.float32)}, source / "model.safetensors")
    (source / "config.json").write_text('{"model_type": "llama"}')
    assert swordfish("quantize", source, "-o", tmp_path / "q", "--scheme", "int8")[0] == 0
    summary = swordfish.json("verify", tmp_path / "q", "--act", "fp16", "--m", "1,16")["summary"]
    assert summary["failed"] == 0 and summary["overflowed"] > 0
    assert swordfish.json("verify", tmp_path / "q", "--act", "bf16")["summary"]["overflowed"] == 0
