#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ipcshim topo` of trees that no kernel makes: single faults with what must be seen, and
random damage, under which it must end soon, exit with 0 and print figures that agree, and a
picture that holds them.

usage: hostile.py IPCSHIM READ_GPUS [--trees N] [--seed S]"""
import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile

import machine
import picture

JUNK = ["", "-1", "x", "99999999999999999999", "0x", "0x10de junk", "1e9", "255", "-0",
        "16.0", " GT/s", "9999999 GT/s", "0-8191," * 500, "5-3", "0-4294967295", "1,1,1",
        "0-\n", "\x00\x01", "\u00e9", "A" * 5000, "\n\n", "0x030000"]
PATHS = ["../../../devices", "../../../../../../..", "/sys/devices", ".", "..", "a", "",
         "../../../devices/pci0000:00/0000:00:01.0/0000:00:01.0/0000:06:00.0",
         "../../../devices/" + "pci0000:00/" * 40 + "0000:06:00.0",
         "../../../devices/pci0000:00/" + "0000:00:07.0/" * 300 + "0000:06:00.0",
         "../../../devices/pci0000:00//0000:06:00.0", "../../../" + "x/" * 2000]


def run(shim, root, *options):
    done = subprocess.run([shim, "topo", "--root", str(root), *options], timeout=30,
                          capture_output=True)
    if done.returncode or done.stderr:
        raise AssertionError(f"exit status {done.returncode}: {done.stderr[-500:]}")
    return done.stdout.decode("ascii")


def look(shim, root):
    drawn = root.parent / "drawn.svg"
    run(shim[0], root, "--svg", str(drawn))
    seen = json.loads(run(shim[0], root, "--json"))
    complaints = list(picture.check(drawn.read_text("ascii"), seen))
    assert not complaints, complaints
    done = subprocess.run([shim[1], str(root)], timeout=30, capture_output=True, text=True)
    assert done.returncode == 0, f"some GPUs are read otherwise: {done.stdout}"
    groups = seen["ring_groups"]
    assert not groups or (1 < groups["size"] < len(seen["gpus"]) and
                          len(seen["gpus"]) % groups["size"] == 0), groups
    count, matrix = len(seen["gpus"]), seen["matrix"]
    addresses = [gpu["address"] for gpu in seen["gpus"]]
    assert count <= 64 and addresses == sorted(set(addresses)), addresses
    assert [len(row) for row in matrix] == [count] * count, matrix
    assert all(matrix[i][j] == matrix[j][i] and (matrix[i][j] == "LOC") == (i == j)
               for i in range(count) for j in range(count)), matrix
    assert sorted(seen["ring"]) == list(range(count)), seen["ring"]
    assert all(seen["cost"][kind] <= seen["cost_in_order"][kind] for kind in seen["cost"])
    assert all(len(gpu["bridges"]) <= 16 for gpu in seen["gpus"])
    return seen


# --- single faults, on the machine with three GPUs (06 on node 0; 11 and 14 on node 1)
GPU = "devices/pci0000:10/0000:10:03.0/0000:14:00.0"
LINK = "bus/pci/devices/0000:14:00.0"


def replace_link(root, text):
    (root / LINK).unlink()
    (root / LINK).symlink_to(text)


def by_address(seen):
    return {gpu["address"]: gpu for gpu in seen["gpus"]}


def no_list(root):
    shutil.rmtree(root / "bus")
    yield lambda seen: seen["pci"] is False and not seen["gpus"]


def no_numa(root):
    (root / GPU / "numa_node").unlink()
    yield lambda seen: by_address(seen)["0000:14:00.0"]["numa"] == 1  # its bridge says so
    (root / GPU / "../numa_node").unlink()
    yield lambda seen: by_address(seen)["0000:14:00.0"]["numa"] is None


def two_sockets_in_a_node(root):
    machine.write(root / "devices/system/cpu/cpu5/topology/physical_package_id", "0")
    yield lambda seen: [gpu["socket"] for gpu in seen["gpus"]] == [0, None, None]


def cpus_off(root):
    for cpu in range(3, 24, 2):
        shutil.rmtree(root / f"devices/system/cpu/cpu{cpu}")
    yield lambda seen: [gpu["socket"] for gpu in seen["gpus"]] == [0, 1, 1]
    shutil.rmtree(root / "devices/system/cpu/cpu1")
    yield lambda seen: [gpu["socket"] for gpu in seen["gpus"]] == [0, None, None]


def on_the_root_bus(root):
    (root / GPU).rename(root / "devices/pci0000:10/0000:14:00.0")
    replace_link(root, "../../../devices/pci0000:10/0000:14:00.0")
    yield lambda seen: (by_address(seen)["0000:14:00.0"]["bridges"] == [] and
                        seen["matrix"][1][2] == "PHB")


def below_a_device(root):
    """The host bridge that counts is the inner one, as below Intel's VMD."""
    inner = root / "devices/pci0000:00/0000:00:0e.0/pci10000:e1"
    inner.mkdir(parents=True)
    (root / GPU).rename(inner / "0000:14:00.0")
    replace_link(root, "../../../" + str(inner.relative_to(root) / "0000:14:00.0"))
    yield lambda seen: (seen["gpus"][-1]["hostbridge"] == "pci10000:e1" and
                        seen["gpus"][-1]["bridges"] == [])


