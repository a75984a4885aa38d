#!/usr/bin/env python3
"""Times loading: load, raw, dd-like reads and mmap-and-copy of the same checkpoint, interleaved, cold and warm.

usage: bench/load/run.py CHECKPOINT [--rounds 3] [--out FILE.json] [--program build/release/bin/swordfish] [--warm] [--ways ...]

Cold: every file is written back and dropped from the page cache (posix_fadvise) before each run. Each way reads all bytes of the
safetensors files:
  load       swordfish load (packed weights resident at the end)
  raw        swordfish load --raw: the same reads, nothing done with them
  dd         dd with O_DIRECT, 4 MiB blocks, files one after the other
  dd-N       N dd processes with O_DIRECT at once, each on its own stretch: what a fio job with numjobs=N does
  mmap       the files mapped, every page copied out with one thread (what memory-mapping loaders do)
  pread      cold: as dd without O_DIRECT; warm: two threads of pread into a small buffer
The load average is written beside every number: on a shared machine it explains most of the spread.
"""
import argparse
import json
import mmap
import os
import pathlib
import statistics
import subprocess
import threading
import time

PIECE = 4 << 20


def weight_files(folder):
    return sorted(folder.glob("*.safetensors"))


def make_cold(files):
    for f in files:
        fd = os.open(f, os.O_RDONLY)
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def make_warm(files):
    buffer = bytearray(PIECE)
    for f in files:
        fd = os.open(f, os.O_RDONLY)
        while os.readv(fd, [buffer]):
            pass
        os.close(fd)


def run_dd(files, jobs):
    stretches = []
    for f in files:
        size = (f.stat().st_size + PIECE - 1) // PIECE
        for j in range(jobs):
            begin, end = size * j // jobs, size * (j + 1) // jobs
            stretches.append((f, begin, end - begin))
    running = []
    for f, skip, count in stretches:
        if count == 0:
            continue
        running.append(subprocess.Popen(["dd", f"if={f}", "of=/dev/null", f"bs={PIECE}", f"skip={skip}", f"count={count}", "iflag=direct"],
                                        stderr=subprocess.DEVNULL))
        if len(running) == jobs:
            for p in running:
                assert p.wait() == 0
            running = []
    for p in running:
        assert p.wait() == 0


def run_mmap(files):
    target = bytearray(PIECE)
    for f in files:
        with open(f, "rb") as handle, mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ) as view:
            for at in range(0, len(view), PIECE):
                end = min(at + PIECE, len(view))
                target[: end - at] = view[at:end]


def run_pread(files, threads):
    pieces = [(f, at) for f in files for at in range(0, f.stat().st_size, 1 << 20)]
    lock = threading.Lock()

    def work():
        buffer = bytearray(1 << 20)
        handles = {f: os.open(f, os.O_RDONLY) for f in files}
        while True:
            with lock:
                if not pieces:
                    break
                f, at = pieces.pop()
            os.preadv(handles[f], [buffer], at)
        for fd in handles.values():
            os.close(fd)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()


def swordfish(program, checkpoint, *options):
    out = subprocess.run([program, "load", checkpoint, "--format", "json", *options], check=True, capture_output=True, text=True).stdout
    return json.loads(out)["load"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", action="store_true", help="everything in the page cache instead of nothing")
    parser.add_argument("--program", default="build/release/bin/swordfish")
    parser.add_argument("--ways", default="load,raw,dd,dd-4,mmap,load-blockscaled")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    files = weight_files(args.checkpoint)
    total = sum(f.stat().st_size for f in files)
    cores = os.cpu_count()
    ways = {
        "load": lambda: swordfish(args.program, args.checkpoint),
        "load-blockscaled": lambda: swordfish(args.program, args.checkpoint, "--layout", "sm1xx-blockscaled/1"),
        "raw": lambda: swordfish(args.program, args.checkpoint, "--raw"),
        "load-threads": lambda: swordfish(args.program, args.checkpoint, "--no-uring"),
        "dd": lambda: run_dd(files, 1),
        "dd-4": lambda: run_dd(files, 4),
        "dd-8": lambda: run_dd(files, 8),
        "mmap": lambda: run_mmap(files),
        "pread": lambda: run_pread(files, cores),
    }
    rows = []
    for round_number in range(args.rounds):
        for way in args.ways.split(","):
            (make_warm if args.warm else make_cold)(files)
            load_average = os.getloadavg()[0]
            start = time.monotonic()
            report = ways[way]()
            seconds = time.monotonic() - start
            row = {"way": way, "round": round_number, "seconds": seconds, "gb_per_second": total / 1e9 / seconds, "load_average": load_average}
            if report:
                row["report"] = report
            rows.append(row)
            print(f"{way:18} round {round_number}: {seconds:7.2f} s  {total / 1e9 / seconds:6.2f} GB/s  load average {load_average:.1f}", flush=True)
    print()
    medians = {}
    for way in args.ways.split(","):
        times = [r["seconds"] for r in rows if r["way"] == way]
        medians[way] = statistics.median(times)
        print(f"{way:18} median {medians[way]:7.2f} s  best {min(times):7.2f} s  {total / 1e9 / medians[way]:6.2f} GB/s")
    if args.out:
        args.out.write_text(json.dumps({"bytes": total, "cold": not args.warm, "cores": cores, "rows": rows, "median_seconds": medians}, indent=1) + "\n")


if __name__ == "__main__":
    main()
