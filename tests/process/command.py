#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The ipcshim command from outside: what it prints, what it runs, how it ends."""
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import tempfile
import time

import harness as h
import tables


def command(*arguments, env=None, timeout=120):
    environment = dict(h.clean_environment(), **(env or {}))
    done = subprocess.run([h.COMMAND, *arguments], env=environment, capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, timeout=timeout)
    return h.Result(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), {},
                    [], False)


def basics():
    h.expect(command("--version").stdout[0].startswith("ipcshim "), "version")
    for arguments in ([], ["bnch"], ["xyzzy"], ["bench", "--types", "float7"], ["run"],
                      ["run", "--ranks", "0", "--", "true"], ["bench", "--device", "tpu"],
                      ["policy", "--op", "xor"], ["env", "--html"], ["bench-rank"],
                      ["bench", "--min", "64", "--max", "8"]):
        result = command(*arguments)
        h.expect(result.code == 2 and result.stderr and not result.stdout, f"{arguments}",
                 result)
        h.expect(arguments == [] or len(result.stderr) == 1, f"{arguments}: one line", result)
    h.expect('"bench"' in command("bnch").stderr[0], "the nearest command")
    for arguments in (["--help"], ["run", "--help"], ["bench", "--help"], ["policy", "--help"],
                      ["env", "--help"]):
        result = command(*arguments)
        h.expect(result.code == 0 and "usage:" in result.stdout[0], f"{arguments}", result)


def policy():
    env = dict(tables.by_size(1000, 1 << 20, channels=1), IPCSHIM_MAX_BYTES="4M",
               IPCSHIM_MAX_CHANNELS="1")
    result = command("policy", "--ranks", "8", env=env)
    got = [line.split()[:5] for line in result.stdout[2:]]
    h.expect(got == [["1000", "B", "engine", "ring", "LL"], ["1", "MB", "engine", "ring", "LL128"],
                     ["4", "MB", "engine", "ring", "Simple"], ["any", "nccl", "-", "-", "-"]],
             f"{got}", result)
    h.expect("IPCSHIM_MAX_BYTES" in result.stdout[-1] and env["IPCSHIM_TUNE_FILE"] in
             result.stdout[0], "why", result)
    one = command("policy", "--ranks", "1")
    h.expect(one.stdout[-1].split()[1] == "nccl" and "single" in one.stdout[-1], "one", one)
    for link in tables.LINKS:
        each = command("policy", "--ranks", "4", "--link", link, "--size", "64K")
        best = [line for line in each.stdout if line.endswith("best")]
        h.expect(each.code == 0 and len(best) == 1, link, each)


SHOW = ('echo "$LD_PRELOAD|$VLLM_NCCL_SO_PATH|$SGLANG_NCCL_SO_PATH|$IPCSHIM_NCCL_LIB|'
        '$RANK|$WORLD_SIZE|$LOCAL_RANK"')


def run_environment():
    other = os.environ["IPS_MEDDLER"]  # any library
    result = command("run", "--device", "sim", "--", "sh", "-c", SHOW, env={
        "LD_PRELOAD": other, "VLLM_NCCL_SO_PATH": "/opt/nccl.so"})
    preload, vllm, sglang, nccl, *_ = result.stdout[0].split("|")
    h.expect(result.code == 0 and not result.stderr, "quiet when the stand-in was asked for",
             result)
    h.expect(preload.split(":") == [h.SHIM, other], "LD_PRELOAD", result)
    h.expect(vllm == sglang == h.SHIM and nccl == "/opt/nccl.so", "path variables", result)
    result = command("run", "--", "true")
    h.expect(result.code == 0, "run", result)
    if not os.path.exists("/dev/nvidia0"):
        h.expect_stderr(result, ["no GPU here.*stand-in"])
    h.expect(command("run", "--", "/nonexistent").code == 127, "no such program")
    h.expect(command("run", "--", "/etc/passwd").code == 126, "not a program")
    h.expect(command("run", "--", "sh", "-c", "exit 7").code == 7, "status")


