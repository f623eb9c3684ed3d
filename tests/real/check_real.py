# SPDX-License-Identifier: Apache-2.0
"""Holds the shim against one released NCCL: its exported names, its header's prototypes and
layouts, and what ncclGetVersion answers through the shim. Exit status 0, 1, or 77 (skipped).

check_real.py VERSION --shim ... ; VERSION may be "newest". Needs no GPU."""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = "nvidia-nccl-cu12"
# Exported, but for NCCL's own parts.
INTERNAL = {"ncclResetDebugInitInternal"}
WARNINGS = ["-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]


class Failure(Exception):
    pass


def check(good, what):
    if not good:
        raise Failure(what)


def skip(reason):
    print("skipped: " + reason)
    sys.exit(77)


def download(version, folder):
    """The wheel, unpacked: only the library and the headers."""
    wanted = PACKAGE if version == "newest" else PACKAGE + "==" + version
    done = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir",
         "--only-binary=:all:", "--disable-pip-version-check", "-d", str(folder), wanted],
        stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        skip("%s can't be downloaded: %s" % (wanted, done.stderr.strip()[-300:]))
    wheel, = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if re.match(r"nvidia/nccl/(include/.*\.h|lib/libnccl\.so\.2)$", name):
                archive.extract(name, folder)
    wheel.unlink()


def kept_wheel(version, cache):
    """The folder nvidia/nccl of that release, from the cache if it was kept."""
    folder = cache / version
    root = folder / "nvidia/nccl"
    if not (root / "lib/libnccl.so.2").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        download(version, folder)
    return root


def exported(path):
    lines = subprocess.run(["nm", "-D", "--defined-only", str(path)], check=True, text=True,
                           stdout=subprocess.PIPE).stdout.splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


def declared(header):
    text = re.sub(r"/\*.*?\*/|//[^\n]*|^\s*#(?:[^\n]*\\\n)*[^\n]*", "", header.read_text(),
                  flags=re.S | re.M)
    return set(re.findall(r"\b(nccl[A-Z]\w*)\s*\(", text))


def check_exports(options, root):
    """Whatever public name this NCCL has, the shim has too. The host helpers of the device
    API have headers of their own; programs that use them link NCCL itself."""
    names = {n for n in exported(root / "lib/libnccl.so.2") if re.fullmatch(r"nccl[A-Z]\w*", n)}
    names -= INTERNAL.union(*map(declared, root.glob("include/nccl_device/**/*.h")))
    check(len(names) >= 27, "it exports only %s" % sorted(names))
    missing = names - exported(options.shim)
    check(not missing, "the shim does not export %s" % sorted(missing))
    return len(names)


def compile_against(options, root, arguments, what):
    """The release's nccl.h comes before the one that CUDA may bring."""
    done = subprocess.run(
        [*arguments, "-fsyntax-only", *WARNINGS, "-I" + options.source,
         "-I" + str(root / "include"), "-isystem", options.cuda],
        capture_output=True, text=True)
    check(done.returncode == 0, "%s:\n%s" % (what, done.stderr[:3000]))


def check_headers(options, root):
    """The compiler compares the shim's declarations with the header's."""
    if not options.cuda:
        print("headers not compared: cuda_runtime.h is not here")
        return
    for source in options.sources:
        compile_against(options, root, [
            "cc", "-std=gnu11", "-DIPS_HAVE_NCCL_H=1", '-DIPCSHIM_VERSION="test"',
            source], source)
    compile_against(options, root, ["cc", "-std=gnu11", str(HERE / "layout.c")], "layout.c")
    names = declared(root / "include/nccl.h")
    with tempfile.TemporaryDirectory() as folder:
        late = re.findall(r"^LATE_\w+\((nccl\w+)",
                          (pathlib.Path(options.source) / "shim/api.def").read_text(), re.M)
        here = pathlib.Path(folder, "tests/real/declared.inc")
        here.parent.mkdir(parents=True)
        here.write_text("".join("COMPARE(%s)\n" % n for n in late if n in names))
        compile_against(options, root, [
            "c++", "-std=gnu++17", "-I" + folder, str(HERE / "late.cpp")], "late.cpp")


VERSION = """
import ctypes, sys
lib = ctypes.CDLL(sys.argv[1])
version = ctypes.c_int()
print(lib.ncclGetVersion(ctypes.byref(version)), version.value)
"""


def version_of(library, **more):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("IPCSHIM_", "NCCL_", "LD_"))}
    done = subprocess.run([sys.executable, "-c", VERSION, str(library)], env={**env, **more},
                          capture_output=True, text=True)
    check(done.returncode == 0 and not done.stderr, done.stderr)
    return done.stdout


def check_version(options, root):
    library = str(root / "lib/libnccl.so.2")
    header = (root / "include/nccl.h").read_text()
    code = int(re.search(r"#define NCCL_VERSION_CODE (\d+)", header).group(1))
    own, through = version_of(library), version_of(options.shim, IPCSHIM_NCCL_LIB=library)
    check(own == through == "0 %d\n" % code, "ncclGetVersion: %s, through the shim %s, header "
          "%d" % (own, through, code))
    return code


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("version")
    for name in ("shim", "source", "cache", "cuda"):
        parser.add_argument("--" + name)
    parser.add_argument("--sources", nargs="+")
    options = parser.parse_args()
    wanted = os.environ.get("IPCSHIM_TEST_DOWNLOAD", "")
    if wanted not in ("1", "keep"):
        skip("moves some 300 MB; IPCSHIM_TEST_DOWNLOAD=1 runs it")
    cache = pathlib.Path(options.cache)
    try:
        root = kept_wheel(options.version, cache)
        code = check_version(options, root)
        names = check_exports(options, root)
        check_headers(options, root)
        print(json.dumps({"nccl": code, "public names": names}))
    except Failure as failure:
        print("NCCL %s: %s" % (options.version, failure))
        sys.exit(1)
    finally:
        if wanted != "keep":
            shutil.rmtree(cache / options.version, ignore_errors=True)


main()
