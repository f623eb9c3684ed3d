#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What survivors get when a rank is killed, stopped, gives up or makes another call: the
right error soon, one line that names the rank, a new communicator that works, and nothing
left in /dev/shm. See worker_faults.c and worker_posted.c for the commands."""
import functools
import os
import re
import tempfile

import harness as h
import tables

MEDDLER = os.environ["IPS_MEDDLER"]  # see meddler.c

REMOTE, USAGE = 6, 5  # ncclRemoteError, ncclInvalidUsage
# Protocols by size, so that one run has all of them.
SIZES = dict(tables.by_size(4 << 10, 256 << 10), IPCSHIM_MAX_BYTES="64M")
COUNT = {"LL": 500, "LL128": 30000, "Simple": 200000}
LONG = {"LL": 800000, "LL128": 300000, "Simple": 2000000}  # of the protocol alone
WITHIN = "within=5000"  # ms from the fault: 1 s, and room for a busy machine


def run(script, ranks, env=None, **options):
    env = dict({"IPCSHIM_REPORT_S": "20"}, **(env or {}))
    result = h.run(script, ranks, env, keep_going=True, timeout=100, **options)
    left = [name for name in result.left if name.startswith("ipcshim-")]
    return result._replace(left=left)  # NCCL's own files are NCCL's matter


def expect_ends(result, ranks, code=0):
    """These ranks came to their end and found nothing wrong."""
    h.expect(not result.timed_out, "the run hangs", result)
    for rank in ranks:
        ends = [line for line in result.stdout
                if re.fullmatch(rf"rank {rank}: [1-9]\d* checks, 0 failed", line)]
        h.expect(ends, f"rank {rank} did not come to its end", result)
    h.expect(result.code == code, f"the exit code is not {code}", result)
    h.expect(result.left == [], "something is left in /dev/shm", result)


def pid_of(result, rank):
    return next(line.split()[3] for line in result.stdout
                if re.fullmatch(rf"rank {rank}: pid \d+ dies", line))


def note_times(result):
    times = [int(line.split()[-2]) for line in result.stdout if "left after" in line]
    return [f"left after {min(times)} to {max(times)} ms"] if times else []


def expect_all_engine(result, ranks, comms=None):
    """The engine served every communicator of these ranks."""
    for rank in ranks:
        made = [e for e in result.traces.get(rank, []) if e["event"] == "comm"]
        h.expect(made and all(e["route"] == "engine" for e in made),
                 f"rank {rank}: {[(e['route'], e['reason']) for e in made]}", result)
        h.expect(comms is None or len(made) == comms, f"{len(made)} communicators", result)


def digits(ranks):
    return "".join(str(rank) for rank in sorted(ranks))


# --- a rank is killed -------------------------------------------------------------------

def fault_lines(phase, comm, victim, members, count, long_count, number):
    """The script of one fault; all members but the victim then leave with an error."""
    rest = digits(set(members) - {victim})
    late = rest[-1]
    lines = {
        "first": [f"@{victim} die", f"@{rest} post {comm} count={count}"],
        "between": [f"sum comm={comm} count={count} calls=5", f"gather {digits(members)}",
                    f"@{victim} die", f"@{rest} post {comm} count={count}"],
        "moving": [f"post {comm} count={long_count}", f"@{victim} die amid=1"],
        "waiting": [f"@{digits(set(members) - {int(late)})} post {comm} count={count}",
                    f"@{victim} die after=300", f"@{late} await {number}",
                    f"@{late} post {comm} count={count} or={REMOTE}"],
        "late": [f"@{rest} post {comm} count={count} calls=2", f"@{victim} die after=800"],
        "abort": [f"@{rest} post {comm} count={count}", f"@{victim} sleep 300",
                  f"@{victim} fault", f"@{victim} abort {comm}"],
        "destroy": [f"sum comm={comm} count={count} calls=3",
                    f"@{rest} post {comm} count={count}", f"@{victim} sleep 300",
                    f"@{victim} fault", f"@{victim} destroy {comm}"],
    }
    within = "within=15000" if phase == "moving" else WITHIN  # the stand-in is slow to leave
    lines = lines[phase] + [f"@{rest} leave {comm} expect={REMOTE} {within}"]
    if phase in ("abort", "destroy"):  # its process goes on
        lines.append(f"gather {digits(members)}")
    return lines


def cascade(phases, order, protocols, env=None):
    """One rank after another is lost; whoever is left ends the communicator, half of them
    by an abort, and makes a new one."""
    comm, members, script, killed = "A", set(range(len(order) + 1)), "comm A\n", []
    for step, victim in enumerate(order):
        lines = fault_lines(phases[step], comm, victim, members, COUNT[protocols[step]],
                            LONG[protocols[step]], step + 1)
        if phases[step] not in ("abort", "destroy"):
            killed.append(victim)
        members.discard(victim)
        for rank in members:
            lines.append(f"@{rank} {('destroy', 'abort')[(rank + step) % 2]} {comm}")
        if len(members) > 1:
            comm = chr(ord(comm) + 1)
            lines += [f"remake {comm} {digits(members)}"]
            lines += [f"sum comm={comm} count={COUNT[p]}" for p in COUNT]
        script += "\n".join(lines) + "\n"
    result = run(script, len(order) + 1, dict(SIZES, **(env or {})))
    living = set(range(len(order) + 1)) - set(killed)
    expect_ends(result, living, 137 if killed else 0)
    wanted = []
    for phase, victim in zip(phases, order):
        what = {"abort": "has aborted", "destroy": "has destroyed"}.get(phase, "has ended")
        pid = pid_of(result, victim) if victim in killed else r"\d+"
        wanted.append(rf"rank \d \(pid {pid}\) {what}")
    h.expect_stderr(result, wanted)
    expect_all_engine(result, living)
    return note_times(result)


def killed_in_set_up(ranks, victim, fault):
    """The others decline soon and go on; then they leave the dead rank behind."""
    rest = digits(set(range(ranks)) - {victim})
    script = f"comm A\n@{victim} die\n@{rest} abort A\nremake B {rest}\nsum comm=B\n"
    result = run(script, ranks, rank_env={victim: {"SIMGPU_FAIL": fault}})
    expect_ends(result, [int(r) for r in rest], 137)
    h.expect(not any("dies" in line for line in result.stdout), "too late", result)
    h.expect_stderr(result, [rf"rank {victim} \(pid \d+\) ended during the set-up"])
    for rank in rest:
        comms = [e for e in result.traces[int(rank)] if e["event"] == "comm"]
        routes = [e["route"] for e in comms]
        again = "engine" if ranks > 2 else "nccl"  # for one rank there is nothing to do
        h.expect(routes == ["nccl", again], f"routes {routes}", result)


def killed_after_vote():
    """All have voted, and all agree: its first call finds that a rank has ended."""
    script = "@01 remake A 01\n@2 awaitstop 0\n@2 sleep 700\n@2 signal 1 KILL\n"
    script += f"@2 sleep 50\n@2 signal 0 CONT\n@0 post A\n@0 leave A expect={REMOTE} {WITHIN}\n"
    script += "@0 abort A\nremake B 02\nsum comm=B\n"
    result = run(script, 3, rank_env={0: {"SIMGPU_FAIL": "cuEventCreate:1:-19"}})
    expect_ends(result, (0, 2), 137)
    h.expect_stderr(result, [r"rank 1 \(pid \d+\) has ended while rank 0 is in call 1"])
    expect_all_engine(result, (0,), 2)
    return note_times(result)


def killed_before(ranks, victim, fault):
    """Before NCCL's init is complete only NCCL can tell: here it waits, as long as the
    program does, which then makes a new communicator. fault: of the stand-in NCCL."""
    everyone, rest = digits(range(ranks)), digits(set(range(ranks)) - {victim})
    script = f"remake A {everyone} how=late\n@{victim} die\n@{rest} sleep 300\n"
    if not fault:  # and before its record is written
        script = f"@{rest} remake A {everyone} how=late\n@{rest} sleep 300\n"
        script += f"@{rest[0]} signal {victim} KILL\n@{rest[1:]} await 1\n"
        script += f"@{victim} remake A {everyone} delay=60000\n"
    script += f"@{rest} error A expect=7\n@{rest} abort A\nremake B {rest}\nsum comm=B\n"
    result = run(script, ranks, rank_env={victim: {"SIMNCCL_FAIL": fault}} if fault else {})
    expect_ends(result, [int(r) for r in rest], 137)
    h.expect_stderr(result, [])
    h.expect(not any("dies" in line for line in result.stdout), "too late", result)


def killed_in_destroy(ranks, victim, fault, others):
    """fault: a driver call within its destroy. The others destroy as well, or call."""
    rest = digits(set(range(ranks)) - {victim})
    script = f"comm A\nsum calls=5\n@{victim} destroy A\n"
    if others == "call":
        script += f"@{rest} post A\n@{rest} leave A expect={REMOTE} {WITHIN}\n"
    script += f"@{rest} destroy A\nremake B {rest}\nsum comm=B\n"
    script += f"@{victim} die\n"  # not reached
    result = run(script, ranks, rank_env={victim: {"SIMGPU_FAIL": fault}})
    expect_ends(result, [int(r) for r in rest], 137)
    h.expect(not any("dies" in line for line in result.stdout), "not in destroy", result)
    line = [rf"rank {victim} \(pid \d+\) has ended"] if others == "call" else []
    h.expect_stderr(result, line)
    return note_times(result)


def another_program(ranks, victim):
    """A rank's process becomes another program: the pid lives, the rank does not."""
    rest = digits(set(range(ranks)) - {victim})
    script = f"comm A\nsum calls=5\n@{rest} post A\n@{victim} exec\n"
    script += f"@{rest} leave A expect={REMOTE} {WITHIN}\n@{rest} abort A\n"
    script += f"remake B {rest}\nsum comm=B\n@{rest[0]} signal {victim} KILL\n"
    result = run(script, ranks)
    expect_ends(result, [int(r) for r in rest], 137)
    h.expect_stderr(result, [rf"rank {victim} \(pid \d+\) has ended"])
    return note_times(result)


