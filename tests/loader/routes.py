# SPDX-License-Identifier: Apache-2.0
"""The loader matrix: each program runs once by itself, where the shim's trace tells whether
it was called, and once under `ipcshim check`, which must say the same and why. TAP."""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CTYPES = """
import ctypes, os
lib = ctypes.CDLL(os.environ.get("VLLM_NCCL_SO_PATH") or "libnccl.so.2")
class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]
version, comm, unique = ctypes.c_int(), ctypes.c_void_p(), Id()
assert lib.ncclGetVersion(ctypes.byref(version)) == 0 and version.value == 22809
lib.ncclCommInitRank.argtypes = [ctypes.c_void_p, ctypes.c_int, Id, ctypes.c_int]
assert lib.ncclGetUniqueId(ctypes.byref(unique)) == 0
assert lib.ncclCommInitRank(ctypes.byref(comm), 1, unique, 0) == 0
lib.ncclAllReduce.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t, ctypes.c_int,
                              ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
assert lib.ncclAllReduce(ctypes.byref(unique), ctypes.byref(unique), 1, 0, 0, comm, None) == 0
"""
FORK = "import os\nif os.fork():\n    raise SystemExit(os.wait()[1] != 0)\n"


class Failure(Exception):
    pass


def check(good, what):
    if not good:
        raise Failure(what)


def clean():
    return {name: value for name, value in os.environ.items()
            if not name.startswith(("IPCSHIM_", "NCCL_", "LD_", "VLLM_", "SGLANG_", "FASTVIDEO_"))}


def run(command, env, folder):
    return subprocess.run([str(part) for part in command], env=env, cwd=folder, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60)


class Case:
    """called: whether the shim is to be called. fixes: what check must find to fix, all of it.
    status: what the program ends with."""

    def __init__(self, name, command, called, fixes=(), status=0, preload=None, **env):
        self.name, self.command, self.called = name, command, called
        self.fixes, self.status, self.env = set(fixes), status, dict(env)
        if preload:
            self.env["LD_PRELOAD"] = str(preload)

    def run(self, options, folder):
        env = dict(clean(), **{"LD_LIBRARY_PATH": str(options.fake.parent),
                               **{k: str(v) for k, v in self.env.items()}})
        trace = folder / "trace"
        done = run(self.command, dict(env, IPCSHIM_TRACE=str(trace)), folder)
        check(done.returncode == self.status, "status %d: %s%s" % (
            done.returncode, done.stdout, done.stderr))
        calls = [json.loads(line) for line in trace.read_text().splitlines()] \
            if trace.exists() else []
        called = any(e["event"] == "call" and e["name"] == "ncclAllReduce" for e in calls)
        check(called == self.called, "the shim was%s called: %s%s" % (
            "" if called else " not", done.stdout, done.stderr))
        if called:
            check(calls[0]["nccl"], "no NCCL behind the shim: %s" % calls[0])
        self.check(options, env, folder)

    def check(self, options, env, folder):
        done = run([options.ipcshim, "check", "--json", "--", *self.command], env, folder)
        said = json.loads(done.stdout)
        fixes = {f["id"] for f in said["findings"] if f["fix"]}
        check(fixes == self.fixes, "check finds %s instead of %s: %s" % (
            sorted(fixes), sorted(self.fixes), said["findings"]))
        check(done.returncode == (1 if fixes else 0) and said["good"] == (not fixes),
              "check's status is %d" % done.returncode)
        check(all(f["text"] and f["remedy"] for f in said["findings"]), said)
        seen = any(p["allreduce"] and p["allreduce"]["nccl"] for p in said["processes"])
        check(seen == self.called, "check saw other calls: %s" % said["processes"])


def drop_in(options, folder):
    """The recipe of docs/compatibility.md."""
    place = folder / "drop-in"
    place.mkdir()
    os.symlink(options.shim, place / "libnccl.so.2")
    return place


