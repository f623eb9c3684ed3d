#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every way to make a communicator, to use several, and to end them."""
import functools

import harness as h
from groups import expect_engine

SPLITS = """
split A B color=0
sum comm=B
split A C color=half key=minus
sum comm=C calls=6
split A D color=none0
sum comm=D
split C E color=0 group=1
sum comm=E
split A F color=-1
sum comm=A
split B G color=half
sum comm=G
"""


def made(how, ranks):
    result = h.run(f"make A how={how}\nsum calls=6\nsum count=3000\nmake B how={how}\n"
                   "sum comm=B\ngroup comms\ngroup mixed\n", ranks)
    h.expect_fine(result, ranks)
    h.expect_stderr(result, [])
    expect_engine(result, ranks)


def split(how, ranks):
    """Without a color, with several, of a split, from a parent that gives handles late."""
    result = h.run(f"make A how={how}\nsum\n{SPLITS}", ranks)
    h.expect_fine(result, ranks)
    h.expect_stderr(result, [])
    if ranks >= 4:  # then every child has at least two
        expect_engine(result, ranks)


def split_threads():
    result = h.run(f"make A\nsum\n{SPLITS}", 4, threads=True)
    h.expect_fine(result, 4)
    h.expect_stderr(result, [])


def ended_by_turns():
    """Communicators end in another order on every rank, some by an abort."""
    script = "comm A\ncomm B\ncomm C\nsum comm=A\nsum comm=B\nsum comm=C\nbarrier\n"
    script += "@0 destroy A\n@0 destroy B\n@0 destroy C\n"
    script += "@1 destroy C\n@1 sleep 300\n@1 destroy A\n@1 destroy B\n"
    script += "@2 finalize B\n@2 destroy B\n@2 abort C\n@2 destroy A\n"
    script += "barrier\ncomm A\nsum comm=A\n"
    result = h.run(script, 3)
    h.expect_fine(result, 3)


def child_first_or_last():
    """A parent may end before its child, and the other way round."""
    script = "comm A\nsplit A B color=0\nsplit A C color=0\n"
    script += "@0 destroy A\n@1 destroy B\n@0 destroy B\n@1 destroy A\nsum comm=C\n"
    result = h.run(script, 2)
    h.expect_fine(result, 2)


def renewed(how, end, ranks):
    result = h.run(f"renew count=30 how={how} end={end}\n", ranks, timeout=200)
    h.expect_fine(result, ranks)


def reused():
    """The handle's address comes again, with other settings behind it."""
    script = "comm A\nsum\ndestroy A\ncomm A\nsum\nmake B how=late\ndestroy A\nmake A\n"
    script += "sum comm=A\nsum comm=B\n"
    result = h.run(script * 3, 2)
    h.expect_fine(result, 2)
    expect_engine(result, 2)


def forked():
    """The child of an initialized process is silent and harms nobody."""
    result = h.run("comm A\nsum\nfork\nsum\ndestroy A\n", 2)
    h.expect_fine(result, 2)
    h.expect_stderr(result, [])
    h.expect(sorted(result.traces) == [0, 1], f"traces {sorted(result.traces)}", result)
    for rank in range(2):
        starts = [e for e in result.traces[rank] if e["event"] == "start"]
        pids = {e["pid"] for e in result.traces[rank] if "pid" in e}
        h.expect(len(starts) == 1 and len(pids) == 1, f"rank {rank}: {pids}", result)


def graph_later(how):
    """A graph that is dropped or replayed when its communicator has been destroyed."""
    result = h.run(f"comm A\ncomm B\noutlive B how={how}\nsum\n", 2)
    h.expect_fine(result, 2)


def forwarded_graph_later(how):
    """The same with calls that NCCL serves."""
    result = h.run(f"comm A\ncomm B\noutlive B how={how}\nsum\n", 2, {"IPCSHIM_MAX_BYTES": "64"})
    h.expect_fine(result, 2)


def tests():
    for how in ("rank", "config", "late", "scalable"):
        for ranks in (2, 5):
            yield f"made by {how}, {ranks} ranks", functools.partial(made, how, ranks)
    for how in ("rank", "late"):
        for ranks in (2, 3, 4, 8):
            yield (f"splits of a communicator made by {how}, {ranks} ranks",
                   functools.partial(split, how, ranks))
    yield "splits, 4 ranks as threads", split_threads
    yield "ended in another order on every rank", ended_by_turns
    yield "parents and children end in any order", child_first_or_last
    for how in ("rank", "late"):
        yield f"made again and again by {how}", functools.partial(renewed, how, "destroy", 2)
    yield "made again and again, 4 ranks", functools.partial(renewed, "config", "destroy", 4)
    yield "aborted again and again", functools.partial(renewed, "rank", "abort", 2)
    yield "aborted and destroyed by turns", functools.partial(renewed, "rank", "mixed", 3)
    yield "handles reused", reused
    yield "fork after init", forked
    for how in ("drop", "replay"):
        yield f"graph after the end: {how}", functools.partial(graph_later, how)
        yield (f"graph of NCCL's after the end: {how}",
               functools.partial(forwarded_graph_later, how))


if __name__ == "__main__":
    h.main(list(tests()))
