#!/usr/bin/env bash
# Loading on a machine with a GPU that has neither the library's dependencies nor a network.
#   bench/device/load.sh collect FOLDER [BUILD]   here: the program, the libraries that it needs, and the bench, into FOLDER (~20 MB)
#   FOLDER/load.sh run OUT [SIZE]                 there: a checkpoint of SIZE (10600MB) on its disk, everything timed, JSON into OUT
# What it runs, cold and interleaved: load to the CPU and to the GPU, raw, readers with O_DIRECT, mmap-and-copy; then warm against
# pread; the checksum of what is resident on the GPU against that of `pack`; peak memory of both; a packed cache. About 6 minutes.
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
    # /usr/bin/time is not everywhere.
    peak() { python3 - "$@" <<'PY'
import os, subprocess, sys
out, command = sys.argv[1], sys.argv[2:]
with open(out + ".out", "w") as f:
    p = subprocess.Popen(command, stdout=f)
    _, status, usage = os.wait4(p.pid, 0)
open(out + ".peak", "w").write(f"{usage.ru_maxrss * 1024}\n")
sys.exit(os.waitstatus_to_exitcode(status))
PY
    }
    { uname -a; nproc; grep -m1 'model name' /proc/cpuinfo; grep MemTotal /proc/meminfo; df -h .; nvidia-smi -L || true
      cat /sys/kernel/mm/transparent_hugepage/enabled; cat /sys/module/page_reporting/parameters/* 2>/dev/null || true; } >"$out/machine.txt" 2>&1
    "$sf" synth --model qwen3-moe --scheme nvfp4 --size "$size" --shard-size 4GB -o ckpt --format json >"$out/synth.json"
    sync
    cat "$out/machine.txt"
    python3 "$here/run.py" ckpt --program "$sf" --rounds 3 --ways load,load-cuda,raw,direct-16,load-blockscaled --out "$out/cold.json" || true
    python3 "$here/run.py" ckpt --program "$sf" --rounds 1 --ways direct-4,direct-32,load-threads,mmap --out "$out/readers.json" || true
    python3 "$here/run.py" ckpt --program "$sf" --rounds 2 --warm --ways load,load-cuda,raw,pread --out "$out/warm.json" || true
    for device in cpu cuda; do
      peak "$out/sum-$device" "$sf" load ckpt --device $device --checksum --format json || true
      peak "$out/plain-$device" "$sf" load ckpt --device $device --format json || true
    done
    # The whole packed by `pack`, and through a packed cache: the same checksum of what pack wrote (its file holds no plain tensors).
    "$sf" pack ckpt -o packed.safetensors --layers 'layers\.[0-2]\.' >"$out/pack.txt"
    "$sf" load packed.safetensors --checksum --format json >"$out/sum-pack.json"
    "$sf" load ckpt --device cuda --layers 'layers\.[0-2]\.' --checksum --format json >"$out/sum-pack-cuda.json" || true
    rm packed.safetensors
    "$sf" load ckpt --device cuda --cache cache --format json >"$out/cache-written.json" || true
    python3 - <<'PY'
import os, pathlib
for f in pathlib.Path("cache").glob("*"):
    fd = os.open(f, os.O_RDONLY); os.fsync(fd); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED); os.close(fd)
PY
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
    r, peak = row(f"plain-{device}.out"), int((out / f"plain-{device}.peak").read_text())
    print(device, {k: r[k] for k in ("seconds", "packed_bytes", "device_bytes", "disk_bytes", "past_ring_bytes", "pack_seconds", "copy_seconds", "upload_seconds", "wait_seconds", "full_seconds", "open_seconds")}, "peak host bytes", peak)
PY
    ;;
  *) sed -n '2,6p' "$0"; exit 2 ;;
esac
