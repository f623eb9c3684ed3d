# SPDX-License-Identifier: Apache-2.0
"""Faults on real GPUs: a rank is killed, stopped, or does something else than the others,
in the middle of a call. FAULTS: a pattern that chooses cases. Without MPS, under which a client's death is undefined for the
others; ranks that share a GPU then take turns on it, some milliseconds each."""
import json
import os
import re
import select
import signal
import subprocess
import sys
import time

import acceptance as a

REMOTE, INVALID_USAGE = 6, 5


class Rank:
    def __init__(self, number, shim, log):
        self.number, self.log = number, log
        env = a.environment(IPS_SHIM=shim, IPCSHIM_REPORT_S="3", NCCL_CUMEM_ENABLE="0")
        if os.environ.get("NCCL_LIB_DIR"):
            env["IPCSHIM_NCCL_LIB"] = os.environ["NCCL_LIB_DIR"] + "/libnccl.so.2"
        self.process = subprocess.Popen(
            [sys.executable, str(a.ROOT / "tests/gpu/fault_rank.py"), str(number)], env=env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(log, "w"), text=True)
        assert self.answer() == "ready"

    def tell(self, *command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def answer(self, limit=60):
        ready, _, _ = select.select([self.process.stdout], [], [], limit)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            raise RuntimeError(f"rank {self.number}: " + ("ended" if ready else "hangs"))
        return json.loads(line)

    def said(self):
        return [x for x in open(self.log).read().splitlines() if x.startswith("ipcshim")]


class Ranks(list):
    """Processes with a communicator; ended with the block."""

    def __init__(self, count, shim, name):
        super().__init__(Rank(i, shim, a.OUT / f"fault-{name}-{i}.err")
                         for i in range(count))
        self.join(self)

    def join(self, members):
        members[0].tell("id")
        unique = members[0].answer()
        for i, rank in enumerate(members):
            rank.tell("init", unique, len(members), i)
        assert all(rank.answer() == 0 for rank in members), "no communicator"

    def all(self, *command, members=None):
        members = self if members is None else members
        for rank in members:
            rank.tell(*command)
        return [rank.answer() for rank in members]

    def __enter__(self):
        self.expect(self.all("call", 1000, 5), result=0, right=True)
        return self

    def __exit__(self, *_):
        for rank in self:
            rank.process.kill()
            rank.process.wait()

    @staticmethod
    def expect(answers, **wanted):
        for answer in answers:
            for key, value in wanted.items():
                assert answer[key] == value, f"{key} is {answer[key]}, not {value}: {answer}"

    def lines(self, pattern):
        return [line for rank in self for line in rank.said() if re.search(pattern, line)]


def kill(ranks, count, times, after_s):
    """A rank is killed while the others are in a call, or all are."""
    others = [ranks[0], *ranks[2:]]
    for rank in others if times == 1 else ranks:
        rank.tell("call", count, times)
    time.sleep(after_s)
    ranks[1].process.kill()
    killed = time.time()
    answers = [rank.answer() for rank in others]
    took = max(answer["end"] for answer in answers) - killed
    contexts = ranks.all("alive", members=others)
    detail = f"left after {took:.2f} s; contexts {contexts}"
    for answer in answers:
        assert answer["async"] == REMOTE, f"{detail}; {answer}"
    assert contexts == [True] * len(others), detail
    assert took < 1.5, detail
    again = ranks.all("call", 1000, members=others)
    ranks.expect(again, result=REMOTE)
    assert len(ranks.lines("rank 1 .* has ended")) == 1, ranks.lines("")
    ranks.all("abort", members=others)
    ranks.join(others)
    ranks.expect(ranks.all("call", 1000, 5, members=others), result=0, right=True)
    return detail + "; a new communicator works"


def stop(ranks, count):
    """A rank stands still: reported, and nothing else."""
    ranks[1].process.send_signal(signal.SIGSTOP)
    others = [ranks[0], *ranks[2:]]
    for rank in others:
        rank.tell("call", count)
    time.sleep(5)
    lines = ranks.lines("rank 1 .* is behind.*does not run")
    ranks[1].process.send_signal(signal.SIGCONT)
    ranks[1].tell("call", count)
    ranks.expect([rank.answer() for rank in ranks], result=0, right=True, device="ok")
    ranks[0].tell("async_error")
    assert ranks[0].answer() == 0
    assert len(lines) == 1, ranks.lines("")
    return lines[0][:100]


def abort(ranks, count):
    """A rank gives the communicator up while the others wait for it."""
    others = [ranks[0], *ranks[2:]]
    for rank in others:
        rank.tell("call", count)
    time.sleep(0.5)
    before = time.time()
    ranks[1].tell("abort")
    ranks[1].answer()
    answers = [rank.answer() for rank in others]
    took = max(answer["end"] for answer in answers) - before
    ranks.expect(answers, device="ok")
    for answer in answers:
        assert answer["async"] == REMOTE, answer
    assert took < 1.5, took
    ranks.all("abort", members=others)
    ranks.join(ranks)
    ranks.expect(ranks.all("call", 1000, 5), result=0, right=True)
    return f"left after {took:.2f} s; a new communicator works"


def differ(ranks, count):
    """A rank makes a smaller call."""
    before = time.time()
    for rank in ranks:
        rank.tell("call", 100 if rank is ranks[1] else count)
    answers = [rank.answer() for rank in ranks]
    took = max(answer["end"] for answer in answers) - before
    errors = ranks.all("async_error")
    time.sleep(0.5)
    errors = ranks.all("async_error")
    assert errors == [INVALID_USAGE] * len(ranks), (errors, ranks.lines(""))
    assert len(ranks.lines("calls differ")) == 1, ranks.lines("")
    return f"named after {took:.2f} s"


def run_all(shim, ranks=None):
    ranks = ranks or max(3, min(a.gpu_count(), 4))
    try:
        subprocess.run([sys.executable, "-c", "import torch"], check=True,
                       capture_output=True)
    except subprocess.CalledProcessError:
        a.report("faults", "SKIP", "no torch here")
        return
    cases = [("killed, others wait, LL", kill, (1000, 1, 0.5)),
             ("killed, others wait, LL128", kill, (100000, 1, 0.5)),
             ("killed, others wait, Simple", kill, (4 << 20, 1, 0.5)),
             ("killed amid large calls", kill, (16 << 20, 4000, 0.7)),
             ("killed amid small calls", kill, (1000, 200000, 0.7)),
             ("stopped, LL", stop, (1000,)),
             ("stopped, Simple", stop, (4 << 20,)),
             ("aborted, LL", abort, (1000,)),
             ("aborted, Simple", abort, (4 << 20,)),
             ("calls differ, LL", differ, (1000,)),
             ("calls differ, LL and Simple", differ, (4 << 20,))]
    for title, case, arguments in cases:
        if not re.search(os.environ.get("FAULTS", ""), title):
            continue
        name = re.sub(r"\W+", "-", title)
        try:
            with Ranks(ranks, shim, name) as them:
                detail = case(them, *arguments)
            a.report(f"fault: {title}, {ranks} ranks", "ok", detail)
        except (AssertionError, RuntimeError, BrokenPipeError) as error:
            a.report(f"fault: {title}, {ranks} ranks", "FAIL", str(error)[:600])
