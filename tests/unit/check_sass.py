#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The machine code of the kernels, of every architecture in the fat binary, has the memory
instructions that were meant. ptxas may do what PTX does not say: split or narrow an access
(it does narrow a load of 8 bytes of which 4 are used) and spill. Needs cuobjdump, no GPU.

usage: check_sass.py NVCC FATBIN"""
import sys

import kernel_code

# Spills that are known: check_usage.py bounds them.
KNOWN = set()
NEEDED = {"sm_80", "sm_90"}

nvcc, fatbin = sys.argv[1:3]
if not nvcc:
    kernel_code.skip("no nvcc here")
found = kernel_code.read_sass(kernel_code.disassemble(nvcc, fatbin))
bad = [f"no machine code for {arch}" for arch in sorted(NEEDED - set(found))]
for arch, kernels in found.items():
    for name, (_, forbidden) in kernels.items():
        if (arch, name) in KNOWN:
            forbidden[:] = [what for what in forbidden if what[:3] not in ("LDL", "STL")]
    bad += [f"{arch} {complaint}" for complaint in kernel_code.complaints(kernels)]
print("\n".join(bad) or f"as meant: {', '.join(found)}")
sys.exit(1 if bad else 0)