def without_locks():
    """Where files have no such locks the engine serves, and a death is told by the pid."""
    script = f"comm A\nsum calls=5\n@02 post A\n@1 signal 1 KILL\n@02 leave A expect={REMOTE} "
    script += f"{WITHIN}\n@02 abort A\nremake B 02\nsum comm=B\n"
    result = run(script, 3, {"LD_PRELOAD": f"{h.SHIM}:{MEDDLER}", "IPS_NO_LOCKS": "1"})
    expect_ends(result, [0, 2], 137)
    h.expect_stderr(result, [r"rank 1 \(pid \d+\) has ended"])
    return note_times(result)


# --- names that killed processes leave ---------------------------------------------------

OWN = {"options": "size=64m"}  # nobody else's names are there


def stale_names(fault, how):
    """Two ranks are killed while their communicator has a name; the next process that makes
    one removes it. fault: of the stand-in NCCL."""
    script = f"@01 remake A 01 how={how}\n@01 sleep 500\n@01 die\n@23 sleep 1200\n"
    script += "@23 names 1\nremake B 23\nsum comm=B\n@23 names 0\n"
    rank_env = {rank: {"SIMNCCL_FAIL": fault} for rank in (0, 1)} if fault else {}
    result = run(script, 4, rank_env=rank_env, shm=OWN)
    expect_ends(result, (2, 3), 137)
    h.expect_stderr(result, [])
    expect_all_engine(result, (0, 1), 1)  # as they are numbered in it


