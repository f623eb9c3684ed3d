#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where the ranks' mailboxes lie: host memory when it is asked for, and where peer-to-peer is
missing, forbidden or broken, on all ranks alike and with one line that says why. What the other
files prove of device memory holds for host memory too: results, ends, faults."""
import errno
import functools
import os
import re
import tempfile

import comms
import faults
import groups
import harness as h
import matrix

MEDDLER = os.environ["IPS_MEDDLER"]  # see meddler.c
VARIANTS = [("ring", "LL"), ("ring", "LL128"), ("ring", "Simple"), ("oneshot", "LL"),
            ("oneshot", "LL128"), ("twoshot", "LL"), ("twoshot", "LL128"),
            ("hierarchical", "Simple")]
AUTO = {"IPCSHIM_TRANSPORT": "auto"}
IPC = {"IPCSHIM_TRANSPORT": "ipc"}
HOST = {"IPCSHIM_TRANSPORT": "host"}
SCRIPT = """comm A
ar count=1000
ar count=3001 type=float16 op=max inplace=1
call allgather count=100
ar mode=graph calls=2 replays=2 count=500
ar mode=burst calls=6 count=9000 values=exact
destroy A
"""

# Host memory is what this file is about, also in the tests of other files: they make many
# communicators at a time, and find room for all.
clean_environment = h.clean_environment
h.clean_environment = lambda: dict(clean_environment(), **HOST)
h.PRIVATE = h.PRIVATE.replace("size=64m", "size=1g")


def made(result):
    return [event for rank in result.traces for event in result.traces[rank]
            if event["event"] == "comm"]


def expect_transport(result, transport, comms_made=None):
    """All communicators have it, on every rank; NCCL's have none."""
    events = made(result)
    route = "engine" if transport else "nccl"
    h.expect(events and (comms_made is None or len(events) == comms_made), "communicators",
             result)
    h.expect(all((e["route"], e["transport"]) == (route, transport) for e in events),
             f"not {transport}: {[(e['route'], e['transport']) for e in events]}", result)


def served(transport, lines, ranks=3, script=SCRIPT, **options):
    result = h.run(script, ranks, **options)
    h.expect_fine(result, ranks)
    h.expect_stderr(result, lines)
    expect_transport(result, transport, ranks)
    h.expect_route(result, ranks, "engine" if transport else "nccl")
    return result


# --- all variants -----------------------------------------------------------------------

def variant(ranks, algo, proto, transport, threads=False):
    """A part of the matrix's cases, and messages of many pieces."""
    turn = ranks + VARIANTS.index((algo, proto))
    cases = ["comm A"] + [case for i, case in enumerate(matrix.small_cases(ranks))
                          if (i + turn) % 9 == 0]
    cases += ["ar count=150001", "ar count=40003 type=float64 off=rank"]
    if turn % 3 == 0:
        cases += matrix.shape_cases()
    result = h.run("\n".join(cases) + "\n", ranks, threads=threads, timeout=240, env={
        "IPCSHIM_ALGO": algo, "IPCSHIM_PROTO": proto, "IPCSHIM_MAX_BYTES": "1G",
        "IPCSHIM_TRANSPORT": transport})
    h.expect_fine(result, ranks)
    h.expect_stderr(result, [])
    expect_transport(result, transport)
    if algo == "hierarchical" and ranks not in (4, 6, 8):
        algo = "ring"  # no halves
    calls = [event for rank in result.traces for event in h.calls(result, rank)]
    h.expect(calls and len(calls) % ranks == 0 and all(
        (e["route"], e["algorithm"], e["protocol"]) == ("engine", algo, proto) for e in calls),
             "algorithm and protocol", result)


# --- from peer-to-peer to host memory ---------------------------------------------------

def falls_back(reason, env=None, rank=None, fault=True):
    """auto: host memory, with a line where it is a fault; ipc: NCCL for the same reason."""
    where = {"rank_env": {rank: env}} if rank is not None else {"env": env}
    for transport, prefix in ((AUTO, "goes through host memory: "), (IPC, "3 ranks: ")):
        options = dict(where, env=dict(where.get("env", {}), **transport))
        line = [prefix + reason] if fault else []
        served("host" if transport == AUTO else None, line, **options)
        if fault:
            continue
        options["env"]["IPCSHIM_LOG"] = "info"
        result = h.run(SCRIPT, 3, **options)
        h.expect_fine(result, 3)
        h.expect(any(re.search(prefix + reason, line) for line in result.stderr),
                 "not told at info", result)


def stays(transport, env, **options):
    served(transport, [], env=env, **options)


