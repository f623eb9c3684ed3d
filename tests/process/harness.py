# SPDX-License-Identifier: Apache-2.0
"""Runs ips-worker under the preload on the CPU stand-in, and reports as TAP.

Each run gets a /dev/shm of its own where the machine allows it (a private mount), so that
what is left behind there is seen, and other runs are not disturbed. Standard library only."""
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

WORKER = os.environ["IPS_WORKER"]
SHIM = os.environ["IPS_SHIM"]
SIMGPU = os.environ["IPS_SIMGPU"]
COMMAND = os.environ["IPS_COMMAND"]

Result = collections.namedtuple("Result", "code stdout stderr traces left timed_out")

# Runs "$@" with a /dev/shm of its own; OPTIONS and BEFORE come from the environment.
PRIVATE = r"""
mount -t tmpfs -o "${IPS_SHM_OPTIONS:-size=64m},mode=1777" tmpfs /dev/shm || exit 99
eval "${IPS_SHM_BEFORE:-:}"
if [ -n "$IPS_SHM_READONLY" ]; then mount -o remount,ro /dev/shm || exit 99; fi
"$@"
code=$?
ls -A /dev/shm > "$IPS_SHM_LEFT"
exit $code
"""


class Skip(Exception):
    """A test that can't run here, with the reason."""


def clean_environment():
    """Of this process, less what would change a test; the engine takes more than by default,
    so that there is something to test, and no table or verdict that this user may have."""
    kept = {name: value for name, value in os.environ.items()
            if not re.match(r"IPCSHIM_|NCCL_|SIMGPU_|SIMNCCL_|LD_PRELOAD|IPS_SHM_", name)}
    return dict(kept, IPCSHIM_MAX_BYTES="256K", IPCSHIM_TUNE_FILE="none",
                IPCSHIM_VERDICT_FILE="none")


def private_shm():
    """Whether a private mount of /dev/shm can be made here."""
    if private_shm.known is None:
        done = subprocess.run(["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /dev/shm"],
                              capture_output=True)
        private_shm.known = done.returncode == 0
    return private_shm.known


private_shm.known = None


def read_trace(path):
    events = []
    for line in path.read_text().splitlines():
        events.append(json.loads(line))  # every line is whole and valid
    return events


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def wrap(command, environment, directory, shm):
    """The command in a private /dev/shm; without one only if nothing special is wanted."""
    if private_shm():
        environment["IPS_SHM_LEFT"] = str(directory / "left")
        for name, value in shm.items():
            environment["IPS_SHM_" + name.upper()] = value
        return ["unshare", "-m", "sh", "-c", PRIVATE, "sh"] + command
    if shm:
        raise Skip("a private /dev/shm can't be mounted here")
    return command


def run(script, ranks=2, env=None, rank_env=None, threads=False, keep_going=False,
        timeout=120, shm=None, trace=True, preload=SHIM):
    """Runs the script; env is for all ranks, rank_env {rank: {...}} for one."""
    if "ASAN_OPTIONS" in os.environ and re.search("meddler|corrupter",
                                                  f"{preload} {env} {rank_env}"):
        raise Skip("a library that replaces dlsym can't stand before the sanitizer's runtime")
    with tempfile.TemporaryDirectory(prefix="ips-test-") as name:
        directory = pathlib.Path(name)
        (directory / "script").write_text(script)
        variables = {"LD_PRELOAD": preload, "LD_LIBRARY_PATH": SIMGPU, "SIMGPU_DEVICES": "8"}
        if ranks > 4:  # they share few cores, and the probe has half a second
            variables["SIMGPU_CLOCK"] = "4"
        if trace:
            variables["IPCSHIM_TRACE"] = str(directory / "trace-%r")
        variables.update(env or {})
        environment = clean_environment()
        command = [WORKER, "--ranks", str(ranks)]
        if threads:
            command += ["--threads"]
        if keep_going:
            command += ["--keep-going"]
        for key, value in variables.items():
            command += ["--env", f"*:{key}={value}"]
        for rank, changes in (rank_env or {}).items():
            for key, value in changes.items():
                command += ["--env", f"{rank}:{key}={value}"]
        if threads:  # the worker itself is the rank: only it gets the preload, not its parents
            command = ["env"] + [f"{k}={v}" for k, v in variables.items()] + command
        command = wrap(command + [str(directory / "script")], environment, directory, shm or {})
        return execute(command, environment, directory, timeout)


