#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random programs of eager, captured and replayed calls over several streams and communicators
against a sequential reference. Every run takes a new seed, which it prints; IPS_ORDER_SEED gives
one. IPS_ORDER_COUNT makes the batches longer or shorter (in percent)."""
import functools
import os
import pathlib
import random
import re
import subprocess
import tempfile
import time

import harness as h
import tables

ORDER = os.environ["IPS_ORDER"]
NCCL = os.path.join(h.SIMGPU, "libnccl.so.2")
SEED = int(os.environ.get("IPS_ORDER_SEED") or random.SystemRandom().getrandbits(32))
PERCENT = int(os.environ.get("IPS_ORDER_COUNT") or 100)
SHRINK_S = 60

# The engine's three protocols and NCCL, all for small sizes: see PROGRAM_ENGINE_BYTES.
ENVIRONMENT = dict(tables.by_size(1024, 2048), IPCSHIM_MAX_BYTES="4096", SIMGPU_DEVICES="8")


def run(arguments, shim, env=None, timeout=200):
    """ips-order; the ranks get the preload, which for threads is ips-order itself."""
    variables = dict(ENVIRONMENT, LD_LIBRARY_PATH=h.SIMGPU, IPS_SHIM=shim, **(env or {}))
    command = [ORDER, *arguments]
    if "--threads" in arguments:
        command = ["env", f"LD_PRELOAD={shim}", *command]
    with tempfile.TemporaryDirectory(prefix="ips-order-") as name:
        environment = dict(h.clean_environment(), **variables)
        directory = pathlib.Path(name)
        return h.execute(h.wrap(command, environment, directory, {}), environment, directory,
                         timeout)


def shrink(arguments, shim, steps):
    """The shortest beginning of the program that was seen to fail."""
    deadline = time.monotonic() + SHRINK_S
    passes, fails, report = 0, steps, None
    while fails - passes > 1 and time.monotonic() < deadline:
        cut = (passes + fails) // 2
        results = (run([*arguments, "--steps", str(cut)], shim, timeout=60) for _ in range(4))
        failed = next((result for result in results if result.code), None)
        if failed:
            fails, report = cut, failed
        else:
            passes = cut
    return fails, report


def explain(options, shim, result):
    """How to run just the program that failed, and its shortest beginning that fails."""
    found = next((re.match(r"failed: program (\d+), (\d+) steps", line)
                  for line in result.stdout if line.startswith("failed:")), None)
    h.expect(found, f"seed {SEED}", result)
    alone = [*options, "--seed", str(SEED), "--first", found.group(1)]
    steps, report = shrink(alone, shim, int(found.group(2)))
    text = "\n".join((report or result).stdout[:150])
    raise AssertionError(f"seed {SEED}, again: IPS_ORDER_SEED={SEED}; alone: ips-order "
                         f"{' '.join(alone)} --steps {steps}\n{text}")


def programs(options, count, shim=h.SHIM):
    count = max(1, count * PERCENT // 100)
    result = run([*options, "--seed", str(SEED), "--count", str(count)], shim)
    h.expect(not result.timed_out, f"seed {SEED}: the run hangs", result)
    if result.code:
        explain(options, shim, result)
    h.expect(result.left == [], "something is left in /dev/shm", result)


def routes():
    """The programs are what they are meant to be: both routes, eager and captured."""
    with tempfile.TemporaryDirectory(prefix="ips-order-") as name:
        result = run(["--ranks", "2", "--seed", str(SEED), "--count", "40"], h.SHIM,
                     {"IPCSHIM_TRACE": os.path.join(name, "trace-%r")})
        h.expect(result.code == 0, f"seed {SEED}", result)
        events = h.read_trace(pathlib.Path(name) / "trace-0")
    seen = {(e["route"], e["captured"], e["protocol"]) for e in events if e["event"] == "call"}
    wanted = {("nccl", captured, None) for captured in (False, True)}
    wanted |= {("engine", captured, protocol) for captured in (False, True)
               for protocol in ("LL", "LL128", "Simple")}
    h.expect(wanted <= seen, f"seed {SEED}: {wanted - seen} never occurred", result)


def alike():
    """One seed gives one program."""
    texts = [subprocess.run([ORDER, "--print", "--ranks", "3", "--seed", str(SEED), "--count",
                             "20"], capture_output=True, check=True,
                            env=dict(os.environ, LD_LIBRARY_PATH=h.SIMGPU)).stdout
             for _ in range(2)]
    h.expect(texts[0] == texts[1] and len(texts[0]) > 5000, f"seed {SEED}")


def tests():
    yield "a seed gives a program", alike
    yield "programs take both routes", routes
    yield ("300 programs on NCCL alone, 3 ranks",
           functools.partial(programs, ["--ranks", "3"], 300, NCCL))
    for ranks in (2, 3, 4):
        yield (f"800 programs, {ranks} ranks",
               functools.partial(programs, ["--ranks", str(ranks)], 800))
    yield ("300 programs, 3 ranks as threads",
           functools.partial(programs, ["--ranks", "3", "--threads"], 300))


if __name__ == "__main__":
    print(f"# seed {SEED}", flush=True)
    h.main(list(tests()))
