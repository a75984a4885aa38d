"""The installed package: relocated, found by CMake and pkg-config, used by a C and a C++ consumer and by ctypes."""
import ctypes
import os
import shlex
import shutil
import subprocess

import pytest

from conftest import DATA, ROOT

CHECKPOINT = DATA / "gptq_b4_g32_n40"


def run(*args, **kw):
    done = subprocess.run(list(map(str, args)), capture_output=True, text=True, **kw)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    first = tmp_path_factory.mktemp("first") / "prefix"
    run("cmake", "--install", ROOT / "build" / "release", "--prefix", first)
    moved = tmp_path_factory.mktemp("moved") / "somewhere else"
    shutil.move(first, moved)
    return moved


def test_cmake_consumers(prefix, tmp_path):
    run("cmake", "-S", ROOT / "examples", "-B", tmp_path, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    for program in ("multiply_c", "multiply_cpp"):
        out = run(tmp_path / program, CHECKPOINT)
        assert "y[0] = " in out
    c, cpp = (run(tmp_path / p, CHECKPOINT).split("y[0] = ")[1] for p in ("multiply_c", "multiply_cpp"))
    assert float(c) == pytest.approx(float(cpp))


def test_pkg_config_consumer(prefix, tmp_path):
    env = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    flags = shlex.split(run("pkg-config", "--cflags", "--libs", "swordfish", env=env))  # the prefix has a space: pkg-config escapes it
    run("cc", ROOT / "examples" / "c" / "multiply.c", *flags, "-o", tmp_path / "m")
    assert "y[0] = " in run(tmp_path / "m", CHECKPOINT, env={**os.environ, "LD_LIBRARY_PATH": str(prefix / "lib")})


def test_library_exports_only_its_names(prefix):
    out = run("nm", "-D", "--defined-only", "--demangle", prefix / "lib" / "libswordfish.so")
    names = [line.split(maxsplit=2)[2] for line in out.splitlines()]
    ours = [n for n in names if n.startswith("sf_") or "swordfish::" in n]
    assert {"sf_version", "sf_run", "sf_checkpoint_open"} <= set(ours)
    foreign = [n for n in names if n not in ours and not n.startswith(("std::", "typeinfo", "vtable", "void std::", "__gnu", "fmt::", "operator"))]
    assert not [n for n in foreign if "simdjson" in n or "hwy" in n], foreign[:20]
    assert "soname" in run("bash", "-c", f"readelf -d '{prefix}/lib/libswordfish.so' | tr A-Z a-z") and (prefix / "lib" / "libswordfish.so.0").exists()


def test_ctypes(prefix):
    lib = ctypes.CDLL(str(prefix / "lib" / "libswordfish.so"))
    lib.sf_version.restype = ctypes.c_char_p
    lib.sf_last_error.restype = ctypes.c_char_p
    lib.sf_checkpoint_layer_count.restype = ctypes.c_size_t
    assert lib.sf_version().decode().startswith("0.")
    handle = ctypes.c_void_p()
    assert lib.sf_checkpoint_open(b"/no/such/checkpoint", None, ctypes.byref(handle)) != 0
    assert b"/no/such/checkpoint" in lib.sf_last_error()
    assert lib.sf_checkpoint_open(os.fsencode(CHECKPOINT), None, ctypes.byref(handle)) == 0
    assert lib.sf_checkpoint_layer_count(handle) > 0
    lib.sf_checkpoint_free(handle)