def live_name():
    """What another job that is still setting up has there stays, and serves it."""
    script = "@01 remake A 01\n@23 awaitstop 1\n@23 sleep 100\n@23 names 1\nremake B 23\n@23 names 1\n"
    script += "gather 23\n@2 signal 1 CONT\nsum comm=A\nsum comm=B\n"
    result = run(script, 4, shm=OWN,
                 rank_env={1: {"SIMNCCL_FAIL": "ncclCommInitRank:1:-19"}})
    expect_ends(result, range(4))
    h.expect_stderr(result, [])
    expect_all_engine(result, (0, 1), 2)  # of each job one, as they are numbered in it


def all_killed():
    result = run("comm A\nsum\ngather 0123\ndie\n", 4)
    h.expect(result.code == 137 and not result.timed_out, "not killed", result)
    h.expect(result.left == [], "something is left in /dev/shm", result)


def exit_while_pending():
    """A program that ends without asking what became of its communicator."""
    result = run("remake A 01 how=late\nsleep 300\nquit\n", 2)
    h.expect(result.code == 0 and not result.timed_out, "the exit", result)
    h.expect(result.left == [], "something is left in /dev/shm", result)


# --- /dev/shm goes away -----------------------------------------------------------------

SECOND_MOUNT = {"before": "mount -t tmpfs -o size=64m tmpfs /dev/shm || exit 99"}


