# SPDX-License-Identifier: Apache-2.0
"""Hostile surroundings: security.py GROUP --ranks ... ; prints TAP.

loading: nothing comes from a relative path. secure: a privileged program's environment is
not read. traces: no link is followed and no trap written to. check: `ipcshim check` is not
held up by what a process names."""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time

NOBODY = 65534


class Failure(Exception):
    pass


class Skip(Exception):
    pass


def check(good, what):
    if not good:
        raise Failure(str(what))


def clean(**more):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("IPCSHIM_", "NCCL_", "LD_", "SIMGPU_", "FAKE_"))}
    return dict(env, **more)


def run(command, env, folder, **more):
    return subprocess.run([str(c) for c in command], env=env, cwd=folder, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60, **more)


# --- nothing is loaded from a relative path

def springs(o, folder, name, path):
    """That the trap is one: the loader itself would take it from there."""
    code = "import ctypes; ctypes.CDLL(%r)" % name
    done = run([sys.executable, "-c", code], clean(LD_LIBRARY_PATH=path), folder)
    check((folder / "sprung").exists(), "the trap does not work: %s" % done)
    (folder / "sprung").unlink()


def refused(o, folder, done, status, what):
    check(not (folder / "sprung").exists(), "it was loaded: %s" % done)
    lines = [line for line in done.stderr.splitlines() if "relative path" in line]
    check(len(lines) == 1 and what in lines[0], done)
    check(done.returncode == status, done)


def case_named(o, folder):
    """IPCSHIM_NCCL_LIB=sub/libnccl.so.2: another is found, and one line says so."""
    (folder / "sub").mkdir()
    shutil.copy(o.trap, folder / "sub/libnccl.so.2")
    springs(o, folder, "sub/libnccl.so.2", "")
    for path in ("sub/libnccl.so.2", "./sub/libnccl.so.2"):
        done = run([o.ranks, "meet", o.shim], clean(
            IPCSHIM_NCCL_LIB=path, LD_LIBRARY_PATH=str(o.fake.parent)), folder)
        refused(o, folder, done, 0, "IPCSHIM_NCCL_LIB=" + path)


def good_folder(folder, *libraries):
    good = folder / "good"
    good.mkdir()
    for library in libraries:
        shutil.copy(library, good / library.name)
    return good


def case_library_path(o, folder):
    """libnccl.so.2 in the current directory, which the library path names first."""
    good = good_folder(folder, o.fake)
    shutil.copy(o.trap, folder / "libnccl.so.2")
    for path in (":%s" % good, ".:%s" % good, "%s/none::%s" % (folder, good), ".//:"):
        springs(o, folder, "libnccl.so.2", path)
        done = run([o.ranks, "meet", o.shim], clean(LD_LIBRARY_PATH=path), folder)
        refused(o, folder, done, 1, "libnccl.so.2")


def case_library_path_later(o, folder):
    """An absolute directory that has the library comes first: nothing to say."""
    good = good_folder(folder, o.fake)
    shutil.copy(o.trap, folder / "libnccl.so.2")
    for path in ("%s:" % good, "%s:." % good):
        done = run([o.ranks, "meet", o.shim], clean(LD_LIBRARY_PATH=path), folder)
        check(done.returncode == 0 and "relative" not in done.stderr, done)
        check(not (folder / "sprung").exists(), "it was loaded")


def case_special_folder(o, folder):
    """A variant for the processor at hand, in a subdirectory that only the loader knows."""
    good = good_folder(folder, o.fake)
    deep = folder / "glibc-hwcaps/x86-64-v2"
    deep.mkdir(parents=True)
    shutil.copy(o.trap, deep / "libnccl.so.2")
    done = run([o.ranks, "meet", o.shim], clean(LD_LIBRARY_PATH=":%s" % good), folder)
    refused(o, folder, done, 1, "libnccl.so.2")