def nvlink():
    """Is NCCL's, unless host memory was asked for, or peer-to-peer is not wanted there."""
    nvlink_env = {"SIMGPU_NVLINK": "1"}
    stays(None, {**nvlink_env, **AUTO})
    stays("host", {**nvlink_env, **HOST})
    stays("ipc", {**nvlink_env, **AUTO, "IPCSHIM_LINKS": "any"})
    stays("host", {**nvlink_env, **AUTO, "NCCL_P2P_DISABLE": "1"})


def same_gpu():
    """Ranks that share a GPU need no link."""
    stays("ipc", {"SIMGPU_DEVICES": "1", "SIMGPU_NO_PEER": "1", "NCCL_P2P_DISABLE": "1", **AUTO})
    stays("host", {"SIMGPU_DEVICES": "1", **HOST})


def resident():
    """The blocks of ranks that share a GPU wait for each other: all must run at once."""
    for many, transport, most in ((8, IPC, 2), (1, IPC, 1), (132, IPC, 16), (8, HOST, 2)):
        result = h.run("comm A\nar count=300001\n", 4, env={
            "SIMGPU_DEVICES": "1", "SIMGPU_MULTIPROCESSORS": str(many),
            "IPCSHIM_ALGO": "ring", "IPCSHIM_PROTO": "LL", "IPCSHIM_MAX_BYTES": "1G",
            **transport})
        h.expect_fine(result, 4)
        channels = {event["channels"] for rank in result.traces
                    for event in result.traces[rank] if event["event"] == "call"}
        h.expect(channels == {most}, f"{channels} channels on {many}", result)


def differ():
    """Rank 0's is used by all."""
    warn = "IPCSHIM_TRANSPORT differs from rank 0's"
    served("host", ["rank 1: " + warn, "rank 2: " + warn], env=IPC, rank_env={0: HOST})
    served("ipc", ["rank 1: " + warn], env=AUTO, rank_env={1: HOST})
    served("ipc", ["rank 2: " + warn], env=IPC, rank_env={2: AUTO})


def probe_fails():
    """Over host memory there is nothing left to try: a rank is stopped in its probe."""
    script = f"@012 remake A 012\n@3 awaitstop 1\n@3 sleep 900\n@3 signal 1 CONT\nsum comm=A\n"
    result = h.run(script, 4, rank_env={1: {"SIMGPU_FAIL": "cuLaunchKernel:1:-19"}})
    faults.expect_ends(result, range(3))
    h.expect_stderr(result, [r"rank \d: what rank 1 \(GPU .*\) writes to rank \d .*stopped"])
    expect_transport(result, None, 3)


# --- room in /dev/shm -------------------------------------------------------------------

def with_room(size, transport, lines, env, ranks=3, reserve=None, script=SCRIPT):
    """The shim has this /dev/shm to itself."""
    with tempfile.TemporaryDirectory() as directory:
        env = dict(env, LD_PRELOAD=f"{h.SHIM}:{MEDDLER}", IPS_SHM_AWAY=directory)
        return served(transport, lines, ranks, script, env=env, shm={"options": f"size={size}"},
                      rank_env={1: {"IPS_RESERVE": reserve}} if reserve else {})


NO_ROOM = r"cannot reserve \d+ bytes of shared memory: less than half .*docker: --shm-size"


def small_shm():
    """None for the mailboxes, or not for all of them; device memory needs none."""
    for size in ("1m", "6m", "16m"):
        with_room(size, None, [NO_ROOM], HOST)
        with_room(size, "ipc", [], AUTO)
    with_room("1m", None, [NO_ROOM + r".* \(host memory, since rank 0: NVML reports"],
              {**AUTO, "SIMGPU_NVML_P2P": "5"})
    with_room("64m", "host", [], HOST, ranks=8)


def no_room_on_one_rank():
    with_room("64m", None, [r"rank 1: cannot reserve \d+ bytes of shared memory: No space left"],
              HOST, reserve=f"2:{errno.ENOSPC}")


def room_for_others():
    """Half of /dev/shm stays free, however many communicators are made: NCCL needs some."""
    script = "".join(f"comm {name}\nsum comm={name}\n" for name in "ABCDEF")
    with tempfile.TemporaryDirectory() as directory:
        env = {"LD_PRELOAD": f"{h.SHIM}:{MEDDLER}", "IPS_SHM_AWAY": directory}
        result = h.run(script, 2, env, shm={"options": "size=64m"})
    h.expect_fine(result, 2)
    h.expect_stderr(result, [NO_ROOM] * 2)
    transports = [event["transport"] for event in result.traces[0] if event["event"] == "comm"]
    h.expect(transports == ["host"] * 4 + [None] * 2, f"transports {transports}", result)


