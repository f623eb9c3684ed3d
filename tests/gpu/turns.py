# SPDX-License-Identifier: Apache-2.0
"""One job under several settings, in turns. Each side is a set of rank processes with settings
of its own; all sides live at once, one of them works while the others wait for a word on a
socket, with nothing on the GPU. So both halves of a pair of samples are taken right after each
other, in processes that never met. Part of acceptance.py; the ranks' half is turns_rank.py."""
import contextlib
import json
import math
import os
import pathlib
import re
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import acceptance as a
import programs

HERE = pathlib.Path(__file__).resolve().parent
START_S, ANSWER_S, END_S = 180, 60, 30
SMALLEST = 64  # bytes: shorter AllReduces are the barriers of the job itself
port = 29700


class Failed(Exception):
    """A rank ended, was wrong or did not answer; the text says which, and what it said."""


def environment(ranks, max_bytes=None):
    """acceptance.py's, but with the engine's own policy or what the caller set, and with NCCL's
    own number of CTAs where every rank has its GPU."""
    gpus = a.gpu_count()
    env = a.environment(**programs.nccl_environment(gpus, ranks))
    del env["IPCSHIM_MAX_BYTES"]
    if ranks <= gpus:
        del env["NCCL_MAX_CTAS"]
    env.update({name: value for name, value in os.environ.items()
                if name.startswith("IPCSHIM_") or name == "NCCL_MAX_CTAS"})
    if max_bytes:
        env["IPCSHIM_MAX_BYTES"] = max_bytes
    return env


def why_not(numbers_of_ranks):
    """Why such jobs cannot run here; None: they can."""
    gpus = a.gpu_count()
    if not gpus:
        return "no GPU here"
    probe = subprocess.run([sys.executable, "-c",
                            "import torch; print(*torch.cuda.nccl.version()[:2])"],
                           capture_output=True, text=True)
    if probe.returncode:
        return "no torch here"
    if max(numbers_of_ranks) <= gpus:
        return None
    if not shutil.which("nvidia-cuda-mps-control"):
        return f"{gpus} GPU here, and no MPS to share it"
    own = tuple(int(part) for part in probe.stdout.split())
    if not os.environ.get("NCCL_LIB_DIR") and own < (2, 30):
        return "ranks that share a GPU take NCCL 2.30 or newer: set NCCL_LIB_DIR"
    return None


def placed(numbers_of_ranks):
    """Each number of ranks in turn, under MPS where there are fewer GPUs."""
    gpus = a.gpu_count()
    own = [n for n in numbers_of_ranks if n <= gpus]
    shared = [n for n in numbers_of_ranks if n > gpus]
    yield from own
    if shared:
        with a.Mps():
            yield from shared


def told(env):
    """What of an environment belongs beside its figures."""
    return {name: value for name, value in sorted(env.items())
            if name.startswith(("NCCL_", "IPCSHIM_", "CUDA_", "TORCH_"))}


class Rank:
    def __init__(self, connection):
        connection.settimeout(ANSWER_S)
        self.connection = connection
        self.stream = connection.makefile("rw", encoding="utf-8")

    def fileno(self):
        return self.connection.fileno()

    def tell(self, command):
        self.stream.write(json.dumps(command) + "\n")
        self.stream.flush()

    def hear(self):
        """A whole line, or {}: the rank is gone."""
        line = self.stream.readline()
        return json.loads(line) if line.endswith("\n") else {}


