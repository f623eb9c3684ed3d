# SPDX-License-Identifier: Apache-2.0
"""Builds a copy of the library with changed sources, in a folder of its own: what a test
has to break, or to count with, is never in the tree itself."""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = ["shim/libipcshim.so"]
STANDIN = [f"tools/simgpu/lib{name}" for name in
           ("cuda.so.1", "nccl.so.2", "nvidia-ml.so.1")]


def change(source, changes):
    """changes: (file, pattern, text that takes its place). Each has one place, or this
    ends."""
    for name, pattern, text in changes:
        path = source / name
        changed, count = re.subn(pattern, lambda _, text=text: text, path.read_text())
        if count != 1:
            sys.exit(f"{name} has {count} places like {pattern!r}, not 1: "
                     "bring the change up to date with it")
        path.write_text(changed)


def copy(source):
    for name in ("kernels", "policy", "core", "shim", "tools"):
        shutil.copytree(ROOT / name, source / name)
    for name in ("meson.build", "meson_options.txt"):
        shutil.copy(ROOT / name, source / name)


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(done.args)}:\n{done.stdout[-3000:]}{done.stderr}")


def build(folder, changes, device):
    """The build folder: of the library and, for the stand-in ("sim"), of the driver, which
    there holds the device code. Once more in the same folder: these changes too."""
    source, made = pathlib.Path(folder) / "source", pathlib.Path(folder) / "build"
    new = not source.exists()
    if new:
        copy(source)
    change(source, changes)
    if new:
        sim = ["-Dcuda=disabled"] if device == "sim" else []
        run("meson", "setup", "-Dtests=false", *sim, made, source)
    run("ninja", "-C", made, *LIBRARY, *(STANDIN if device == "sim" else []))
    return made
