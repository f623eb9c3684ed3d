# SPDX-License-Identifier: Apache-2.0
"""A machine of tests/topology/machines as a tree of /sys and /proc in which `ipcshim
doctor` has nothing to say, and the things that can be made wrong in it."""
import json
import os
import pathlib
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "topology"))
import machine  # noqa: E402

AER = {"correctable": ("COR", ["RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout",
                               "NonFatalErr", "CorrIntErr", "HeaderOF"]),
       "nonfatal": ("NONFATAL", ["Undefined", "DLP", "SDES", "TLP", "CmpltTO", "UnsupReq",
                                 "ACSViol"]),
       "fatal": ("FATAL", ["Undefined", "DLP", "SDES", "TLP", "CmpltTO", "UnsupReq",
                           "ACSViol"])}
ROOT_ONLY_BYTES = 64  # of the configuration space that others may read
RELAXED_ORDERING, EXPRESS, ACS = 0x10, 0x40, 0x150


def fnv(text):
    value = 0xcbf29ce484222325
    for byte in os.fsencode(text):
        value = (value ^ byte) * 0x100000001b3 % (1 << 64)
    return value


def config(acs=None, control=0x2810):
    """Configuration space of a PCI Express device, with ACS control bits or without."""
    space = bytearray(4096)
    struct.pack_into("<HHHH", space, 0, 0x10de, 0x2204, 0x0406, 0x0010)
    space[0x34] = EXPRESS
    struct.pack_into("<BBHIH", space, EXPRESS, 0x10, 0, 2, 0, control)
    struct.pack_into("<I", space, 0x100, 0x0001 | 2 << 16 | (ACS << 20 if acs is not None
                                                            else 0))
    if acs is not None:
        struct.pack_into("<IHH", space, ACS, 0x000d | 1 << 16, 0x5f, acs)
    return bytes(space)


class Box:
    def __init__(self, name, root):
        self.root, self.sys, self.proc = root, root / "sys", root / "proc"
        self.sys.mkdir()
        self.machine = machine.build(name, self.sys)
        self.name = name

    def directory(self, address):
        link = self.sys / "bus/pci/devices" / address
        return link.parent / os.readlink(link)

    def all_devices(self):
        return sorted(path.name for path in (self.sys / "bus/pci/devices").iterdir())

    def write(self, path, text):
        machine.write(self.root / path, text)

    def set(self, address, attribute, text):
        machine.write(self.directory(address) / attribute, text)

    def set_link(self, address, kind, text):
        machine.write_link(self.directory(address), kind, text)

    def link(self, directory):
        """What the device can, or runs at; None: neither is known."""
        for kind in ("max", "current"):
            speed = directory / f"{kind}_link_speed"
            if speed.exists():
                width = directory / f"{kind}_link_width"
                return f"{speed.read_text().split()[0]}x{width.read_text().strip()}"
        return None

    def complete_link(self, address):
        """Runs at its most; a port's is the link of what is below it."""
        directory = self.directory(address)
        below = [self.link(path) for path in directory.iterdir() if path.is_dir()]
        known = [link for link in [self.link(directory)] + below if link]
        for kind in ("current", "max"):
            self.set_link(address, kind, (known + ["16.0x16"])[0])

    def set_aer(self, address, severity, **counts):
        total, names = AER[severity]
        lines = [f"{name} {counts.get(name, 0)}" for name in names]
        lines.append(f"TOTAL_ERR_{total} {sum(counts.values())}")
        path = self.directory(address) / f"aer_dev_{severity}"
        machine.write(path.with_suffix(".new"), "\n".join(lines))
        path.with_suffix(".new").rename(path)  # a reader sees the old or the new

    def set_config(self, address, **what):
        (self.directory(address) / "config").write_bytes(config(**what))

    def set_group(self, address, number, kind):
        link = self.directory(address) / "iommu_group"
        link.unlink(missing_ok=True)
        link.symlink_to(f"../../../../kernel/iommu_groups/{number}")
        machine.write(self.sys / f"kernel/iommu_groups/{number}/type", kind)

    def set_driver(self, version="580.82.07", relaxed_ordering=0, registry=""):
        self.write("proc/driver/nvidia/version",
                   "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  "
                   f"{version}  Release Build  (root@box)\nGCC version:  gcc 13.2.0")
        self.write("proc/driver/nvidia/params",
                   f"ResmanDebugLevel: 4294967295\nEnablePCIERelaxedOrderingMode: "
                   f"{relaxed_ordering}\nRegistryDwords: \"{registry}\"\nRmMsg: \"\"")

    def set_verdicts(self, *rows, acs=(), **changed):
        """The file of `ipcshim doctor --probe`, made on this machine but for what is given."""
        cmdline = (self.proc / "cmdline").read_text().split("\n")[0]
        keys = dict({"format": 1, "made": "2026-11-30T12:00:00Z", "driver": "580.82.07",
                     "boot": "924db28c-2479-4397-a747-237489e56562",
                     "cmdline": f"{fnv(cmdline):016x}"}, **changed)
        self.write("proc/sys/kernel/random/boot_id", "924db28c-2479-4397-a747-237489e56562")
        self.write("var/cache/ipcshim/links", "\n".join(
            [f"{key} = {value}" for key, value in keys.items()] +
            [f"gpu = {gpu.address} GPU-{i}" for i, gpu in enumerate(self.machine.gpus())] +
            [f"acs = {address} {control}" for address, control in acs] + list(rows)))

    def set_shm(self, options):
        self.write("proc/self/mounts",
                   "overlay / overlay rw,relatime 0 0\nproc /proc proc rw 0 0\n"
                   f"shm /dev/shm tmpfs {options} 0 0")

    def set_environment(self, *variables):
        path = self.proc / "self/environ"
        path.write_bytes(b"".join(os.fsencode(text) + b"\0" for text in variables))


