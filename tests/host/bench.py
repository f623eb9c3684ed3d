#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ipcshim bench --host from outside: its rows, and that it says when a call does not take
the route that a row is of."""
import json
import os
import subprocess
import tempfile

import harness as h


def host(*arguments, env=None):
    """Gives the result, and the JSON report or None."""
    with tempfile.TemporaryDirectory() as name:
        path = os.path.join(name, "rows.json")
        done = subprocess.run(
            [h.COMMAND, "bench", "--json", path, "--host", "--device", "sim", *arguments],
            env=dict(h.clean_environment(), **(env or {})), capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=300)
        report = None
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
    return h.Result(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), {},
                    [], False), report


def rows():
    result, report = host("--samples", "7", "--calls", "5", "--ranks", "3")
    h.expect(result.code == 0, "status", result)
    h.expect(report["simulated"] is True and "not performance" in result.stdout[0], "label",
             result)
    kinds = {(row["call"], row["how"], row["route"]) for row in report["rows"]}
    for how in ("eager", "grouped", "captured"):
        h.expect(("ncclAllReduce", how, "engine") in kinds, f"taken, {how}: {kinds}", result)
        h.expect(("ncclBroadcast", how, "nccl") in kinds, f"forwarded, {how}", result)
    settings = {row["settings"] for row in report["rows"]}
    for name in ("IPCSHIM_ENABLE=0", "ENABLE=0, TRACE", "ENABLE=0, SUMMARY"):
        h.expect(name in settings, f"{name}: {settings}", result)
    h.expect(len(result.stdout) == len(report["rows"]) + 2, "a line for each row", result)
    for row in report["rows"]:
        for side in (row["direct_ns"], row["shim_ns"]):
            h.expect(0 < side["least"] <= side["quarter"] <= side["median"]
                     <= side["three_quarters"] <= side["most"], f"{row}", result)
        added = row["added_ns"]["median"]
        h.expect(row["added_low_ns"] <= added <= row["added_high_ns"], f"{row}", result)


def not_taken():
    result, report = host("--samples", "1", env={"NCCL_P2P_DISABLE": "1", "IPCSHIM_TRANSPORT": "ipc"})
    h.expect(result.code == 1, "status", result)
    h.expect(any("is not taken" in line for line in result.stderr), "why", result)
    h.expect(all(row["route"] == "nccl" for row in report["rows"]), "no row of it", result)
    h.expect(len(report["rows"]) >= 6, "the other rows", result)


def refused():
    for arguments in (["--ranks", "1"], ["--samples", "0"], ["--calls", "x"], ["more"]):
        result, report = host(*arguments)
        h.expect(result.code == 2 and len(result.stderr) == 1 and report is None,
                 f"{arguments}", result)


TESTS = [("rows", rows), ("an engine that declines", not_taken), ("options", refused)]

if __name__ == "__main__":
    h.main(TESTS)
