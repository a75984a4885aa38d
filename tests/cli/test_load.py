"""load and synth: what they print, ranks, the cache, memory, broken files, and Ctrl-C."""
import json
import os
import pty
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import save_file

from conftest import SHARED, checkpoint_path, fixture_folders

FAMILIES = ["llama", "mixtral", "qwen3-moe", "glm-moe"]
SCHEMES = ["nvfp4", "ct-nvfp4", "gptq", "awq", "compressed-tensors"]


@pytest.fixture(scope="module")
def model(swordfish, tmp_path_factory):
    out = tmp_path_factory.mktemp("synth") / "model"
    code, _, err = swordfish("synth", "--model", "glm-moe", "--scheme", "nvfp4", "--size", "12MB", "--shard-size", "3MB", "-o", out)
    assert code == 0, err
    return out


@pytest.fixture(scope="module")
def large(swordfish, tmp_path_factory):
    """600 MB in two shards."""
    out = tmp_path_factory.mktemp("synth") / "large"
    code, _, err = swordfish("synth", "--model", "llama", "--scheme", "gptq", "--size", "600MB", "--shard-size", "350MB", "-o", out)
    assert code == 0, err
    return out


def make_cold(folder):
    for path in folder.iterdir():
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def header_bytes(folder):
    sizes = 0
    for path in folder.glob("*.safetensors"):
        with open(path, "rb") as f:
            sizes += 8 + int.from_bytes(f.read(8), "little")
    return sizes


def loaded(swordfish, *args):
    return swordfish.json("load", *args)["load"][0]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("family", FAMILIES)
def test_synth_is_read_by_every_command(swordfish, tmp_path, family, scheme):
    out = tmp_path / "m"
    row = swordfish.json("synth", "--model", family, "--scheme", scheme, "--size", "4MB", "--shard-size", "1MB", "-o", out)["synth"][0]
    assert row["shards"] > 1 and row["layers"] >= 2
    size = sum(f.stat().st_size for f in out.glob("*.safetensors"))
    assert row["bytes"] < size < row["bytes"] * 1.2
    assert swordfish("synth", "-o", out)[0] == 2, "an existing folder stays"
    inspected = swordfish.json("inspect", out)
    assert len(inspected["layers"]) > 8 and not inspected["not_packed"]
    assert swordfish.json("verify", out, "--m", "1")["summary"]["failed"] == 0
    code, _, err = swordfish("pack", out, "-o", tmp_path / "packed.safetensors")
    assert code == 0, err
    assert loaded(swordfish, out)["layers"] == loaded(swordfish, tmp_path / "packed.safetensors")["layers"]


def test_synth_is_repeatable_and_about_as_large_as_asked(swordfish, tmp_path):
    for name in ("a", "b"):
        assert swordfish("synth", "--size", "30MB", "--seed", "7", "-o", tmp_path / name)[0] == 0
    a, b = (sorted((tmp_path / name).iterdir()) for name in ("a", "b"))
    assert [f.name for f in a] == [f.name for f in b]
    assert all(x.read_bytes() == y.read_bytes() for x, y in zip(a, b))
    assert 20e6 < sum(f.stat().st_size for f in a) < 45e6


def test_load_says_where_the_time_went(swordfish, model):
    code, out, err = swordfish("load", model)
    assert code == 0 and "GB/s" in out and "packing" in out and "waiting for bytes" in out
    row = loaded(swordfish, model)
    assert row["bytes"] > 0 and row["unplanned_bytes"] == 0 and row["packed_bytes"] > 0
    raw = loaded(swordfish, model, "--raw")
    assert raw["bytes"] == row["bytes"] and raw["layers"] == 0


