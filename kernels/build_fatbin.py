#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compile one .cu into a fat binary: SASS for the architectures below that this nvcc knows,
and PTX of the newest one for GPUs that come later. With USAGE, prints what each kernel uses
on each architecture, one line each, and keeps the lines there; tests/unit/check_usage.py
judges them.

Writes OUTPUT.h too, for the file that embeds OUTPUT to include: a compiler's dependencies
leave .incbin out, and without the header old device code would stay in a new build.

usage: build_fatbin.py NVCC SOURCE OUTPUT DEPFILE ROOT [USAGE]"""
import os
import re
import subprocess
import sys

WANTED = [70, 75, 80, 86, 89, 90, 100, 120]

NUMBERS = r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
# What ptxas says with -v and would not say without.
CHATTER = re.compile(r"\s+" + NUMBERS + r"|ptxas info +: (\d+ bytes gmem|Compiling entry |"
                     r"Function properties |Used \d+ registers|Compile time)")


def architectures(nvcc):
    listed = subprocess.run([nvcc, "--list-gpu-code"], check=True, capture_output=True,
                            text=True).stdout
    known = {int(m) for m in re.findall(r"^sm_(\d+)$", listed, re.M)}
    archs = [a for a in WANTED if a in known]
    if not archs:
        sys.exit(f"{nvcc} supports none of sm_{WANTED}")
    return archs


def command_line(nvcc, source, output, depfile, root):
    archs = architectures(nvcc)
    command = [nvcc, "--fatbin", source, "-o", output, "-I", root, "-O3",
               "-std=c++17", "-fmad=false", "--threads", str(os.cpu_count() or 1),
               "-Xptxas", "-v", "-Xcompiler", "-Wall", "-Werror", "all-warnings",
               "-MD", "-MF", depfile]
    for arch in archs:
        command += ["-gencode", f"arch=compute_{arch},code=sm_{arch}"]
    command += ["-gencode", f"arch=compute_{archs[-1]},code=compute_{archs[-1]}"]
    help_text = subprocess.run([nvcc, "--help"], check=True, capture_output=True,
                               text=True).stdout
    if "--compress-mode" in help_text:
        command.append("--compress-mode=size")
    return command


def usage_lines(messages):
    """What ptxas -v says, a line per architecture and kernel. A kernel's figures include the
    functions it calls, which ptxas lists after it; what calls nest adds up is its "cumulative
    stack size"."""
    lines = []
    for entry in re.split(r"Compiling entry function ", messages)[1:]:
        kernel, arch = re.match(r"'(\w+)' for '(\w+)'", entry).groups()
        used = re.search(r"Used (\d+) registers.*", entry)
        frames = [[int(n) for n in m] for m in re.findall(NUMBERS, entry)]
        if not used or not frames:
            continue
        shared = re.search(r"(\d+) bytes smem", used[0])
        nested = re.search(r"(\d+) bytes cumulative stack size", used[0])
        stack = max([frame for frame, _, _ in frames] + [int(nested[1]) if nested else 0])
        spilled = sum(stores + loads for _, stores, loads in frames)
        lines.append(f"{arch} {kernel}: {used[1]} registers, {spilled} bytes spilled, "
                     f"{stack} bytes stack, {shared[1] if shared else 0} bytes shared")
    return sorted(lines, key=lambda line: (int(re.search(r"\d+", line)[0]), line))


def tell(usage, lines):
    with open(usage, "w") as file:
        file.writelines(line + "\n" for line in lines)
    print("\n".join(lines) or "warning: ptxas did not say what the kernels use")
    for line in lines:
        if ", 0 bytes spilled" not in line:
            print(f"warning: registers spilled: {line}")


def main():
    done = subprocess.run(command_line(*sys.argv[1:6]), stderr=subprocess.PIPE, text=True)
    other = [line for line in done.stderr.splitlines() if not CHATTER.match(line)]
    if other:
        print("\n".join(other), file=sys.stderr)
    if done.returncode:
        sys.exit(done.returncode)
    with open(sys.argv[3] + ".h", "w") as file:
        file.write("/* Written whenever the fat binary is. */\n")
    if len(sys.argv) > 6:
        tell(sys.argv[6], usage_lines(done.stderr))


main()
