#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bad input gets: whatever stands in the way of the engine, all ranks alike are served
by NCCL with right results, the trace names the cause, as many lines as promised are on
stderr and nothing is left behind; bad arguments get NCCL's own answers."""
import functools
import os
import re
import tempfile
import time

import harness as h

OTHER_SHIM = os.environ["IPS_OTHER_SHIM"]  # another version
MEDDLER = os.environ["IPS_MEDDLER"]  # see meddler.c

WORK = """
ar count=1000
ar count=3001 type=float16 op=max inplace=1
call allgather count=100
ar count=7 type=int64 op=prod off=rank
ar mode=graph calls=2 replays=2 count=500
ar mode=burst calls=6 count=900 values=exact
"""
SCRIPT = "comm A\n" + WORK + "destroy A\n"


def declined(reason, lines, ranks=2, script=SCRIPT, **options):
    """The run is served by NCCL everywhere, for this reason, with these lines on stderr."""
    result = h.run(script, ranks, **options)
    h.expect_fine(result, ranks)
    h.expect_route(result, ranks, "nccl", reason)
    h.expect_stderr(result, lines)
    return result


def engine(lines, ranks=2, script=SCRIPT, **options):
    result = h.run(script, ranks, **options)
    h.expect_fine(result, ranks)
    h.expect_route(result, ranks, "engine")
    h.expect_stderr(result, lines)
    return result


# --- the meeting place ------------------------------------------------------------------

def without_shm(reason, left=(), **shm):
    """The shim alone meets a /dev/shm that can't be used."""
    with tempfile.TemporaryDirectory() as directory:
        result = h.run(SCRIPT, 2, {"LD_PRELOAD": f"{h.SHIM}:{MEDDLER}",
                                   "IPS_SHM_AWAY": directory}, shm=shm)
        h.expect(result.left == list(left), "what is in /dev/shm", result)
        h.expect_fine(result._replace(left=[]), 2)
        h.expect_route(result, 2, "nccl", reason)
        expect_each_rank(result, reason)
        h.expect(os.listdir(directory) == [], "the stand-in NCCL left something")


def shm_full():
    without_shm("make room in /dev/shm", ["full"], options="size=64k",
                before="head -c 65536 /dev/zero > /dev/shm/full")


def shm_too_small():
    """Room for the file's name, but not for its pages: an error, not a SIGBUS."""
    without_shm("make room in /dev/shm", options="size=8k")


def shm_readonly():
    without_shm("Read-only file system", readonly="1")


def planted(kind, reason, line, off=None):
    """A foreign segment has the name that this communicator's would get."""
    if kind == "owner" and os.geteuid() != 0:
        raise h.Skip("only root can make another user's file")
    rank_env = {} if off is None else {off: {"IPCSHIM_ENABLE": "0"}}
    result = h.run(f"comm A plant={kind}\n" + WORK + "destroy A\n", 2, rank_env=rank_env)
    left = [name for name in result.left if not name.startswith("ipcshim-")]
    result = result._replace(left=left)  # the foreign file itself may stay
    h.expect_fine(result, 2)
    h.expect_route(result, 2, "nccl")
    h.expect(h.calls(result, 0)[0]["reason"] and
             re.search(reason, h.calls(result, 0)[0]["reason"]), f"not {reason}", result)
    expect_each_rank(result, line)


def stale():
    """What a killed process has left is nobody's: it is removed, and in nobody's way."""
    result = h.run("comm A plant=stale\n" + WORK + "destroy A\n", 2)
    h.expect_fine(result, 2)
    h.expect_route(result, 2, "engine")
    h.expect_stderr(result, [])


def expect_each_rank(result, line):
    """Ranks that can't reach the meeting place can't agree who tells it: one line a rank."""
    h.expect(1 <= len(result.stderr) <= 2 and all(re.search(line, l) for l in result.stderr),
             f"not {line!r} once or once a rank", result)


# --- ranks ------------------------------------------------------------------------------

def rank_off():
    """Not a fault: nobody is told unless they ask."""
    declined("IPCSHIM_ENABLE=0|no record|without", [], ranks=3,
             rank_env={1: {"IPCSHIM_ENABLE": "0"}})


def all_off():
    declined("IPCSHIM_ENABLE=0", [], env={"IPCSHIM_ENABLE": "0"})


def rank_without_shim():
    """One rank has no shim at all, as if it ran on a machine without it."""
    result = h.run(SCRIPT, 3, rank_env={2: {"LD_PRELOAD": os.path.join(h.SIMGPU,
                                                                     "libnccl.so.2")}})
    h.expect_fine(result, 3)
    for rank in (0, 1):
        events = h.calls(result, rank)
        h.expect(events and all(e["route"] == "nccl" for e in events), "route", result)


