#!/usr/bin/env python3
"""Times loading: load, raw, other readers and mmap-and-copy of the same checkpoint, interleaved, cold or warm.

usage: bench/load/run.py CHECKPOINT [--rounds 5] [--out FILE.json] [--program build/release/bin/swordfish] [--warm] [--ways ...]

Cold: every file is written back and dropped from the page cache (posix_fadvise) before each run. Each way reads all bytes of the
safetensors files:
  load              swordfish load (packed weights resident at the end); load-cuda: on a GPU; load-blockscaled: that layout;
                    load-threads: without io_uring; load-cache, load-cache-cuda: from the packed cache in --cache (made at first):
                    nothing is packed
  raw               swordfish load --raw: the same reads, nothing done with them; raw-threads: without io_uring; raw-depth-N: N in flight
  fio               fio, io_uring, O_DIRECT, 4 MiB, 16 in flight (where fio is installed); its buffers are on small pages
  direct-N          N threads of pread with O_DIRECT, 4 MiB each, into huge pages
  mmap              the files mapped, every page copied out with one thread (what memory-mapping loaders do)
  pread             one thread a core with pread into a buffer of 1 MiB, which stays in the caches: for --warm
  pread-keep        the same into fresh memory of the files' size on huge pages: what any loader that keeps its bytes must do
A virtual disk may get faster the more often a file is read: each round begins with another way, and --warm-up rounds before the
first are not counted. "load s" is the library's load(), from call to return; "s" is the whole process, with its start and its end.
--back MEMORY first takes and frees that much memory (a virtual machine's host may have taken free memory away; the first use of it
is then several times slower, and not the loader's doing).
The load average is written beside every number: on a shared machine it explains most of the spread.
"""
import argparse
import ctypes
import json
import mmap
import os
import pathlib
import statistics
import subprocess
import threading
import time

PIECE = 4 << 20
HUGE_PAGE = 2 << 20


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


def run_threads(files, threads, size, flags):
    """Every byte once, by `threads` threads, each into a buffer of its own."""
    pieces = [(f, at) for f in reversed(files) for at in reversed(range(0, f.stat().st_size, size))]
    lock = threading.Lock()
    errors = []

    def work():
        # On huge pages: with small ones a read becomes many requests, and the build machine's disk gives a third.
        area = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        area.madvise(mmap.MADV_HUGEPAGE)
        begin = -ctypes.addressof(ctypes.c_char.from_buffer(area)) % HUGE_PAGE
        buffer = memoryview(area)[begin : begin + size]
        handles = {f: os.open(f, os.O_RDONLY | flags) for f in files}
        try:
            while True:
                with lock:
                    if not pieces:
                        break
                    f, at = pieces.pop()
                os.preadv(handles[f], [buffer], at)
        except OSError as error:
            errors.append(error)
        for fd in handles.values():
            os.close(fd)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    if errors:
        raise errors[0]


def run_keep(files, threads):
    """Every byte once, into memory that nobody has touched before, and that is kept until all is there."""
    sizes = [f.stat().st_size for f in files]
    area = mmap.mmap(-1, sum(sizes) + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(mmap.MADV_HUGEPAGE)
    view = memoryview(area)
    pieces, begin = [], 0
    for f, size in zip(files, sizes):
        pieces += [(f, at, view[begin + at : begin + min(at + PIECE, size)]) for at in range(0, size, PIECE)]
        begin += size
    pieces.reverse()
    lock = threading.Lock()

    def work():
        handles = {f: os.open(f, os.O_RDONLY) for f in files}
        while True:
            with lock:
                if not pieces:
                    break
                f, at, to = pieces.pop()
            os.preadv(handles[f], [to], at)
        for fd in handles.values():
            os.close(fd)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    start = time.monotonic()
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    return time.monotonic() - start  # without giving the memory back


def run_fio(files):
    names = ":".join(str(f) for f in files)
    subprocess.run(["fio", "--name=read", f"--filename={names}", "--file_service_type=sequential", "--rw=read", "--bs=4M", "--direct=1",
                    "--ioengine=io_uring", "--iodepth=16", "--readonly", "--output-format=terse"], check=True, stdout=subprocess.DEVNULL)


def back(size):
    """Memory that the kernel has at hand: touched, then freed."""
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as area:
        area.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, size, 4096):
            area[at] = 1


