"""The machine code of the mma.sync kernels: the instructions that must be there and those that must not, and the pinned main loops.

After a change of the kernels or of nvcc: `python tests/machine_code/test_kernels.py` writes pins.json and the table of
docs/kernels.md again; look at the difference before it is committed."""
import json
import os
import re
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sass

PINS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pins.json")
DOCS = os.path.join(sass.ROOT, "docs/kernels.md")
COUNTED = ["LOP3", "SHF", "HFMA2", "FFMA", "HMMA", "LDS", "LDGSTS", "IMAD"]
MOST_INSTANCES = 64  # an architecture: compile time and size


def why_not():
    if not sass.objects("sm80_mma"):
        return "this build has no CUDA kernels (no nvcc, or SWORDFISH_CUDA=OFF)"
    missing = [t for t in ("cuobjdump", "nvdisasm") if not sass.tool(t)]
    return f"{' and '.join(missing)} not found (scripts/setup test installs them)" if missing else ""


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())


def all_kernels():
    return [k for path in sass.objects("sm80_mma") for k in sass.read(path)]


@pytest.fixture(scope="module")
def kernels():
    return all_kernels()


def family(kernels):
    return {(k.arch, sass.short_name(k.name)): k for k in kernels if sass.short_name(k.name)}


def measure(kernel):
    loop = kernel.main_loop()
    counts = {op: sum(i.opcode.split(".")[0] in ((op, "HMUL2", "HADD2") if op == "HFMA2" else (op,)) for i in loop) for op in COUNTED}
    return {"registers": kernel.resources["REG"], "loop": len(loop), **counts}


def test_instances(kernels):
    """About 60 an architecture, each in every architecture of the build."""
    by_arch = {}
    for arch, name in family(kernels):
        by_arch.setdefault(arch, set()).add(name)
    assert by_arch
    for arch, names in sorted(by_arch.items()):
        print(f"sm_{arch}: {len(names)} instances of the decode and middle kernels")
        assert len(names) <= MOST_INSTANCES
        assert names == next(iter(by_arch.values()))


def test_tensor_cores_and_asynchronous_copies(kernels):
    for key, kernel in family(kernels).items():
        assert kernel.count("HMMA") > 0, key
        assert kernel.count("LDGSTS") > 0, key
        assert kernel.main_loop(), key


# Registers that ptxas 13.0 keeps in local memory from a kernel's start to its end, outside of the main loop.
SPILLED = {(arch, "decode fp4 f16 16 pairs"): 4 for arch in ("100a", "103a", "110a")}


def test_no_local_memory(kernels):
    for kernel in kernels:
        what = f"sm_{kernel.arch} {kernel.name} spills or has an array in local memory"
        allowed = SPILLED.get((kernel.arch, sass.short_name(kernel.name)), 0)
        local = [i for i in kernel.instructions if i.opcode.split(".")[0] in ("LDL", "STL")]
        assert len(local) <= 2 * allowed and kernel.resources.get("STACK", 0) <= 4 * allowed, what
        assert not set(local) & set(kernel.main_loop() or []), what


def test_no_other_synchronisation(kernels):
    """One reduction, which sets a flag; one spin, on an acquire load of a flag; nothing else: no compare-and-swap, no exchange."""
    for kernel in kernels:
        ours = sass.short_name(kernel.name) is not None
        atomics = [i.text for i in kernel.instructions if re.match(r"(ATOM|ATOMG|ATOMS|RED|REDG|REDS)$", i.opcode.split(".")[0])]
        assert len(atomics) == (1 if ours else 0), (kernel.name, atomics)
        assert all(".ADD." in text for text in atomics), (kernel.name, atomics)
        spins = [n for n, i in enumerate(kernel.instructions) if re.match(r"LDG?\.", i.opcode) and "STRONG" in i.opcode]
        assert len(spins) == (1 if ours else 0), (kernel.name, [kernel.instructions[n].text for n in spins])
        assert all(any(first <= n <= last < first + 32 for first, last in kernel.loops) for n in spins), kernel.name


def test_operands_of_asynchronous_copies(kernels):
    """ptxas 13.0 may give a cp.async with a cache policy a warp-uniform shared address, which is an illegal instruction."""
    for kernel in kernels:
        for i in kernel.instructions:
            if i.opcode.startswith("LDGSTS"):
                assert not re.search(r"desc\[UR\d*[13579]\]|\+UR0", i.operands), (kernel.name, i.text)


def test_main_loops_are_pinned(kernels):
    """A slower inner loop shows here, without a GPU."""
    pins = json.load(open(PINS))
    got = {name: measure(k) for (arch, name), k in family(kernels).items() if arch == "90a"}
    if not got:
        pytest.skip("pins are of sm_90a, which this build leaves out")
    compiler = sass.compiler(sass.objects("sm80_mma")[0])
    if compiler and compiler != pins["compiler"]:
        pytest.skip(f"pins are of {pins['compiler']}, this build is of {compiler}")
    assert got == pins["kernels"]


def table(kernels):
    rows = ["| kernel | registers | instructions | " + " | ".join(COUNTED) + " |", "|---" * (3 + len(COUNTED)) + "|"]
    for name, m in sorted(kernels.items()):
        rows.append(f"| {name} | {m['registers']} | {m['loop']} | " + " | ".join(str(m[c]) for c in COUNTED) + " |")
    return "\n".join(rows) + "\n"


def test_docs_show_the_counts():
    pins = json.load(open(PINS))
    assert table(pins["kernels"]) in open(DOCS).read(), "python tests/machine_code/test_kernels.py writes docs/kernels.md"


if __name__ == "__main__":
    if why_not():
        sys.exit(why_not())
    measured = {name: measure(k) for (arch, name), k in family(all_kernels()).items() if arch == "90a"}
    with open(PINS, "w") as out:
        json.dump({"compiler": sass.compiler(sass.objects("sm80_mma")[0]), "kernels": dict(sorted(measured.items()))}, out, indent=1)
        out.write("\n")
    text = open(DOCS).read()
    head, tail = text.split("<!-- counts -->\n")[0], text.split("<!-- end of counts -->\n")[1]
    open(DOCS, "w").write(head + "<!-- counts -->\n" + table(measured) + "<!-- end of counts -->\n" + tail)