def other_version():
    declined("version", ["version"], rank_env={1: {"LD_PRELOAD": OTHER_SHIM}})


def killed(ranks, victim, nth):
    """A rank dies while the others set up with it: they decline soon and go on."""
    script = f"comm A\n@{victim} kill\nsleep 100\n"
    start = time.monotonic()
    result = h.run(script, ranks, keep_going=True, timeout=60, rank_env={
        victim: {"LD_PRELOAD": f"{h.SHIM}:{MEDDLER}", "IPS_KILL_AT": str(nth)}})
    h.expect(not result.timed_out, "the survivors hang", result)
    h.expect(result.code == 137, "the victim was not killed", result)
    h.expect(time.monotonic() - start < 30, "the survivors waited too long", result)
    h.expect(not any("FAIL communicator" in line for line in result.stdout),
             "a survivor's init failed", result)
    for rank in range(ranks):
        if rank == victim:
            continue
        comms = [e for e in result.traces.get(rank, []) if e["event"] == "comm"]
        h.expect(len(comms) == 1 and comms[0]["route"] == "nccl",
                 f"rank {rank} was not declined", result)
        h.expect(str(victim) in comms[0]["reason"], "the reason names no rank", result)
    h.expect(result.left == [], "something is left in /dev/shm", result)
    h.expect(len(result.stderr) == 1, "one line on stderr", result)


# --- devices and links ------------------------------------------------------------------

def driver_fails(call, reason, lines, nth=1, ranks=2, rank=None, **options):
    fault = {"SIMGPU_FAIL": f"{call}:{nth}"}
    where = {"env": fault} if rank is None else {"rank_env": {rank: fault}}
    where.setdefault("env", {})["IPCSHIM_TRANSPORT"] = "ipc"  # transport.py has the others
    declined(reason, lines, ranks, **where, **options)


def driver_lacks():
    """Every rank's driver is the same, and each process finds out for itself."""
    result = h.run(SCRIPT, 2, {"LD_PRELOAD": f"{h.SHIM}:{MEDDLER}",
                               "IPS_HIDE": "cuGraphAddEventRecordNode"})
    h.expect_fine(result, 2)
    h.expect_route(result, 2, "nccl", "driver")
    lacks = [line for line in result.stderr if "cuGraphAddEventRecordNode" in line]
    h.expect(1 <= len(lacks) <= 2, "the call is named, once a process", result)


def link(kind):
    declined("link|probe", ["(link|probe)"], ranks=3,
             env={"SIMGPU_LINK": kind, "IPCSHIM_TRANSPORT": "ipc"})


def nvlink():
    """A choice, not a fault."""
    declined("NVLink", [], env={"SIMGPU_NVLINK": "1"})
    result = h.run(SCRIPT, 2, {"SIMGPU_NVLINK": "1", "IPCSHIM_LOG": "info"})
    h.expect_fine(result, 2)
    h.expect(any("NVLink" in line for line in result.stderr), "not told at info", result)
    engine([], env={"SIMGPU_NVLINK": "1", "IPCSHIM_LINKS": "any"})


def p2p_disabled():
    ipc = {"IPCSHIM_TRANSPORT": "ipc"}
    declined("NCCL_P2P", [], env={"NCCL_P2P_DISABLE": "1", **ipc})
    declined("NCCL_P2P", [], env={"NCCL_P2P_LEVEL": "LOC", **ipc})


def memory_limit():
    declined("IPCSHIM_MEM_MAX", [], env={"IPCSHIM_MEM_MAX": "1M"})


# --- settings ---------------------------------------------------------------------------

def bad_setting(name, value, wanted):
    """One line that names it; the default is used."""
    result = h.run("comm A\nar count=100\n", 1, {name: value})
    h.expect_fine(result, 1)
    h.expect_stderr(result, [wanted])


def settings_differ():
    """Rank 0's are used by all, and the rank that differs says so."""
    result = h.run(SCRIPT, 2, {"IPCSHIM_PROTO": "LL128"}, {1: {"IPCSHIM_PROTO": "LL"}})
    h.expect_fine(result, 2)
    h.expect_route(result, 2, "engine", protocol="LL128")
    h.expect_stderr(result, ["rank 1.*IPCSHIM_PROTO"])


# --- NCCL -------------------------------------------------------------------------------

HIDE_NCCL = r"""
for file in $(ldconfig -p | sed -n 's/.*libnccl\.so[^>]*=> //p'); do
    mount --bind /dev/null "$(readlink -f "$file")" || exit 99
done"""


