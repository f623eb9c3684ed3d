#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checks of the compiled kernels can fail: each rule is broken, one at a time, in a copy
of the sources, and the check must complain for the reason named.

usage: check_code_mutants.py ptx|sass NVCC ROOT"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import sys
import tempfile

import kernel_code

# (what, file, pattern, replacement, what the complaint must say of PTX, and of SASS). A
# pattern that no longer matches once is an error: the rule would go unproven.
MUTANTS = [
    ("16 bytes are stored as two words", "mem_ptx.h",
     r'asm volatile\("st\.relaxed\.sys\.global\.v4\.u32.*?;" ::"l"\(address\),\s*"r"\(v\.x\)'
     r'.*?"memory"\);',
     'asm volatile("st.relaxed.sys.global.v2.u32 [%0], {%1, %2};'
     'st.relaxed.sys.global.v2.u32 [%0+8], {%3, %4};" ::"l"(address),'
     '"r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");',
     r"ll: 0 of store", r"ll: 0 of store"),
    ("16 bytes are loaded as two words", "mem_ptx.h",
     r'"ld\.relaxed\.sys\.global\.v4\.u32 \{%0, %1, %2, %3\}, \[%4\];"',
     '"ld.relaxed.sys.global.v2.u32 {%0, %1}, [%4];'
     'ld.relaxed.sys.global.v2.u32 {%2, %3}, [%4+8];"',
     r"simple: 0 of load", r"simple: 0 of load"),
    ("LL stores a line as two words", "ll.h", r"(?<=if \(stage->send\)\n)\s+ips_st16\(to \+ "
     r"16 \* i, line\);",
     "{ ips_st_relaxed((uint64_t *)(to + 16 * i), line.x | (uint64_t)line.y << 32);"
     "ips_st_relaxed((uint64_t *)(to + 16 * i) + 1, line.z | (uint64_t)line.w << 32); }",
     r"_ll: 8 of store", r"_ll: 8 of store"),
    ("LL128 stores its 16 bytes weakly", "ll128.h", r"ips_st16\((to \+ 128 .*?), v\);",
     r"*(struct ips_v4 *)(\1) = v;", r"_ll128: 7 of store", r"_ll128: 7 of store"),
    ("Simple loads its slot weakly", "simple.h", r"= ips_ld16\(from \+ 16 \* i\)",
     "= *(const struct ips_v4 *)(from + 16 * i)", r"simple: \d+ of load", r"simple: \d+ of load"),
    ("one-shot loads its inbox weakly", "direct.h", r"ips_ld16\(from \+ p \* part\)",
     "*(const struct ips_v4 *)(from + p * part)", r"oneshot_ll: 0 of load",
     r"oneshot_ll: 0 of load"),
    ("two-shot stores a line weakly", "direct.h", r"ips_st16\((ips_inbox\([^;]*?),\s+line\);",
     r"*(struct ips_v4 *)(\1) = line;", r"twoshot_ll128: 7 of store",
     r"twoshot_ll128: 7 of store"),
    ("the inbox is const __restrict__", "mem_ptx.h", r"ld\.relaxed\.sys\.global\.v4\.u32",
     "ld.global.nc.v4.u32", r"has ld\.global\.nc", r"has LDG\S*\.CONSTANT"),
    ("system scope is the GPU's", "mem_ptx.h", r"st\.relaxed\.sys\.global\.v4",
     "st.relaxed.gpu.global.v4", r"has st\.relaxed\.gpu", r"has STG\S*\.STRONG\.GPU"),
    ("a release is relaxed", "mem_ptx.h", r"st\.release\.sys", "st.relaxed.sys",
     r"simple: 0 of release", r"simple: 0 of release"),
    ("Simple's flag is relaxed", "simple.h", r"ips_st_release", "ips_st_relaxed",
     r"simple: 5 of release", r"simple: 5 of release"),
    ("an acquire is relaxed", "mem_ptx.h", r"ld\.acquire\.sys", "ld.relaxed.sys",
     r"probe: 0 of acquire", r"probe: 0 of acquire"),
    ("a counter is added to a peer's memory", "simple.h",
     r"ips_st_release\((&ring->next->flag[^;]*\.value), step\)",
     r"atomicAdd_system((unsigned long long *)\1, 1ull)",
     r"has (atom|red)\.", r"has (ATOM|RED)"),
    ("the ring lies in local memory", "ring.h",
     r"P::stage\(protocol, &ring, &stage\);",
     r'asm volatile("" ::"l"(&ring) : "memory"); \g<0>',
     r"has (ld|st)\.local", r"has (LDL|STL)"),
]


def mutate(root, folder, file, pattern, replacement):
    shutil.copytree(os.path.join(root, "kernels"), os.path.join(folder, "kernels"))
    path = pathlib.Path(folder, "kernels", file)
    text, count = re.subn(pattern, replacement, path.read_text(), flags=re.S)
    if count != 1:
        return f"the pattern matches {count} times in {file}"
    path.write_text(text)
    return None


def kernels_of(kind, nvcc, folder):
    if kind == "ptx":
        return kernel_code.read_ptx(
            kernel_code.compile_kernels(nvcc, folder, "-ptx", "-arch=compute_90", "-o", "-"))
    cubin = os.path.join(folder, "kernels.cubin")
    kernel_code.compile_kernels(nvcc, folder, "-cubin", "-arch=sm_80", "-o", cubin)
    return kernel_code.read_sass(kernel_code.disassemble(nvcc, cubin))["sm_80"]


def survives(kind, nvcc, root, mutant):
    """Why the mutant was not caught as it should be, or None."""
    what, file, pattern, replacement, of_ptx, of_sass = mutant
    expected = of_ptx if kind == "ptx" else of_sass
    with tempfile.TemporaryDirectory() as folder:
        fault = mutate(root, folder, file, pattern, replacement)
        if fault:
            return f"{what}: {fault}"
        bad = kernel_code.complaints(kernels_of(kind, nvcc, folder))
    if any(re.search(expected, complaint) for complaint in bad):
        return None
    return f"{what}: not seen; the complaints are {bad}"


def main():
    kind, nvcc, root = sys.argv[1:]
    if not nvcc:
        kernel_code.skip("no nvcc here")
    if kind == "sass":
        kernel_code.disassembler(nvcc)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda mutant: survives(kind, nvcc, root, mutant), MUTANTS))
    bad = [result for result in results if result]
    print("\n".join(bad) or f"{len(MUTANTS)} rules broken, all seen")
    sys.exit(1 if bad else 0)


main()
