#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dependencies point down only: every #include "ROOM/..." edge is one that design.md allows,
and only shim/settings.c reads the environment.

usage: check_includes.py ROOT [--self-test]"""
import pathlib
import re
import sys

ROOMS = ("shim", "policy", "core", "kernels", "tools", "tests")
ALL = set(ROOMS)
MAY = {
    "shim": {"shim", "policy", "core", "kernels"},
    "core": {"core", "kernels"},
    "policy": {"policy", "kernels/types.h", "kernels/names.h"},
    "kernels": {"kernels"},
    "tools": ALL - {"tests"},
    "tests": ALL,
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
GETENV = re.compile(r"\b(secure_)?getenv\s*\(|\benviron\b")
NO_ENVIRONMENT = ("shim", "policy", "core", "kernels")


def complaints(name, text):
    room = name.split("/")[0]
    for target in INCLUDE.findall(text):
        to = target.split("/")[0]
        if to not in ALL:
            yield f'{name}: #include "{target}" names no room: write "room/file.h"'
        elif to not in MAY[room] and target not in MAY[room]:
            yield f'{name}: {room} must not know "{target}"'
    code = COMMENT.sub("", text)
    if room in NO_ENVIRONMENT and name != "shim/settings.c" and GETENV.search(code):
        yield f"{name}: only shim/settings.c reads the environment"


def self_test():
    bad = {
        "core/a.c": '#include "shim/settings.h"\n',
        "core/b.c": '#include "policy/policy.h"\n',
        "policy/a.c": '#include "kernels/wire.h"\n',
        "policy/b.c": '#include "core/log.h"\n',
        "kernels/a.h": '# include "core/gpu.h"\n',
        "shim/a.c": '#include "tools/tool.h"\n',
        "tools/a.c": '#include "tests/unit/check.h"\n',
        "shim/b.c": '#include "settings.h"\n',
        "core/c.c": "x = getenv(\"HOME\");\n",
        "shim/c.c": "for (char **e = environ; *e; e++)\n",
    }
    good = {
        "shim/settings.c": '#include "policy/policy.h"\ngetenv("X");\n',
        "core/a.c": '#include "core/log.h"\n#include "kernels/wire.h"\n/* getenv() */\n',
        "policy/policy.h": '#include "kernels/types.h"\n',
        "tests/a.c": '#include "shim/settings.h"\ngetenv("X");\n',
    }
    missed = [name for name, text in bad.items() if not list(complaints(name, text))]
    wrong = [name for name, text in good.items() if list(complaints(name, text))]
    for name in missed + wrong:
        print("self-test:", name)
    return not missed and not wrong


def main():
    root = pathlib.Path(sys.argv[1])
    if not self_test():
        return 1
    files = failed = 0
    for room in ROOMS:
        for path in sorted((root / room).rglob("*")):
            if path.suffix not in (".c", ".h", ".cpp", ".cu", ".cuh"):
                continue
            files += 1
            for complaint in complaints(path.relative_to(root).as_posix(), path.read_text()):
                print(complaint)
                failed += 1
    print(f"{files} files, {failed} complaints")
    return 1 if failed or files < 20 else 0


sys.exit(main())
