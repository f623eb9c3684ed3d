#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The trace and the summary: valid JSON with the right sizes for every call, counts that add
up, nothing lost when a process leaves by _exit, drops reported."""
import collections
import re

import harness as h

BYTES = {"int8": 1, "float16": 2, "float32": 4, "float64": 8}


def last_summary(result, rank, occasion=None):
    found = [e for e in result.traces[rank] if e["event"] == "summary" and
             (occasion is None or e["occasion"] == occasion)]
    h.expect(found, f"rank {rank}: no summary ({occasion})", result)
    return found[-1]


def sizes():
    """count and bytes as nccl-tests would count them: what one rank passes."""
    script = """
comm A
call allgather count=33 type=float16
call reducescatter count=17 type=float64
call reduce count=19 root=1
call broadcast count=21 type=int8 root=1
call bcast count=23 root=0
call ring count=25
ar count=27 type=float64 op=max
ar mode=graph calls=1 replays=2 count=11
destroy A
"""
    wanted = {"ncclAllGather": (33, "float16", None), "ncclReduceScatter": (17, "float64", "sum"),
              "ncclReduce": (19, "float32", "sum"), "ncclBroadcast": (21, "int8", None),
              "ncclBcast": (23, "float32", None), "ncclSend": (25, "float32", None),
              "ncclRecv": (25, "float32", None)}
    result = h.run(script, 2)
    h.expect_fine(result, 2)
    for rank in range(2):
        for name, (count, kind, op) in wanted.items():
            events = h.calls(result, rank, name)
            h.expect(len(events) == 1, f"{len(events)} events of {name}", result)
            event = events[0]
            h.expect((event["count"], event["type"], event["op"]) == (count, kind, op),
                     f"{name}: {event}", result)
            h.expect(event["bytes"] == count * BYTES[kind], f"{name}: {event}", result)
            h.expect(event["route"] == "nccl" and event["protocol"] is None, f"{event}", result)
            h.expect(event["rank"] == rank and event["pid"] > 1, f"{event}", result)
        reduced = h.calls(result, rank)
        h.expect([e["captured"] for e in reduced] == [False, True],
                 f"rank {rank}: AllReduce {reduced}", result)
        h.expect(reduced[0]["bytes"] == 27 * 8 and reduced[0]["op"] == "max", "size", result)
        times = [e["time"] for e in result.traces[rank] if e["event"] == "call"]
        h.expect(times == sorted(times) and times[0] > 1e9, "times", result)
        kinds = [e["event"] for e in result.traces[rank]]
        h.expect(kinds[0] == "start" and "comm" in kinds and "comm_end" in kinds,
                 f"events {kinds}", result)


def summary_counts():
    """Rows add up to the calls made; replays are counted by the device."""
    script = "comm A\n" + "ar count=100\n" * 5 + "ar count=9000 type=float64\n" * 3
    script += "ar mode=graph calls=2 replays=4 count=100\n" + "call allgather count=64\n" * 2
    script += "destroy A\n"
    result = h.run(script, 2, {"IPCSHIM_MAX_BYTES": "16K"})
    h.expect_fine(result, 2)
    for rank in range(2):
        rows = collections.defaultdict(lambda: [0, 0])
        for row in last_summary(result, rank, "exit")["rows"]:
            rows[row["name"], row["route"]][0] += row["calls"]
            rows[row["name"], row["route"]][1] += row["bytes"] or 0
        wanted = {("ncclAllReduce", "engine"): [5, 2000],
                  ("ncclAllReduce", "nccl"): [3, 3 * 72000],
                  ("ncclAllReduce", "engine (captured)"): [2, 800],
                  ("ncclAllReduce", "engine (replayed)"): [8, 0],
                  ("ncclAllGather", "nccl"): [2, 512]}
        for key, value in wanted.items():
            h.expect(rows[key] == value, f"rank {rank} {key}: {rows[key]}, not {value}", result)


def summary_table():
    result = h.run("comm A\n" + "ar count=100\n" * 5, 2, {"IPCSHIM_SUMMARY": "1"}, trace=False)
    h.expect_fine(result, 2)
    h.expect(len([l for l in result.stderr if "NCCL calls of rank" in l]) == 2, "title", result)
    rows = [l for l in result.stderr if "ncclAllReduce" in l]
    h.expect(len(rows) == 2 and all(" 5 " in r and re.search(r"engine \w+ LL ", r) for r in rows), "rows",
             result)


def leaves_by_exit():
    """os._exit and the like run no destructor: what was traced before is there, and the end
    of a communicator wrote a summary."""
    script = "comm A\n" + "ar count=100\n" * 5 + "destroy A\nexit 0\n"
    result = h.run(script, 2)
    h.expect(result.code == 0 and not result.timed_out, "exit", result)
    for rank in range(2):
        h.expect(len(h.calls(result, rank)) == 5, "events", result)
        rows = [r for r in last_summary(result, rank)["rows"] if r["name"] == "ncclAllReduce"]
        h.expect(sum(r["calls"] for r in rows if r["route"] == "engine") == 5, f"{rows}", result)


def killed_later():
    """Even after SIGKILL the trace holds all but the last moments, in whole lines."""
    script = "comm A\n" + "ar count=100\n" * 5 + "barrier\nsleep 500\nkill\n"
    result = h.run(script, 2, keep_going=True)
    h.expect(result.code == 137, "killed", result)
    for rank in range(2):
        h.expect(len(h.calls(result, rank)) == 5, "events", result)


def dropped():
    """More events in a moment than the ring holds: counted, and the rest is intact."""
    script = "comm A\nar count=4\nflood 60000\nar count=4\ndestroy A\n"
    result = h.run(script, 2, timeout=200)
    h.expect_fine(result, 2)
    for rank in range(2):
        drops = [e for e in result.traces[rank] if e["event"] == "dropped"]
        kept = sum(e["event"] in ("call", "comm", "comm_end") for e in result.traces[rank])
        lost = sum(e["count"] for e in drops)
        h.expect(lost > 0, f"rank {rank}: nothing was dropped, {kept} kept", result)
        h.expect(drops[-1]["total"] == lost, f"rank {rank}: {drops[-1]}", result)
        # The calls, and the communicator's begin and end.
        h.expect(kept + lost == 60004, f"rank {rank}: {kept} kept + {lost} lost", result)
        rows = last_summary(result, rank, "exit")["rows"]
        h.expect(sum(r["calls"] for r in rows if r["name"] == "ncclAllReduce") >= 60002,
                 "the summary counts also what was dropped", result)


def bad_path():
    """A trace that can't be written costs one line, not the run."""
    result = h.run("comm A\nar count=10\n", 2, {"IPCSHIM_TRACE": "/nonexistent/x-%r"})
    h.expect_fine(result, 2)
    h.expect_stderr(result, ["IPCSHIM_TRACE.*/nonexistent"] * 2)


def quiet():
    """Success prints nothing, and without a wish nothing is written."""
    result = h.run("comm A\nar count=10\n", 2, trace=False)
    h.expect_fine(result, 2)
    h.expect_stderr(result, [])
    h.expect(not result.traces, "a trace nobody asked for", result)


TESTS = [("sizes of every call", sizes), ("summary counts", summary_counts),
         ("summary table", summary_table), ("trace survives _exit", leaves_by_exit),
         ("trace survives SIGKILL", killed_later), ("dropped events", dropped),
         ("trace path that can't be opened", bad_path), ("quiet by default", quiet)]

if __name__ == "__main__":
    h.main(TESTS)