def run_mmap(files):
    target = bytearray(PIECE)
    for f in files:
        with open(f, "rb") as handle, mmap.mmap(handle.fileno(), 0, prot=mmap.PROT_READ) as view:
            for at in range(0, len(view), PIECE):
                end = min(at + PIECE, len(view))
                target[: end - at] = view[at:end]


def swordfish(program, checkpoint, *options):
    out = subprocess.run([program, "load", checkpoint, "--format", "json", *options], check=True, capture_output=True, text=True).stdout
    return json.loads(out)["load"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=1, help="rounds that are not counted")
    parser.add_argument("--warm", action="store_true", help="everything in the page cache instead of nothing")
    parser.add_argument("--program", default="build/release/bin/swordfish")
    parser.add_argument("--ways", default="load,raw,fio,direct-16,mmap")
    parser.add_argument("--cache", type=pathlib.Path, help="folder of the packed cache for load-cache")
    parser.add_argument("--back", type=float, default=0, help="GB")
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    files = weight_files(args.checkpoint)
    total = sum(f.stat().st_size for f in files)
    cores = len(os.sched_getaffinity(0))

    def load(*options):
        return lambda: swordfish(args.program, args.checkpoint, *options)

    ways = {
        "load": load(),
        "load-cuda": load("--device", "cuda"),
        "load-blockscaled": load("--layout", "sm1xx-blockscaled/1"),
        "load-threads": load("--no-uring"),
        "load-cache": load("--cache", args.cache),
        "load-cache-cuda": load("--cache", args.cache, "--device", "cuda"),
        "raw": load("--raw"),
        "raw-threads": load("--raw", "--no-uring"),
        "fio": lambda: run_fio(files),
        "mmap": lambda: run_mmap(files),
        "pread": lambda: run_threads(files, cores, 1 << 20, 0),
        "pread-keep": lambda: run_keep(files, cores),
    } | {f"direct-{n}": lambda n=n: run_threads(files, n, PIECE, os.O_DIRECT) for n in (1, 2, 4, 8, 16, 32)}
    ways |= {f"raw-depth-{n}": load("--raw", "--depth", str(n)) for n in (2, 4, 8, 32)}
    if args.cache:
        swordfish(args.program, args.checkpoint, "--cache", args.cache)
    rows = []
    names = args.ways.split(",")
    for round_number in range(-args.warm_up, args.rounds):
        first = max(round_number, 0) % len(names)
        for way in names[first:] + names[:first]:
            if args.back:
                back(int(args.back * 1e9))
            (make_warm if args.warm else make_cold)(files + (sorted(args.cache.iterdir()) if args.cache else []))
            load_average = os.getloadavg()[0]
            start = time.monotonic()
            try:
                report = ways[way]()
            except (subprocess.CalledProcessError, FileNotFoundError) as error:  # a device or program that is not there
                print(f"{way:18} round {round_number}: failed: {(getattr(error, 'stderr', None) or str(error)).strip()}", flush=True)
                continue
            seconds = report if isinstance(report, float) else time.monotonic() - start
            if round_number < 0:
                continue
            row = {"way": way, "round": round_number, "seconds": seconds, "gb_per_second": total / 1e9 / seconds, "load_average": load_average}
            if isinstance(report, dict):
                row["report"] = report
            rows.append(row)
            print(f"{way:18} round {round_number}: {seconds:7.2f} s  {total / 1e9 / seconds:6.2f} GB/s  load average {load_average:.1f}", flush=True)
    print()
    medians, load_medians = {}, {}
    for way in names:
        times = [r["seconds"] for r in rows if r["way"] == way]
        if not times:
            continue
        medians[way] = statistics.median(times)
        inside = [r["report"]["seconds"] for r in rows if r["way"] == way and "report" in r]
        if inside:
            load_medians[way] = statistics.median(inside)
        print(f"{way:18} median {medians[way]:7.2f} s  best {min(times):7.2f} s  {total / 1e9 / medians[way]:6.2f} GB/s" +
              (f"  load {load_medians[way]:7.2f} s" if inside else ""))
    if args.out:
        out = {"bytes": total, "cold": not args.warm, "cores": cores, "rows": rows, "median_seconds": medians, "median_load_seconds": load_medians}
        args.out.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