def a_directory_for_a_link(root):
    (root / LINK).unlink()
    (root / GPU).rename(root / LINK)
    yield lambda seen: (by_address(seen)["0000:14:00.0"]["hostbridge"] is None and
                        seen["matrix"][1][2] == "?" and seen["matrix"][0][2] == "SYS")


def a_part_of_a_gpu(root):
    (root / GPU / "physfn").symlink_to("../0000:14:00.0")
    yield lambda seen: "0000:14:00.0" not in by_address(seen)


def a_screen(root):
    yield lambda seen: "0000:01:03.0" not in by_address(seen)


def waits(root):
    """A FIFO without a writer, and a device that never ends."""
    for name, make in (("class", os.mkfifo),
                       ("numa_node", lambda at: at.symlink_to("/dev/zero"))):
        (root / GPU / name).unlink()
        make(root / GPU / name)
    yield lambda seen: "0000:14:00.0" not in by_address(seen)


def huge(root):
    (root / GPU / "current_link_speed").write_text("16.0 GT/s PCIe\n" * 1_000_000)
    (root / "devices/system/node/node1/cpulist").write_text("1," * 1_000_000)
    yield lambda seen: [gpu["socket"] for gpu in seen["gpus"]] == [0, None, None]


def out_of_the_tree(root):
    """A GPU beside the root, which only a link leads to."""
    outside = root.parent / "outside"
    shutil.copytree(root / GPU, outside / "0000:14:00.0")
    shutil.rmtree(root / GPU)
    for text in (f"{outside}/0000:14:00.0", "../../../../outside/0000:14:00.0",
                 "../../../devices/../../outside/0000:14:00.0"):
        replace_link(root, text)
        yield lambda seen: "0000:14:00.0" not in by_address(seen)
    (root / "devices/pci0000:20").symlink_to(outside)
    replace_link(root, "../../../devices/pci0000:20/0000:14:00.0")
    yield lambda seen: "0000:14:00.0" not in by_address(seen)


def odd_lists(root):
    for cpus in ("3,1", "1-9000", "1-", "1;3"):
        machine.write(root / "devices/system/node/node1/cpulist", cpus)
        yield lambda seen: [gpu["socket"] for gpu in seen["gpus"]] == [0, None, None]


def slow_link(root):
    machine.write_link(root / GPU, "current", "2.5x8")
    yield lambda seen: by_address(seen)["0000:14:00.0"]["link"] == {
        "gtps": 2.5, "width": 8, "mbps": 2000}


def another_maker(root):
    machine.write(root / GPU / "vendor", "0x8086")
    machine.write(root / GPU / "class", "0x038000")
    yield lambda seen: "0000:14:00.0" not in by_address(seen)


