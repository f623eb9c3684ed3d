# SPDX-License-Identifier: Apache-2.0
"""Checks of libipcshim.so from outside: its symbol tables, and programs under the preload.

check.py CASE --shim ... --fake ... ; exit status 0 good, 1 bad, 77 not possible here.
"""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# NCCL's device API has its own header and host helpers; programs that use it link NCCL.
DEVICE_API = re.compile(r"nccl(DevComm|Team|LsaBarrier|LLA2A|Gin|ResetDebugInitInternal|Get\w+Pointer)")


class Failure(Exception):
    pass


def check(good, what):
    if not good:
        raise Failure(what)


def tool(name, *arguments):
    if not shutil.which(name):
        sys.exit(77)
    return subprocess.run([name, *arguments], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def environment(options, shim=None, **more):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("IPCSHIM_", "NCCL_", "LD_", "FAKE_"))}
    env["LD_PRELOAD"] = shim or options.shim
    env.update(more)
    return env


def run(command, env, status=0):
    done = subprocess.run(command, env=env, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=300)
    check(done.returncode == status, "%s: status %d, stdout %s, stderr %s" % (
        command, done.returncode, done.stdout, done.stderr))
    return done


def expected_names():
    with open(os.path.join(HERE, "nccl-symbols.txt")) as lines:
        return set(lines.read().split())


def exported(path):
    return {line.split()[-1] for line in tool("nm", "-D", "--defined-only", path).splitlines()}


def case_exports(options):
    got, want = exported(options.shim), expected_names() | {"ipcshimGetInfo"}
    check(got == want, "missing %s, extra %s" % (sorted(want - got), sorted(got - want)))


def case_exports_real(options):
    """Whatever public name the installed NCCL has, the shim has too."""
    found = 0
    for path in glob.glob("/usr/local/cuda/lib*/libnccl.so.2") + glob.glob(
            "/usr/lib/*/libnccl.so.2") + glob.glob("/opt/ext/nccl/build/lib/libnccl.so.2"):
        names = {n for n in exported(path) if n.startswith("nccl") and not DEVICE_API.match(n)}
        names = {n for n in names if re.fullmatch(r"nccl[A-Z]\w*", n)}
        found += 1
        missing = names - exported(options.shim)
        check(not missing, "%s also has %s" % (path, sorted(missing)))
    if not found:
        sys.exit(77)


def case_needed(options):
    needed = re.findall(r"NEEDED.*\[(.*)\]", tool("readelf", "-d", options.shim))
    check(needed == ["libc.so.6"], "DT_NEEDED is %s" % needed)
    check("RPATH" not in tool("readelf", "-d", options.shim), "has a RPATH")


def case_glibc(options):
    versions = re.findall(r"GLIBC_([\d.]+)", tool("objdump", "-T", options.shim))
    newest = max(tuple(map(int, v.split("."))) for v in versions)
    check(newest <= (2, 34), "needs GLIBC_%s" % ".".join(map(str, newest)))


def case_silent(options):
    """Children that inherit the preload behave as without it."""
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "x.c")
        with open(source, "w") as out:
            out.write("int main(void) { return 0; }\n")
        commands = [["sh", "-c", "echo hello; true | cat"], [sys.executable, "-c", "print(1)"],
                    ["gcc", source, "-o", os.path.join(folder, "x")], ["/sbin/ldconfig", "-p"],
                    ["env", "-i", "LD_PRELOAD=" + options.shim, "/bin/echo", "a"]]
        for command in commands:
            if not shutil.which(command[0]):
                continue
            for more in ({}, {"LD_BIND_NOW": "1"},
                         {"IPCSHIM_TRACE": folder + "/t", "IPCSHIM_SUMMARY": "1",
                          "IPCSHIM_LOG": "trace", "IPCSHIM_BOGUS": "1"}):
                plain = environment(options)
                del plain["LD_PRELOAD"]
                without, under = run(command, plain), run(command, environment(options, **more))
                check(under.stderr == "", "%s prints %s" % (command, under.stderr))
                check(under.stdout == without.stdout, "%s: other output" % command)
        check(not os.path.exists(folder + "/t"), "a trace file without a communicator")


