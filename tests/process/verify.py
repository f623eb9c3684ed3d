#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""IPCSHIM_VERIFY on the CPU stand-in: correct results raise no alarm, whatever the type,
operation, size and way of issuing; as many calls reach NCCL as were asked for, and the trace
shows none of them; one wrong byte in one result is named and fails all ranks alike; switched
off it allocates and calls nothing."""
import functools
import os
import pathlib
import re
import tempfile

import harness as h
import matrix

CORRUPTER = f"{h.SHIM} {os.environ['IPS_CORRUPTER']}"
WEIGHED = ("sum", "prod", "avg")


def run(script, ranks, every, env=None, **options):
    """Also gives the lines of the driver's and of NCCL's log, of all ranks."""
    with tempfile.TemporaryDirectory(prefix="ips-verify-") as name:
        logs = [pathlib.Path(name) / log for log in ("driver", "nccl")]
        variables = {"IPCSHIM_VERIFY": str(every), "IPCSHIM_MAX_BYTES": "1G",
                     "SIMGPU_LOG": str(logs[0]), "SIMNCCL_LOG": str(logs[1]), **(env or {})}
        result = h.run(script, ranks, variables, **options)
        return result, *(log.read_text().splitlines() if log.exists() else [] for log in logs)


def named(lines, function):
    return sum(1 for line in lines if line.split()[1] == function)


def nccl_calls(cases, every):
    """How many AllReduces NCCL is to make for these eager cases, on one rank."""
    total = seen = 0
    for case in cases:
        words = dict(word.split("=") for word in case.split() if "=" in word)
        if words["count"] == "0":
            continue
        seen += 1
        if seen % every == 0:
            weighed = words["type"] in matrix.FLOATS and words["op"] in WEIGHED
            total += 2 if weighed else 1
    return total


def no_false_alarm(ranks, proto, every):
    cases = [case + ("" if "op=" in case else " op=sum") for case in matrix.small_cases(ranks)]
    if every > 1:
        cases = cases[ranks % 2::2]
    script = "\n".join(["comm A", *cases]) + "\n"
    result, _, nccl = run(script, ranks, every, {"IPCSHIM_PROTO": proto}, timeout=240)
    h.expect_fine(result, ranks)
    h.expect_stderr(result, [])
    h.expect_route(result, ranks, "engine", protocol=proto)
    h.expect(len(h.calls(result)) == len(cases), "the trace shows other calls", result)
    wanted = ranks * nccl_calls(cases, every)
    got = named(nccl, "ncclAllReduce")
    h.expect(got == wanted > 0, f"NCCL made {got} AllReduces, not {wanted}", result)


def ways_of_issuing(ranks):
    """Bursts over streams, groups, captures and replays, two communicators: only eager calls
    outside groups are verified, and the others are what they are without."""
    script = "\n".join(["comm A", *matrix.shape_cases()]) + "\n"
    plain, _, before = run(script, ranks, 0)
    result, _, nccl = run(script, ranks, 2)
    h.expect_fine(plain, ranks)
    h.expect_fine(result, ranks)
    h.expect_stderr(result, [])
    h.expect([event["route"] for event in h.calls(result)] ==
             [event["route"] for event in h.calls(plain)], "the trace differs", result)
    h.expect(named(nccl, "ncclAllReduce") > named(before, "ncclAllReduce"),
             "nothing was verified", result)


def only_eager():
    script = ("comm A\nar mode=graph calls=3 replays=3 count=500\n"
              "ar mode=group calls=4 count=700\nar count=0\n")
    result, _, nccl = run(script, 2, 1)
    h.expect_fine(result, 2)
    h.expect_route(result, 2, "engine")
    h.expect(named(nccl, "ncclAllReduce") == 0, "NCCL was called", result)


def off():
    """Four calls, one of which needs no weights; a slab may outlive its rank, nothing else."""
    script = "comm A\n" + "ar count=100\n" * 3 + "ar count=100 op=max\n"
    counts = {}
    for every in (0, 1):
        result, driver, nccl = run(script, 2, every)
        h.expect_fine(result, 2)
        counts[every] = [named(driver, name) for name in ("cuMemAlloc_v2", "cuLaunchKernel")]
        counts[every].append(named(nccl, "ncclAllReduce"))
        left = counts[every][0] - named(driver, "cuMemFree_v2")
        h.expect(0 <= left <= 2, f"{left} allocations are left")
    h.expect(counts[0][1:] == [2 * (4 + 1), 0],
             f"launches beside the engine's and the probe's, or calls of NCCL: {counts[0]}")
    more = [on - without for on, without in zip(counts[1], counts[0])]
    h.expect(more == [2 * 1, 2 * (4 + 3), 2 * (4 + 3)],
             f"allocations, launches and calls of NCCL that verification adds: {more}")


def spoilt(ranks, corrupt, script, named_as, every=1, by=1, env=None):
    """The rank `by` has one byte spoilt: the line must name it, and all ranks end alike."""
    script = ("comm A\n" + script + "sleep 1000\nerror expect=3\n"
              "ar count=10 expect=3\nar count=10 expect=3\n")
    result, _, _ = run(script, ranks, every, env, preload=CORRUPTER, keep_going=True,
                       rank_env={by: {"IPS_CORRUPT": corrupt}})
    h.expect(not result.timed_out, "the run hangs", result)
    late = [line for line in result.stdout if "FAIL" in line and
            re.search(r"FAIL (code|async)", line)]
    h.expect(not late, f"not all ranks fail alike: {late}", result)
    ends = [line for line in result.stdout if re.match(r"rank \d+: \d+ checks", line)]
    h.expect(len(ends) == ranks, "a rank did not come to its end", result)
    h.expect_stderr(result, [named_as + ".*; calls on this communicator fail from now on$"])
    h.expect(result.left == [], "something is left in /dev/shm", result)


FLOAT = r"is \S+ \(0x5b\w{6}\), NCCL's result is \S+ \(0x\w+\)"


def out_spoilt(ranks):
    spoilt(ranks, "out:2:43:1", "ar count=100 values=exact\nar count=100 values=exact\n",
           rf"rank 1 of {ranks}: verification: on rank 1 element 10 of call 2 "
           rf"\(float32 sum of 100, \w+ \w+\) {FLOAT}")


def integer_spoilt():
    spoilt(2, "out:1:80:1", "ar count=33 type=int64 op=max\n",
           r"rank 0 of 2: verification: on rank 0 element 10 of call 1 \(int64 max of 33, \w+ \w+\) "
           r"is -?\d+, NCCL's result is -?\d+", by=0)


def half_spoilt():
    spoilt(2, "out:1:7:1", "ar count=33 type=bfloat16 op=avg\n",
           r"on rank 1 element 3 of call 1 \(bfloat16 avg of 33, \w+ \w+\) is \S+ \(0x5b\w\w\)")


def in_spoilt():
    """The engine got other data than NCCL: all ranks' results are wrong, one line is enough."""
    spoilt(3, "in:1:43:1", "ar count=100 inplace=1\n",
           r"rank \d of 3: verification: on rank \d element 10 of call 1 .*float32 sum of 100")


