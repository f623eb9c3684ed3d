#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every header compiles alone: C headers as C11, those shared with device code also as C++.

usage: check_headers.py ROOT CC CXX"""
import pathlib
import subprocess
import sys

root, cc, cxx = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
# Included by C, by nvcc and by the CPU stand-in.
BOTH = {"kernels/types.h", "kernels/wire.h", "kernels/link_wire.h", "policy/policy.h"}
# Device code is C++ by nature, in rooms of its own.
DEVICE_ROOM = "kernels"
C_IN_DEVICE_ROOM = {"kernels/types.h", "kernels/wire.h", "kernels/link_wire.h",
                    "kernels/image.h"}
# Back-ends of mem.h, only ever included by it.
BACK_ENDS = {"kernels/mem_host.h", "kernels/mem_ptx.h"}


def compiles(header, language):
    compiler, std = (cc, "gnu11") if language == "c" else (cxx, "gnu++17")
    command = [compiler, "-x", language, f"-std={std}", "-fsyntax-only", "-Wall", "-Wextra",
               "-Werror", "-Wno-unused-function", "-D_GNU_SOURCE", '-DIPCSHIM_VERSION="0"',
               f"-I{root}", "-"]
    text = f'#include "{header}"\n#include "{header}"\n'  # twice: the guard works
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    if done.returncode:
        print(f"{header} as {language}:\n{done.stderr}")
    return done.returncode == 0


checked = failed = 0
for path in sorted(root.glob("*/**/*.h")):
    header = path.relative_to(root).as_posix()
    room = header.split("/")[0]
    if room not in ("shim", "policy", "core", "kernels", "tools") or header in BACK_ENDS:
        continue
    device = room == DEVICE_ROOM and header not in C_IN_DEVICE_ROOM
    languages = ["c++"] if device else ["c", "c++"] if header in BOTH else ["c"]
    for language in languages:
        checked += 1
        failed += not compiles(header, language)
print(f"{checked} headers compiled, {failed} failed")
sys.exit(1 if failed or checked < 15 else 0)