def healthy(name, root):
    """Every part of the doctor sees something, and it is in order."""
    box = Box(name, root)
    gpus = {gpu.address for gpu in box.machine.gpus()}
    for number, address in enumerate(box.all_devices()):
        bridge = (box.directory(address) / "class").read_text().startswith("0x0604")
        box.complete_link(address)
        for severity in AER:
            box.set_aer(address, severity)
        box.set_config(address, acs=0 if bridge else None)
        box.set_group(address, number, "identity")
        if address in gpus:
            box.set(address, "resource",
                    "0x00000000d0000000 0x00000000d0ffffff 0x0000000000040200\n"
                    "0x0000038000000000 0x00000387ffffffff 0x000000000014220c\n"
                    "0x0000000000000000 0x0000000000000000 0x0000000000000000")
    (box.sys / "class/iommu").mkdir(parents=True)
    (box.sys / "class/iommu/ivhd0").symlink_to("../../devices/pci0000:00/ivhd0")
    box.write("sys/devices/virtual/dmi/id/sys_vendor", "Supermicro")
    box.write("sys/devices/virtual/dmi/id/product_name", "AS-4124GS-TNR")
    box.write("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro iommu=pt quiet")
    box.write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme de pse sse2\n")
    box.write("proc/meminfo", "MemTotal:       527954384 kB\nMemFree:        1000 kB")
    box.set_shm("rw,nosuid,nodev")
    box.write("proc/self/limits",
              "Limit                     Soft Limit           Hard Limit           Units\n"
              "Max locked memory         unlimited            unlimited            bytes")
    box.set_environment("PATH=/usr/bin", "HOME=/root")
    box.set_driver()
    return box


class Diagnosis:
    def __init__(self, done, text):
        self.status, self.text = done.returncode, text
        self.json = json.loads(done.stdout)
        self.found = {(finding["severity"], finding["id"], finding["subject"])
                      for finding in self.json["findings"]}
        self.missed = {unseen["check"] for unseen in self.json["unseen"]}

    def of(self, identity):
        return [finding for finding in self.json["findings"]
                if finding["id"] == identity]


STATUS = {"good": 0, "note": 0, "warning": 1, "fault": 2}


def run(shim, root, *options):
    done = subprocess.run([shim, "doctor", "--root", str(root), *options], timeout=60,
                          capture_output=True)
    if done.returncode not in (0, 1, 2) or done.stderr:
        raise AssertionError(f"exit status {done.returncode}: {done.stderr[-500:]}")
    done.stdout.decode("utf-8")
    return done


def diagnose(shim, root, *options):
    """Both forms, which must agree with each other and with the exit status."""
    seen = Diagnosis(run(shim, root, "--json", *options),
                     run(shim, root).stdout.decode())
    assert seen.status == STATUS[seen.json["severity"]], seen.json
    assert seen.json["healthy"] == (seen.status == 0)
    checks = [check["id"] for check in seen.json["checks"]]
    assert len(set(checks)) == len(checks) >= 18, checks
    for finding in seen.json["findings"]:
        assert finding["check"] in checks and finding["fix"] and finding["text"], finding
        if "--watch" not in options:
            assert f"{finding['severity']:8} {finding['id']}  " in seen.text, seen.text
            if finding["subject"].isascii():
                assert finding["subject"].split()[0] in seen.text, (finding, seen.text)
    for check in seen.json["checks"]:
        assert check["complete"] == (check["id"] not in seen.missed), check
    return seen
