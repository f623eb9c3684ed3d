#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The PTX of the kernels has the memory instructions that were meant: system scope on what
peers share, and no ld.global.nc, which would read a peer's data through a cache that never
sees it. Needs nvcc, no GPU."""
import re
import subprocess
import sys

nvcc, root = sys.argv[1:3]
if not nvcc:
    print("no nvcc here")
    sys.exit(77)
ptx = subprocess.run([nvcc, "-ptx", "-arch=compute_90", "-O3", "-std=c++17", "-fmad=false",
                      "-I", root, root + "/kernels/allreduce.cu", "-o", "-"],
                     check=True, capture_output=True, text=True).stdout
bodies = {m[1]: m[2] for m in re.finditer(r"\.entry (\w+)\((.*?\n\})", ptx, re.S)}
WANTED = {
    "ips_allreduce_ll": ["ld.relaxed.sys.global.v4.u32", "st.relaxed.sys.global.v4.u32",
                         "st.release.sys.global.u64", "ld.acquire.sys.global.u64"],
    "ips_allreduce_ll128": ["ld.relaxed.sys.global.v4.u32", "st.relaxed.sys.global.v4.u32",
                            "st.release.sys.global.u64", "shfl.sync.bfly"],
    "ips_allreduce_simple": ["ld.relaxed.sys.global.v4.u32", "st.relaxed.sys.global.v4.u32",
                             "st.release.sys.global.u64", "ld.acquire.sys.global.u64"],
    "ips_probe": ["st.release.sys.global.u64", "ld.acquire.sys.global.u64"],
}
bad = [f"{kernel}: no {instruction}" for kernel, wanted in WANTED.items()
       for instruction in wanted if instruction not in bodies.get(kernel, "")]
if "ld.global.nc" in ptx:
    bad.append("ld.global.nc in the kernels")
print("\n".join(bad) or "as meant")
sys.exit(1 if bad else 0)
