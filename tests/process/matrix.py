#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every type x operation x protocol with 2 to 8 rank processes on the CPU stand-in: sizes
from nothing over odd counts to the edges of slots, misaligned buffers, in and out of place,
special values, bursts over several streams, groups, graphs, several communicators, ranks as
threads. The worker checks every element; the trace must say that the engine did it all."""
import functools

import harness as h
import tables

BYTES = {"int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
         "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
FLOATS = ["float16", "bfloat16", "float32", "float64"]
OPS = ["sum", "prod", "max", "min", "avg"]
# Payload of one slot of one channel (kernels/wire.h).
SLOT = {"LL": 8 << 10, "LL128": 30 << 10, "Simple": 128 << 10}


def small_cases(ranks):
    """All types and operations; the other things vary from case to case."""
    serial = ranks
    for kind in BYTES:
        for op in OPS:
            serial += 1
            for count in (1, 2, ranks - 1, ranks, ranks * 8 - 1, ranks * 8 + 1,
                          333 + serial % 90, 1000 + serial, 5003 + 7 * serial):
                serial += 1
                options = ["", "inplace=1", "off=rank", "off=1 inplace=1", "off=3"][serial % 5]
                values = ["random", "exact"][serial // 5 % 2]
                yield f"ar type={kind} op={op} count={count} values={values} {options}"
    for kind in FLOATS:
        for op in OPS:
            yield f"ar type={kind} op={op} count=611 values=special"
    for kind in ("int8", "float16", "float64"):
        yield f"ar type={kind} count=0"


def shape_cases():
    """Several calls at once, however they are issued."""
    yield "ar mode=burst calls=12 count=2000 values=exact"
    yield "ar mode=burst calls=9 count=5001 type=bfloat16 op=max inplace=1"
    yield "call allgather count=300"
    yield "ar mode=group calls=5 count=777 type=int32"
    yield "call ring count=1000 type=float64"
    yield "ar mode=graph calls=3 replays=3 count=1501 values=exact"
    yield "ar mode=mixed calls=6 replays=4 count=4000 type=int32"
    yield "ar mode=mixed calls=12 replays=2 count=1025 values=exact inplace=1"
    yield "chain count=6000"
    yield "ar mode=mixed calls=3 replays=3 count=9001 type=bfloat16 op=min off=rank"
    yield "ar count=40"
    yield "ar mode=graph calls=1 replays=3 count=3000 type=float16 op=avg inplace=1"
    yield "comm B"
    yield "ar comm=B count=900 type=uint8 op=prod"
    yield "ar comm=A count=901 type=uint8 op=min"
    yield "call reducescatter comm=B count=50"
    yield "ar comm=B mode=burst calls=6 count=1200 type=int64 op=avg"
    yield "destroy B"
    yield "comm C config=1"
    yield "ar comm=C count=5 type=float64"
    yield "finalize C"
    yield "destroy C"
    yield "ar count=64"


def edge_cases(ranks, proto, channels):
    """Around the sizes where a chunk fills its slots exactly. Chunks longer than all slots of
    a channel come last."""
    kinds = list(BYTES)
    slot = SLOT[proto] * ranks * channels
    for turn, slots in enumerate((1, 2, 3) if channels == 1 else (1,)):
        kind = kinds[(3 * ranks + 5 * turn + len(proto)) % len(kinds)]
        for extra in (-1, 0, 1):
            count = slots * slot // BYTES[kind] + extra
            options = "inplace=1" if extra else "off=rank"
            yield f"ar type={kind} op={OPS[(ranks + turn) % 5]} count={count} {options}"
    if SLOT[proto] < 100000:
        yield f"ar type=int32 count={slot * 9 // 4 + 3}"


def check_run(ranks, proto, cases, env, threads=False):
    env = dict(env, IPCSHIM_PROTO=proto, IPCSHIM_MAX_BYTES="1G")
    result = h.run("\n".join(cases) + "\n", ranks, env, threads=threads, timeout=240)
    h.expect_fine(result, ranks)
    h.expect_stderr(result, [])
    if threads:  # one process, one trace, named after whoever was first
        events = [event for rank in result.traces for event in h.calls(result, rank)]
        h.expect(len(result.traces) == 1 and events and len(events) % ranks == 0 and
                 all((e["route"], e["protocol"]) == ("engine", proto) for e in events),
                 "route", result)
    else:
        h.expect_route(result, ranks, "engine", protocol=proto)


def all_types(ranks, proto):
    check_run(ranks, proto, ["comm A", *small_cases(ranks), *shape_cases()], {})


def edges(ranks, proto, channels):
    check_run(ranks, proto, ["comm A", *edge_cases(ranks, proto, channels)],
              {"IPCSHIM_MAX_CHANNELS": str(channels)})


def rank_threads(ranks, proto):
    cases = [case for i, case in enumerate(small_cases(ranks)) if i % 4 == 0]
    check_run(ranks, proto, ["comm A", *cases, *shape_cases()], {}, threads=True)


def by_size(ranks):
    """Without a forced protocol each serves its sizes, and NCCL what is too large."""
    counts = [2, 8192, 8193, 262144, 262145, 600000]
    wanted = ["LL", "LL", "LL128", "LL128", "Simple", None]
    script = "comm A\n" + "".join(f"ar count={count}\n" for count in counts)
    env = dict(tables.by_size(32 << 10, 1 << 20), IPCSHIM_MAX_BYTES="2M")
    result = h.run(script, ranks, env)
    h.expect_fine(result, ranks)
    for rank in range(ranks):
        got = [event["protocol"] for event in h.calls(result, rank)]
        h.expect(got == wanted, f"rank {rank}: {got}", result)


def tests():
    for proto in SLOT:
        for ranks in range(2, 9):
            yield f"{proto}, {ranks} ranks", functools.partial(all_types, ranks, proto)
        for ranks, channels in [(n, 1) for n in range(2, 9)] + [(2, 16), (3, 2), (4, 8)]:
            yield (f"{proto}, {ranks} ranks, {channels} channels, slot edges",
                   functools.partial(edges, ranks, proto, channels))
        for ranks in (2, 4):
            yield (f"{proto}, {ranks} ranks as threads",
                   functools.partial(rank_threads, ranks, proto))
    yield "protocols by size, 4 ranks", functools.partial(by_size, 4)


if __name__ == "__main__":
    h.main(list(tests()))