def room_comes_back():
    """Again and again where there is room for one communicator."""
    script = "comm A\nsum\ndestroy A\n" * 20
    with tempfile.TemporaryDirectory() as directory:
        env = {"LD_PRELOAD": f"{h.SHIM}:{MEDDLER}", "IPS_SHM_AWAY": directory}
        result = h.run(script, 2, env, shm={"options": "size=20m"})
    h.expect_fine(result, 2)
    h.expect_stderr(result, [])
    expect_transport(result, "host", 40)


def device_memory():
    """IPCSHIM_MEM_MAX counts device memory: of which there is little."""
    stays("host", {**HOST, "IPCSHIM_MEM_MAX": "64K"})
    stays(None, {**AUTO, "IPCSHIM_MEM_MAX": "64K"})


# --- a rank is killed -------------------------------------------------------------------

def killed_in_set_up(ranks, victim, fault=None, env=None, reserve=None):
    """The others decline soon and go on; then they leave the dead rank behind."""
    rest = faults.digits(set(range(ranks)) - {victim})
    script = f"comm A\n@{victim} die\n@{rest} abort A\nremake B {rest}\nsum comm=B\n"
    env = env or {}
    its = {"SIMGPU_FAIL": fault} if fault else {"LD_PRELOAD": f"{h.SHIM}:{MEDDLER}",
                                                "IPS_RESERVE": reserve}
    result = faults.run(script, ranks, env, rank_env={victim: its})
    faults.expect_ends(result, [int(r) for r in rest], 137)
    h.expect(not any("dies" in line for line in result.stdout), "too late", result)
    lines = [rf"rank {victim} \(pid \d+\) ended during the set-up"]
    if "SIMGPU_NVML_P2P" in env:  # told again of the second communicator
        lines += ["goes through host memory: rank 0: NVML reports no peer-to-peer"]
    h.expect_stderr(result, lines)
    for rank in rest:
        routes = [(e["route"], e["transport"]) for e in result.traces[int(rank)]
                  if e["event"] == "comm"]
        h.expect(routes == [("nccl", None), ("engine", "host")], f"routes {routes}", result)