def test_ranks_share_the_bytes(swordfish, model):
    whole = loaded(swordfish, model)["bytes"]
    parts = [loaded(swordfish, model, "--rank", f"{r}/2", "--whole-experts")["bytes"] for r in (0, 1)]
    assert all(whole / 2 <= p < whole for p in parts)
    for bad in ("2/2", "-1/2", "1", "a/b", "0/0"):
        assert swordfish("load", model, f"--rank={bad}")[0] == 2


def test_cache(swordfish, model, tmp_path):
    first = loaded(swordfish, model, "--cache", tmp_path / "cache")
    second = loaded(swordfish, model, "--cache", tmp_path / "cache")
    assert first["cache_written"] and not first["from_packed"]
    assert second["from_packed"] and second["packed_bytes"] == first["packed_bytes"] and second["pack_seconds"] == 0
    packed = next((tmp_path / "cache").glob("*.packed.safetensors"))
    with open(packed, "r+b") as f:
        f.seek(-100, os.SEEK_END)
        f.write(b"\x5a" * 50)
    code, out, err = swordfish("load", model, "--cache", tmp_path / "cache", "--format", "json")
    assert code == 0 and "damaged" in err and not json.loads(out)["load"][0]["from_packed"]
    assert loaded(swordfish, model, "--cache", tmp_path / "cache")["from_packed"]


def test_little_address_space(swordfish, large):
    """Nothing is mapped whole: a limit below the size of the files is enough, as long as the result fits."""
    size = sum(f.stat().st_size for f in large.glob("*.safetensors"))
    limit = 420 << 20

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def run(*args):
        return subprocess.run([swordfish.path, "load", str(large), "--ring", "32MiB", "--format", "json", *args], capture_output=True, text=True,
                              preexec_fn=limited)

    assert size > limit
    raw = run("--raw")
    assert raw.returncode == 0, raw.stderr
    one_layer = run("--layers", r"layers\.0\.")
    assert one_layer.returncode == 0, one_layer.stderr
    # The whole does not fit: an error, not a crash.
    whole = run()
    assert whole.returncode == 4 and "memory" in whole.stderr


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("options", [["--raw"], [], ["--no-direct", "--no-uring"]], ids=["raw", "load", "load-pread"])
def test_peak_memory(swordfish, large, options, warm):
    """Beside the result: the ring, the headers, and what the workers hold."""
    if not warm:
        make_cold(large)
    ring = 64 << 20
    # Started from a small process: a child's peak begins with that of the one that started it.
    starter = "import os, sys; pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ); print(os.wait4(pid, 0)[2].ru_maxrss, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", starter, swordfish.path, "load", str(large), "--ring", str(ring), "--threads", "2", "--format", "json",
                           *options], capture_output=True, text=True, check=True)
    row = json.loads(done.stdout)["load"][0]
    beside = int(done.stderr) * 1024 - row["packed_bytes"]
    assert beside <= ring + 3 * header_bytes(large) + (128 << 20), f"{beside / 2**20:.0f} MiB"


def test_the_bar_shows_the_rate_of_each_stage(swordfish, large):
    """A bar only where stderr is a terminal."""
    make_cold(large)
    outer, inner = pty.openpty()
    process = subprocess.Popen([swordfish.path, "load", str(large), "--threads", "1", "--depth", "1"], stdout=subprocess.DEVNULL, stderr=inner)
    os.close(inner)
    shown = b""
    while True:
        try:
            more = os.read(outer, 4096)
        except OSError:  # the program has ended
            break
        if not more:
            break
        shown += more
    os.close(outer)
    assert process.wait() == 0
    assert b"read" in shown and b"packed" in shown and b"GB/s" in shown and b"#" in shown