def run_ranks():
    result = command("run", "--ranks", "3", "--device", "sim", "--", "sh", "-c", SHOW)
    got = sorted(line.split("|")[4:] for line in result.stdout)
    h.expect(got == [[str(r), "3", str(r)] for r in range(3)], f"{got}", result)
    start = time.monotonic()
    result = command("run", "--ranks", "3", "--device", "sim", "--", "sh", "-c",
                     'test $RANK = 1 && exit 9; exec sleep 60')
    h.expect(result.code == 9 and time.monotonic() - start < 30, "first failure", result)
    h.expect_stderr(result, ["rank 1 failed with status 9"])
    result = command("run", "--ranks", "2", "--device", "sim", "--", "sh", "-c", "kill -9 $$")
    h.expect(result.code == 137, "killed", result)


def run_signal():
    """A signal to the command reaches every rank, and its status comes back."""
    with tempfile.TemporaryDirectory() as name:
        script = (f"trap 'echo > {name}/got-$RANK; exit 3' USR1; echo > {name}/up-$RANK; "
                  "while :; do sleep 0.05; done")
        process = subprocess.Popen([h.COMMAND, "run", "--ranks", "2", "--device", "sim", "--",
                                    "sh", "-c", script], env=h.clean_environment(),
                                   stderr=subprocess.PIPE)
        deadline = time.monotonic() + 30
        while len(list(pathlib.Path(name).glob("up-*"))) < 2:
            h.expect(time.monotonic() < deadline, "the ranks do not start")
            time.sleep(0.02)
        process.send_signal(signal.SIGUSR1)
        process.communicate(timeout=30)
        h.expect(process.returncode == 3, f"status {process.returncode}")
        got = list(pathlib.Path(name).glob("got-*"))
        h.expect(got, "no rank got the signal")


def bench(*arguments, env=None, code=0):
    with tempfile.TemporaryDirectory() as name:
        path = os.path.join(name, "rows.json")
        result = command("bench", "--device", "sim", "--seed", "7", "--json", path, *arguments,
                         env=env)
        h.expect(result.code == code, f"bench {' '.join(arguments)}", result)
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    h.expect(report["simulated"] is True and report["seed"] == 7, "head", result)
    h.expect("simulated, not performance" in result.stdout[0], "label", result)
    h.expect(not any("ratio" in line for line in result.stdout), "no ratio", result)
    return result, report["rows"]


def bench_protocols():
    env = dict(tables.by_size(4 << 10, 64 << 10), IPCSHIM_MAX_BYTES="1M")
    result, rows = bench("--ranks", "2,3", "--min", "8", "--max", "2M", "--factor", "16",
                         env=env)
    h.expect(len(rows) == 12, f"{len(rows)} rows", result)
    for row in rows:
        size = row["bytes"]
        proto = ("LL" if size <= 4096 else "LL128" if size <= 65536 else
                 "Simple" if size <= 1 << 20 else None)
        h.expect(row["protocol"] == proto and row["wrong"] == 0 and not row["ranks_differ"],
                 f"{row}", result)
        h.expect(row["us"] > 0, f"{row}", result)
    h.expect({row["ranks"] for row in rows} == {2, 3}, "ranks", result)


def bench_shapes():
    for shape in (["--in-place"], ["--offset-elems", "1"], ["--graph"],
                  ["--graph", "--in-place", "--offset-elems", "3", "--iters", "3"],
                  ["--samples", "0"]):
        result, rows = bench("--ranks", "2", "--sizes", "8,4K,100000", "--types",
                             "bfloat16,int8", "--ops", "avg,max", *shape)
        h.expect(len(rows) == 12 and all(r["wrong"] == 0 for r in rows), "rows", result)
        h.expect(all(r["route"] == "engine" for r in rows), "route", result)


def bench_off():
    result, rows = bench("--ranks", "2", "--sizes", "8,1M", env={"IPCSHIM_ENABLE": "0"})
    h.expect([(r["route"], r["reason"]) for r in rows] == [("nccl", "IPCSHIM_ENABLE=0")] * 2,
             "rows", result)