def case_driver(o, folder):
    good = good_folder(folder, o.fake)
    shutil.copy(o.trap, folder / "libcuda.so.1")
    springs(o, folder, "libcuda.so.1", "%s:" % good)
    done = run([o.ranks, "meet", o.shim], clean(LD_LIBRARY_PATH="%s:" % good), folder)
    refused(o, folder, done, 0, "libcuda.so.1")


def case_nvml(o, folder):
    if not o.cuda:
        raise Skip("no CPU stand-in")
    good = good_folder(folder, o.cuda, o.nccl)
    shutil.copy(o.trap, folder / "libnvidia-ml.so.1")
    springs(o, folder, "libnvidia-ml.so.1", "%s:" % good)
    done = run([o.ranks, "run", o.shim], clean(
        LD_LIBRARY_PATH="%s:" % good, IPCSHIM_LINKS="any"), folder)
    refused(o, folder, done, 0, "libnvidia-ml.so.1")


def case_beside_torch(o, folder):
    """PyTorch itself was loaded by a relative path: what is beside it would be, too."""
    (folder / "torch/lib").mkdir(parents=True)
    (folder / "nvidia/nccl/lib").mkdir(parents=True)
    shutil.copy(o.audit, folder / "torch/lib/libtorch_cuda.so")  # any library
    shutil.copy(o.trap, folder / "nvidia/nccl/lib/libnccl.so.2")
    springs(o, folder, "nvidia/nccl/lib/libnccl.so.2", "")
    empty = folder / "empty"
    empty.mkdir()
    (empty / "libnccl.so.2").touch()  # ends the search before an installed NCCL
    done = run([o.ranks, "meet", o.shim, "torch/lib/libtorch_cuda.so"],
               clean(LD_LIBRARY_PATH=str(empty)), folder)
    check(done.returncode == 1 and "no NCCL found" in done.stderr, done)
    check(not (folder / "sprung").exists(), "it was loaded")


# --- nothing is read from the environment of a privileged program

def hostile(o, folder):
    """Every variable there is, each with a value that would show."""
    table = run([o.ipcshim, "env", "--markdown"], clean(), folder).stdout
    names = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    check(len(names) > 10, table)
    env = {name: "bogus" for name in names}
    env.update(IPCSHIM_TRACE=str(folder / "trace"), IPCSHIM_SUMMARY="1", IPCSHIM_LOG="trace",
               IPCSHIM_ENABLE="0", IPCSHIM_NCCL_LIB="sub/none.so", IPCSHIM_BOGUS="1",
               NCCL_P2P_DISABLE="1", NCCL_P2P_LEVEL="LOC", NCCL_COMM_ID="127.0.0.1:1",
               NCCL_COMM_BLOCKING="0", SIMGPU_DEVICES="1", SIMGPU_LOG=str(folder / "log"),
               SIMGPU_FAIL="cuMemAlloc_v2:0:2", LD_PRELOAD=str(o.shim))
    return clean(**env)


def privileged(o, folder, mark):
    if os.geteuid() != 0:
        raise Skip("only root can make a privileged program")
    if not o.cuda:
        raise Skip("no CPU stand-in")
    box = folder / "box"
    box.mkdir()
    folder.chmod(0o755)
    box.chmod(0o755)
    program = shutil.copy(o.ranks, box / "ranks")
    libraries = [shutil.copy(p, box / p.name) for p in (o.shim, o.cuda, o.nvml, o.nccl)]
    for path in (program, *libraries):
        os.chmod(path, 0o755)
    work = folder / "work"
    work.mkdir()
    work.chmod(0o777)
    mark(program)
    done = run([program, "poison", *libraries], hostile(o, work), work, user=NOBODY,
               group=NOBODY, extra_groups=[])
    if done.returncode == 77:
        raise Skip("%s is on a file system without setuid" % folder)
    check(done.returncode == 0, "status %d (3: the environment was read)\n%s" % (
        done.returncode, done.stdout + done.stderr))
    check(done.stderr == "" and not list(work.iterdir()), (done, list(work.iterdir())))