def shm_gone(how):
    """Communicators that exist go on; later ones find what is there now."""
    script = f"@0 shm {how}\ncomm A\nsum\ngather 012\n@0 shm {how}\ngather 012\n"
    if how == "unmount":  # there are only two to take away
        script = script.replace(f"@0 shm {how}\n", "", 1)
    script += "sum calls=8\nsum count=100000\nremake B 012\nsum comm=B\n@1 die\n"
    script += f"@02 post A\n@02 leave A expect={REMOTE} {WITHIN}\n"
    result = run(script, 3, shm=SECOND_MOUNT)
    expect_ends(result, (0, 2), 137)
    h.expect_stderr(result, [r"rank 1 \(pid \d+\) has ended"])
    expect_all_engine(result, (0, 2), 2)


def shm_gone_in_init(how):
    """After the records are written: nobody needs the name any more."""
    with tempfile.TemporaryDirectory() as directory:
        script = "@01 remake A 01\n@2 awaitstop 0\n@2 awaitstop 1\n"
        script += f"@2 shm {how}\n@2 signal 0 CONT\n@2 signal 1 CONT\nsum comm=A calls=8\n"
        result = run(script, 3, {"LD_PRELOAD": f"{h.SHIM}:{MEDDLER}",
                                 "IPS_SHM_AWAY": directory}, shm=SECOND_MOUNT,
                     rank_env={rank: {"SIMNCCL_FAIL": "ncclCommInitRank:1:-19"}
                               for rank in (0, 1)})
    h.expect_stderr(result, [])
    expect_all_engine(result, (0, 1), 1)
    h.expect(result.code == 0 and result.left == [], "the end", result)


def shm_gone_between(how):
    """Between two ranks' records: they do not meet, and NCCL serves them."""
    with tempfile.TemporaryDirectory() as directory:
        script = "@0 remake A 01\n@1 remake A 01 delay=1200\n@2 sleep 700\n"
        script += f"@2 shm {how}\nsum comm=A calls=8\n"
        result = run(script, 3, {"LD_PRELOAD": f"{h.SHIM}:{MEDDLER}",
                                 "IPS_SHM_AWAY": directory}, shm=SECOND_MOUNT)
    h.expect_stderr(result, [])
    for rank in (0, 1):
        made = [e for e in result.traces[rank] if e["event"] == "comm"]
        h.expect([e["route"] for e in made] == ["nccl"] and "no record" in made[0]["reason"],
                 f"rank {rank}", result)
    h.expect(result.code == 0 and result.left == [], "the end", result)


# --- a rank is stopped, or late ---------------------------------------------------------

def behind(rank, how, number=3):
    return rf"waits in call {number + 1} .*rank {rank} \(pid \d+\) is behind, " \
           rf"after call {number}: {how}.*calls done by rank: 0:"


def stopped(ranks, victim, proto, within):
    """One line, and all goes on afterwards. within: it stops while it waits itself."""
    if "ASAN_OPTIONS" in os.environ and proto == "LL128":
        raise h.Skip("under a sanitizer the stand-in takes seconds to notice a wait")
    everyone, rest = digits(range(ranks)), digits(set(range(ranks)) - {victim})
    count = COUNT[proto]
    script = f"comm A\nsum\ngather {everyone}\n"
    if within:
        script += f"@{victim} post A count={count}\n@{rest} sleep 300\n"
    script += f"@{rest[0]} signal {victim} STOP\n@{rest} post A count={count}\n"
    script += f"@{rest[0]} sleep 2500\n@{rest[0]} signal {victim} CONT\n"
    if not within:
        script += f"@{victim} await 2\n@{victim} post A count={count}\n"
    script += "finish A\nsum calls=6\n"
    result = run(script, ranks, dict(SIZES, IPCSHIM_REPORT_S="1"))
    expect_ends(result, range(ranks))
    h.expect_stderr(result, [behind(victim, "does not run")])


