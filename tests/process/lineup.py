#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The order of the ranks in the ring is that of the machine's GPUs, not of their numbers: on
machines that the ranks see as their /sys, on which the order of ranks is a bad one. Results
are right, what is said names the communicator's ranks."""
import functools
import re

import faults
import harness as h
import places

VARIANTS = [("ring", "LL"), ("ring", "LL128"), ("ring", "Simple"), ("oneshot", "LL"),
            ("oneshot", "LL128"), ("twoshot", "LL"), ("twoshot", "LL128"),
            ("hierarchical", "Simple")]


def on(socket_of, switches=True, uplink="16.0x16"):
    """For h.run: the ranks see this machine."""
    tree = places.tree(tuple(socket_of), switches, uplink)
    return {"shm": {"before": f"mount --bind {tree} /sys || exit 99"}}


def info_lines(result):
    found = [re.search(r"rank 0 of \d+: (ring .*)", line) for line in result.stderr]
    return [match.group(1) for match in found if match]


def expect_ring(result, text):
    """The one line that tells of it."""
    told = info_lines(result)
    h.expect(told == [text], f"{told}, not {text!r}", result)


INFO = {"IPCSHIM_LOG": "info"}
RINGS = {  # by sockets of the ranks' GPUs
    (0, 1, 0, 1): "ring 0 2 1 3, 2 hops between sockets, 2 through a CPU, groups of 2",
    (1, 0, 0, 1): "ring 1 2 0 3, 2 hops between sockets, 2 through a CPU, groups of 2",
    (0, 1, 1, 0, 1): "ring 0 3 1 2 4, 2 hops between sockets, 2 through a CPU",
    (0, 1, 2, 0, 1, 2): "ring 0 3 1 4 2 5, 3 hops between sockets, 3 through a CPU, groups of 2",
    (0, 1) * 4: "ring 0 2 4 6 1 3 5 7, 2 hops between sockets, 2 through a CPU, groups of 4",
}


def ring_of(sockets):
    return [int(rank) for rank in RINGS[sockets].split(",")[0].split()[1:]]


def results(sockets, algo, proto, transport, threads=False):
    """All kernels, on all rings: messages with fewer elements than ranks, and long ones."""
    ranks = len(sockets)
    script = "comm A\n" + "".join(
        f"ar count={count} type={kind} op={op}\n" for count, kind, op in (
            (1, "int32", "sum"), (ranks + 1, "float16", "max"), (5000, "float32", "avg"),
            (40003, "bfloat16", "sum"), (150001, "int8", "min")))
    script += "ar count=3000 mode=graph calls=2 replays=2\nar count=1000 inplace=1 calls=5\n"
    result = h.run(script, ranks, threads=threads, timeout=240, env=dict(
        INFO, IPCSHIM_ALGO=algo, IPCSHIM_PROTO=proto, IPCSHIM_MAX_BYTES="1G",
        IPCSHIM_TRANSPORT=transport), **on(sockets))
    h.expect_fine(result, ranks)
    if not threads:  # else one file has the calls of all
        h.expect_route(result, ranks, "engine", protocol=proto)
    shared = " behind 100 % of a link" if "groups" in RINGS[sockets] and transport == "ipc" else ""
    expect_ring(result, RINGS[sockets] + shared)


def waits(sockets, victim):
    """A rank does not come: who waits for whom is told by rank, as the ring is."""
    ranks, ring = len(sockets), ring_of(sockets)
    rest = [rank for rank in range(ranks) if rank != victim]
    script = (f"comm A\nsum\n@{faults.digits(rest)} post A\n@{victim} sleep 2500\n"
              f"@{victim} post A\nfinish A\nsum\n")
    result = faults.run(script, ranks, {"IPCSHIM_REPORT_S": "1", "IPCSHIM_ALGO": "ring"},
                        **on(sockets))
    faults.expect_ends(result, range(ranks))
    h.expect_stderr(result, [faults.behind(victim, "its process runs, but has not come to")])
    line = result.stderr[0]
    before = {rank: ring[at - 1] for at, rank in enumerate(ring)}
    told = {int(who): int(whom) for who, whom in re.findall(r" (\d):\d+\(waits for (\d)\)", line)}
    h.expect(told == {rank: before[rank] for rank in rest}, f"who waits for whom: {told}", result)
    h.expect(f"rank {rest[0]} of {ranks} waits " in line and
             f"for data of rank {before[rest[0]]}," in line, "who speaks", result)


def killed(sockets, victim):
    ranks = len(sockets)
    rest = faults.digits(set(range(ranks)) - {victim})
    script = (f"comm A\nsum\ngather {faults.digits(range(ranks))}\n@{victim} die\n@{rest} post A\n"
              f"@{rest} leave A expect={faults.REMOTE} {faults.WITHIN}\n")
    result = faults.run(script, ranks, **on(sockets))
    faults.expect_ends(result, [int(rank) for rank in rest], 137)
    h.expect_stderr(result, [rf"rank {victim} \(pid {faults.pid_of(result, victim)}\) has ended "
                             r"while rank \d is in"])