def case_environment(options):
    """A process that is given next to no environment works, and says nothing."""
    done = run(["env", "-i", "LD_PRELOAD=" + options.engine_shim,
                "LD_LIBRARY_PATH=" + os.path.dirname(options.fake), options.engine_program,
                "init"], None)
    check(done.stdout == done.stderr == "", done.stdout + done.stderr)


def case_setuid(options):
    """A setuid process: ld.so ignores the preload, and a shim that the program loads itself
    takes nothing from the environment."""
    if os.geteuid() != 0:
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        program = shutil.copy(options.program, folder)
        shutil.copy(options.fake, folder + "/libother.so")
        os.chmod(program, 0o4755)  # root's, run by nobody: both see the build folder
        done = subprocess.run(
            [program, "setuid", os.path.abspath(options.shim), os.path.abspath(options.fake)],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, user=65534,
            cwd="/", env=environment(options, IPCSHIM_NCCL_LIB=folder + "/libother.so",
                            IPCSHIM_LOG="trace", IPCSHIM_SUMMARY="1",
                            IPCSHIM_TRACE=folder + "/t", IPCSHIM_ENABEL="1"))
        if done.returncode == 77:
            sys.exit(77)
        check(done.returncode == 0 and done.stderr == "", done.stdout + done.stderr)
        check(not os.path.exists(folder + "/t"), "a trace")


LOOK = """
import os
maps = open('/proc/self/maps').read()
print(len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd')),
      'libcuda' in maps, 'libnccl' in maps, 'ipcshim' in maps)
"""


def case_idle(options):
    """Loading it makes no thread, opens no file, and maps neither CUDA nor NCCL."""
    plain = environment(options)
    del plain["LD_PRELOAD"]
    without = run([sys.executable, "-c", LOOK], plain).stdout.split()
    under = run([sys.executable, "-c", LOOK], environment(
        options, IPCSHIM_TRACE="/tmp/never-written", IPCSHIM_SUMMARY="1")).stdout.split()
    check(without[4] == "False" and under[4] == "True", "the preload is not there")
    check(under[:4] == without[:4], "%s, without it %s" % (under, without))
    # That the probe can see what it looks for: a process with a communicator and a trace.
    with tempfile.TemporaryDirectory() as folder:
        busy = ("import ctypes, os; l = ctypes.CDLL(%r); c = ctypes.c_void_p()\n"
                "class Id(ctypes.Structure): _fields_ = [('x', ctypes.c_char * 128)]\n"
                "l.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]\n"
                "assert l.ncclCommInitRank(ctypes.byref(c), 1, Id(), 0) == 0\n" % options.shim)
        seen = run([sys.executable, "-c", busy + LOOK], environment(
            options, IPCSHIM_NCCL_LIB=options.fake, IPCSHIM_TRACE=folder + "/t")).stdout.split()
    check(int(seen[0]) == int(without[0]) + 1 and int(seen[1]) == int(without[1]) + 1 and
          seen[3] == "True", "the probe sees nothing: %s" % seen)


def preloaded(options, case, *more_arguments, **more):
    return run([options.program, case, *more_arguments],
               environment(options, LD_LIBRARY_PATH=os.path.dirname(options.fake), **more))


def case_arguments(options):
    check(preloaded(options, "arguments").stderr == "", "not silent")


def case_every_name(options):
    preloaded(options, "every-name")


def case_alone(options):
    preloaded(options, "alone")


def case_old(options):
    done = preloaded(options, "old", IPCSHIM_NCCL_LIB=options.old)
    lines = done.stderr.splitlines()
    check(len(lines) >= 2, "no warning: %s" % done.stderr)
    check(sum("ncclCommShrink: the real NCCL" in line for line in lines) == 1, done.stderr)
    check(sum("ncclCommSuspend: the real NCCL" in line for line in lines) == 1, done.stderr)