def no_nccl():
    """Neither by path nor by name: an error of the call, and where was looked."""
    with tempfile.TemporaryDirectory() as directory:
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            os.symlink(os.path.join(h.SIMGPU, name), os.path.join(directory, name))
        result = h.run("comm A expect=2\n", 1, {"LD_LIBRARY_PATH": directory},
                       shm={"before": HIDE_NCCL})
        h.expect_fine(result, 1)
        h.expect_stderr(result, ["IPCSHIM_NCCL_LIB"])
        result = h.run("comm A expect=2\n", 1, {"LD_LIBRARY_PATH": directory,
                                                "IPCSHIM_NCCL_LIB": "/nonexistent/libnccl.so"},
                       shm={"before": HIDE_NCCL})
        h.expect_fine(result, 1)
        h.expect(any("/nonexistent/libnccl.so" in line for line in result.stderr), "path",
                 result)


def invalid_arguments():
    result = h.run("comm A\ninvalid\nar count=10\ndestroy A\n", 2)
    h.expect_fine(result, 2)


def init_fails():
    """NCCL's own failure reaches the program, and the peers' meeting place goes away."""
    result = h.run("comm A expect=3\n", 2, {"SIMNCCL_FAIL": "ncclCommInitRank:1:3"})
    h.expect_fine(result, 2)


def tests():
    yield "/dev/shm full", shm_full
    yield "/dev/shm too small", shm_too_small
    yield "/dev/shm read-only", shm_readonly
    for kind, reason in (("garbage", "foreign content"), ("outcome", "foreign outcome"), ("size", "another size"),
                         ("owner", "another user"), ("link", "symbolic link")):
        yield f"foreign segment: {kind}", functools.partial(planted, kind, reason, reason)
    yield "foreign segment: stale", stale
    yield "foreign record in place of a rank's", functools.partial(
        planted, "record", "another communicator", "another communicator", 1)
    yield "a rank switched off", rank_off
    yield "all ranks switched off", all_off
    yield "a rank without the shim", rank_without_shim
    yield "a rank with another version", other_version
    for ranks, victim, nth in ((2, 1, 1), (3, 0, 1), (3, 2, 2)):
        yield (f"rank {victim} of {ranks} killed during set-up, mapping {nth}",
               functools.partial(killed, ranks, victim, nth))
    yield "handle does not open", functools.partial(
        driver_fails, "cuIpcOpenMemHandle_v2", "does not open", ["rank 1.*rank 0.*does not open"],
        "1:205", 3, 1)
    yield "handle can't be made", functools.partial(
        driver_fails, "cuIpcGetMemHandle", "cannot export", ["rank 2.*cannot export"],
        "1:801", 3, 2)
    yield "link drops writes", functools.partial(link, "drop")
    yield "link drops writes in one direction", functools.partial(link, "drop:1>2")
    yield "link mirrors writes", functools.partial(link, "mirror")
    yield "device memory exhausted", functools.partial(
        driver_fails, "cuMemAlloc_v2", "memory|cuMemAlloc", ["memory|cuMemAlloc"], "1:2",
        2, 1)
    yield "no kernels for the GPU", functools.partial(
        driver_fails, "cuModuleLoadData", "kernel|NO_BINARY|device code",
        ["kernel|NO_BINARY|device code"], "0:209", 2)
    yield "driver too old for the kernels", functools.partial(
        driver_fails, "cuModuleLoadData", "driver", ["driver"], "0:222", 2)
    yield "driver too old: lacks a call", driver_lacks
    yield "NVLink", nvlink
    yield "P2P switched off for NCCL", p2p_disabled
    yield "memory limit", memory_limit
    yield "bad protocol name", functools.partial(
        bad_setting, "IPCSHIM_PROTO", "LL256", "IPCSHIM_PROTO=LL256 .*default")
    yield "bad size", functools.partial(
        bad_setting, "IPCSHIM_MAX_BYTES", "12Q", "IPCSHIM_MAX_BYTES=12Q .*default")
    yield "negative size", functools.partial(
        bad_setting, "IPCSHIM_MEM_MAX", "-1", "IPCSHIM_MEM_MAX=-1 .*default")
    yield "bad channels", functools.partial(
        bad_setting, "IPCSHIM_MAX_CHANNELS", "17", "IPCSHIM_MAX_CHANNELS=17 .*default")
    yield "unknown variable", functools.partial(
        bad_setting, "IPCSHIM_PROTOCOL", "LL", "IPCSHIM_PROTOCOL.*IPCSHIM_PROTO")
    yield "settings differ between ranks", settings_differ
    yield "no NCCL", no_nccl
    yield "invalid arguments", invalid_arguments
    yield "NCCL's init fails", init_fails


if __name__ == "__main__":
    h.main(list(tests()))