def execute(command, environment, directory, timeout):
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True, cwd=directory)
    timed_out = False
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        end_group(process)
        stdout, stderr = process.communicate()
    if process.returncode == 99:
        raise Skip("a private /dev/shm can't be mounted here")
    traces = {}
    for path in directory.glob("trace-*"):
        traces[int(path.name.split("-")[1])] = read_trace(path)
    left = directory / "left"
    return Result(process.returncode, stdout.splitlines(), stderr.splitlines(), traces,
                  left.read_text().split() if left.exists() else [], timed_out)


def calls(result, rank=0, name="ncclAllReduce"):
    return [event for event in result.traces.get(rank, [])
            if event["event"] == "call" and event["name"] == name]


def show(result):
    """What a person needs to understand a failure."""
    lines = [f"exit code {result.code}" + (", timed out" if result.timed_out else "")]
    lines += result.stdout[:20] + ["stderr:"] + result.stderr[:20]
    for rank, events in sorted(result.traces.items()):
        routes = collections.Counter((e["route"], e["protocol"], e["reason"])
                                     for e in events if e["event"] == "call")
        lines.append(f"trace of rank {rank}: " + "; ".join(
            f"{count} x {route}" for route, count in routes.items()))
    if result.left:
        lines.append("left in /dev/shm: " + " ".join(result.left))
    return "\n".join(lines)


def expect(holds, what, result=None):
    if not holds:
        raise AssertionError(what + ("\n" + show(result) if result else ""))


def expect_fine(result, ranks):
    """Exit 0, every rank checked something and nothing was wrong, nothing is left."""
    expect(not result.timed_out, "the run hangs", result)
    expect(result.code == 0, "a rank failed", result)
    ends = [re.fullmatch(r"rank \d+: (\d+) checks, 0 failed", line) for line in result.stdout]
    ends = [end for end in ends if end]
    expect(len(ends) == ranks, f"{len(ends)} of {ranks} ranks came to their end", result)
    expect(all(int(end.group(1)) > 0 for end in ends), "a rank checked nothing", result)
    expect(result.left == [], "something is left in /dev/shm", result)


def expect_stderr(result, patterns):
    """Exactly these lines, in any order."""
    lines = list(result.stderr)
    for pattern in patterns:
        found = [line for line in lines if re.search(pattern, line)]
        expect(found, f"no line on stderr matches {pattern!r}", result)
        lines.remove(found[0])
    expect(not lines, f"unexpected lines on stderr: {lines}", result)


def expect_route(result, ranks, route, reason=None, protocol=None):
    """All AllReduce calls of all ranks went there; as many on every rank, and not none."""
    counts = set()
    for rank in range(ranks):
        events = calls(result, rank)
        counts.add(len(events))
        for event in events:
            expect(event["route"] == route, f"rank {rank}: route {event['route']}", result)
            expect(protocol is None or event["protocol"] == protocol,
                   f"rank {rank}: protocol {event['protocol']}, not {protocol}", result)
            expect(reason is None or re.search(reason, event["reason"] or ""),
                   f"rank {rank}: the reason is {event['reason']!r}, not {reason!r}", result)
    expect(len(counts) == 1 and counts != {0}, f"calls by rank: {counts}", result)


def attempt(test):
    """What TAP says of it, and its comment lines: a list that the test returns."""
    try:
        notes = test()
        return "ok", "", notes if isinstance(notes, list) else []
    except Skip as skip:
        return "ok", f" # SKIP {skip}", []
    except Exception as error:  # pylint: disable=broad-except
        return "not ok", "", f"{type(error).__name__}: {error}".splitlines()


def main(tests, at_once=1):
    """Runs (name, function) pairs and prints TAP; names on the command line choose. at_once:
    for tests that mostly wait, if each has a /dev/shm of its own."""
    wanted = sys.argv[1:]
    tests = [(name, test) for name, test in tests
             if not wanted or any(re.search(w, name) for w in wanted)]
    print(f"1..{len(tests)}", flush=True)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(at_once if private_shm() else 1) as pool:
        running = {pool.submit(attempt, test): name for name, test in tests}
        for number, done in enumerate(concurrent.futures.as_completed(running), 1):
            verdict, skip, lines = done.result()
            failed += verdict != "ok"
            print(f"{verdict} {number} - {running[done]}{skip}", flush=True)
            for line in lines:
                print(f"# {line}", flush=True)
    sys.exit(1 if failed else 0)