def case_second(options):
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(options.fake, folder + "/libnccl.so.2")
        done = preloaded(options, "second", copy)
        lines = [line for line in done.stderr.splitlines() if "two NCCLs" in line]
        check(len(lines) == 1 and folder in lines[0], done.stderr)


def case_two_shims(options):
    """A copy of the shim under another path is not taken for NCCL."""
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(options.shim, folder)
        env = environment(options, LD_LIBRARY_PATH=os.path.dirname(options.fake),
                          shim=options.shim + ":" + copy)
        run([options.program, "arguments"], env)
        done = run([options.program, "arguments"],
                   dict(env, IPCSHIM_NCCL_LIB=copy))
        check("is no NCCL" in done.stderr, done.stderr)


CTYPES = """
import ctypes, sys
lib = ctypes.CDLL(%r)
version = ctypes.c_int()
print(lib.ncclGetVersion(ctypes.byref(version)), version.value)
lib.ipcshimGetInfo.restype = ctypes.c_char_p
print(lib.ipcshimGetInfo().decode())
class Id(ctypes.Structure):
    _fields_ = [('x', ctypes.c_char * 128)]
lib.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
comm = ctypes.c_void_p()
print(lib.ncclCommInitRank(ctypes.byref(comm), 1, Id(), 0))
lib.ncclGetErrorString.restype = ctypes.c_char_p
print(lib.ncclGetErrorString(2))
"""


def by_path(options, before="", **more):
    env = environment(options, **more)
    del env["LD_PRELOAD"]
    return run([sys.executable, "-c", before + CTYPES % options.shim], env)


def case_by_path(options):
    """As vLLM loads it: no preload, ctypes, and the real one by variable, already loaded
    under its name or under another, or in the library path."""
    folder = os.path.dirname(options.fake)
    load = "import ctypes; ctypes.CDLL(%r)\n"
    with tempfile.TemporaryDirectory() as other:
        copy = shutil.copy(options.fake_renamed, other + "/libother.so")
        ways = [("IPCSHIM_NCCL_LIB", dict(IPCSHIM_NCCL_LIB=options.fake)),
                ("the loaded libnccl.so.2", dict(before=load % options.fake)),
                ("the loaded objects", dict(before=load % copy)),
                ("the library path", dict(LD_LIBRARY_PATH=folder))]
        for how, settings in ways:
            out = by_path(options, **settings).stdout
            check(out.startswith("0 22809\n") and "nccl found by: %s\n" % how in out, out)
        torch = other + "/torch/lib"
        wheel = other + "/nvidia/nccl/lib"
        os.makedirs(torch)
        os.makedirs(wheel)
        shutil.copy(options.fake, wheel + "/libnccl.so.2")
        # Any shared object without NCCL in it serves as PyTorch.
        shutil.copy(options.innocent, torch + "/libtorch_cuda.so")
        out = by_path(options, before=load % (torch + "/libtorch_cuda.so")).stdout
        check("nccl found by: the wheel beside PyTorch" in out, out)


def case_missing(options):
    """No NCCL anywhere: an error, and one line that says where it was looked for."""
    with tempfile.TemporaryDirectory() as folder:
        # An empty file ends the loader's search before it comes to an installed NCCL.
        open(folder + "/libnccl.so.2", "w").close()
        done = by_path(options, LD_LIBRARY_PATH=folder)
        lines = done.stdout.splitlines()
        check(lines[0] == "2 0" and "nccl: not found" in lines and "2" in lines, done.stdout)
        check("no NCCL library found" in lines[-1], done.stdout)
        check(done.stderr.count("\n") == 1 and "IPCSHIM_NCCL_LIB" in done.stderr and
              "libnccl.so.2 in the library path" in done.stderr, done.stderr)
        done = by_path(options, LD_LIBRARY_PATH=folder, IPCSHIM_NCCL_LIB="/nowhere.so")
        check("IPCSHIM_NCCL_LIB=/nowhere.so is no NCCL" in done.stderr, done.stderr)


