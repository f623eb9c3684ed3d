#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compile one .cu into a fat binary: SASS for the architectures below that this nvcc knows,
and PTX of the newest one for GPUs that come later."""
import os
import re
import subprocess
import sys

WANTED = [70, 75, 80, 86, 89, 90, 100, 120]


def main():
    nvcc, source, output, depfile, root = sys.argv[1:6]
    listed = subprocess.run([nvcc, "--list-gpu-code"], check=True, capture_output=True,
                            text=True).stdout
    known = {int(m) for m in re.findall(r"^sm_(\d+)$", listed, re.M)}
    archs = [a for a in WANTED if a in known]
    if not archs:
        sys.exit(f"{nvcc} supports none of sm_{WANTED}")
    command = [nvcc, "--fatbin", source, "-o", output, "-I", root, "-O3",
               "-std=c++17", "-fmad=false", "--threads", str(os.cpu_count() or 1), "-Xcompiler", "-Wall",
               "-Werror", "all-warnings", "-MD", "-MF", depfile]
    for arch in archs:
        command += ["-gencode", f"arch=compute_{arch},code=sm_{arch}"]
    command += ["-gencode", f"arch=compute_{archs[-1]},code=compute_{archs[-1]}"]
    help_text = subprocess.run([nvcc, "--help"], check=True, capture_output=True,
                               text=True).stdout
    if "--compress-mode" in help_text:
        command.append("--compress-mode=size")
    sys.exit(subprocess.run(command).returncode)


main()
