# SPDX-License-Identifier: Apache-2.0
"""vLLM's way into NCCL on simgpu, two ranks each, with the path variables set or not: what
the engine took, and what `ipcshim check` says. TAP."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(__file__).resolve().with_name("pynccl.py")
RANKS = 2


def environment(options, **more):
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("IPCSHIM_", "NCCL_", "LD_", "VLLM_", "SGLANG_", "SIM"))}
    return dict(env, LD_LIBRARY_PATH=options.simgpu, SIMGPU_DEVICES=str(RANKS), **more)


def run_ranks(prefix, env, folder):
    """The ranks' (status, stdout, stderr)."""
    ranks = [subprocess.Popen([*prefix, sys.executable, str(PROGRAM), str(rank), str(RANKS),
                               folder + "/id"], env=env, text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
             for rank in range(RANKS)]
    try:
        return [(r.returncode, *out) for r in ranks for out in [r.communicate(timeout=100)]]
    finally:
        for rank in ranks:
            rank.kill()


def plain(options, more, taken):
    """By itself: the summary in each rank's trace tells who served the AllReduces."""
    with tempfile.TemporaryDirectory(prefix="ips-pynccl-") as folder:
        done = run_ranks([], environment(options, IPCSHIM_TRACE=folder + "/trace.%p", **more),
                         folder)
        traces = [p.read_text().splitlines() for p in pathlib.Path(folder).glob("trace.*")]
    assert all(status == 0 for status, _, _ in done), done
    if taken:
        assert all("absent: none" in out for _, out, _ in done), done
    rows = [row for trace in traces for row in json.loads(trace[-1])["rows"]
            if row["name"] == "ncclAllReduce"]
    calls = {}
    for row in rows:
        calls[row["route"]] = calls.get(row["route"], 0) + row["calls"]
    want = {"engine": 2 * RANKS, "engine (captured)": RANKS, "engine (replayed)": 3 * RANKS}
    assert calls == (want if taken else {}), calls


def checked(options, more, fixes):
    """Under the check."""
    with tempfile.TemporaryDirectory(prefix="ips-pynccl-") as folder:
        done = run_ranks([options.ipcshim, "check", "--json", "--"],
                         environment(options, **more), folder)
    for status, out, err in done:
        said = json.loads(out)
        found = {f["id"] for f in said["findings"] if f["fix"]}
        assert found == fixes and status == (1 if fixes else 0), (said, err)
        if not fixes:
            assert said["processes"][0]["allreduce"] == {"engine": 6, "nccl": 0}, said


def main():
    parser = argparse.ArgumentParser()
    for name in ("ipcshim", "shim", "simgpu"):
        parser.add_argument("--" + name, type=os.path.abspath)
    options = parser.parse_args()
    shim, failed, number = options.shim, 0, 0
    for name, more, fixes in (
            ("VLLM_NCCL_SO_PATH", {"VLLM_NCCL_SO_PATH": shim}, set()),
            ("SGLANG_NCCL_SO_PATH", {"SGLANG_NCCL_SO_PATH": shim}, set()),
            ("VLLM_NCCL_SO_PATH and LD_PRELOAD",
             {"VLLM_NCCL_SO_PATH": shim, "LD_PRELOAD": shim}, set()),
            ("LD_PRELOAD alone", {"LD_PRELOAD": shim}, {"dlsym"})):
        for how, function, argument in (("", plain, not fixes), (", checked", checked, fixes)):
            number += 1
            try:
                function(options, more, argument)
                print("ok %d - %s%s" % (number, name, how))
            except (AssertionError, subprocess.TimeoutExpired) as failure:
                failed += 1
                text = str(failure).replace("\n", "\n# ")
                print("not ok %d - %s%s\n# %s" % (number, name, how, text))
    print("1..%d" % number)
    return 1 if failed else 0


sys.exit(main())
