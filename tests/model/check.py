#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Has Spin visit every state of a model of given sizes.

usage: check.py [--fails WORDS] MODEL NAME[=VALUE]...

Ends with 0 if the search was complete and met no error; with --fails, if it met an error
whose description has these words in it."""
import re
import shutil
import subprocess
import sys
import tempfile

MEMORY_MB = 2000


def run(folder, *words):
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def search(model, sizes):
    """What the verifier printed."""
    with tempfile.TemporaryDirectory(prefix="model-") as folder:
        for words in (["spin", "-a", *(f"-D{x}" for x in sizes), model],
                      ["cc", "-O1", "-w", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MB}",
                       "-o", "pan", "pan.c"]):
            status, said = run(folder, *words)
            if status or "Error:" in said:
                sys.exit(f"{' '.join(words)}: {said}")
        return run(folder, "./pan", "-m200000")[1]


def main(words):
    fails = words[1] if words[0] == "--fails" else None
    model, *sizes = words[2:] if fails else words
    for tool in ("spin", "cc"):
        if not shutil.which(tool):
            print(f"skipped: {tool} not found")
            return 77
    said = search(model, sizes)
    errors = re.search(r"errors: (\d+)", said)
    states = re.search(r"(\d+) states, stored", said)
    if not errors or not states:
        sys.exit(f"no verdict:\n{said}")
    if "max search depth too small" in said or "out of memory" in said:
        sys.exit(f"the search is not complete:\n{said}")
    found = re.findall(r"pan:1: (.*)", said)
    print(f"{states[1]} states, {errors[1]} errors {found}")
    if fails:
        return 0 if found and fails in found[0] else 1
    return 0 if errors[1] == "0" else 1


sys.exit(main(sys.argv[1:]))
