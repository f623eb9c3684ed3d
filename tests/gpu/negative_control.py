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
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/soak"))
import soaking  # noqa: E402

DELAY = r"""
        if (stage->send && ips_thread() / 32 % 4 == 3) {
            const uint64_t since = ips_clock_ns();
            while (ips_clock_ns() - since < 3000)
                ips_spin();
        }
"""
CHANGES = {
    "delay": (r"(?<=begin\)\n    \{\n)(?=        for \(uint32_t i = move_fast\()", DELAY[1:]),
    "no barrier": (r"ips_barrier\(\);(?=\s*if \(ips_thread\(\) == 0[^;]*"
                   r"ips_st_release\(&ring->next->flag)", "/* no barrier */"),
}


def change(folder, names):
    path = folder / "kernels/simple.h"
    text = path.read_text()
    for name in names:
        text, count = re.subn(CHANGES[name][0], CHANGES[name][1], text)
        if count != 1:
            sys.exit(f"negative_control: {name}: kernels/simple.h has {count} such places, not 1")
    path.write_text(text)


def make(folder, names, device):
    """The library and, for the stand-in, the driver with the changed device code."""
    source, build = folder / "source", folder / "build"
    for name in ("kernels", "policy", "core", "shim", "tools"):
        shutil.copytree(ROOT / name, source / name)
    for name in ("meson.build", "meson_options.txt"):
        shutil.copy(ROOT / name, source / name)
    change(source, names)
    targets = ["shim/libipcshim.so"]
    if device == "sim":
        targets += [f"tools/simgpu/lib{name}" for name in
                    ("cuda.so.1", "nccl.so.2", "nvidia-ml.so.1")]
    for command in (["meson", "setup", "-Dtests=false", str(build), str(source)],
                    ["ninja", "-C", str(build), *targets]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"negative_control: {' '.join(command)}:\n{done.stdout[-3000:]}{done.stderr}")
    return build


def soak(options, build, seed):
    env = dict(os.environ, IPS_SHIM=f"{build}/shim/libipcshim.so", IPCSHIM_PROTO="Simple",
               IPCSHIM_MAX_BYTES="1G", IPCSHIM_LINKS="any")
    arguments = ["--seconds", options.seconds, "--remake", 5000, "--large", 300,
                 "--max-bytes", 4 << 20]
    if options.device == "sim":
        env.update(LD_LIBRARY_PATH=f"{build}/tools/simgpu", SIMGPU_DEVICES="8")
    return soaking.run(f"{options.build}/tests/soak/ips-soak", arguments, options.ranks, seed,
                       env, options.seconds + 120)


def attempt(options, folder, names, wrong_wanted):
    title = " and ".join(names)
    run = soak(options, make(folder, names, options.device), 20261129)
    reports = [line for line in run.complaints if line.startswith("WRONG")]
    good = bool(reports) if wrong_wanted else not run.complaints
    what = reports or run.complaints or [soaking.describe(run.result)]
    print(f"{'ok' if good else 'FAIL'}: {title}: {what[0]}", flush=True)
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
    good = True
    for names, wrong_wanted in ((["delay"], False), (["delay", "no barrier"], True)):
        with tempfile.TemporaryDirectory(prefix="ipcshim-negative-") as folder:
            good &= attempt(options, pathlib.Path(folder), names, wrong_wanted)
    return 0 if good else 1


sys.exit(main())
