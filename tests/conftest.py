"""Where the built program and the test data are; every Python test asks here."""
import json
import os
import pathlib
import signal
import subprocess

import pytest

# A shell's background job ignores SIGINT, and so would every program that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data" / "fixtures"
SHARED = ROOT.parent / "shared" / "fixtures"


def fixture_folders():
    """All fixtures where the shared folder is present, else the few copied into the tree."""
    base = SHARED if SHARED.is_dir() else DATA
    return sorted(p for p in base.iterdir() if (p / "meta.json").is_file())


class Program:
    """The built `swordfish`; calls return (exit code, stdout, stderr)."""

    def __init__(self, path):
        self.path = str(path)

    def __call__(self, *args, timeout=300, env=None, cwd=None):
        done = subprocess.run([self.path, *map(str, args)], capture_output=True, text=True, timeout=timeout, cwd=cwd,
                              env=None if env is None else {**os.environ, **env})
        return done.returncode, done.stdout, done.stderr

    def json(self, *args, code=0, **kw):
        got, out, err = self(*args, "--format", "json", **kw)
        assert got == code, err
        return json.loads(out)


@pytest.fixture(scope="session")
def swordfish():
    path = pathlib.Path(os.environ.get("SWORDFISH_PROGRAM", ROOT / "build" / "release" / "bin" / "swordfish"))
    assert path.is_file(), f"{path} is missing: run scripts/build"
    return Program(path)


@pytest.fixture(scope="session")
def data():
    """A small fixture by name, from the tree."""
    return lambda name: DATA / name


def checkpoint_path(folder):
    """What to open for a fixture folder: the folder, or its (first) GGUF file."""
    ggufs = sorted(folder.glob("*.gguf"))
    return ggufs[0] if ggufs else folder
