#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""At least 100,000 random AllReduces on the CPU stand-in, every element of every rank checked.
Every run takes a new seed, which it prints; IPS_SOAK_SEED gives one.

IPS_SOAK_CALLS gives another number of calls. The long run takes hours, with at most four ranks,
and prints its figures at the end:

    IPS_SOAK_CALLS=10000000 meson test -C BUILD soak --timeout-multiplier 0 --verbose"""
import functools
import itertools
import os
import random

import harness as h
import soaking
import tables

SOAK = os.environ["IPS_SOAK"]
BROKEN = os.environ["IPS_SOAK_BROKEN"]
SEED = int(os.environ.get("IPS_SOAK_SEED") or random.SystemRandom().getrandbits(32))
LEAST = 100000
CALLS = int(os.environ.get("IPS_SOAK_CALLS") or LEAST)
LONG = CALLS > 1000000
TURNS = -(-CALLS // 500000)  # what is long is cut into parts that tell of themselves

# Which sizes take which protocol: (LL up to, LL128 up to, channels, options). In the last one
# calls are cut into several pieces.
PROFILES = {
    "short": (512, 2 << 10, 8, ["--large", 5]),
    "LL": (3 << 10, 3500, 4, ["--large", 3]),
    "LL128": (64, 64 << 10, 2, ["--large", 5]),
    "Simple": (32, 64, 8, ["--large", 5]),
    "long": (64 << 10, 256 << 10, 1, ["--large", 100, "--max-bytes", 2 << 20]),
}

# Share of the calls in a hundred, by ranks and profile: what is quick comes often.
SHARES = {
    2: {"short": 35, "LL": 15, "LL128": 12, "Simple": 8, "long": 1},
    3: {"short": 7, "LL": 4, "LL128": 3, "Simple": 2, "long": 1},
    4: {"short": 5, "LL": 3, "LL128": 2, "Simple": 1, "long": 1},
    8: {"short": 0.2, "LL": 0.2, "LL128": 0.2, "Simple": 0.1, "long": 0.1},
}
LONG_SHARES = {
    2: {"short": 30, "LL": 15, "LL128": 10, "Simple": 7, "long": 3},
    3: {"short": 8, "LL": 4, "LL128": 3, "Simple": 3, "long": 1},
    4: {"short": 6, "LL": 5, "LL128": 3, "Simple": 2, "long": 1},
}
done = []


def soak(ranks, profile, calls, seed, env=None):
    ll, ll128, channels, options = PROFILES[profile]
    variables = dict(h.clean_environment(), IPS_SHIM=h.SHIM, SIMGPU_DEVICES="8",
                     IPCSHIM_MAX_BYTES="1G", IPCSHIM_MAX_CHANNELS=str(channels),
                     **{"LD_LIBRARY_PATH": h.SIMGPU, **tables.mixed(ll, ll128, channels),
                        **(env or {})})
    arguments = ["--calls", calls, "--remake", 60, *options]
    return soaking.run(SOAK, arguments, ranks, seed, variables,
                       60 + calls)  # a rank that is stuck says so long before


def part(ranks, profile, calls, seed, transport, **env):
    run = soak(ranks, profile, calls, seed, {"IPCSHIM_TRANSPORT": transport, **env})
    h.expect(not run.complaints, f"seed {seed}, IPS_SOAK_SEED={SEED}: " +
             "\n".join(run.complaints[:20] + run.output.splitlines()[-20:]))
    done.append(run.result)
    print(f"# seed {seed}: {soaking.describe(run.result)}", flush=True)


def total():
    """All of it was done, and all kernels, eager and replayed."""
    calls = sum(result["calls"] for result in done)
    elements = sum(result["elements"] for result in done)
    seconds = sum(result["seconds"] for result in done)
    print(f"# {calls} calls, {elements} elements checked, {seconds:.0f} s", flush=True)
    h.expect(calls >= CALLS, f"{calls} calls, not {CALLS}")
    for how, kernel in itertools.product(("eager", "replayed"), soaking.KERNELS):
        h.expect(sum(result[how][kernel] for result in done) * 20 > calls / 50,
                 f"few calls of {kernel} were {how}")


def control(fault, profile):
    """On a driver whose device code has a fault, and without: what broken.cpp says."""
    env = {"LD_LIBRARY_PATH": f"{BROKEN}:{h.SIMGPU}"}
    run = soak(2, profile, 20000, SEED, dict(env, SOAK_FAULT=fault))
    reports = [line for line in run.complaints if line.startswith("WRONG")]
    h.expect(reports, "nothing was reported\n" + run.output[-2000:])
    for word in (f"seed {SEED} ", "rank ", "element ", "expected ", "got ", "call "):
        h.expect(word in reports[0], f"{word!r} is missing in: {reports[0]}")
    run = soak(2, profile, 500, SEED, env)
    h.expect(not run.complaints, "without the fault: " + "\n".join(run.complaints))


def tests():
    yield "a bit turned over is reported", functools.partial(control, "bit", "short")
    yield "barriers removed are reported", functools.partial(control, "barrier", "Simple")
    seed = SEED
    shares = LONG_SHARES if LONG else SHARES
    for _, (ranks, profiles) in itertools.product(range(TURNS), shares.items()):
        for profile, share in profiles.items():
            seed += 1
            calls = -(-CALLS * share // (100 * TURNS))
            transport = ("ipc", "host")[(seed - SEED) % 2]
            yield (f"{calls:.0f} calls, {ranks} ranks, {profile}, {transport}",
                   functools.partial(part, ranks, profile, int(calls), seed, transport))
    for ranks, share in ((4, 1), (8, 0.3)):  # there are no groups here, but halves
        calls = int(CALLS * share / 100)
        yield (f"{calls} calls, {ranks} ranks, hierarchical",
               functools.partial(part, ranks, "short", calls, SEED + 1000 + ranks, "ipc",
                                 IPCSHIM_ALGO="hierarchical"))
    yield f"{CALLS} calls in all", total


if __name__ == "__main__":
    assert sum(sum(shares.values()) for shares in SHARES.values()) > 99.9
    assert sum(sum(shares.values()) for shares in LONG_SHARES.values()) > 99.9
    print(f"# seed {SEED}", flush=True)
    h.main(list(tests()))