def test_interrupt_ends_the_load(swordfish, large, tmp_path):
    make_cold(large)
    process = subprocess.Popen([swordfish.path, "load", str(large), "--threads", "1", "--depth", "1", "--cache", str(tmp_path / "cache")],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - start < 10
    # Interrupted before, while, or (on a fast machine) after loading: never a half-written cache.
    assert process.returncode in (0, 1, -signal.SIGINT), err
    if process.returncode == 1:
        assert "cancelled" in err
    cache = tmp_path / "cache"
    assert not cache.exists() or not list(cache.glob("*.manifest")) or process.returncode == 0


@pytest.mark.parametrize("folder", fixture_folders(), ids=lambda p: p.name)
def test_fixture_is_loaded_or_refused_as_pack_does(swordfish, tmp_path, folder):
    path = checkpoint_path(folder)
    code, _, err = swordfish("pack", path, "-o", tmp_path / "p")
    got, _, load_err = swordfish("load", path, "--format", "json")
    if code == 0:
        assert got == 0, load_err
    elif code == 4:  # nothing to pack
        assert got == 4 and load_err
    else:
        assert got == code and load_err  # the same kind; of several bad layers load names the first in the file


def test_malformed_files_are_refused_alike(swordfish, tmp_path):
    maker = SHARED / "make_malformed.py"
    if not maker.is_file():
        pytest.skip("the maker of malformed files is in the shared folder")
    subprocess.run([sys.executable, str(maker), str(tmp_path)], check=True, capture_output=True, timeout=600)
    cases = json.loads((tmp_path / "manifest.json").read_text())["cases"]
    assert len(cases) > 50
    for case in cases:
        path = tmp_path / case["path"]
        code, _, err = swordfish("load", path, "--format", "json", timeout=60)
        if case["expected"] == "load":
            assert code == 0, (case["name"], err)
            continue
        assert code in (3, 4), (case["name"], code, err)
        lower = err.lower()
        assert any(w.lower() in lower for w in case["words"]), (case["name"], err)
        assert not case["names"] or any(n.lower() in lower for n in case["names"]), (case["name"], err)


def gptq_checkpoint(folder, checkpoint_format, sym=True):
    """One k_proj with K = 8 N, so that qweight is square; zero points stored as version 1 or 2 stores 8."""
    k, n, group, module = 512, 64, 128, "model.layers.0.self_attn.k_proj"
    random = np.random.default_rng(1)
    folder.mkdir(exist_ok=True)
    save_file({f"{module}.qweight": random.integers(-2**31, 2**31, (k // 8, n)).astype(np.int32),
               f"{module}.qzeros": np.full((k // group, n // 8), 0x77777777 if checkpoint_format == "gptq" else -0x77777778, np.int32),
               f"{module}.scales": np.linspace(0.01, 0.02, k // group * n).reshape(-1, n).astype(np.float16),
               f"{module}.g_idx": (np.arange(k) // group).astype(np.int32)}, folder / "model.safetensors")
    gptq_config(folder, checkpoint_format, sym)
    return folder


def gptq_config(folder, checkpoint_format, sym):
    config = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": sym, "checkpoint_format": checkpoint_format}
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": config}))


def test_ranks_of_gptq_v2_are_those_of_v1(swordfish, tmp_path):
    v1, v2 = gptq_checkpoint(tmp_path / "v1", "gptq"), gptq_checkpoint(tmp_path / "v2", "gptq_v2")
    for rank in ("0/1", "0/2", "1/2"):
        sums = [swordfish.json("load", path, "--rank", rank, "--checksum")["load"][0]["checksum"] for path in (v1, v2)]
        assert sums[0] == sums[1], rank


def test_a_cache_is_of_its_configuration(swordfish, tmp_path):
    folder = gptq_checkpoint(tmp_path / "model", "gptq")
    for path in (folder, folder / "model.safetensors"):
        sums = []
        for checkpoint_format in ("gptq", "gptq_v2"):  # other zero points from the same tensors
            gptq_config(folder, checkpoint_format, False)
            row = swordfish.json("load", path, "--cache", tmp_path / f"cache-{path.name}", "--checksum")["load"][0]
            assert not row["from_packed"] and row["cache_written"]
            sums.append(row["checksum"])
        assert sums[0] != sums[1]
