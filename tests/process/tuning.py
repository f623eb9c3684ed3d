#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ipcshim tune on the CPU stand-in, and what the shim does with its file: it changes the
route of calls, alike on all ranks, and is ignored with one line where it is of no use."""
import os
import pathlib
import re
import subprocess
import tempfile

import harness as h
import tables

AUTO = {"IPCSHIM_MAX_BYTES": "auto"}
# Few candidates: the stand-in is slow, and its times mean nothing.
FEW = {"IPCSHIM_MAX_CHANNELS": "1", "IPCSHIM_TUNE_FILE": ""}
ROW = re.compile(r"\s*(\d+)\s+(?:nccl - - -|(ring|oneshot|twoshot|hierarchical) (LL|LL128|Simple) (\d+) (\d+))"
                 r" ([\d.]+) ([\d.]+)")


def command(*arguments, env=None):
    environment = dict(h.clean_environment(), **AUTO, **(env or {}))
    done = subprocess.run([h.COMMAND, *arguments], env=environment, capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, timeout=300)
    return h.Result(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), {},
                    [], False)


def tune(path, *arguments, env=None, code=0):
    result = command("tune", "--device", "sim", "--output", str(path), *arguments,
                     env={**FEW, **(env or {})})
    h.expect(result.code == code, "tune " + " ".join(arguments), result)
    return result


def rows_of(path):
    """The measurements by table: {"2 pcie": [(bytes, algorithm or None, protocol), ...]}."""
    found = {}
    for line in path.read_text().splitlines():
        line = " ".join(line.split())
        if line.startswith("table = "):
            rows = found.setdefault(line[8:], [])
        elif line and line[0].isdigit():
            row = ROW.fullmatch(line)
            h.expect(row and float(row[6]) > 0 and float(row[7]) > 0, line)
            rows.append((int(row[1]), row[2], row[3]))
    return found


def check_table(rows, sizes, result):
    h.expect([size for size, algorithm, _ in rows if not algorithm] == sizes, f"NCCL: {rows}",
             result)
    for size in sizes:
        kept = [row for row in rows if row[0] == size and row[1]]
        h.expect(1 <= len(kept) <= 8, f"{size}: {kept}", result)


def end_to_end():
    """Two numbers of ranks, in two runs: the second keeps the table of the first."""
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "made" / "tune"
        first = tune(path, "--ranks", "2", "--sizes", "1K,64,4K", "--rounds", "2")
        check_table(rows_of(path)["2 pcie"], [64, 1024, 4096], first)
        second = tune(path, "--ranks", "4", "--sizes", "256", "--rounds", "1")
        found = rows_of(path)
        h.expect(sorted(found) == ["2 pcie", "4 pcie"], f"{found}", second)
        check_table(found["2 pcie"], [64, 1024, 4096], second)
        check_table(found["4 pcie"], [256], second)
        h.expect("beside NCCL" in second.stdout[0] and str(path) in second.stdout[-1], "told",
                 second)
        h.expect([path] == list(path.parent.iterdir()), "nothing beside it")
        shown = command("policy", "--tune", str(path), "--ranks", "4", "--size", "256")
        h.expect(shown.code == 0 and sum(line.endswith("best") for line in shown.stdout) == 1,
                 "policy", shown)
        again = h.run("comm A\nar count=64\n", 4,
                      {**AUTO, "IPCSHIM_TUNE_FILE": str(path), "IPCSHIM_LOG": "info"})
        h.expect_fine(again, 4)
        h.expect(not any("ignored" in line for line in again.stderr), "of this machine", again)


def without_nccl():
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "tune"
        result = tune(path, "--ranks", "2", "--sizes", "256", "--rounds", "1", "--no-nccl")
        rows = rows_of(path)["2 pcie"]
        h.expect(rows and all(algorithm for _, algorithm, _ in rows), f"{rows}", result)


def forced():
    """The variables leave kernels out."""
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "tune"
        result = tune(path, "--ranks", "3", "--sizes", "256", "--rounds", "1", "--no-nccl",
                      env={"IPCSHIM_ALGO": "twoshot", "IPCSHIM_PROTO": "LL"})
        rows = rows_of(path)["3 pcie"]
        h.expect({row[1:] for row in rows} == {("twoshot", "LL")}, f"{rows}", result)
        result = tune(path, "--ranks", "4", "--sizes", "4K", "--rounds", "1",
                      env={"IPCSHIM_ALGO": "hierarchical"})  # in halves
        rows = {row[1:] for row in rows_of(path)["4 pcie 2"] if row[1]}
        h.expect(rows == {("hierarchical", "Simple")}, f"{rows}", result)


def wrong_result():
    """One wrong element fails the tuning, and leaves the file as it was."""
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "tune"
        path.write_text("as it was")
        result = tune(path, "--ranks", "2", "--sizes", "4K", "--rounds", "1", code=1, env={
            "IPCSHIM_NCCL_LIB": os.environ["IPS_LIAR"], "IPCSHIM_PROTO": "LL",
            "IPS_LIAR_NCCL": os.path.join(h.SIMGPU, "libnccl.so.2")})
        h.expect(any("WRONG result of NCCL" in line and "4 KB" in line
                     for line in result.stderr), "told", result)
        h.expect(path.read_text() == "as it was", "the file", result)


def asked_wrongly():
    for arguments in (["--ranks", "9"], ["--ranks", "1"], ["--sizes", "3"], ["--sizes", "x"],
                      ["--rounds", "0"], ["--transport", "air"], ["--colour"], ["x"]):
        result = command("tune", *arguments)
        h.expect(result.code == 2 and len(result.stderr) == 1 and not result.stdout,
                 f"{arguments}", result)
    h.expect("usage:" in command("tune", "--help").stdout[0], "help")
    result = tune("/proc/nowhere/tune", "--ranks", "2", "--sizes", "64", "--rounds", "1", code=1)
    h.expect("cannot write" in " ".join(result.stderr), "no place", result)


# --- what the shim does with it ---------------------------------------------------------

SCRIPT = "comm A\nar count=16\nar count=256\nar count=257\nar count=1024\nar count=5000\n"
MADE = [(1024, "twoshot LL128", 3), (4096, "ring Simple", 2), (16384, "oneshot LL", 1)]
# The engine's rows take 5 us: it wins at 1 KB and 16 KB, not at 4 KB.
NCCL = [(1024, 10), (4096, 5), (16384, 10)]
WANTED = [("engine", "twoshot", "LL128", 3)] * 2 + [("nccl", None, None, None)] * 3


def taken(result, rank):
    return [(e["route"], e["algorithm"], e["protocol"], e["channels"])
            for e in h.calls(result, rank)]


def run(path, ranks=2, rank_env=None, **env):
    result = h.run(SCRIPT, ranks, {**AUTO, "IPCSHIM_TUNE_FILE": str(path), **env}, rank_env)
    h.expect_fine(result, ranks)
    return result


def changes_the_route():
    path = tables.file(tables.text(MADE, NCCL))
    for ranks in (2, 4):
        result = run(path, ranks)
        h.expect_stderr(result, [])
        for rank in range(ranks):
            h.expect(taken(result, rank) == WANTED, f"rank {rank}: {taken(result, rank)}", result)
        reasons = [e["reason"] for e in h.calls(result)]
        h.expect("measured to be faster" in reasons[0] and "measured not to be" in reasons[3],
                 f"{reasons}", result)


def nothing_wins():
    """Where nothing is known to be faster there is no engine: no memory is held for it."""
    path = tables.file(tables.text(MADE, [(size, 1) for size, _, _ in MADE]))
    script = SCRIPT + "destroy A\n" + SCRIPT
    result = h.run(script, 3, {**AUTO, "IPCSHIM_TUNE_FILE": path, "IPCSHIM_LOG": "info"})
    h.expect_fine(result, 3)
    h.expect_route(result, 3, "nccl", reason="no size is known to be faster here")


def rank_0_decides():
    """Rank 1 has another file, rank 2 a damaged one, rank 3 none: all do what rank 0 says."""
    other = tables.file(tables.text([(65536, "ring LL", 4)], [(65536, 100)]))
    bad = tables.file("not a table\n")
    result = run(tables.file(tables.text(MADE, NCCL)), 4,
                 {1: {"IPCSHIM_TUNE_FILE": other}, 2: {"IPCSHIM_TUNE_FILE": bad},
                  3: {"IPCSHIM_TUNE_FILE": "none"}})
    h.expect_stderr(result, [])
    for rank in range(4):
        h.expect(taken(result, rank) == WANTED, f"rank {rank}: {taken(result, rank)}", result)


def ignored(content, line, mode=0o644, env=None, **options):
    """The run is as without a file, and rank 0 says why, once for all communicators."""
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "tune"
        if content is not None:
            path.write_text(content)
            os.chmod(path, mode)
        script = SCRIPT + SCRIPT.replace("comm A", "comm B")
        result = h.run(script, 2, {**AUTO, "IPCSHIM_TUNE_FILE": str(path), **(env or {})},
                       **options)
        plain = h.run(script, 2, AUTO)
        h.expect_fine(result, 2)
        h.expect_stderr(result, [line] if line else [])
        h.expect(taken(result, 0) == taken(plain, 0) == taken(result, 1), "as without", result)


HEAD = "format = 1\nlibrary = 0.1.0\ngpu = 0000:01:00.0 GPU-73696d67-0000 another\n"


def of_no_use():
    table = "table = 2 pcie\n1024 ring LL 1 256 1 1\n"
    ignored(None, r"tune are ignored: No such file.*ipcshim tune")
    ignored(HEAD + table, r"tune are ignored: it was made with other GPUs")
    ignored(HEAD.replace("0.1.0", "9.9") + table, "ignored: .*another version of ipcshim")
    ignored("format = 7\n", "ignored: line 1: ")
    ignored("format = 1\ngpu = any\n" + table + "\0\xff\n", "ignored: line 5: ")
    ignored("", 'ignored: it has no line "format')
    ignored("#" * (2 << 20), "ignored: it is larger than 1 MB")
    ignored("format = 1\ngpu = any\n" + table, "ignored: everybody may write", mode=0o666)
    ignored("format = 1\ngpu = any\n" + table.replace("2", "3", 1), None)  # for 3 ranks only


def of_another_user():
    if os.geteuid():
        raise h.Skip("only root can give a file away")
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "tune"
        path.write_text(tables.text(MADE, NCCL))
        os.chown(path, 12345, 12345)
        h.expect_stderr(run(path), ["ignored: it belongs to another user"])
        os.chown(path, 0, 0)
        h.expect_stderr(run(path), [])
        fifo = pathlib.Path(name) / "fifo"
        os.mkfifo(fifo)
        h.expect_stderr(run(fifo), ["ignored: it is not a regular file"])


def usual_place():
    """Without a variable: below $XDG_CACHE_HOME, or below $HOME. One of another machine is no
    news there."""
    with tempfile.TemporaryDirectory() as name:
        for variable, place in (("XDG_CACHE_HOME", "ipcshim"), ("HOME", ".cache/ipcshim")):
            folder = pathlib.Path(name) / variable / place
            folder.mkdir(parents=True)
            (folder / "tune").write_text(tables.text(MADE, NCCL))
            env = {"XDG_CACHE_HOME": "", variable: str(pathlib.Path(name) / variable)}
            result = run("", **env)
            h.expect(taken(result, 0) == WANTED, f"{variable}: {taken(result, 0)}", result)
            (folder / "tune").write_text(HEAD + "table = 2 pcie\n1024 ring LL 1 256 1 1\n")
            h.expect_stderr(run("", **env), [])
            result = run("none", **env)
            h.expect(taken(result, 0) != WANTED, "none", result)


def tests():
    yield "measured, 2 and 4 ranks", end_to_end
    yield "measured without NCCL", without_nccl
    yield "kernels left out", forced
    yield "a wrong result", wrong_result
    yield "asked wrongly", asked_wrongly
    yield "a file changes the route", changes_the_route
    yield "nothing wins", nothing_wins
    yield "rank 0 decides", rank_0_decides
    yield "files of no use", of_no_use
    yield "files of others", of_another_user
    yield "the usual place", usual_place


if __name__ == "__main__":
    h.main(list(tests()))
