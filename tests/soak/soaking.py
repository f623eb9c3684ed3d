# SPDX-License-Identifier: Apache-2.0
"""Runs ips-soak, and holds what it did against what the shim says that it took."""
import collections
import json
import re
import subprocess

KERNELS = ("ring LL", "ring LL128", "ring Simple", "oneshot LL", "oneshot LL128", "twoshot LL",
           "twoshot LL128", "hierarchical Simple")
Run = collections.namedtuple("Run", "result complaints output")
ROW = re.compile(r"^  ncclAllReduce .* (nccl|engine)(?: \((captured|replayed)\))? *"
                 r"(\w+ (?:LL128|LL|Simple))? +(\d+) +\S+(?: \S+)?$")


def summaries(stderr):
    """For each rank that printed a summary: (route, how, kernel) -> AllReduces."""
    ranks = []
    for line in stderr.splitlines():
        if line.startswith("ipcshim: NCCL calls of rank"):
            ranks.append(collections.Counter())
        found = ROW.match(line)
        if found and ranks:
            ranks[-1][found.group(1), found.group(2), found.group(3)] += int(found.group(4))
    return ranks


def unlike(result, taken):
    """Where one rank's summary differs from what the soak has issued."""
    wanted = {("engine", "captured", None): result["captured"],
              ("nccl", None, None): 0}
    for kernel in KERNELS:
        wanted["engine", None, kernel] = result["eager"][kernel]
        wanted["engine", "replayed", kernel] = result["replayed"][kernel]
    seen = collections.Counter()
    for (route, how, kernel), calls in taken.items():
        seen[route, how, None if how == "captured" else kernel] += calls
    for key in sorted(set(wanted) | set(seen), key=str):
        if wanted.get(key, 0) != seen[key]:
            name = " ".join(word for word in key if word)
            yield f"{name}: {wanted.get(key, 0)} calls were made, the summary has {seen[key]}"


def judge(result, ranks, stderr):
    """What is wrong with a run that ended."""
    found = summaries(stderr)
    if result["calls"] == 0 or result["elements"] == 0:
        yield "nothing was checked"
    made = sum(result["eager"].values()) + sum(result["replayed"].values()) + result["nccl"]
    if result["nccl"]:
        yield f"{result['nccl']} calls were left to NCCL, by the policy"
    if made != result["calls"]:
        yield f"{made} calls were made, {result['calls']} checked"
    if len(found) != ranks:
        yield f"{len(found)} of {ranks} summaries"
    for rank in found:
        yield from unlike(result, rank)


def run(soak, arguments, ranks, seed, environment, timeout):
    """Complaints are empty when nothing was wrong and the engine took what it had to."""
    command = [soak, "--ranks", str(ranks), "--seed", str(seed), *map(str, arguments)]
    process = subprocess.Popen(command, env=dict(environment, IPCSHIM_SUMMARY="1"),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()  # which it passes on to its ranks
        stdout, stderr = process.communicate()
        return Run(None, [f"not done after {timeout} s"], stdout + stderr)
    lines = [line for line in stdout.splitlines() if line.startswith("{")]
    result = json.loads(lines[-1]) if lines else None
    complaints = [line for line in stdout.splitlines() if line.startswith(("WRONG", "STUCK"))]
    if process.returncode:
        complaints.append(f"exit status {process.returncode}")
    elif result:
        complaints += judge(result, ranks, stderr)
    else:
        complaints.append("no result")
    return Run(result, complaints, stdout + stderr)


def describe(result):
    """One line of figures."""
    kernels = ", ".join(f"{name} {result['eager'][name]} eager + {result['replayed'][name]} "
                        "replayed" for name in KERNELS)
    return (f"{result['ranks']} ranks: {result['calls']} calls ({kernels}), "
            f"{result['communicators']} communicators, {result['elements']} elements checked, "
            f"{result['wrong']} wrong, {result['seconds']:.0f} s")