def engine(options, case, **more):
    return run([options.engine_program, case],
               environment(options, shim=options.engine_shim,
                           LD_LIBRARY_PATH=os.path.dirname(options.fake),
                           **{"IPCSHIM_MAX_BYTES": "256K", "IPCSHIM_TUNE_FILE": "none",
                              "IPCSHIM_ALGO": "ring", **more}))


def case_engine(options):
    engine(options, options.argument, **dict(
        {"decline": {"FAKE_ENGINE": "decline"}, "none": {"FAKE_ENGINE": "none"},
         "verify": {"IPCSHIM_VERIFY": "2"},
         "disabled": {"IPCSHIM_ENABLE": "0"}}.get(options.argument, {})))


def read_trace(path):
    with open(path) as lines:
        return [json.loads(line) for line in lines]


def case_trace(options):
    with tempfile.TemporaryDirectory() as folder:
        done = engine(options, "trace", IPCSHIM_TRACE=folder + "/t.%r.%%.%p",
                      IPCSHIM_SUMMARY="1", FAKE_ENGINE_REPLAYS="5", FAKE_ENGINE_ALGO="1")
        files = os.listdir(folder)
        check(len(files) == 1 and re.fullmatch(r"t\.1\.%\.\d+", files[0]), files)
        check(os.stat(os.path.join(folder, files[0])).st_mode & 0o777 == 0o600, "its mode")
        events = read_trace(os.path.join(folder, files[0]))
    pid = int(files[0].split(".")[-1])
    check({e["pid"] for e in events} == {pid}, "a child wrote")
    check(events[0]["event"] == "start" and events[0]["nccl"].endswith("libnccl.so.2"),
          events[0])
    calls = [e for e in events if e["event"] == "call"]
    keys = ("name", "bytes", "count", "type", "op", "captured", "route", "protocol", "rank",
            "comm")
    got = [tuple(c[k] for k in keys) for c in calls]
    want = [
        ("ncclAllReduce", 4, 1, "float32", "sum", False, "engine", "LL", 1, 0),
        ("ncclAllReduce", 4, 1, "float32", "sum", True, "engine", "LL", 1, 0),
        ("ncclAllReduce", 4 << 30, 1 << 30, "float32", "sum", False, "nccl", None, 1, 0),
        ("ncclBcast", 24, 3, "float64", None, False, "nccl", None, 1, 0),
        ("ncclAllReduce", None, 5, 99, "custom", False, "nccl", None, 1, 0),
        ("ncclSend", 10, 10, "int8", None, False, "nccl", None, 1, 0),
        ("ncclAllReduce", 8, 2, "float32", "sum", False, "nccl", None, 1, 1),
        ("ncclAllReduce", 4, 1, "float32", "sum", False, "engine", "LL", 1, 0),
    ]
    check(got == want, "\n".join(map(str, got)))
    check(calls[0]["stream"] == "0x10" and calls[6]["reason"] ==
          "communicator made by ncclCommShrink", calls)
    check(calls[0]["time"] <= calls[-1]["time"], "times")
    check([e["event"] for e in events].count("comm") == 2, "communicators")
    check([e["event"] for e in events].count("comm_end") == 1, "communicator ends")
    last = [e for e in events if e["event"] == "summary"]
    check([e["occasion"] for e in last] == ["communicator end", "exit"], last)
    rows = {(r["name"], r["route"], r["protocol"], r["min_bytes"]): (r["calls"], r["bytes"])
            for r in last[-1]["rows"]}
    check(rows[("ncclAllReduce", "engine", "LL", 4)] == (2, 8), rows)
    check(rows[("ncclAllReduce", "engine (captured)", "LL", 4)] == (1, 4), rows)
    check(rows[("ncclAllReduce", "engine (replayed)", "LL", 4)] == (5, None), rows)
    check(rows[("ncclAllReduce", "nccl", None, None)] == (1, None), rows)
    check(rows[("ncclBcast", "nccl", None, 16)] == (1, 24) and
          not any("ncclBroadcast" in key for key in rows), rows)
    check(done.stderr.count("NCCL calls of rank 1") == 1 and "engine (replayed) ring LL" in
          done.stderr, done.stderr)
    check("IPCSHIM_ALGO (oneshot, not ring)" in done.stderr, done.stderr)


