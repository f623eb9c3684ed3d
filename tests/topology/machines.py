#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ipcshim topo` of each machine's tree: every GPU's place, the matrix, groups, links and
ring costs are as expected, and the text for people and the picture hold the same.

usage: machines.py IPCSHIM READ_GPUS"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import machine
import picture

SHIM, READ_GPUS = sys.argv[1:]
# What a caution says must show in the figures, and no figure may show it without one.
CAUTIONS = {
    "numa-unknown": lambda seen: any(gpu["numa"] is None for gpu in seen["gpus"]),
    "socket-unknown": lambda seen: any(gpu["socket"] is None for gpu in seen["gpus"]),
    "link-unknown": lambda seen: any(gpu["link"] is None for gpu in seen["gpus"]),
    "max-unknown": lambda seen: any(gpu["max"] is None for gpu in seen["gpus"]),
    "uplink-narrower": lambda seen: any(gpu["slowest"] not in (None, gpu["address"])
                                        for gpu in seen["gpus"]),
}


def topo(root, *options):
    done = subprocess.run([SHIM, "topo", "--root", str(root), *options], timeout=60,
                          capture_output=True, text=True)
    if done.returncode or done.stderr:
        raise RuntimeError(f"exit status {done.returncode}: {done.stderr}")
    return done.stdout


def or_unknown(value, unknown="unknown"):
    return unknown if value is None else value


def renumbered(name, seen, built):
    """The figures with GPUs numbered as the .expect numbers them."""
    where = {gpu["address"]: i for i, gpu in enumerate(seen["gpus"])}
    order = [where[gpu.address] for gpu in built.gpus()]
    new = {old: i for i, old in enumerate(order)}
    return {
        "gpus": [seen["gpus"][i] for i in order],
        "matrix": [[seen["matrix"][i][j] for j in order] for i in order],
        "groups": {f"{group['kind']} {group['key']}":
                   sorted(new[gpu] for gpu in group["gpus"]) for group in seen["groups"]},
    }


def link(text):
    if text is None:
        return None
    speed, width = text.split("x")
    return float(speed), int(width)


def seen_link(shown):
    return None if shown is None else (shown["gtps"], shown["width"])


def compare(name, seen, built):
    expect = machine.expectations(name)
    new = renumbered(name, seen, built)
    if len(new["gpus"]) != len(expect["gpu"]):
        yield f"{len(new['gpus'])} GPUs"
    for number, text in expect["gpu"]:
        gpu = new["gpus"][int(number)]
        shown = (f"{gpu['address']} numa {or_unknown(gpu['numa'], -1)} "
                 f"socket {or_unknown(gpu['socket'])} "
                 f"hostbridge {or_unknown(gpu['hostbridge'])}")
        if shown != text:
            yield f"gpu {number}: {shown}, not {text}"
    for number, text in expect["pcie"]:
        if new["matrix"][int(number)] != text.split():
            yield f"pcie {number}: {new['matrix'][int(number)]}, not {text.split()}"
    groups = {key: [int(gpu) for gpu in text.split()] for key, text in expect["group"]}
    if groups != new["groups"]:
        yield f"groups: {new['groups']}, not {groups}"
    cautions = [text.split(":")[0] for (text,) in expect.get("caution", [])]
    for caution, shows in CAUTIONS.items():
        if shows(seen) != (caution in cautions):
            yield f"caution {caution}: {shows(seen)}"
    for gpu, fact in zip(new["gpus"], built.gpus()):
        for kind in ("link", "max"):
            if seen_link(gpu[kind]) != link(fact.get(kind)):
                yield f"{fact.address} {kind}: {gpu[kind]}, not {fact.get(kind)}"


def cost(seen, ring):
    """Counted again, from the places and the matrix."""
    hops = [(seen["gpus"][a], seen["gpus"][b], seen["matrix"][a][b])
            for a, b in zip(ring, ring[1:] + ring[:1])]
    socket = sum(a["socket"] != b["socket"] or
                 a["socket"] is None and a["numa"] != b["numa"] for a, b, _ in hops)
    numa = sum(a["numa"] != b["numa"] for a, b, _ in hops)
    return {"socket": socket, "numa": numa,
            "cpu": sum(word not in ("LOC", "PIX", "PXB") for _, _, word in hops)}


