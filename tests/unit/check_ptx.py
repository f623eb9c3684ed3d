#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PTX of the kernels has the memory instructions that were meant: system scope on what
peers share, 16 bytes at a time, and no load through a cache that never sees a peer's store.
Needs nvcc, no GPU."""
import sys

import kernel_code

nvcc, root = sys.argv[1:3]
if not nvcc:
    kernel_code.skip("no nvcc here")
ptx = kernel_code.compile_kernels(nvcc, root, "-ptx", "-arch=compute_90", "-o", "-")
bad = kernel_code.complaints(kernel_code.read_ptx(ptx))
print("\n".join(bad) or "as meant")
sys.exit(1 if bad else 0)