def cases(o, folder):
    python = [sys.executable, "-c", CTYPES]
    other = pathlib.Path(shutil.copy(o.fake, folder / "libnccl.so.2"))
    copy = shutil.copy(o.shim, folder / "libipcshim-copy.so")
    place = drop_in(o, folder)
    behind = "%s:%s" % (place, o.fake.parent)
    relative = os.path.relpath(o.shim, folder / "1")  # each case has a folder like that
    local = [o.opener, "local", o.user]
    yield Case("linked", [o.linked], True, preload=o.shim)
    yield Case("linked, no preload", [o.linked], False, {"not-preloaded"})
    yield Case("dlopen RTLD_LOCAL, as PyTorch", local, True, preload=o.shim)
    yield Case("dlopen RTLD_LOCAL, no preload", local, False, {"not-preloaded"})
    yield Case("ctypes, preload only", python, False, {"dlsym"}, preload=o.shim)
    yield Case("ctypes, neither", python, False, {"dlsym"})
    yield Case("ctypes, path variable", python, True, VLLM_NCCL_SO_PATH=o.shim)
    yield Case("ctypes, both", python, True, preload=o.shim, VLLM_NCCL_SO_PATH=o.shim)
    yield Case("ctypes, path variable names NCCL", python, False, {"dlsym", "path-not-shim"},
               preload=o.shim, VLLM_NCCL_SO_PATH=o.fake)
    yield Case("ctypes, path variable names a copy", python, True, {"two-shims"},
               preload=o.shim, VLLM_NCCL_SO_PATH=copy)
    yield Case("ctypes in a forked child", [sys.executable, "-c", FORK + CTYPES], True,
               VLLM_NCCL_SO_PATH=o.shim)
    yield Case("RTLD_DEEPBIND", [o.opener, "deepbind", o.user], False, {"own-scope"},
               preload=o.shim)
    yield Case("dlmopen", [o.opener, "dlmopen", o.user], False, {"dlmopen"}, preload=o.shim)
    yield Case("static, names exported", [o.opener, "local", o.user_static], True,
               preload=o.shim)
    yield Case("static, names hidden", [o.opener, "local", o.user_hidden], False,
               {"hidden-nccl"}, preload=o.shim)
    yield Case("two NCCLs by path", [*local, other], True, {"dlsym", "two-nccls"},
               preload=o.shim)
    yield Case("drop-in, linked", [o.linked], True, LD_LIBRARY_PATH=behind,
               IPCSHIM_NCCL_LIB=o.fake)
    yield Case("drop-in, dlopen", local, True, LD_LIBRARY_PATH=behind,
               IPCSHIM_NCCL_LIB=o.fake)
    yield Case("drop-in, ctypes", python, True, LD_LIBRARY_PATH=place,
               IPCSHIM_NCCL_LIB=o.fake)
    yield Case("drop-in, RTLD_DEEPBIND", [o.opener, "deepbind", o.user], True,
               LD_LIBRARY_PATH=place, IPCSHIM_NCCL_LIB=o.fake)
    yield Case("drop-in and no NCCL behind it", [o.linked], False,
               {"nothing-behind", "program-failed"}, status=2, LD_LIBRARY_PATH=place)
    yield Case("drop-in named as the NCCL behind", [o.linked], False,
               {"nothing-behind", "program-failed", "nccl-lib"}, status=2,
               LD_LIBRARY_PATH=place, IPCSHIM_NCCL_LIB=place / "libnccl.so.2")
    yield Case("LD_BIND_NOW, linked", [o.linked], True, preload=o.shim, LD_BIND_NOW="1")
    yield Case("LD_BIND_NOW, dlopen", local, True, preload=o.shim, LD_BIND_NOW="1")
    yield Case("-z now", [o.opener, "local", o.user_now], True, preload=o.shim)
    yield Case("LD_DYNAMIC_WEAK", local, True, preload=o.shim, LD_DYNAMIC_WEAK="1")
    yield Case("relative preload", [o.linked], True, {"preload-relative"}, preload=relative)
    elsewhere = folder / "elsewhere" / "deeper" / "still"  # not /, where ".." leads to /
    elsewhere.mkdir(parents=True)
    yield Case("relative preload and chdir",
               ["sh", "-c", f"cd {elsewhere} && exec {o.linked}"],
               False, {"preload-relative", "not-preloaded"}, preload=relative)
    yield Case("preload that is not there", [o.linked], False,
               {"preload-missing", "not-preloaded"}, preload="/nowhere/libipcshim.so")
    yield Case("shim behind NCCL", [o.linked], False, {"preload-order", "not-first"},
               preload="%s:%s" % (o.fake, o.shim))
    yield Case("shim before NCCL", [o.linked], True, preload="%s:%s" % (o.shim, o.fake))
    yield Case("switched off", [o.linked], True, {"disabled"}, preload=o.shim,
               IPCSHIM_ENABLE="0")
    yield Case("a setting misspelt", [o.linked], True, {"setting"}, preload=o.shim,
               IPCSHIM_ENABEL="0")
    yield Case("a script between", ["sh", "-c", str(o.linked) + "; exit $?"], True,
               preload=o.shim)
    yield Case("env -i", ["env", "-i", "LD_LIBRARY_PATH=%s" % o.fake.parent, o.linked], False,
               {"no-nccl"}, preload=o.shim)  # the auditor is gone as well
    yield Case("no NCCL at all", ["true"], False, {"no-nccl"}, preload=o.shim)


