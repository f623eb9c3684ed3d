#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ipcshim doctor` of trees with random damage: it ends soon, both forms agree, and its
exit status is one that it promises.

usage: damage.py IPCSHIM [--trees N] [--seed S]"""
import argparse
import pathlib
import random
import subprocess
import tempfile

import box as b
import hostile

BINARY = [b"", b"\xff" * 64, b"\x00" * 4096, bytes(range(256)) * 16, b"\n" * 2_000_000]


def damage_binary(root, chance):
    """What no text can be: configuration spaces, lists with NULs."""
    files = [path for path in root.rglob("*")
             if path.is_file() and not path.is_symlink() and
             (path.name == "config" or "proc" in path.parts)]
    if not files:
        return
    path = chance.choice(files)
    content = bytearray(path.read_bytes()[:65536] or b"\0")
    for _ in range(chance.randrange(1, 20)):
        content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(chance.choice(BINARY + [bytes(content)] * len(BINARY)))


def check_damage(shim, seed):
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "box"
        root.mkdir()
        b.healthy(chance.choice(["m2070x3-westmere", "3090x8-2switch"]), root)
        for _ in range(chance.randrange(1, 5)):
            for _ in range(chance.randrange(1, 12)):
                chance.choice([hostile.damage, damage_binary])(root, chance)
            b.diagnose(shim, root)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shim")
    parser.add_argument("--trees", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    failed = 0
    for seed in range(options.seed, options.seed + options.trees):
        try:
            check_damage(options.shim, seed)
        except (AssertionError, ValueError, subprocess.TimeoutExpired) as error:
            print(f"--seed {seed} --trees 1: {type(error).__name__}: {error}")
            failed += 1
    print(f"{options.trees} trees, {failed} failed")
    return 1 if failed else 0


raise SystemExit(main())
