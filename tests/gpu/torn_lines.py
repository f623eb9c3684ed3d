#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what LL128's guard rejects. A copy of the library is built whose guards are 32
bits of hash and, as protocols without a hash have it, a bare flag: the step's low half.
Each AllReduce kernel of LL128 is run by `ipcshim bench`, which checks results. Counted are,
over all ranks and blocks,

  accepted  lines that were whole
  failed    polls of a line that was awaited and not whole yet
  torn      those among them that saw the flag of the awaited step over data that did not
            fit it: a bare flag would have taken wrong data. A line may be seen so several
            times

usage: torn_lines.py --build DIR [--device gpu|sim] [--ranks N] [--transports ipc,host]
                     [--sizes LIST] [--iters N] [--check]

DIR holds ipcshim. With --check it is the counting that is tested: lines are torn on
purpose, the flag stored first and a thread's part of the data 200 us later. Then torn ones
must be seen, and results be right all the same; and once lines are taken by the bare flag,
results must be wrong, and the lines taken, torn or whole, be as many as before.

Reads tear as well as stores, so that the stand-in, too, shows some without --check. On one
GPU run it under MPS, with NCCL 2.30 or newer in LD_LIBRARY_PATH."""
import argparse
import collections
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile

import changed

ALGORITHMS = ("ring", "oneshot", "twoshot")

# A block's counters are those of captured calls of 4 TiB and more, which there are not: so
# the shim's summary prints them. Each is written by one block alone.
COUNTERS = r"""
static_assert(IPS_MAX_CHANNELS <= 2 * IPS_VARIANTS, "every block has counters");
IPS_DEVICE uint32_t ips_tally_of(uint32_t block)
{
    return block % IPS_VARIANTS * IPS_SIZE_CLASSES + 42 + block / IPS_VARIANTS * 3;
}

IPS_DEVICE void ips_tally_shown(const struct ips_allreduce_args *args)
{
    for (uint32_t i = ips_tally_of(ips_block()), end = i + 3; i < end; i++)
        ips_st_relaxed(&args->control->count[i], ips_ld_relaxed(&args->head->count[i]));
}

"""
COUNT = r"""
    IPS_DEVICE void tally(const struct ips_ll128 *self, uint32_t kind, bool line)
    {
        const uint32_t lines = ips_ballot(line);
        if (!lines || ips_thread() % 32)
            return;
#ifdef __CUDACC__
        atomicAdd((unsigned long long *)self->counts + kind, __popc(lines));
#else
        __atomic_fetch_add(self->counts + kind, __builtin_popcount(lines),
                           __ATOMIC_RELAXED);
#endif
    }

    /* A poll of the awaited ones among the lines that this warp holds. */
    IPS_DEVICE bool polled(const struct ips_ll128 *self, bool awaited, uint64_t expected,
                           struct ips_v4 line, uint64_t step)
    {
        const bool here = self->part == 7, fits = ips_high(line) == expected;
        const bool flag = (uint32_t)ips_high(line) == (uint32_t)step;
        tally(self, 0, here && awaited && fits);
        tally(self, 1, here && awaited && !fits);
        tally(self, 2, here && awaited && !fits && flag);
        return here && fits;
    }

"""
LL128, DIRECT, RUN = "kernels/ll128.h", "kernels/direct.h", "kernels/run.h"
COUNTING = [
    (RUN, r"(?<=\n\n)(?=/\* Stores the step count for the next call)", COUNTERS.lstrip()),
    (RUN, r"(?<=return;\n)(?=    \*ips_step_of\(run->args)",
     "    ips_tally_shown(run->args);\n"),
    (LL128, r"(?<=\n)(?=    uint32_t part;)", "    uint64_t *counts;\n"),
    (LL128, r"(?<=\n)(?=        self->part = )",
     "        self->counts = ((struct ips_head *)((char *)keys - offsetof(struct ips_head, "
     "keys)))->count +\n                       ips_tally_of(ips_block());\n"),
    (LL128, r"return (?=\(odd \? other)", "const uint64_t hash = "),
    (LL128, r"(?<= \+ step \* IPS_GUARD_STEP;\n)",
     "        return hash >> 32 << 32 | (uint32_t)step;\n"),
    (LL128, r"\n(?=    /\* This thread's 16 bytes of a line, once)", COUNT),
    (LL128, r"self->part == 7 && expected == ips_high\(v\)",
     "polled(self, !whole, expected, v, step)"),
    (LL128, r"self->part == 7 && expected == ips_high\(line\)",
     "polled(self, awaited, expected, line, step)"),
    (LL128, r"struct ips_v4 line, uint64_t step(?=\)\n    \{\n        const uint32_t last)",
     "struct ips_v4 line, uint64_t step, bool awaited"),
    (DIRECT, r"(?<=P::fits\(direct->protocol, v\[p\], direct->step)(?=\))",
     ", missing >> p & 1"),
    ("kernels/ll.h", r"(?<=bool fits\(const struct ips_ll \*, struct ips_v4 line, "
     r"uint64_t step)(?=\))", ", bool"),
]

# Stores of the last thread come first; the warp's first thread is late with its own.
LATE = r"""%s
        const uint64_t since = ips_clock_ns();
        while (ips_thread() %% 32 == 0 && ips_clock_ns() - since < 200000)
            ips_spin();