def case_trace_off(options):
    """Neither trace nor summary: no file, no output."""
    done = engine(options, "trace")
    check(done.stderr == "", done.stderr)
    # A trace that can't be written: one line, and the program runs on.
    done = engine(options, "trace", IPCSHIM_TRACE="/nowhere/t")
    check(done.stderr.count("\n") == 1 and "/nowhere/t" in done.stderr, done.stderr)
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(folder + "/target", folder + "/link")
        done = engine(options, "trace", IPCSHIM_TRACE=folder + "/link")
        check("can't open" in done.stderr and os.listdir(folder) == ["link"], done.stderr)
        os.mkfifo(folder + "/fifo")
        done = engine(options, "trace", IPCSHIM_TRACE=folder + "/fifo")
        check("can't open" in done.stderr, done.stderr)
    done = engine(options, "trace", IPCSHIM_TRACE="/dev/full")
    check("events are lost" in done.stderr, done.stderr)


def case_summary(options):
    """The table alone, without a file: once, from the parent only."""
    done = engine(options, "trace", IPCSHIM_SUMMARY="1")
    lines = done.stderr.splitlines()
    check(lines[0].startswith("ipcshim: NCCL calls of rank 1 (pid "), done.stderr)
    rows = {tuple(re.split(r"  +", line.strip())) for line in lines[2:]}
    check(rows == {
        ("ncclAllReduce", "4 B to < 8 B", "engine ring LL", "2", "8 B"),
        ("ncclAllReduce", "4 B to < 8 B", "engine (captured) ring LL", "1", "4 B"),
        ("ncclAllReduce", "4 GiB to < 8 GiB", "nccl", "1", "4 GiB"),
        ("ncclAllReduce", "8 B to < 16 B", "nccl", "1", "8 B"),
        ("ncclAllReduce", "unknown", "nccl", "1", "-"),
        ("ncclBcast", "16 B to < 32 B", "nccl", "1", "24 B"),
        ("ncclSend", "8 B to < 16 B", "nccl", "1", "10 B")}, done.stderr)


def case_settings(options):
    """What is unknown or invalid warns once, names the nearest, and does no harm."""
    done = engine(options, "init", IPCSHIM_ENABEL="0", IPCSHIM_PROTO="LL256",
                  IPCSHIM_MAX_CHANNELS="17")
    lines = sorted(done.stderr.splitlines())
    check(len(lines) == 3, done.stderr)
    check("IPCSHIM_ENABEL is unknown" in lines[0] and "IPCSHIM_ENABLE?" in lines[0], lines)
    check("IPCSHIM_MAX_CHANNELS=17 is invalid (1 to 16)" in lines[1], lines)
    check("IPCSHIM_PROTO=LL256 is invalid (auto|LL|LL128|Simple)" in lines[2], lines)


def main():
    cases = {name[5:].replace("_", "-"): f for name, f in globals().items()
             if name.startswith("case_")}
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=sorted(cases))
    parser.add_argument("argument", nargs="?")
    for name in ("shim", "engine-shim", "fake", "fake-renamed", "old", "innocent", "program",
                 "engine-program"):
        parser.add_argument("--" + name, type=os.path.abspath)
    options = parser.parse_args()
    try:
        cases[options.case](options)
    except Failure as failure:
        print("%s: %s" % (options.case, failure))
        sys.exit(1)


main()
