#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ipcshim doctor` of each machine of tests/topology/machines: of its bare facts, where most
is unknown and must stay so, and with all that a healthy machine shows beside them.

usage: machines.py IPCSHIM"""
import pathlib
import shutil
import sys
import tempfile

import box as b

SHIM = sys.argv[1]


def cautions(name):
    return {text.split(":")[0]
            for (text,) in b.machine.expectations(name).get("caution", [])}


def others(machine):
    """GPUs that are not NVIDIA's."""
    return [gpu for gpu in machine.gpus() if not gpu.get("id").startswith("10de")]


def narrow(machine):
    """Switches whose uplink carries less than a GPU below them could."""
    def rate(device):
        speed, width = (device.get("max") or device.get("link")).split("x")
        return float(speed) * int(width)

    for device in machine.devices:
        below = list(device.children)
        while below and not all(child.gpu for child in below):
            below = [gpu for child in below for gpu in ([child] if child.gpu else
                                                        child.children)]
        if (device.get("class") == "0604" and not device.root and device.get("max") and
                any(gpu.get("max") and rate(device) < rate(gpu) for gpu in below)):
            yield device


def compare(name, machine, seen):
    gpus = sorted(gpu.address for gpu in machine.gpus())
    if seen.json["machine"]["gpus"] != gpus:
        yield f"GPUs {seen.json['machine']['gpus']}, not {gpus}"
    expected = {("note", "not-nvidia", gpu.address) for gpu in others(machine)}
    expected |= {("note", "uplink-narrow", switch.address) for switch in narrow(machine)}
    if seen.found != expected:
        yield f"found {seen.found}, not {expected}"
    if ("uplink-narrower" in cautions(name)) != bool(seen.of("uplink-narrow")):
        yield "uplink-narrower"


def check_bare(name, root):
    (root / "sys").mkdir()
    machine = b.machine.build(name, root / "sys")
    seen = b.diagnose(SHIM, root)
    yield from compare(name, machine, seen)
    for unknown, check in (({"link-unknown", "max-unknown"}, "width"),
                           ({"link-unknown", "max-unknown"}, "speed"),
                           ({"numa-unknown"}, "numa")):
        if bool(unknown & cautions(name)) != (check in seen.missed):
            yield f"bare: {cautions(name)}, but missed {sorted(seen.missed)}"
    if not {"aer", "bar1", "iommu", "virtual", "shm"} <= seen.missed:
        yield f"bare: missed only {sorted(seen.missed)}"


def check_driver(name, root):
    """A machine without the driver lacks it, if a GPU is of its maker."""
    box = b.healthy(name, root)
    shutil.rmtree(root / "proc/driver")
    seen = b.diagnose(SHIM, root)
    nvidia = len(others(box.machine)) < len(box.machine.gpus())
    if bool(seen.of("driver-missing")) != nvidia or ("params" in seen.missed) != nvidia:
        yield f"driver: found {seen.found}, missed {seen.missed}"


def check_whole(name, root):
    box = b.healthy(name, root)
    seen = b.diagnose(SHIM, root)
    yield from compare(name, box.machine, seen)
    if seen.status or not seen.json["healthy"]:
        yield f"whole: status {seen.status}"
    if {"aer", "acs", "iommu", "bar1"} & seen.missed:
        yield f"whole: missed {sorted(seen.missed)}"


failed = 0
for machine_name in b.machine.NAMES:
    for check in (check_bare, check_driver, check_whole):
        with tempfile.TemporaryDirectory() as folder:
            for complaint in check(machine_name, pathlib.Path(folder)):
                print(f"{machine_name}: {complaint}")
                failed += 1
print(f"{len(b.machine.NAMES)} machines, {failed} complaints")
sys.exit(1 if failed or len(b.machine.NAMES) < 8 else 0)