def stopped_too_long(ranks, victim):
    everyone, rest = digits(range(ranks)), digits(set(range(ranks)) - {victim})
    script = f"comm A\nsum\ngather {everyone}\n@{rest[0]} signal {victim} STOP\n"
    script += f"@{rest} post A\n@{rest} leave A expect={REMOTE} within=7000\n"
    script += f"gather {rest}\n@{rest[0]} signal {victim} CONT\n"
    script += f"@{victim} await 2\n@{victim} post A or={REMOTE}\n@{victim} leave A expect={REMOTE} {WITHIN}\n"
    script += f"destroy A\nremake B {everyone}\nsum comm=B\n"
    result = run(script, ranks, {"IPCSHIM_TIMEOUT_S": "2"})
    expect_ends(result, range(ranks))
    h.expect_stderr(result, [rf"call 4 has waited for 2 s \(IPCSHIM_TIMEOUT_S\); "
                             rf"rank {victim} .* does not run"])
    expect_all_engine(result, range(ranks), 2)
    return note_times(result)


def stopped_together():
    """As by ^Z: time in which nobody ran is no waiting time."""
    script = "comm A\nsum\ngather 012\n@01 post A\n@2 sleep 300\n@2 pause 3500\n"
    script += "@2 post A\nfinish A\n"
    result = run(script, 3, {"IPCSHIM_TIMEOUT_S": "3", "IPCSHIM_REPORT_S": "3"})
    expect_ends(result, range(3))
    h.expect_stderr(result, [])


def never_calls(ranks, victim):
    """Its program does something else: one line, no error, and it may still come."""
    rest = digits(set(range(ranks)) - {victim})
    script = f"comm A\nsum\n@{rest} post A\n@{victim} sleep 2500\n@{victim} post A\n"
    script += "finish A\nsum\n"
    result = run(script, ranks, {"IPCSHIM_REPORT_S": "1"})
    expect_ends(result, range(ranks))
    h.expect_stderr(result, [behind(victim, "its process runs, but has not come to")])


def late_again_and_again():
    """Below the reporting limit nothing is said, and nothing fails."""
    script = "comm A\nsum\n"
    for turn in range(4):
        script += f"@{turn % 3} sleep 1200\npost A count={(500, 30000)[turn % 2]}\nfinish A\n"
    script += "@1 post A busy=1500\n@02 post A\nfinish A still=700\n"
    result = run(script, 3, dict(SIZES, IPCSHIM_REPORT_S="5", IPCSHIM_TIMEOUT_S="6"))
    expect_ends(result, range(3))
    h.expect_stderr(result, [])
    expect_all_engine(result, range(3))


def clock_jumps(clock):
    """Not during the set-up, whose probe of the links has a deadline by the device's."""
    script = f"comm A\nsum\nclock {clock}\n" + "sum calls=5\n@1 sleep 400\n" * 4
    script += "sum count=30000 calls=3\n"
    result = run(script, 3, dict(
        SIZES, IPCSHIM_REPORT_S="3", IPCSHIM_TIMEOUT_S="4",
        LD_PRELOAD=f"{h.SHIM}:{MEDDLER}"))
    expect_ends(result, range(3))
    h.expect_stderr(result, [])
    expect_all_engine(result, range(3))


# --- calls that differ ------------------------------------------------------------------

def differ(ranks, odd, usual, other, threads=False):
    """usual and other: (count, type, op) of the fourth call, of all but one and of that."""
    everyone, rest = digits(range(ranks)), digits(set(range(ranks)) - {odd})
    script = f"comm A\nsum\ngather {everyone}\n"
    for who, (count, kind, op) in ((rest, usual), (str(odd), other)):
        script += f"@{who} post A count={count} type={kind} op={op}\n"
    script += f"leave A expect={USAGE} {WITHIN}\ndestroy A\n"
    script += f"remake B {everyone}\nsum comm=B\n"
    result = run(script, ranks, SIZES, threads=threads)
    expect_ends(result, range(ranks))
    texts = [f"{op} of {count} {kind}" for count, kind, op in (usual, other)]
    h.expect_stderr(result, ["the ranks' calls differ: call 4 is "])
    line = result.stderr[0]
    h.expect(all(text in line for text in texts) and f"on rank {odd}" in line,
             "not both calls, or not the rank", result)
    expect_all_engine(result, result.traces if threads else range(ranks))
    return note_times(result)