def compare_rings(name, seen, built):
    expect = machine.expectations(name)
    where = [gpu["address"] for gpu in seen["gpus"]]
    by_device = [where.index(gpu.address) for gpu in built.gpus()]
    in_order = list(range(len(where)))
    if sorted(seen["ring"]) != in_order:
        yield f"ring {seen['ring']}"
    for shown, ring in (("cost", seen["ring"]), ("cost_in_order", in_order)):
        if seen[shown] != cost(seen, ring):
            yield f"{shown}: {seen[shown]}, not {cost(seen, ring)}"
    for said, figures in (("ring-min", seen["cost"]),
                          ("ring-device-order", cost(seen, by_device))):
        text = " ".join(f"{kind} {figures[kind]}" for kind in ("socket", "numa", "cpu"))
        if text != expect[said][0][0]:
            yield f"{said}: {text}, not {expect[said][0][0]}"


def compare_ring_groups(name, seen):
    groups, text = seen["ring_groups"], "none"
    if groups:
        text = (f"{groups['size']} {groups['kind']} uplink {or_unknown(groups['uplink_mbps'])} "
                f"inside {or_unknown(groups['inside_mbps'])}")
    expected = machine.expectations(name)["ring-groups"][0][0]
    if text != expected:
        yield f"groups of the ring: {text}, not {expected}"


def compare_text(seen, text):
    rows = [line.split()[1:1 + len(seen["gpus"])] for line in text.splitlines()
            if line.startswith("GPU")][:len(seen["gpus"])]
    if rows != seen["matrix"]:
        yield f"the text's matrix: {rows}"
    for gpu in seen["gpus"]:
        for device in [gpu] + gpu["bridges"]:
            if text.count(f"  {device['address']} ") < 1:
                yield f"{device['address']} is not in the tree"


def compare_picture(root, seen):
    drawn = root / "drawn <\"&>\x01.svg"
    text = topo(root, "--svg", str(drawn))
    if text != topo(root):
        yield "with a picture the text is another"
    yield from picture.check(drawn.read_text("ascii"), seen)
    for never in (root / "none" / "drawn.svg", "/dev/full"):
        done = subprocess.run([SHIM, "topo", "--root", str(root), "--svg", str(never)],
                              timeout=60, capture_output=True, text=True)
        line = rf"ipcshim: topo: cannot write {re.escape(str(never))}: .*\n"
        if done.returncode != 2 or not re.fullmatch(line, done.stderr):
            yield f"a picture into {never}: {done.returncode}, {done.stderr!r}"


def compare_shown():
    """The picture in docs is what is drawn."""
    shown = pathlib.Path(__file__).parents[2] / "docs/pictures/topo.svg"
    name = "3090x8-2switch"
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / name).mkdir()
        machine.build(name, pathlib.Path(folder) / name)
        subprocess.run([pathlib.Path(SHIM).resolve(), "topo", "--root", name, "--svg", "topo.svg"],
                       cwd=folder, check=True, capture_output=True, timeout=60)
        if (pathlib.Path(folder) / "topo.svg").read_text("ascii") != shown.read_text("ascii"):
            yield f"{shown} is of another version: see docs/topology.md"


def check(name):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "<\"&>\x01"
        root.mkdir()
        built = machine.build(name, root)
        seen = json.loads(topo(root, "--json"))
        yield from compare(name, seen, built)
        yield from compare_rings(name, seen, built)
        yield from compare_ring_groups(name, seen)
        yield from compare_text(seen, topo(root))
        yield from compare_picture(root, seen)
        if subprocess.run([READ_GPUS, str(root)], check=False).returncode:
            yield "some GPUs are read otherwise"


failed = 0
for complaint in compare_shown():
    print(complaint)
    failed += 1
for machine_name in machine.NAMES:
    for complaint in check(machine_name):
        print(f"{machine_name}: {complaint}")
        failed += 1
print(f"{len(machine.NAMES)} machines, {failed} complaints")
sys.exit(1 if failed or len(machine.NAMES) < 8 else 0)
