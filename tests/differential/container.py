"""Asks the C++ readers through container_tool."""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Tool:
    def __init__(self, path):
        self.path = str(path)

    def list(self, paths):
        """One dict a path: {"tensors": [...]} or {"error": message}."""
        out = []
        for i in range(0, len(paths), 500):
            done = subprocess.run([self.path, "list", *map(str, paths[i:i + 500])], capture_output=True, text=True, timeout=300, check=True)
            out += [json.loads(line) for line in done.stdout.splitlines()]
        assert len(out) == len(paths)
        return out

    def read(self, path, name):
        return subprocess.run([self.path, "read", str(path), name], capture_output=True, timeout=300, check=True).stdout


@pytest.fixture(scope="session")
def tool():
    path = pathlib.Path(os.environ.get("SWORDFISH_CONTAINER_TOOL", ROOT / "build" / "release" / "bin" / "container_tool"))
    assert path.is_file(), f"{path} is missing: run scripts/build"
    return Tool(path)