def bench_notices():
    """One wrong element of many fails the bench."""
    env = {"IPCSHIM_ENABLE": "0", "IPCSHIM_NCCL_LIB": os.environ["IPS_LIAR"],
           "IPS_LIAR_NCCL": os.path.join(h.SIMGPU, "libnccl.so.2")}
    result, rows = bench("--ranks", "2", "--sizes", "4K", env=env, code=1)
    h.expect(rows[0]["wrong"] == 2 * 3, f"{rows[0]}", result)  # ranks x checks
    h.expect(any("WRONG 6" in line for line in result.stdout), "table", result)
    h.expect(any("element 1023" in line for line in result.stderr), "which one", result)


def matrix(*arguments, code=0, env=None):
    """A matrix on the stand-in: the result, and what it wrote as JSON."""
    with tempfile.TemporaryDirectory() as name:
        path = os.path.join(name, "matrix.json")
        result = command("bench", "--device", "sim", "--vs-nccl", "--json", path, *arguments,
                         env=env)
        h.expect(result.code == code, f"matrix {' '.join(arguments)}", result)
        with open(path, encoding="utf-8") as file:
            return result, json.load(file)


def check_matrix_head(report, result):
    h.expect(report["format"] == "ipcshim-vs-nccl-1" and report["simulated"] is True and
             "not performance" in report["note"], "label", result)
    h.expect(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", report["date"]), "date", result)
    gpus = report["machine"]["gpus"]
    h.expect(report["machine"]["cores"] >= 1 and len(gpus) == 8 and "simgpu" in gpus[7],
             "machine: all GPUs, used or not", result)
    h.expect(report["environment"]["NCCL_MAX_CTAS"] == "5" == report["nccl_max_ctas"] and
             "IPCSHIM_TRACE" in report["environment"], "environment", result)
    h.expect(report["nccl"] and report["cuda"] and "sign test" in report["method"], "versions",
             result)


def check_matrix_row(row, result):
    for key in ("us", "nccl_us"):
        time, samples = row[key], row[key]["samples"]
        h.expect(len(samples) == 7 and min(samples) > 0, f"{key}: {row}", result)
        h.expect(abs(time["median"] - statistics.median(samples)) < 0.01 and
                 (time["min"], time["max"]) == (min(samples), max(samples)), f"{row}", result)
    for key in ("ratio", "ratio_bound", "algbw_gb_s", "limit_percent", "limit_gb_s"):
        h.expect(row[key] is None, f"{key} of simulated times", result)
    taken = row["bytes"] <= 4096
    h.expect((row["route"], row["protocol"], row["transport"], row["channels"] > 0) ==
             (("engine", "LL", "ipc", True) if taken else ("nccl", None, None, False)),
             f"{row}", result)
    h.expect(row["wrong"] == 0 and not row["ranks_differ"] and row["iters"] == 2, f"{row}",
             result)


def bench_transports():
    """Each transport is a run of its own; a row has the one that the trace tells."""
    result, report = matrix("--ranks", "2", "--transport", "host,ipc", "--sizes", "4K",
                            "--samples", "7", "--iters", "2")
    got = [(row["route"], row["transport"]) for row in report["rows"]]
    h.expect(got == [("engine", "host")] * 2 + [("engine", "ipc")] * 2, f"{got}", result)
    heads = [line for line in result.stdout if line.startswith("# 2 ranks, transport")]
    h.expect(["host", "ipc"] == [head.split()[4].strip(",") for head in heads], f"{heads}",
             result)


def bench_matrix():
    env = {"IPCSHIM_MAX_BYTES": "4K", "IPCSHIM_PROTO": "LL", "NCCL_MAX_CTAS": "5"}
    result, report = matrix("--ranks", "2,3", "--sizes", "8,4K,5M", "--samples", "7", "--iters",
                            "2", env=env)
    check_matrix_head(report, result)
    got = [(r["ranks"], r["mode"], r["bytes"]) for r in report["rows"]]
    h.expect(got == [(n, mode, size) for n in (2, 3) for mode in ("eager", "graph")
                     for size in (8, 4096, 5 << 20)], f"{got}", result)
    for row in report["rows"]:
        check_matrix_row(row, result)
    heads = [line for line in result.stdout if line.startswith("#")]
    h.expect(len(heads) == 2 and all("not performance" in line for line in heads), "label", result)


def bench_matrix_in_time():
    """Slow cases are timed less often, and still often enough for a bound."""
    result, report = matrix("--ranks", "2", "--sizes", "8,2M", "--seconds", "1", "--iters", "50",
                            "--samples", "9")
    small, large = (next(r for r in report["rows"] if r["bytes"] == size)
                    for size in (8, 2 << 20))
    h.expect(large["iters"] < small["iters"] <= 50, "iterations", result)
    h.expect(6 <= len(large["us"]["samples"]) <= 9, "samples", result)


def bench_matrix_notices():
    """Also where only windows of a result are compared."""
    env = {"IPCSHIM_ENABLE": "0", "IPCSHIM_NCCL_LIB": os.environ["IPS_LIAR"],
           "IPS_LIAR_NCCL": os.path.join(h.SIMGPU, "libnccl.so.2")}
    result, report = matrix("--ranks", "2", "--sizes", "5M", env=env, code=1)
    h.expect([row["wrong"] for row in report["rows"]] == [6, 6], "rows", result)
    h.expect(sum("WRONG 6" in line for line in result.stdout) == 2, "table", result)


def bench_matrix_options():
    for arguments, words in ((["--plot", "x.svg"], "--vs-nccl"), (["--seconds", "9"], "--vs-nccl"),
                             (["--vs-nccl", "--no-nccl"], "nothing to compare")):
        result = command("bench", *arguments)
        h.expect(result.code == 2 and words in result.stderr[0], f"{arguments}", result)


def bench_plot():
    with tempfile.TemporaryDirectory() as name:
        picture = os.path.join(name, "out.svg")
        run = ["bench", "--device", "sim", "--vs-nccl", "--ranks", "2", "--sizes", "8,64",
               "--plot", picture]
        pathlib.Path(name, "matplotlib.py").write_text("raise ImportError\n")
        result = command(*run, env={"PYTHONPATH": name})
        h.expect(result.code == 2 and not result.stdout and "needs matplotlib" in result.stderr[0],
                 "found out before the run", result)
        os.unlink(os.path.join(name, "matplotlib.py"))
        plot = os.path.join(os.path.dirname(h.COMMAND), "ipcshim-plot")
        if subprocess.run([plot, "--can"], capture_output=True).returncode:
            raise h.Skip("matplotlib is not installed")
        result = command(*run)
        h.expect(result.code == 0 and os.path.getsize(picture) > 1000, "picture", result)
        h.expect("SIMULATED" in pathlib.Path(picture).read_text(), "label", result)
        h.expect(json.loads(pathlib.Path(picture + ".json").read_text())["rows"], "json", result)


def bench_user_trace():
    with tempfile.TemporaryDirectory() as name:
        template = os.path.join(name, "mine-%r-%p")
        bench("--ranks", "2", "--sizes", "64", env={"IPCSHIM_TRACE": template})
        h.expect(len(os.listdir(name)) == 2, "the user's traces are kept")
        result = command("bench", "--device", "sim", "--sizes", "8",
                         env={"IPCSHIM_TRACE": os.path.join(name, "one")})
        h.expect(result.code == 2 and "%r" in result.stderr[0], "one file for all", result)


TESTS = [("options and messages", basics), ("policy table", policy),
         ("run: environment and status", run_environment), ("run: ranks", run_ranks),
         ("run: signals", run_signal), ("bench: protocols by size", bench_protocols),
         ("bench: in place, offset, graph", bench_shapes), ("bench: switched off", bench_off),
         ("bench: notices one wrong element", bench_notices),
         ("bench: the user's trace", bench_user_trace), ("matrix: table and JSON", bench_matrix),
         ("matrix: ends in time", bench_matrix_in_time),
         ("matrix: transports", bench_transports),
         ("matrix: notices one wrong element", bench_matrix_notices),
         ("matrix: options", bench_matrix_options), ("matrix: plot", bench_plot)]

if __name__ == "__main__":
    h.main(TESTS)