def tests():
    for algo, proto in VARIANTS:
        for ranks in range(2, 9):
            yield (f"{algo} {proto}, {ranks} ranks",
                   functools.partial(variant, ranks, algo, proto, "host"))
        yield (f"{algo} {proto}, 4 ranks as threads",
               functools.partial(variant, 4, algo, proto, "host", True))
    for ranks in (4, 6, 8):
        yield (f"hierarchical Simple over ipc, {ranks} ranks",
               functools.partial(variant, ranks, "hierarchical", "Simple", "ipc"))
    for name, reason, env, rank in (
            ("no peer access", "rank 0: the driver reports no peer access",
             {"SIMGPU_NO_PEER": "1"}, None),
            ("no peer access on one rank", "rank 2: the driver reports no peer access",
             {"SIMGPU_NO_PEER": "1"}, 2),
            ("NVML: not supported", "rank 0: NVML reports no peer-to-peer reads .*status 5",
             {"SIMGPU_NVML_P2P": "5"}, None),
            ("NVML: on one rank", "rank 1: NVML reports no peer-to-peer",
             {"SIMGPU_NVML_P2P": "1"}, 1),
            ("memory can't be exported", "rank 1: cannot export device memory",
             {"SIMGPU_FAIL": "cuIpcGetMemHandle:1:801"}, 1),
            ("handles do not open", r"rank \d: the memory handle of rank \d \(GPU .*\) does not open",
             {"SIMGPU_FAIL": "cuIpcOpenMemHandle_v2:0:205"}, None),
            ("a handle does not open", r"rank 2: the memory handle of rank 1 .*does not open",
             {"SIMGPU_FAIL": "cuIpcOpenMemHandle_v2:2:205"}, 2),
            ("writes are lost", r"rank 0: what rank 1 \(GPU .*\) writes to rank 0 ",
             {"SIMGPU_LINK": "drop"}, None),
            ("writes are lost, 1 to 2", r"rank 2: what rank 1 \(GPU .*\) writes to rank 2 ",
             {"SIMGPU_LINK": "drop:1>2"}, None),
            ("writes are lost, 2 to 0", r"rank 0: what rank 2 \(GPU .*\) writes to rank 0 ",
             {"SIMGPU_LINK": "drop:2>0"}, None),
            ("writes are mirrored", "rank 0: what rank 1 .* writes to rank 0 ",
             {"SIMGPU_LINK": "mirror"}, None)):
        yield f"{name}: host memory", functools.partial(falls_back, reason, env, rank)
    for name, env, rank in (("NCCL_P2P_DISABLE", {"NCCL_P2P_DISABLE": "1"}, None),
                            ("NCCL_P2P_DISABLE on one rank", {"NCCL_P2P_DISABLE": "1"}, 1),
                            ("NCCL_P2P_LEVEL", {"NCCL_P2P_LEVEL": "LOC"}, None)):
        yield (f"{name}: host memory, and no line",
               functools.partial(falls_back, "rank [01]: NCCL_P2P_DISABLE or NCCL_P2P_LEVEL",
                                 env, rank, False))
    yield "NVLink", nvlink
    yield "ranks on one GPU", same_gpu
    yield "blocks of ranks on one GPU run at once", resident
    yield "the ranks' settings differ", differ
    yield "the probe of host memory fails", probe_fails
    yield "a small /dev/shm", small_shm
    yield "no room on one rank", no_room_on_one_rank
    yield "room is left for others", room_for_others
    yield "room comes back", room_comes_back
    yield "device memory", device_memory
    for ranks, victim in ((3, 0), (4, 2)):
        for name, env in (("asked for", {}), ("after peer-to-peer", {**AUTO,
                                                                  "SIMGPU_NVML_P2P": "5"})):
            for fault in ("cuMemHostRegister_v2:2:-9", "cuMemHostGetDevicePointer_v2:2:-9",
                          "cuLaunchKernel:1:-9", "cuEventCreate:1:-9"):
                yield (f"killed in set-up at {fault.split(':')[0]}, host memory {name}, rank "
                       f"{victim} of {ranks}",
                       functools.partial(killed_in_set_up, ranks, victim, fault, env))
            yield (f"killed while it reserves, host memory {name}, rank {victim} of {ranks}",
                   functools.partial(killed_in_set_up, ranks, victim, env=env, reserve="2:0"))
    for phase, order in (("first", (3, 2, 1)), ("between", (0, 1, 2)), ("waiting", (2, 0, 1)),
                         ("late", (1, 2, 3))):
        yield f"killed {phase}", functools.partial(faults.cascade, [phase] * 3, order,
                                                   ["LL", "LL128", "Simple"])
    for index, proto in enumerate(faults.LONG):
        yield (f"killed amid a call, {proto}", functools.partial(
            faults.cascade, ["moving"] * 3, ((1, 3, 0), (0, 2, 3), (3, 1, 2))[index], [proto] * 3,
            {"IPCSHIM_PROTO": proto, "IPCSHIM_MAX_CHANNELS": "2"}))
    yield "abort and destroy while others wait", functools.partial(
        faults.cascade, ["abort", "destroy", "abort"], (2, 0, 1), ["LL", "LL128", "Simple"])
    for victim, others in ((0, "destroy"), (2, "call")):
        yield (f"killed in destroy, rank {victim} of 3, others {others}", functools.partial(
            faults.killed_in_destroy, 3, victim, "cuEventQuery:1:-9", others))
    yield "killed after its vote", faults.killed_after_vote
    yield "becomes another program", functools.partial(faults.another_program, 3, 1)
    yield "all ranks killed", faults.all_killed
    yield "exit while pending", faults.exit_while_pending
    for how in ("empty", "unmount"):
        yield f"/dev/shm goes away: {how}", functools.partial(faults.shm_gone, how)
    yield "a rank is stopped", functools.partial(faults.stopped, 3, 1, "LL", 0)
    yield "a rank never calls", functools.partial(faults.never_calls, 2, 0)
    yield "calls differ", functools.partial(
        faults.differ, 3, 1, (30000, "int32", "sum"), (500, "int32", "prod"))
    yield "abort when stuck, ranks are threads", functools.partial(faults.abort_when_stuck, True)
    for how in ("quit", "destroy", "exit"):
        yield f"early exit in good order: {how}", functools.partial(faults.early_exit, how)
    for ranks in (2, 4, 8):
        yield f"splits, {ranks} ranks", functools.partial(comms.split, "late", ranks)
    yield "splits, 4 ranks as threads", comms.split_threads
    yield "ended in another order on every rank", comms.ended_by_turns
    yield "parents and children end in any order", comms.child_first_or_last
    yield "aborted and destroyed by turns", functools.partial(comms.renewed, "rank", "mixed", 3)
    yield "fork after init", comms.forked
    for how in ("drop", "replay"):
        yield f"graph after the end: {how}", functools.partial(comms.graph_later, how)
    yield "groups, 3 ranks", functools.partial(groups.groups, 3, groups.KINDS)


if __name__ == "__main__":
    h.main(list(tests()), at_once=2)