def case_setuid(o, folder):
    privileged(o, folder, lambda program: os.chmod(program, 0o4755))


def case_setgid(o, folder):
    privileged(o, folder, lambda program: os.chmod(program, 0o2755))


def case_capability(o, folder):
    """CAP_NET_RAW, effective and permitted: not setuid, and privileged nevertheless."""
    def mark(program):
        try:
            os.setxattr(program, "security.capability", struct.pack(
                "<5I", 0x02000001, 1 << 13, 0, 0, 0))
        except OSError as error:
            raise Skip("no file capabilities here: %s" % error)
    privileged(o, folder, mark)


def case_open(o, folder):
    """The same program without privileges reads its environment, and that is noticed."""
    if not o.cuda:
        raise Skip("no CPU stand-in")
    done = run([o.ranks, "open", o.shim, o.cuda, o.nvml, o.nccl], clean(), folder)
    check(done.returncode == 3, done)


# --- traces

def traced(o, folder, path, taken, **more):
    """Runs a program that traces to the path; whether the shim took it."""
    begin = time.monotonic()
    done = run([o.engine_program, "trace"], clean(
        LD_PRELOAD=str(o.engine_shim), LD_LIBRARY_PATH=str(o.fake.parent),
        IPCSHIM_TRACE=str(path), IPCSHIM_MAX_BYTES="256K", IPCSHIM_TUNE_FILE="none"),
        folder, **more)
    check(done.returncode == 0 and time.monotonic() - begin < 20, done)
    lines = done.stderr.splitlines()
    if taken:
        check(not lines, done)
    else:
        check(len(lines) == 1 and "no trace, can't open %s: " % path in lines[0], done)
    return done.stderr


def events(text):
    return [json.loads(line)["event"] for line in text.splitlines()]


def case_new_file(o, folder):
    old = os.umask(0)
    try:
        traced(o, folder, folder / "t", True)
    finally:
        os.umask(old)
    check(stat.S_IMODE((folder / "t").stat().st_mode) == 0o600, "its mode")
    check(events((folder / "t").read_text())[0] == "start", "no trace")


def case_append(o, folder):
    (folder / "t").write_text('{"event":"mine"}\n')
    traced(o, folder, folder / "t", True)
    check(events((folder / "t").read_text())[:2] == ["mine", "start"], "not appended")


def case_symlink(o, folder):
    (folder / "precious").write_text("precious")
    (folder / "link").symlink_to("precious")
    (folder / "dangling").symlink_to("made")
    traced(o, folder, folder / "link", False)
    traced(o, folder, folder / "dangling", False)
    check((folder / "precious").read_text() == "precious", "written through the link")
    check(not (folder / "made").exists(), "made through the link")


def case_hard_link(o, folder):
    """Where the kernel allows it, anyone may link a file of ours into a directory of theirs."""
    (folder / "precious").write_text("precious")
    os.link(folder / "precious", folder / "link")
    text = traced(o, folder, folder / "link", False)
    check("hard link" in text and (folder / "precious").read_text() == "precious", text)


def others(folder, path):
    if os.geteuid() != 0:
        raise Skip("only root can play another user")
    folder.chmod(0o1777)
    os.chown(path, NOBODY, NOBODY)
    os.chmod(path, 0o666)


def case_foreign_file(o, folder):
    """Prepared by another user in a shared directory, to read what is traced."""
    (folder / "t").touch()
    others(folder, folder / "t")
    text = traced(o, folder, folder / "t", False)
    check("another user" in text and not (folder / "t").read_text(), text)


def case_foreign_fifo(o, folder):
    os.mkfifo(folder / "t")
    others(folder, folder / "t")
    reader = os.open(folder / "t", os.O_RDONLY | os.O_NONBLOCK)
    text = traced(o, folder, folder / "t", False)
    check("another user" in text and not os.read(reader, 100), text)
    os.close(reader)


