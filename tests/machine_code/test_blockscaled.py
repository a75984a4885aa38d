"""The GEMMs of CUTLASS hold block-scaled MMA instructions, for every architecture that they were compiled for.

CUTLASS's guards leave a kernel empty, without a word, when a target lacks its suffix or a macro is missing. These units take too long
for the default run: `scripts/build blockscaled`, then this with SWORDFISH_BUILD=build/blockscaled (scripts/test --full does both).
"""
import os
import re
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sass

# By family: its architectures, and what tcgen05.mma and mma.sync of kind::mxf4nvf4 become.
FAMILIES = {"tcgen05": ({"100a", "100f", "103a", "110a"}, "UTCOMMA"), "warp": ({"120a", "120f", "121a"}, "OMMA")}
UNITS = 6  # a family
OBJECTS = sass.objects("blockscaled/cutlass")


def why_not():
    if not OBJECTS:
        return "not built: scripts/build blockscaled, then SWORDFISH_BUILD=build/blockscaled"
    missing = [t for t in ("cuobjdump", "nvdisasm") if not sass.tool(t)]
    return f"{' and '.join(missing)} not found (scripts/setup test installs them)" if missing else ""


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


def asked_for(known):
    cache = os.path.join(OBJECTS[0].split("/cuda/kernels/")[0], "CMakeCache.txt")
    with open(cache) as text:
        return known & set(re.search(r"^SWORDFISH_CUDA_ARCHS:\w+=(.*)$", text.read(), re.M).group(1).split(";"))


@pytest.mark.parametrize("family", FAMILIES)
def test_each_unit_has_its_instructions(family):
    known, instruction = FAMILIES[family]
    archs = asked_for(known)
    if not archs:
        pytest.skip(f"no architecture of this family in the build: {' '.join(sorted(known))}")
    objects = [path for path in OBJECTS if os.path.basename(path).startswith(family + "_")]
    assert len(objects) == UNITS
    for path in objects:
        # cuobjdump names code for a family without its f.
        gemms = [k for k in sass.read(path) if k.count("UTMALDG")]  # beside them: the kernel that writes a group's arguments
        assert {k.arch for k in gemms} == {arch.rstrip("f") for arch in archs}, path
        for kernel in gemms:
            found = kernel.count(instruction)
            print(f"{os.path.basename(path)} sm_{kernel.arch}: {found} {instruction}, {kernel.count('UTMALDG')} UTMALDG")
            assert found >= 4, f"{path}, sm_{kernel.arch}"
