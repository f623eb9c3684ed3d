#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The README's table of variables is what `ipcshim env --markdown` prints.

usage: check_readme.py README IPCSHIM"""
import pathlib
import subprocess
import sys

readme, ipcshim = pathlib.Path(sys.argv[1]), sys.argv[2]
if not readme.exists():
    print("there is no README.md yet")
    sys.exit(77)
table = subprocess.run([ipcshim, "env", "--markdown"], capture_output=True, text=True,
                       check=True).stdout.strip()
rows = [line for line in table.splitlines() if line.startswith("| `IPCSHIM_")]
if len(rows) < 10:
    print("ipcshim env --markdown prints no table")
    sys.exit(1)
if table not in readme.read_text():
    print("README.md differs from `ipcshim env --markdown`; put this there:\n")
    print(table)
    sys.exit(1)