def deep(root):
    """16 bridges are walked, 17 are not."""
    for count, known in ((15, True), (16, False)):
        below = root / "devices/pci0000:10/0000:10:03.0"
        for bus in range(count):
            below /= f"0000:{0x20 + bus:02x}:00.0"
        below.mkdir(parents=True, exist_ok=True)
        pathlib.Path(os.path.realpath(root / LINK)).rename(below / "0000:14:00.0")
        replace_link(root, "../../../" + str((below / "0000:14:00.0").relative_to(root)))
        yield lambda seen: (by_address(seen)["0000:14:00.0"]["hostbridge"]
                            is not None) == known


def another_name(root):
    (root / "bus/pci/devices/00000000:14:00.0").symlink_to(f"../../../{GPU}")
    yield lambda seen: len(seen["gpus"]) == 3


def a_bridge_twice(root):
    """0000:10:07.0 is above 11, and here also below the bridge of 14."""
    below = root / "devices/pci0000:10/0000:10:03.0/0000:10:07.0"
    below.mkdir()
    (root / GPU).rename(below / "0000:14:00.0")
    replace_link(root, "../../../" + str(below.relative_to(root) / "0000:14:00.0"))
    yield lambda seen: by_address(seen)["0000:14:00.0"]["hostbridge"] is None


def too_many(root):
    for bus in range(0x20, 0x80):
        copy = root / f"devices/pci0000:10/0000:{bus:02x}:00.0"
        shutil.copytree(root / GPU, copy)
        machine.enter(root, copy)
    yield lambda seen: (len(seen["gpus"]) == 64 and seen["left_out"] == 99 - 64 and
                        by_address(seen)["0000:06:00.0"])


FAULTS = [no_list, no_numa, two_sockets_in_a_node, cpus_off, on_the_root_bus,
          below_a_device, a_directory_for_a_link, a_part_of_a_gpu, a_screen, waits, huge,
          out_of_the_tree, odd_lists, slow_link, another_maker, deep, another_name,
          a_bridge_twice, too_many]


def check_fault(shim, fault):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "sys"
        root.mkdir()
        machine.build("m2070x3-westmere", root)
        for step, right in enumerate(fault(root)):
            seen = look(shim, root)
            assert right(seen), f"step {step}: {json.dumps(seen)}"


# --- random damage
def remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def damage(root, chance):
    everything = [pathlib.Path(folder) / name for folder, folders, files in os.walk(root)
                  for name in folders + files if "/cpu/" not in folder]
    path = chance.choice(everything)
    links = [at for at in everything if at.is_symlink()]
    kind = chance.randrange(6)
    if kind == 0 and links:
        path = chance.choice(links)
        path.unlink()
        path.symlink_to(chance.choice(PATHS) or "x")
    elif kind == 1 and links and links[0] != links[-1]:
        path, other = chance.choice(links), chance.choice(links)
        text = os.readlink(other)
        path.unlink()
        path.symlink_to(text)
    elif kind == 2:
        remove(path)
        path.symlink_to(chance.choice([path.name, "..", "/dev/zero", "/proc/self"]))
    elif kind == 3:
        remove(path)
        os.mkfifo(path)
    else:
        files = [at for at in everything if at.is_file() and not at.is_symlink()]
        if files:
            chance.choice(files).write_text(chance.choice(JUNK))


def check_damage(shim, seed):
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "sys"
        root.mkdir()
        machine.build(chance.choice(["m2070x3-westmere", "3090x8-2switch"]), root)
        for _ in range(chance.randrange(1, 6)):
            for _ in range(chance.randrange(1, 8)):
                damage(root, chance)
            look(shim, root)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shim")
    parser.add_argument("read_gpus")
    parser.add_argument("--trees", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    checks = [(fault.__name__, check_fault, fault) for fault in FAULTS]
    checks += [(f"--seed {seed} --trees 1", check_damage, seed)
               for seed in range(options.seed, options.seed + options.trees)]
    failed = 0
    for name, check, what in checks:
        try:
            check((options.shim, options.read_gpus), what)
        except (AssertionError, ValueError, subprocess.TimeoutExpired) as error:
            print(f"{name}: {type(error).__name__}: {error}")
            failed += 1
    print(f"{len(checks)} trees, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