def several_spoilt():
    """One element is named, and stays: the first that was found."""
    spoilt(2, "out:1:43:200", "ar count=100\n", r"on rank 1 element 10 of call 1")


def every_third():
    """Call 3 is the first to be compared: what is wrong before stays unseen, call 6 does not."""
    spoilt(2, "out:6:43:1", "ar count=100\n" * 6,
           r"verification: on rank 1 element 10 of call 6", every=3)
    script = "comm A\n" + "ar count=100\n" * 3 + "sleep 500\nerror expect=0\n"
    result, _, _ = run(script, 2, 3, preload=CORRUPTER, keep_going=True,
                       rank_env={1: {"IPS_CORRUPT": "out:2:43:1"}})
    h.expect_stderr(result, [])


def last_call():
    """Destroyed before the thread has looked: it is reported all the same."""
    result, _, _ = run("comm A\nar count=100\ndestroy A\n", 2, 1, preload=CORRUPTER,
                       keep_going=True, rank_env={1: {"IPS_CORRUPT": "out:1:43:1"}})
    h.expect_stderr(result, ["on rank 1 element 10 of call 1"])


def in_parts():
    """9 MiB are compared 4 at a time; the third call happens to look at the third part."""
    env = {"IPCSHIM_PROTO": "Simple", "IPCSHIM_MAX_CHANNELS": "2"}
    case = "ar count=2359297 values=exact\n"
    result, _, nccl = run("comm A\n" + 4 * case, 2, 1, env)
    h.expect_fine(result, 2)
    sizes = [line for line in nccl if " ncclAllReduce " in line]
    h.expect(len(sizes) == 2 * 2 * 4, f"{len(sizes)} calls of NCCL", result)
    byte = 2359296 * 4 + 3  # of the last element
    spoilt(2, f"out:3:{byte}:1", 3 * case,
           r"element 2359296 of call 3 \(float32 sum of 2359297, ring Simple\)", env=env)


