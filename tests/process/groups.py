#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Groups of 2 to 8 ranks: nested, empty, with errors inside, mixed with other calls, over several
communicators and around inits; threads with communicators of their own; graphs in graphs."""
import functools

import harness as h

GRAPHS = ["added", "alone", "between", "deep"]
KINDS = ["nested", "empty", "error", "simulate", "mixed", "comms", "init", "pytorch"]


def expect_engine(result, ranks):
    """The AllReduce calls that the engine could take, it took: on every rank."""
    for rank in range(ranks):
        events = h.calls(result, rank)
        h.expect(events, f"rank {rank} made no call", result)
        other = [event for event in events if event["route"] != "engine"]
        h.expect(not other, f"rank {rank}: {other[:1]}", result)


def groups(ranks, kinds):
    """Also with counts that go to NCCL, so that both have work in one group."""
    for count, env in ((300, {}), (5000, {"IPCSHIM_MAX_BYTES": "16K"})):
        script = "comm A\ncomm B\n"
        for kind in kinds:
            script += f"group {kind} count={count}\nsum comm=A\n"
        result = h.run(script, ranks, env)
        h.expect_fine(result, ranks)
        h.expect_stderr(result, [])
        if count == 300 and "error" not in kinds:
            expect_engine(result, ranks)


def rank_threads(ranks):
    """Ranks that are threads of one process."""
    script = "comm A\ncomm B\n" + "".join(f"group {kind}\n" for kind in KINDS)
    result = h.run(script, ranks, threads=True)
    h.expect_fine(result, ranks)
    h.expect_stderr(result, [])


def threads(ranks, number):
    """Several threads in each rank, each with a communicator."""
    letters = "ABCD"[:number]
    script = "".join(f"comm {letter}\n" for letter in letters)
    script += f"threads n={number}\n" * 3
    result = h.run(script, ranks)
    h.expect_fine(result, ranks)
    expect_engine(result, ranks)


def init_all(number):
    """One thread drives all devices: nothing may wait for a peer before the group's end."""
    result = h.run(f"@0 initall n={number}\nbarrier\n" * 2 + "comm A\nsum\n", 2)
    h.expect_fine(result, 2)
    expect_engine(result, 2)


def nested_graphs(ranks, how):
    """By the engine alone; then with every other link of the chain through NCCL."""
    result = h.run("comm A\n" + f"nested {how} count=1000\n" * 2 + "sum\n", ranks)
    h.expect_fine(result, ranks)
    h.expect_stderr(result, [])
    expect_engine(result, ranks)
    result = h.run(f"comm A\nnested {how} count=5000 piece=2500\nsum\n", ranks,
                   {"IPCSHIM_MAX_BYTES": "16K"})
    h.expect_fine(result, ranks)
    h.expect_stderr(result, [])
    for rank in range(ranks):
        routes = {event["route"] for event in h.calls(result, rank)}
        h.expect(len(routes) == 2 and "engine" in routes, f"rank {rank}: {routes}", result)


def tests():
    for kind in KINDS:
        yield f"group {kind}, 2 ranks", functools.partial(groups, 2, [kind])
    for ranks in (3, 4, 8):
        yield f"all groups, {ranks} ranks", functools.partial(groups, ranks, KINDS)
    for ranks in (2, 3):
        yield f"all groups, {ranks} ranks as threads", functools.partial(rank_threads, ranks)
    for ranks, number in ((2, 2), (2, 4), (4, 3)):
        yield (f"{number} threads with communicators of their own, {ranks} ranks",
               functools.partial(threads, ranks, number))
    for number in (2, 4, 8):
        yield f"one thread with {number} devices", functools.partial(init_all, number)
    for ranks in (2, 3):
        for how in GRAPHS:
            yield (f"graph in a graph, {how}, {ranks} ranks",
                   functools.partial(nested_graphs, ranks, how))


if __name__ == "__main__":
    h.main(list(tests()))