"""
TEAR = [
    (LL128, r"(?<=\n)(?=                if \(active && !ring->run\.dead\)\n)",
     "                if (self->part == 7 && active && !ring->run.dead)\n"
     "                    ips_st16(to + 128 * i + 16 * self->part, v);\n"
     + LATE % "                ips_ballot(true);"),
    (DIRECT, r"(?<=\n)(?=    if \(place->active && !direct->run\.dead\)\n        ips_st16)",
     "    if (direct->part == 7 && place->active && !direct->run.dead)\n"
     "        ips_st16(ips_inbox(direct, to, direct->run.args->rank) +\n"
     "                     (uint64_t)place->line * P::line_bytes, line);\n"
     + LATE % "    P::any(true);"),
]
BARE = [(LL128, r"return here && fits", "return here && flag")]
ROW = re.compile(r"^  ncclAllReduce +(\d+) TiB to < .* engine \(replayed\) .* (\d+) +-$",
                 re.M)
Counted = collections.namedtuple("Counted", "right accepted failed torn output")


def sums(text):
    """Accepted, failed and torn, over the summaries of all ranks."""
    found = [0, 0, 0]
    for size, calls in ROW.findall(text):
        found[(int(size).bit_length() - 3) % 3] += int(calls)
    return found


def bench(options, build, transport, algorithm):
    env = dict(os.environ, IPCSHIM_SUMMARY="1", IPCSHIM_ALGO=algorithm,
               IPCSHIM_PROTO="LL128", IPCSHIM_MAX_BYTES="1G", IPCSHIM_LINKS="any")
    command = [f"{build}/tools/ipcshim", "bench", "--device", options.device, "--ranks",
               options.ranks, "--transport", transport, "--sizes", options.sizes, "--iters",
               options.iters, "--no-nccl"]
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True,
                          text=True, timeout=300)
    rows = re.findall(r"^ +\d+ +\d+ \w+.*", done.stdout, re.M)
    right = not done.returncode and bool(rows) and all(" ok " in row for row in rows)
    return Counted(right, *sums(done.stderr), done.stdout + done.stderr)


def count(options, build, good):
    """Runs all kernels, prints what each has counted, and asks good(name, counted)."""
    shutil.copy2(f"{options.build}/tools/ipcshim", f"{build}/tools/ipcshim")
    fine = True
    transports = options.transports.split(",")
    for transport, algorithm in itertools.product(transports, ALGORITHMS):
        name = f"{transport}, {algorithm}"
        run = bench(options, build, transport, algorithm)
        passed = good(name, run)
        fine &= passed
        print(f"{'ok' if passed else 'FAIL'}: {name} LL128, {options.ranks} ranks: "
              f"{'right' if run.right else 'wrong'} results, {run.accepted} lines "
              f"accepted, {run.failed} polls failed, {run.torn} torn", flush=True)
        if not passed:
            print(run.output[-3000:])
    return fine


def check(options, folder):
    lines = {}

    def guarded(name, run):
        lines[name] = run.accepted
        return run.right and run.accepted > 0 and run.torn > 0

    def bare(name, run):
        for kept in re.findall(r"traces kept in (\S+)", run.output):
            shutil.rmtree(kept)
        return not run.right and run.torn > 0 and run.accepted + run.torn == lines[name]

    fine = count(options, changed.build(folder, COUNTING + TEAR, options.device), guarded)
    print("taken by the bare flag:")
    return count(options, changed.build(folder, BARE, options.device), bare) and fine


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--device", choices=("gpu", "sim"), default="gpu")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--transports", default="ipc,host")
    parser.add_argument("--sizes", default="120,4K,64K,512K,2M")
    parser.add_argument("--iters", type=int, default=200, help="calls timed at once")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ipcshim-torn-") as folder:
        if options.check:
            good = check(options, folder)
        else:
            good = count(options, changed.build(folder, COUNTING, options.device),
                         lambda _, run: run.right and run.accepted > 0)
    return 0 if good else 1


sys.exit(main())
