#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves that the soak can fail: builds the library with one barrier of Simple removed, the
one between a slot's stores and its flag, and some warps' stores delayed, and sees whether
the soak reports wrong elements. With the delay alone it must report nothing.

usage: negative_control.py --build DIR [--device gpu|sim] [--ranks N] [--seconds T]

DIR holds ips-soak, built with the tests. The changed sources are copies in a temporary
folder, never the tree's own. On a GPU run it under MPS, with NCCL 2.30 or newer in
LD_LIBRARY_PATH."""
import argparse
import os
import pathlib
import sys
import tempfile

import changed

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "soak"), str(TESTS / "process")]
import soaking  # noqa: E402
import tables  # noqa: E402

DELAY = r"""
        if (stage->send && ips_thread() / 32 % 4 == 3) {
            const uint64_t since = ips_clock_ns();
            while (ips_clock_ns() - since < 3000)
                ips_spin();
        }
"""
SIMPLE = "kernels/simple.h"
CHANGES = {
    "delay": (SIMPLE, r"(?<=begin\)\n    \{\n)(?=        for \(uint32_t i = move_fast\()",
              DELAY[1:]),
    "no barrier": (SIMPLE, r"ips_barrier\(\);(?=\s*if \(ips_thread\(\) == 0[^;]*"
                           r"ips_st_release\(&ring->next->flag)", "/* no barrier */"),
}
TABLE = tables.text([(1 << 30, "ring Simple", 8)])  # all calls


def soak(options, build, seed):
    env = dict(os.environ, IPS_SHIM=f"{build}/shim/libipcshim.so", IPCSHIM_MAX_BYTES="1G",
               IPCSHIM_LINKS="any", IPCSHIM_TUNE_FILE=tables.file(TABLE))
    arguments = ["--seconds", options.seconds, "--remake", 5000, "--large", 300,
                 "--max-bytes", 4 << 20]
    if options.device == "sim":
        env.update(LD_LIBRARY_PATH=f"{build}/tools/simgpu", SIMGPU_DEVICES="8")
    return soaking.run(f"{options.build}/tests/soak/ips-soak", arguments, options.ranks,
                       seed, env, options.seconds + 120)


def attempt(options, folder, name, wrong_wanted):
    """With this change, and those before it."""
    build = changed.build(folder, [CHANGES[name]], options.device)
    run = soak(options, build, 20261129)
    reports = [line for line in run.complaints if line.startswith("WRONG")]
    good = bool(reports) if wrong_wanted else not run.complaints
    what = reports or run.complaints or [soaking.describe(run.result)]
    print(f"{'ok' if good else 'FAIL'}: {name}: {what[0]}", flush=True)
    if not good:
        print(run.output[-2000:])
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--device", choices=("gpu", "sim"), default="gpu")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=20, help="of each of the two soaks")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    with tempfile.TemporaryDirectory(prefix="ipcshim-negative-") as folder:
        good = attempt(options, folder, "delay", False)
        good &= attempt(options, folder, "no barrier", True)
    return 0 if good else 1


sys.exit(main())