def bad_link(sockets, writer, reader):
    """The probe names ranks, and so does what follows, over host memory."""
    ranks = len(sockets)
    result = h.run("comm A\nar count=1000\nar count=40003\n", ranks, env=dict(
        INFO, SIMGPU_LINK=f"drop:{writer}>{reader}"), **on(sockets))
    h.expect_fine(result, ranks)
    said = (rf"goes through host memory: rank {reader}: what rank {writer} "
            rf".*:0{writer + 1}:00.0\) writes to rank {reader} .*:0{reader + 1}:00.0\)")
    h.expect(any(re.search(said, line) for line in result.stderr), f"no line {said}", result)
    expect_ring(result, RINGS[sockets])


def no_switch():
    """Behind host memory a switch's uplink is crossed in a group as well; a socket's is not."""
    for sockets, switches, transport, text in (
            ((0, 1, 0, 1), False, "ipc", "ring 0 2 1 3, 2 hops between sockets, 4 through a CPU, "
                                         "groups of 2"),
            ((0, 1, 0, 1), False, "host", "ring 0 2 1 3, 2 hops between sockets, 4 through a CPU, "
                                          "groups of 2"),
            ((0, 0, 0, 0), True, "ipc", "ring 0 1 2 3, 0 hops between sockets, 0 through a CPU")):
        result = h.run("comm A\nsum\n", 4, dict(INFO, IPCSHIM_TRANSPORT=transport),
                       **on(sockets, switches))
        h.expect_fine(result, 4)
        expect_ring(result, text)


def by_number():
    """Three ranks stand side by side in any order; where /sys has no GPUs nothing is known."""
    for ranks, options in ((3, on((0, 1, 0))), (4, on((0,) * 2))):
        result = h.run("comm A\nsum\n", ranks, dict(INFO, SIMGPU_DEVICES=str(ranks)), **options)
        h.expect_fine(result, ranks)
        told = info_lines(result)
        h.expect(len(told) == (ranks == 4), f"{told}", result)
    result = h.run("comm A\nsum\n", 4, INFO, shm={"before": "mount -t tmpfs tmpfs /sys"})
    h.expect_fine(result, 4)
    h.expect(not info_lines(result), "a ring out of nothing", result)


def sub_communicator():
    """Its ring is in its own numbers."""
    result = h.run("comm A\nsplit A B color=0 key=minus\nsum comm=B count=3000\nsum comm=A\n", 4,
                   INFO, **on((0, 1, 0, 1)))
    h.expect_fine(result, 4)
    h.expect_route(result, 4, "engine")
    told = [line.split(",")[0] for line in info_lines(result)]
    h.expect(told == ["ring 0 2 1 3", "ring 3 1 2 0"], f"{told}", result)


def narrow():
    """By the model, rings within groups where the way out is a quarter of a link."""
    result = h.run("comm A\nar count=4000000\nar count=100000\n", 4, dict(
        INFO, IPCSHIM_MAX_BYTES="1G"), **on((0, 1, 0, 1), uplink="16.0x4"))
    h.expect_fine(result, 4)
    told = info_lines(result)
    h.expect(told and told[0].endswith("groups of 2 behind 25 % of a link"), f"{told}", result)
    for rank in range(4):
        used = [event["algorithm"] for event in h.calls(result, rank)]
        h.expect(used[0] == "hierarchical", f"{used}", result)


def name_of(sockets):
    return "".join(str(socket) for socket in sockets)


def tests():
    for at, sockets in enumerate(RINGS):
        for turn, (algo, proto) in enumerate(VARIANTS):
            transport = ("ipc", "host")[(at + turn) % 2]
            yield (f"{algo} {proto}, sockets {name_of(sockets)}, {transport}",
                   functools.partial(results, sockets, algo, proto, transport))
    yield ("ranks are threads",
           functools.partial(results, (0, 1, 0, 1), "ring", "LL128", "ipc", True))
    for sockets, victim in (((0, 1, 0, 1), 0), ((0, 1, 0, 1), 2), ((1, 0, 0, 1), 3),
                            ((0, 1, 1, 0, 1), 4)):
        yield (f"rank {victim} does not come, sockets {name_of(sockets)}",
               functools.partial(waits, sockets, victim))
        yield (f"rank {victim} is killed, sockets {name_of(sockets)}",
               functools.partial(killed, sockets, victim))
    yield "a bad link, 1 to 2", functools.partial(bad_link, (0, 1, 0, 1), 1, 2)
    yield "a bad link, 2 to 0", functools.partial(bad_link, (1, 0, 0, 1), 2, 0)
    yield "no switch, one socket", no_switch
    yield "a narrow uplink", narrow
    yield "a communicator of a communicator", sub_communicator
    yield "by number", by_number


if __name__ == "__main__":
    h.main(list(tests()), at_once=2)