class Sides:
    """settings: by side, what its environment has beside `env`."""

    def __init__(self, ipcshim, title, ranks, script, env, settings):
        self.command = [ipcshim, "run", "--device", "gpu", "--ranks", str(ranks), "--",
                        sys.executable, str(HERE / script)]
        self.title, self.count, self.env, self.settings = title, ranks, env, dict(settings)
        self.processes, self.ranks, self.logs = {}, {}, {}

    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ipcshim-turns-"))
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(self.folder / "meet"))
        self.server.listen(64)
        try:
            for side in self.settings:
                self.start(side)
            self.meet()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes.values():
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    a.stop(process)
        for ranks in self.ranks.values():
            for rank in ranks.values():
                rank.connection.close()
        self.server.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, side):
        global port
        port += 1
        name = re.sub(r"[^A-Za-z0-9]+", "-", f"{self.title} {side}")
        env = dict(self.env, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                   TURNS_SOCKET=str(self.folder / "meet"), TURNS_SIDE=side,
                   IPCSHIM_TRACE=str(self.traces(side, "%p")), **self.settings[side])
        self.logs[side] = a.OUT / f"{name}.log"
        with open(self.logs[side], "w") as log:
            self.processes[side] = subprocess.Popen(
                self.command, cwd=a.ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True)
        self.ranks[side] = {}

    def add(self, side, settings):
        """One more side, while the others wait."""
        self.settings[side] = settings
        self.start(side)
        self.meet()

    def traces(self, side, process):
        return self.folder / f"trace-{list(self.settings).index(side)}-{process}.json"

    def meet(self):
        """Waits until all ranks of all sides have come."""
        deadline = time.monotonic() + START_S
        self.server.settimeout(0.5)
        while any(len(ranks) < self.count for ranks in self.ranks.values()):
            for side, process in self.processes.items():
                if process.poll() is not None:
                    raise self.failed(side, f"ended with {process.returncode} at its start")
                if time.monotonic() > deadline and len(self.ranks[side]) < self.count:
                    raise self.failed(side, f"did not start within {START_S} s")
            with contextlib.suppress(TimeoutError):
                rank = Rank(self.server.accept()[0])
                hello = rank.hear()
                if hello:
                    self.ranks[hello["side"]][hello["rank"]] = rank

    def failed(self, side, what):
        tail = self.logs[side].read_text(errors="replace").splitlines()[-15:]
        return Failed("\n".join([f"{side}: {what}; {self.logs[side]}", *tail]))

    def ask(self, side, **command):
        """Gives all ranks of a side a command; returns their answers, by rank. The first
        error is told, even while other ranks wait for the one that made it."""
        waiting = dict(self.ranks[side])
        answers = {}
        deadline = time.monotonic() + ANSWER_S
        try:
            for rank in waiting.values():
                rank.tell(command)
            while waiting:
                left = max(deadline - time.monotonic(), 0)
                ready = select.select(list(waiting.values()), [], [], left)[0]
                if not ready:
                    raise self.failed(side, f"ranks {sorted(waiting)} did not answer {command} "
                                            f"within {ANSWER_S} s")
                for number in [n for n, rank in waiting.items() if rank in ready]:
                    answers[number] = waiting.pop(number).hear()
                    if "error" in answers[number] or not answers[number]:
                        raise self.failed(side, f"rank {number}: "
                                          + answers[number].get("error", "ended"))
        except OSError as error:
            raise self.failed(side, f"{command}: {error}") from error
        return [answers[number] for number in sorted(answers)]

    def ask_all(self, **command):
        return {side: self.ask(side, **command) for side in self.settings}

    def rounds(self, count):
        """By side, what each of its `count` turns measured: {figure: the slowest rank's}. Who
        begins changes from round to round."""
        samples = {side: [] for side in self.settings}
        order = list(self.settings)
        for _ in range(count):
            for side in order:
                answers = [answer["us"] for answer in self.ask(side, do="sample")]
                samples[side].append({figure: max(answer[figure] for answer in answers)
                                      for figure in answers[0]})
            order.reverse()
        return samples

    def finish(self):
        """Lets all sides end, so that their traces are whole."""
        for side, ranks in self.ranks.items():
            try:
                for rank in ranks.values():
                    rank.tell({"do": "end"})
            except OSError as error:
                raise self.failed(side, f"end: {error}") from error
        for side, process in self.processes.items():
            try:
                code = process.wait(END_S)
            except subprocess.TimeoutExpired:
                raise self.failed(side, f"did not end within {END_S} s") from None
            if code:
                raise self.failed(side, f"ended with {code}")

    def routes(self, side, since, until, captured=None):
        """[{bytes, route, algorithm, protocol, channels, calls of one rank}], of the AllReduces
        that were called in that time (seconds since 1970) and are in the trace by now;
        captured: only such, or only others; a call that was not asked is both."""
        names = ("bytes", "route", "algorithm", "protocol", "channels")
        counts = {}
        for path in self.folder.glob(self.traces(side, "*").name):
            for line in path.read_text().splitlines():
                event = json.loads(line) if line.endswith("}") else {}
                if is_asked_for(event, since, until, captured):
                    key = tuple(event.get(name) for name in names)
                    counts[key] = counts.get(key, 0) + 1
        return [dict(zip(names, key), calls=calls / self.count)
                for key, calls in sorted(counts.items(), key=str)]


def is_asked_for(event, since, until, captured):
    return (event.get("name") == "ncclAllReduce" and (event["bytes"] or 0) >= SMALLEST
            and since <= event["time"] <= until
            and (None in (captured, event["captured"]) or captured == event["captured"]))


def says(routes):
    """The routes in a few words, for a table; None: a failure came before they were read."""
    if routes is None:
        return "?"
    words = {" ".join(filter(None, (r["route"], r["algorithm"], r["protocol"],
                                    r["channels"] and f"x{r['channels']}"))) for r in routes}
    return ", ".join(sorted(words)) or "no calls"


def ratio(ours, theirs):
    """Median of the pairs' ratios, and its 95 % bound as docs/benchmark.md has it; None with
    fewer than 6 pairs."""
    ratios = sorted(x / y for x, y in zip(ours, theirs))
    n, k = len(ratios), 0
    while 2 * sum(math.comb(n, i) for i in range(k + 1)) <= 0.05 * 2 ** n:
        k += 1
    return statistics.median(ratios), [ratios[k - 1], ratios[n - k]] if k else None


def figures(samples, base):
    """{figure: {side: median and samples in us, ratio to the side `base`, and its bound}}."""
    rows = {}
    for figure in samples[base][0]:
        series = {side: [round(turn[figure], 2) for turn in turns]
                  for side, turns in samples.items()}
        rows[figure] = {}
        for side, values in series.items():
            row = {"us": statistics.median(values), "samples_us": values}
            if side != base:
                row["ratio"], row["bound"] = ratio(values, series[base])
            rows[figure][side] = row
    return rows


def cell(row):
    """A side's figure for a table."""
    text = f"{row['us']:.1f}"
    if "ratio" in row:
        text += f" ({row['ratio']:.3f}"
        if row["bound"]:
            text += f", {row['bound'][0]:.3f} to {row['bound'][1]:.3f}"
        text += ")"
    return text


def print_table(head, rows):
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        print("  " + "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())
    sys.stdout.flush()


def write_lines(name, records):
    """The records as JSON lines, on stdout and in OUT."""
    lines = [json.dumps(record) for record in records]
    (a.OUT / f"{name}.jsonl").write_text("".join(line + "\n" for line in lines))
    print("\n".join(lines), flush=True)