def hooked(o):
    """The same with the hook of dlsym."""
    python, on = [sys.executable, "-c", CTYPES], {"IPCSHIM_HOOK_DLSYM": "1"}
    both = "%s:%s" % (o.shim, o.hook)
    yield Case("stub, preload only", [o.stub], False, {"dlsym"}, preload=o.shim)
    yield Case("stub, hook", [o.stub], True, preload=both, **on)
    yield Case("stub, hook not switched on", [o.stub], False, {"dlsym"}, preload=both)
    yield Case("stub, hook without the shim", [o.stub], False, {"dlsym"}, preload=o.hook, **on)
    yield Case("ctypes, hook", python, True, preload=both, **on)
    yield Case("ctypes, hook and path variable", python, True, preload=both,
               VLLM_NCCL_SO_PATH=o.shim, **on)
    yield Case("linked, hook", [o.linked], True, preload=both, **on)
    yield Case("dlopen, hook, LD_BIND_NOW", [o.opener, "local", o.user], True, preload=both,
               LD_BIND_NOW="1", **on)
    yield Case("dlmopen, hook", [o.opener, "dlmopen", o.user], False, {"dlmopen"},
               preload=both, **on)
    yield Case("drop-in, hook", python, True, preload=both, IPCSHIM_NCCL_LIB=o.fake, **on)
    for program in (o.stub, o.linked):
        yield Case("RTLD_NEXT behind the hook, " + program.name, [program], True,
                   preload="%s:%s" % (both, o.next), **on)
        yield Case("RTLD_NEXT before the hook, " + program.name, [program], True,
                   {"not-first"} if program == o.linked else (),
                   preload="%s:%s" % (o.next, both), **on)


def check_hook(options, folder):
    """It exports dlsym and nothing else, and needs the C library alone."""
    if not shutil.which("nm") or not shutil.which("readelf"):
        return "SKIP no binutils here"
    names = run(["nm", "-D", "--defined-only", options.hook], clean(), folder).stdout.split()
    check(names[2::3] == ["dlsym"], names)
    needed = run(["readelf", "-d", options.hook], clean(), folder).stdout
    check(needed.count("NEEDED") == 1 and "libc.so.6" in needed, needed)


def running(options, folder):
    """`ipcshim check PID`: name, environment, what it must find."""
    for name, more, fixes in (
            ("preloaded", {"LD_PRELOAD": options.shim}, set()),
            ("not preloaded", {}, {"not-preloaded"}),
            ("in the wrong order", {"LD_PRELOAD": "%s:%s" % (options.fake, options.shim)},
             {"preload-order", "not-first"}),
            ("traced", {"LD_PRELOAD": options.shim, "IPCSHIM_TRACE": folder / "t-%p"}, set())):
        yield "a running process, " + name, more, fixes