# --- aborts, and ends in good order -----------------------------------------------------

def abort_when_stuck(threads):
    """By another thread of a stuck rank: it is free, and so are the others."""
    script = "comm A\nsum\n@01 post A\n@0 abortlater A 300\n@0 leave - within=5000\n"
    script += f"@1 leave A expect={REMOTE} {WITHIN}\ngather 012\n@2 sleep 400\n"
    script += f"@2 error A expect={REMOTE}\n@12 destroy A\nremake B 012\nsum comm=B\n"
    result = run(script, 3, threads=threads)
    expect_ends(result, range(3))
    h.expect_stderr(result, [r"rank 0 \(pid \d+\) has aborted the communicator while rank 1"])
    return note_times(result)


def memory_comes_back(ends):
    """Failed again and again, within a limit of two communicators' memory."""
    script = ""
    for turn in range(5):
        victim = turn % 2
        script += f"remake A 01\nsum\n@{1 - victim} post A\n@{victim} {ends[0]} A\n"
        script += f"@{1 - victim} leave A expect={REMOTE} {WITHIN}\n"
        script += f"@{1 - victim} {ends[1]} A\n"
    result = run(script, 2, {"IPCSHIM_MEM_MAX": "4M", "IPCSHIM_MAX_CHANNELS": "1"})
    expect_ends(result, range(2))
    h.expect_stderr(result, ["has aborted" if ends[0] == "abort" else "has destroyed"] * 5)
    expect_all_engine(result, range(2), 5)


def early_exit(how):
    """Whoever has done its part may go: the others' last call still completes."""
    script = "comm A\nsum\npost A count=100000 calls=8\n@0 finish A\n"
    script += {"quit": "@0 quit\n", "destroy": "@0 destroy A\n@0 quit\n",
               "exit": "@0 exit 0\n"}[how]
    script += "@12 finish A\n@12 destroy A\nremake B 12\nsum comm=B\n"
    result = run(script, 3, SIZES)
    expect_ends(result, (1, 2))
    h.expect_stderr(result, [])


def destroy_without_credit():
    """Its successor has ended before it read all that this rank has sent it."""
    script = "comm A\nsum\ngather 01\n@0 post A count=500\n@1 post A count=520\n@1 die after=30\n"
    script += "@0 leave - within=5000\n@0 await 1\n@0 destroy A within=1500\n"
    result = run(script, 2)
    expect_ends(result, (0,), 137)
    h.expect(all("rank 1" in line for line in result.stderr), "a line on something else",
             result)


