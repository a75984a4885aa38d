#!/usr/bin/env bash
# Loading on a machine with a GPU that has neither the library's dependencies nor a network.
#   bench/device/load.sh collect FOLDER [BUILD]   here: the program, the libraries that it needs, and the bench, into FOLDER (~20 MB)
#   FOLDER/load.sh run OUT [SIZE]                 there: a checkpoint of SIZE (10600MB) on its disk, everything timed, JSON into OUT
# What it runs, cold and interleaved: load to the CPU and to the GPU, raw, readers with O_DIRECT, mmap-and-copy; then warm against
# pread; the checksum of what is resident on the GPU against that of `pack`; peak memory of both and of CUDA alone. About 6 minutes; with LOAD_SHORT=1 two.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

case "${1:-}" in
  collect)
    folder=$2; build=${3:-$here/../../build/release}
    mkdir -p "$folder/lib"
    cp "$build/bin/swordfish" "$folder/"
    ldd "$build/bin/swordfish" | awk '$3 ~ /^\// {print $3}' | grep -vE '/(libc|libm|libpthread|libdl|librt)\.so' | xargs -I{} cp -L {} "$folder/lib/"
    cp "$here/load.sh" "$here/../load/run.py" "$folder/"
    strip "$folder/swordfish"
    du -sh "$folder"
    ;;
  run)
    out=$(mkdir -p "$2" && cd "$2" && pwd); size=${3:-10600MB}
    export LD_LIBRARY_PATH=$here/lib
    sf=$here/swordfish
    work=$(mktemp -d "${LOAD_DISK:-$PWD}/load.XXXXXX"); trap 'rm -rf "$work"' EXIT
    cd "$work"
    # Peak of a process, and of each kind of its memory (polled): /usr/bin/time is not everywhere.
    peak() { python3 - "$@" <<'PY'
import json, re, subprocess, sys, time
out, command = sys.argv[1], sys.argv[2:]
most = {}
with open(out + ".out", "w") as f:
    p = subprocess.Popen(command, stdout=f)
    while p.poll() is None:
        try:
            text = open(f"/proc/{p.pid}/status").read()
        except OSError:
            break
        for key, kib in re.findall(r"(VmHWM|VmRSS|RssAnon|RssFile|RssShmem|VmLck|VmPin):\s+(\d+) kB", text):
            most[key] = max(most.get(key, 0), 1024 * int(kib))
        time.sleep(0.005)
json.dump(most, open(out + ".peak", "w"))
sys.exit(p.wait())
PY
    }
    { uname -a; nproc; grep -m1 'model name' /proc/cpuinfo; grep MemTotal /proc/meminfo; df -h .; nvidia-smi -L || true
      cat /sys/kernel/mm/transparent_hugepage/enabled; cat /sys/module/page_reporting/parameters/* 2>/dev/null || true
      find / -xdev -name 'libcufile*' 2>/dev/null; ls -d /proc/driver/nvidia-fs* || true; } >"$out/machine.txt" 2>&1
    "$sf" synth --model qwen3-moe --scheme nvfp4 --size "$size" --shard-size 4GB -o ckpt --format json >"$out/synth.json"
    sync
    cat "$out/machine.txt"
    for i in 1 2 3; do peak "$out/devices-$i" "$sf" devices --format json || true; done  # a process that makes the GPU's context, no more
    if [[ -n ${LOAD_SHORT:-} ]]; then
      python3 "$here/run.py" ckpt --program "$sf" --rounds 2 --warm-up 0 --ways load,load-cuda,raw,direct-4,direct-8,direct-16 --out "$out/cold.json" || true
    else
      python3 "$here/run.py" ckpt --program "$sf" --cache cache --ways load,load-cuda,raw,load-cache,load-cache-cuda,load-blockscaled,direct-4 --out "$out/cold.json" || true
      python3 "$here/run.py" ckpt --program "$sf" --rounds 1 --warm-up 0 --ways direct-16,mmap --out "$out/readers.json" || true
    fi
    python3 "$here/run.py" ckpt --program "$sf" --rounds 4 --warm --ways load,load-cuda,raw,pread,pread-keep --out "$out/warm.json" || true
    for device in cpu cuda; do
      peak "$out/sum-$device" "$sf" load ckpt --device $device --checksum --format json || true
      peak "$out/plain-$device" "$sf" load ckpt --device $device --format json || true
    done
    [[ -z ${LOAD_SHORT:-} ]] || exit 0
    # The whole packed by `pack`, and through a packed cache: the same checksum of what pack wrote (its file holds no plain tensors).
    "$sf" pack ckpt -o packed.safetensors --layers 'layers\.[0-2]\.' >"$out/pack.txt"
    "$sf" load packed.safetensors --checksum --format json >"$out/sum-pack.json"
    "$sf" load ckpt --device cuda --layers 'layers\.[0-2]\.' --checksum --format json >"$out/sum-pack-cuda.json" || true
    rm packed.safetensors
    "$sf" load ckpt --device cuda --cache cache --checksum --format json >"$out/cache-read.json" || true
    python3 - "$out" <<'PY'
import json, pathlib, sys
out = pathlib.Path(sys.argv[1])
row = lambda p: json.loads((out / p).read_text())["load"][0]
there = lambda p: (out / p).exists() and (out / p).read_text().strip()
names = ("sum-cpu.out", "sum-cuda.out", "cache-read.json", "sum-pack.json", "sum-pack-cuda.json")
sums = {p: row(p)["checksum"] for p in names if there(p)}
print(sums)
print("whole model, CPU = GPU = GPU from cache:", len({sums.get(p) for p in ("sum-cpu.out", "sum-cuda.out", "cache-read.json")}) == 1)
print("three layers, pack = GPU:", sums.get("sum-pack.json") == sums.get("sum-pack-cuda.json"))
for device in filter(lambda d: there(f"plain-{d}.out"), ("cpu", "cuda")):
    r, peak = row(f"plain-{device}.out"), json.loads((out / f"plain-{device}.peak").read_text())
    print(device, {k: r[k] for k in ("seconds", "packed_bytes", "device_bytes", "disk_bytes", "past_ring_bytes", "pack_seconds", "copy_seconds", "upload_seconds", "wait_seconds", "full_seconds", "open_seconds", "device_seconds")}, "peak host bytes", peak)
PY
    ;;
  *) sed -n '2,6p' "$0"; exit 2 ;;
esac
