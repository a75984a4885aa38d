"""Writes README's table of support from the kernel table of a built program, or checks it.

usage: support_table.py [--check] PROGRAM
"""
import json
import pathlib
import subprocess
import sys

README = pathlib.Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- kernel table: scripts/support_table.py -->\n", "<!-- end of kernel table -->\n"

check = "--check" in sys.argv
rows = json.loads(subprocess.run([sys.argv[-1], "explain", "--list", "--format", "json"], check=True, capture_output=True).stdout)["kernels"]
keys = list(rows[0])
lines = ["| " + " | ".join(keys) + " |", "|" + "---|" * len(keys)]
lines += ["| " + " | ".join(str(row[key]) for key in keys) + " |" for row in rows]
text = README.read_text()
begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
new = text[:begin] + "\n".join(lines) + "\n" + text[end:]
if check:
    sys.exit(0 if new == text else "README's table differs from the kernel table: run scripts/support_table.py build/release/bin/swordfish")
README.write_text(new)