def check_running(options, folder, more, fixes):
    env = dict(clean(), LD_LIBRARY_PATH=str(options.fake.parent),
               **{k: str(v) for k, v in more.items()})
    with subprocess.Popen([str(options.linked), "60"], env=env, stdout=subprocess.PIPE,
                          text=True) as process:
        try:
            check(process.stdout.readline() == "ready\n", "it did not start")
            done = run([options.ipcshim, "check", "--json", process.pid], clean(), folder)
        finally:
            process.kill()
    said = json.loads(done.stdout)
    found = {f["id"] for f in said["findings"] if f["fix"]}
    check(found == fixes, "found %s instead of %s" % (sorted(found), sorted(fixes)))
    if "IPCSHIM_TRACE" in more:
        check(said["processes"][0]["allreduce"] == {"engine": 0, "nccl": 1}, said)


def check_words(options, folder):
    """What people read, and the ways to ask wrongly."""
    env = dict(clean(), LD_LIBRARY_PATH=str(options.fake.parent))
    done = run([options.ipcshim, "check", "--", options.linked], env, folder)
    check(done.returncode == 1 and "fix  not-preloaded: loader-linked takes NCCL" in done.stdout
          and "    LD_PRELOAD=/" in done.stdout and done.stdout.endswith("1 to fix\n"), done)
    done = run([options.ipcshim, "check", "--", options.linked],
               dict(env, LD_PRELOAD=str(options.shim)), folder)
    check(done.returncode == 0 and "(the shim)" in done.stdout and
          done.stdout.endswith("all good: nothing to fix\n"), done)
    for arguments in ([], ["--bogus"], ["4194305"]):
        done = run([options.ipcshim, "check", *arguments], env, folder)
        check(done.returncode == 2 and done.stderr and not done.stdout, done)
    done = run([options.ipcshim, "check", "--", "/nowhere/program"], env, folder)
    check(done.returncode == 1 and "program-failed" in done.stdout and
          "cannot execute" in done.stderr, done)


def check_static(options, folder):
    """A static program: the loader has no say."""
    (folder / "s.c").write_text("int main(void) { return 0; }\n")
    if not shutil.which("cc") or run(["cc", "-static", "s.c", "-o", "s"], clean(),
                                     folder).returncode:
        return "SKIP no static C library here"
    done = run([options.ipcshim, "check", "--json", "--", "./s"],
               dict(clean(), LD_PRELOAD=str(options.shim)), folder)
    check([f["id"] for f in json.loads(done.stdout)["findings"]] == ["not-loaded"], done)


def main():
    parser = argparse.ArgumentParser()
    for name in ("ipcshim", "shim", "fake", "linked", "opener", "user", "user-now",
                 "user-static", "user-hidden", "stub", "next", "hook"):
        parser.add_argument("--" + name, type=lambda p: pathlib.Path(p).resolve())
    options = parser.parse_args()
    number = failed = 0
    with tempfile.TemporaryDirectory(prefix="ips-loader-") as name:
        top = pathlib.Path(name)
        matrix = [*cases(options, top), *(hooked(options) if options.hook else ())]
        todo = [(c.name, lambda f, c=c: c.run(options, f)) for c in matrix]
        todo += [(n, lambda f, m=m, x=x: check_running(options, f, m, x))
                 for n, m, x in running(options, top)]
        todo += [("words", lambda f: check_words(options, f)),
                 ("static program", lambda f: check_static(options, f))]
        if options.hook:
            todo += [("the hook's names", lambda f: check_hook(options, f))]
        for number, (what, function) in enumerate(todo, 1):
            folder = top / str(number)
            folder.mkdir()
            try:
                note = function(folder)
                print("ok %d - %s%s" % (number, what, " # " + note if note else ""))
            except (Failure, subprocess.TimeoutExpired, ValueError) as failure:
                failed += 1
                print("not ok %d - %s\n# %s" % (number, what, str(failure).replace("\n", "\n# ")))
    print("1..%d" % number)
    return 1 if failed else 0


sys.exit(main())
