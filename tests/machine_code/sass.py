"""What the machine code of the CUDA kernels holds: kernels by architecture, their instructions, main loops and resources."""
import collections
import glob
import os
import re
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def tool(name):
    """cuobjdump or nvdisasm, from the PyPI packages in build/venv or the CUDA toolkit; None if neither is there."""
    found = glob.glob(os.path.join(ROOT, "build/venv/lib/python3*/site-packages/nvidia/*/bin", name))
    if found:
        return found[0]
    for folder in os.environ.get("PATH", "").split(":") + ["/usr/local/cuda/bin"]:
        if os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    return None


def objects(family):
    build = os.environ.get("SWORDFISH_BUILD", os.path.join(ROOT, "build/release"))
    return sorted(glob.glob(os.path.join(build, "cuda/kernels/cuda", family, "*.cu.o")))


def compiler(path):
    """The version of nvcc that made an object, as ptxas notes it; empty if it does not."""
    text = subprocess.run([tool("cuobjdump"), "-elf", path], capture_output=True, text=True).stdout
    found = re.search(r"Cuda compilation tools, release [\d.]+, V[\d.]+", text)
    return found.group(0) if found else ""


Instruction = collections.namedtuple("Instruction", "opcode operands text")


class Kernel:
    def __init__(self, arch, name, instructions, loops):
        self.arch, self.name, self.instructions, self.loops = arch, name, instructions, loops
        self.resources = {}

    def count(self, *opcodes):
        return sum(i.opcode.split(".")[0] in opcodes for i in self.instructions)

    def main_loop(self):
        """The smallest loop with tensor core instructions and the most asynchronous copies: code that is out of the way may jump
        back over a part of the loop."""
        loops = []
        for first, last in self.loops:
            body = self.instructions[first : last + 1]
            kinds = collections.Counter(i.opcode.split(".")[0] for i in body)
            if kinds["HMMA"] and kinds["LDGSTS"]:
                loops.append((-kinds["LDGSTS"], len(body), body))
        return min(loops, key=lambda loop: loop[:2])[2] if loops else None


def parse(listing, arch):
    kernels = []
    parts = re.split(r"\n\.text\.(\S+):\n", listing)
    for name, body in zip(parts[1::2], parts[2::2]):
        instructions, labels = [], {}
        for line in body.split("\n"):
            if label := re.match(r"^(\.L_x?_?\d+):", line):
                labels[label.group(1)] = len(instructions)
            elif text := re.match(r"^\s+/\*[0-9a-f]{4,}\*/\s+(.*);", line):
                opcode = re.match(r"(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)\s*(.*)", text.group(1))
                instructions.append(Instruction(opcode.group(1), opcode.group(2), text.group(1)))
            elif line.startswith("\t.section"):
                break
        loops = []
        for at, i in enumerate(instructions):
            target = i.opcode == "BRA" and re.search(r"\.L_x?_?\d+", i.operands)
            if target and labels.get(target.group(0), at + 1) <= at:
                loops.append((labels[target.group(0)], at))
        kernels.append(Kernel(arch, name, instructions, loops))
    return kernels


def read(path):
    """The kernels of an object file, for all of its architectures."""
    kernels = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([tool("cuobjdump"), "-xelf", "all", os.path.abspath(path)], cwd=folder, check=True, capture_output=True)
        for cubin in sorted(glob.glob(os.path.join(folder, "*.cubin"))):
            arch = re.search(r"\.sm_(\w+?)\.cubin", cubin).group(1)
            listing = subprocess.run([tool("nvdisasm"), "-c", cubin], check=True, capture_output=True, text=True).stdout
            found = parse(listing, arch)
            usage = subprocess.run([tool("cuobjdump"), "-res-usage", cubin], check=True, capture_output=True, text=True).stdout
            resources = {
                name: {k: int(v) for k, v in re.findall(r"(\w+):(\d+)", line)}
                for name, line in re.findall(r"Function (\S+?):\n\s*(.*)", usage)
            }
            for kernel in found:
                kernel.resources = resources.get(kernel.name, {})
            kernels += found
    return kernels


WEIGHTS = ["int4", "int8", "fp4", "fp4_e4m3", "fp4_e8m0"]
FLUSH = ["units", "pairs", "slices"]


def short_name(mangled):
    """What docs/kernels.md calls a kernel: weights, type of x, tokens of a tile, when scales are applied, CTAs or columns."""
    m = re.match(r"_ZN9swordfish3mma\d+(decode|middle)_kernelILNS0_7WeightsE(\d)ELNS_3ptx4HalfE(\d)ELi(\d+)ELNS0_5FlushE(\d)ELi(\d+)E", mangled)
    if not m:
        return None
    kind, weights, half, tile, flush, last = m.groups()
    tokens = int(tile) * (8 if kind == "decode" else 16)
    name = f"{kind} {WEIGHTS[int(weights)]} {'bf16' if half == '1' else 'f16'} {tokens} {FLUSH[int(flush)]}"
    if kind == "middle":
        return f"{name} n{64 * int(last)}"
    return f"{name} 2 CTAs" if last == "8" else name
