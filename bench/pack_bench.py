#!/usr/bin/env python3
"""Packing rate: writes checkpoints of random weights, packs each with `swordfish pack --threads T`, prints GB/s of packed output.

usage: build/venv/bin/python bench/pack_bench.py [--program build/release/bin/swordfish] [--size 8192,4096] [--threads 1]
       [--repeats 7] [--out FILE.json]

The rate is the command's own `pack_gb_per_second`: packed bytes over the seconds from bytes of the file in memory to packed planes
(unpacking the file's words, reordering, copying scales, first touch of the output). Reading and writing files are apart; the
files lie in /dev/shm. A run packs four matrices; the table shows the median and best run.
"""
import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from safetensors.numpy import save_file

MATRICES = 4
random = np.random.default_rng(1)


def integers(bits):
    return {"bits": bits, "group_size": 128, "quant_method": "gptq", "desc_act": False, "sym": True, "checkpoint_format": "gptq"}


def words(*shape):
    return random.integers(-(2**31), 2**31, shape, dtype=np.int64).astype(np.int32)


def scales(*shape):
    return (random.random(shape) * 0.01 + 0.001).astype(np.float16)


def gptq(bits, n, k, act_order=False):
    zero = (1 << (bits - 1)) - 1
    stored = sum(zero << (bits * i) for i in range(32 // bits))
    g_idx = np.arange(k) // 128
    tensors = {
        "qweight": words(k * bits // 32, n),
        "scales": scales(k // 128, n),
        "qzeros": np.full((k // 128, n * bits // 32), stored, dtype=np.uint32).view(np.int32),
        "g_idx": (random.permutation(g_idx) if act_order else g_idx).astype(np.int32),
    }
    return tensors, integers(bits) | {"desc_act": act_order}


def awq(n, k):
    tensors = {"qweight": words(k, n // 8), "scales": scales(k // 128, n), "qzeros": words(k // 128, n // 8)}
    return tensors, {"bits": 4, "group_size": 128, "quant_method": "awq", "version": "gemm", "zero_point": True}


def folder_of(where, tensors_and_config):
    tensors, config = tensors_and_config
    names = [f"model.layers.{i}.mlp.down_proj" for i in range(MATRICES)]
    save_file({f"{name}.{key}": value for name in names for key, value in tensors.items()}, os.path.join(where, "model.safetensors"))
    with open(os.path.join(where, "config.json"), "w") as f:
        json.dump({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "quantization_config": config}, f)
    return where


def gguf_of(where, kind, block_bytes, n, k):
    path = os.path.join(where, "model.gguf")
    writer = gguf.GGUFWriter(path, "llama")
    blocks = random.integers(0, 256, (n, k // 32, block_bytes), dtype=np.uint8)
    blocks[:, :, 0:2] = scales(n, k // 32).view(np.uint8).reshape(n, k // 32, 2)
    for i in range(MATRICES):
        writer.add_tensor(f"blk.{i}.ffn_down.weight", blocks.reshape(n, -1), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def nvfp4(n, k):
    tensors = {
        "weight": random.integers(0, 256, (n, k // 2), dtype=np.uint8),
        "weight_scale": random.integers(8, 120, (n, k // 16), dtype=np.uint8),
        "weight_scale_2": np.array([0.001], dtype=np.float32).reshape(()),
        "input_scale": np.array([0.01], dtype=np.float32).reshape(()),
    }
    return tensors, {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": [], "config_groups": {
        "group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}, "targets": ["Linear"]}}}


def e4m3(path):
    """safetensors' numpy writer has no float8: block scales were written as U8; their type in the header is made F8_E4M3."""
    with open(os.path.join(path, "model.safetensors"), "r+b") as f:
        size = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(size))
        for name, entry in header.items():
            if name.endswith("weight_scale"):
                entry["dtype"] = "F8_E4M3"
        text = json.dumps(header, separators=(",", ":")).encode()
        rest = f.read()
        text += b" " * (-len(text) % 8)
        f.seek(0)
        f.write(len(text).to_bytes(8, "little") + text + rest)
        f.truncate()
    return path


INPUTS = {
    "GPTQ 4-bit": lambda where, n, k: folder_of(where, gptq(4, n, k)),
    "GPTQ 8-bit": lambda where, n, k: folder_of(where, gptq(8, n, k)),
    "GPTQ 4-bit, act-order": lambda where, n, k: folder_of(where, gptq(4, n, k, True)),
    "AWQ 4-bit": lambda where, n, k: folder_of(where, awq(n, k)),
    "GGUF Q4_0": lambda where, n, k: gguf_of(where, gguf.GGMLQuantizationType.Q4_0, 18, n, k),
    "GGUF Q8_0": lambda where, n, k: gguf_of(where, gguf.GGMLQuantizationType.Q8_0, 34, n, k),
    "NVFP4": lambda where, n, k: e4m3(folder_of(where, nvfp4(n, k))),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/bin/swordfish")
    parser.add_argument("--size", default="8192,4096", help="N = K of the matrices")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--inputs", default="", help="only inputs whose name contains this")
    parser.add_argument("--out", help="JSON results")
    options = parser.parse_args()
    rows = []
    print(f"{'input':24} {'N=K':>6} {'median GB/s':>12} {'best GB/s':>10}   ({options.threads} thread(s))")
    for size in map(int, options.size.split(",")):
        for name, write in INPUTS.items():
            if options.inputs not in name:
                continue
            with tempfile.TemporaryDirectory(dir="/dev/shm") as where:
                source, rates = write(where, size, size), []
                for _ in range(options.repeats):
                    command = [options.program, "pack", source, "-o", os.path.join(where, "packed.safetensors"), "--force",
                               "--threads", str(options.threads), "--format", "json"]
                    done = subprocess.run(command, capture_output=True, text=True)
                    if done.returncode != 0:
                        sys.exit(f"{name}: {done.stderr}")
                    rates.append(json.loads(done.stdout)["pack"][0]["pack_gb_per_second"])
                rows.append({"input": name, "n": size, "k": size, "threads": options.threads, "median_gb_s": statistics.median(rates),
                             "best_gb_s": max(rates), "runs": options.repeats})
                print(f"{name:24} {size:6} {rows[-1]['median_gb_s']:12.2f} {rows[-1]['best_gb_s']:10.2f}", flush=True)
    if options.out:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
        cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
        with open(options.out, "w") as f:
            json.dump({"date": datetime.date.today().isoformat(), "commit": commit, "cpu": cpu, "load": os.getloadavg()[0],
                       "points": rows}, f, indent=1)


main()