def case_fifo(o, folder):
    """Without a reader it is refused at once; with one it gets the lines."""
    os.mkfifo(folder / "t")
    traced(o, folder, folder / "t", False)
    got = []
    reader = os.open(folder / "t", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)

    def read():
        with os.fdopen(reader) as file:
            got.append(file.read())
    thread = threading.Thread(target=read)
    keeper = os.open(folder / "t", os.O_WRONLY)  # so that reading does not end early
    thread.start()
    traced(o, folder, folder / "t", True)
    os.close(keeper)
    thread.join()
    check(events(got[0])[0] == "start", got)


def case_no_file(o, folder):
    (folder / "directory").mkdir()
    traced(o, folder, folder / "directory", False)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "socket"))
    traced(o, folder, folder / "socket", False)
    traced(o, folder, "/dev/null", True)


# --- ipcshim check of a process that names traps

@contextlib.contextmanager
def sleeper(**env):
    process = subprocess.Popen(["sleep", "60"], env=clean(**env))
    try:
        while os.readlink("/proc/%d/exe" % process.pid) == os.readlink("/proc/self/exe"):
            time.sleep(0.01)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def looks(o, folder, **env):
    with sleeper(**env) as pid:
        done = run([o.ipcshim, "check", "--json", pid], clean(), folder)
    check(done.returncode in (0, 1), done)
    return json.loads(done.stdout)


def case_trace_traps(o, folder):
    os.mkfifo(folder / "fifo")
    for trap in (folder / "fifo", "/dev/zero", folder):
        looks(o, folder, IPCSHIM_TRACE=str(trap))


def case_path_traps(o, folder):
    os.mkfifo(folder / "fifo")
    for trap in (folder / "fifo", "/dev/zero", folder):
        said = looks(o, folder, VLLM_NCCL_SO_PATH=str(trap), IPCSHIM_NCCL_LIB=str(trap))
        check({"path-not-shim", "nccl-lib"} <= {f["id"] for f in said["findings"]}, said)


def case_relative_setting(o, folder):
    said = looks(o, folder, IPCSHIM_NCCL_LIB="sub/libnccl.so.2")
    texts = [f["text"] for f in said["findings"] if f["id"] == "nccl-lib"]
    check(len(texts) == 1 and "relative path" in texts[0], said)


GROUPS = {
    "loading": (case_named, case_library_path, case_library_path_later, case_special_folder,
                case_driver, case_nvml, case_beside_torch),
    "secure": (case_setuid, case_setgid, case_capability, case_open),
    "traces": (case_new_file, case_append, case_symlink, case_hard_link, case_foreign_file,
               case_foreign_fifo, case_fifo, case_no_file),
    "check": (case_trace_traps, case_path_traps, case_relative_setting),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("group", choices=sorted(GROUPS))
    for name in ("ranks", "trap", "shim", "ipcshim", "fake", "engine-program", "engine-shim",
                 "audit", "cuda", "nvml", "nccl"):
        parser.add_argument("--" + name, type=lambda p: pathlib.Path(os.path.abspath(p)))
    options = parser.parse_args()
    failed = 0
    cases = GROUPS[options.group]
    print("1..%d" % len(cases))
    for number, case in enumerate(cases, 1):
        what = case.__name__[5:].replace("_", " ")
        with tempfile.TemporaryDirectory(prefix="ips-security-") as name:
            try:
                case(options, pathlib.Path(name))
                print("ok %d - %s" % (number, what))
            except Skip as why:
                print("ok %d - %s # SKIP %s" % (number, what, why))
            except (Failure, subprocess.TimeoutExpired, ValueError) as failure:
                failed += 1
                print("not ok %d - %s\n# %s" % (number, what,
                                                str(failure).replace("\n", "\n# ")))
    return 1 if failed else 0


sys.exit(main())