def tests():
    for order in ((3, 2, 1), (0, 1, 2)):
        name = "".join(map(str, order))
        for phase in ("first", "between", "waiting", "late"):
            yield (f"killed {phase}, ranks {name} by turns",
                   functools.partial(cascade, [phase] * 3, order, ["LL", "LL128", "Simple"]))
    for index, proto in enumerate(LONG):
        yield (f"killed amid a call, {proto}", functools.partial(
            cascade, ["moving"] * 3, ((1, 3, 0), (0, 2, 3), (3, 1, 2))[index], [proto] * 3,
            env={"IPCSHIM_PROTO": proto, "IPCSHIM_MAX_CHANNELS": "2"}))
    yield "abort and destroy while others wait", functools.partial(
        cascade, ["abort", "destroy", "abort"], (2, 0, 1), ["LL", "LL128", "Simple"])
    yield "destroy and abort while others wait", functools.partial(
        cascade, ["destroy", "abort", "destroy"], (1, 3, 2), ["Simple", "LL", "LL128"])
    for ranks, victim, fault in (
            (2, 0, "cuModuleLoadData:1:-9"), (4, 3, "cuModuleLoadData:1:-9"),
            (2, 1, "cuIpcGetMemHandle:1:-9"), (4, 0, "cuIpcGetMemHandle:1:-9"),
            (2, 0, "cuIpcOpenMemHandle_v2:1:-9"), (4, 2, "cuIpcOpenMemHandle_v2:2:-9"),
            (2, 1, "cuLaunchKernel:1:-9"), (4, 1, "cuLaunchKernel:1:-9"),
            (2, 0, "cuEventCreate:1:-9"), (4, 3, "cuEventCreate:1:-9")):
        yield (f"killed in set-up at {fault.split(':')[0]}, rank {victim} of {ranks}",
               functools.partial(killed_in_set_up, ranks, victim, fault))
    yield "killed after its vote", killed_after_vote
    yield "no locks on files, a rank killed", without_locks
    yield "becomes another program, rank 1 of 3", functools.partial(another_program, 3, 1)
    for ranks, victim in ((2, 0), (4, 2)):
        yield (f"killed in NCCL's init, rank {victim} of {ranks}", functools.partial(
            killed_before, ranks, victim, "ncclCommInitRankConfig:1:-9"))
        yield (f"killed before its record, rank {victim} of {ranks}", functools.partial(
            killed_before, ranks, victim, None))
        for others in ("destroy", "call"):
            for fault in ("cuStreamCreate:6:-9", "cuIpcCloseMemHandle:1:-9"):
                yield (f"killed in destroy at {fault.split(':')[0]}, others {others}, rank "
                       f"{victim} of {ranks}",
                       functools.partial(killed_in_destroy, ranks, victim, fault, others))
    for fault, how in (("ncclCommInitRank:1:-9", "rank"), (None, "late")):
        yield (f"stale name is removed, killed {'in the init' if fault else 'unpolled'}",
               functools.partial(stale_names, fault, how))
    yield "a live name stays", live_name
    yield "all ranks killed", all_killed
    yield "exit while pending", exit_while_pending
    for how in ("empty", "unmount"):
        yield f"/dev/shm goes away: {how}", functools.partial(shm_gone, how)
        yield (f"/dev/shm goes away in NCCL's init: {how}",
               functools.partial(shm_gone_in_init, how))
        yield (f"/dev/shm goes away between two records: {how}",
               functools.partial(shm_gone_between, how))
    for ranks, victim, proto, within in ((2, 1, "LL", 0), (4, 0, "Simple", 0),
                                         (4, 2, "LL128", 1)):
        yield (f"rank {victim} of {ranks} stopped, {proto}{', in a wait' * within}",
               functools.partial(stopped, ranks, victim, proto, within))
    for ranks, victim in ((2, 0), (4, 3)):
        yield (f"rank {victim} of {ranks} stopped past the limit",
               functools.partial(stopped_too_long, ranks, victim))
        yield (f"rank {victim} of {ranks} never calls",
               functools.partial(never_calls, ranks, victim))
    yield "all stopped together", stopped_together
    yield "late again and again", late_again_and_again
    for clock in ("real", "device"):
        yield f"the {clock} clock jumps", functools.partial(clock_jumps, clock)
    for ranks, odd, usual, other in (
            (2, 1, (500, "int32", "sum"), (520, "int32", "sum")),
            (4, 2, (30000, "int32", "sum"), (29000, "int32", "max")),
            (4, 0, (200000, "float32", "sum"), (800000, "float32", "sum")),
            (2, 0, (500, "int32", "sum"), (200000, "int32", "sum")),
            (3, 1, (30000, "int32", "sum"), (500, "int32", "prod")),
            (3, 2, (700, "int32", "sum"), (700, "int64", "sum")),
            (4, 1, (700, "int32", "sum"), (700, "int32", "max")),
            (2, 1, (30000, "int32", "sum"), (30000, "float32", "sum"))):
        yield (f"calls differ on rank {odd} of {ranks}: {usual}, {other}",
               functools.partial(differ, ranks, odd, usual, other))
    yield "calls differ between threads", functools.partial(
        differ, 3, 2, (500, "int32", "sum"), (200000, "int32", "sum"), True)
    yield "abort when stuck", functools.partial(abort_when_stuck, False)
    yield "abort when stuck, ranks are threads", functools.partial(abort_when_stuck, True)
    for ends in (("abort", "destroy"), ("destroy", "abort")):
        yield f"memory comes back: {ends}", functools.partial(memory_comes_back, ends)
    yield "destroy without the last credit", destroy_without_credit
    for how in ("quit", "destroy", "exit"):
        yield f"early exit in good order: {how}", functools.partial(early_exit, how)


if __name__ == "__main__":
    h.main(list(tests()), at_once=3)
