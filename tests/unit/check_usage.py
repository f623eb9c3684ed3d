#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No kernel spills registers or keeps anything in local memory, on any architecture, by what
ptxas said when the kernels were built (kernels/build_fatbin.py).

usage: check_usage.py USAGE"""
import re
import sys

import kernel_code

# Bytes spilled and of stack that are known, and why: {(architecture, kernel): (spilled,
# stack)}. Goal: none.
KNOWN = {}
NEEDED = {"sm_80", "sm_90"}
LINE = re.compile(r"(\w+) (\w+): \d+ registers, (\d+) bytes spilled, (\d+) bytes stack, "
                  r"\d+ bytes shared")


def judge(text):
    lines = [LINE.fullmatch(line) for line in text.splitlines()]
    if not all(lines):
        return ["a line of another form"]
    bad = []
    for line in lines:
        spilled, stack = int(line[3]), int(line[4])
        most_spilled, most_stack = KNOWN.get((line[1], line[2]), (0, 0))
        if spilled > most_spilled or stack > most_stack:
            bad.append(f"{line[0]}; at most {most_spilled} and {most_stack}")
    seen = {(line[1], line[2]) for line in lines}
    archs = {arch for arch, _ in seen} | NEEDED
    bad += [f"{arch} {kernel}: nothing said" for arch in sorted(archs)
            for kernel in kernel_code.FLOORS if (arch, kernel) not in seen]
    return bad


def self_test(text):
    """The judge sees one spilled byte, one of stack, and a kernel that is missing."""
    first = text.splitlines()[0]
    for pattern, instead in ((r"\b0 bytes spilled", "1 bytes spilled"),
                             (r"\b0 bytes stack", "1 bytes stack")):
        if not judge(text.replace(first, re.sub(pattern, instead, first))):
            sys.exit(f"{instead} in the first line was not seen")
    if not judge(text.replace(first + "\n", "")):
        sys.exit("a missing line was not seen")


def main():
    if not sys.argv[1]:
        kernel_code.skip("no nvcc here")
    with open(sys.argv[1]) as file:
        text = file.read()
    bad = judge(text)
    for arch, kernel in KNOWN:
        print("known:", *re.findall(rf"^{arch} {kernel}: .*", text, re.M))
    print("\n".join(bad) or f"{len(text.splitlines())} kernels, as meant")
    if bad:
        sys.exit(1)
    self_test(text)


main()