def parts_by_turns():
    """A long message in every other call: its second part is compared, whichever turn is its."""
    env = {"IPCSHIM_PROTO": "Simple", "IPCSHIM_MAX_CHANNELS": "2"}
    long, short = "ar count=1048577 values=exact\n", "ar count=8 values=exact\n"
    for call, script in ((1, long), (6, 3 * (short + long))):
        spoilt(2, f"out:{call}:{1048576 * 4 + 3}:1", script,
               rf"element 1048576 of call {call} \(float32 sum of 1048577, ring Simple\)", env=env)


def settings_differ():
    """Rank 0's value is used by all."""
    script = "comm A\n" + "ar count=100 op=max\n" * 4
    result, _, nccl = run(script, 2, 2, rank_env={1: {"IPCSHIM_VERIFY": "0"}})
    h.expect_fine(result, 2)
    h.expect_stderr(result, [r"settings differ from rank 0's.*IPCSHIM_VERIFY \(2, not 0\)"])
    h.expect(named(nccl, "ncclAllReduce") == 4, "calls of NCCL", result)


def one_non_blocking():
    """One rank's communicator does not block: nobody's calls are verified, and none hangs."""
    result, _, nccl = run("make A how=late\n" + "ar count=100\n" * 4, 2, 1,
                          rank_env={0: {"NCCL_COMM_BLOCKING": "1"}})
    h.expect_fine(result, 2)
    h.expect(named(nccl, "ncclAllReduce") == 0, "calls of NCCL", result)


def no_memory():
    """One rank has no memory for it: NCCL serves the communicator on all ranks."""
    result, _, _ = run("comm A\nar count=100\n", 2, 1,
                       rank_env={1: {"SIMGPU_FAIL": "cuMemAlloc_v2:3:2"}})
    h.expect_fine(result, 2)
    h.expect_route(result, 2, "nccl", "no memory")


def non_blocking():
    result, _, nccl = run("make A how=late\nar count=100\n", 2, 1)
    h.expect_fine(result, 2)
    h.expect(named(nccl, "ncclAllReduce") == 0, "NCCL was called", result)


def tests():
    for ranks, proto, every in [(2, "LL", 1), (3, "LL128", 1), (4, "Simple", 1),
                                (2, "LL128", 3), (3, "Simple", 3), (4, "LL", 3)]:
        yield (f"no false alarm: {ranks} ranks, {proto}, every {every}",
               functools.partial(no_false_alarm, ranks, proto, every))
    for ranks in (2, 4):
        yield f"ways of issuing, {ranks} ranks", functools.partial(ways_of_issuing, ranks)
        yield f"a wrong output, {ranks} ranks", functools.partial(out_spoilt, ranks)
    for test in (only_eager, off, integer_spoilt, half_spoilt, in_spoilt, several_spoilt,
                 every_third, last_call, in_parts, parts_by_turns,
                 settings_differ, no_memory, non_blocking,
                 one_non_blocking):
        yield test.__name__.replace("_", " "), test


if __name__ == "__main__":
    h.main(list(tests()))
