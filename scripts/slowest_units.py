"""Prints the slowest translation units of a ninja log. usage: slowest_units.py LOG"""
import sys

times = {}
for line in open(sys.argv[1]):
    if line.startswith("#"):
        continue
    start, end, _, output, _ = line.rstrip("\n").split("\t")
    if output.endswith(".o"):
        times[output] = (int(end) - int(start)) / 1000
for output, seconds in sorted(times.items(), key=lambda item: -item[1])[:8]:
    print(f"  {seconds:6.1f}  {output.split('CMakeFiles/')[-1]}")
