# SPDX-License-Identifier: Apache-2.0
"""A machine of tests/topology/machines, read from its facts, and the tree like /sys that
it would show. README.md there is the format."""
import pathlib
import re

FACTS = pathlib.Path(__file__).parent / "machines"
NAMES = sorted(path.stem for path in FACTS.glob("*.topo"))


class Device:
    def __init__(self, words, parent):
        self.gpu = words[0] == "gpu"
        self.address = words[1]
        self.root = "root" in words
        rest = [word for word in words[2:] if word != "root"]
        self.attributes = dict(zip(rest[::2], rest[1::2]))
        self.parent = parent
        self.children = []

    def get(self, name):
        """The attribute, or None: unknown."""
        value = self.attributes.get(name)
        return None if value == "unknown" else value

    def bridge(self):
        return self.root or self.get("class") == "0604"

    def numa(self):
        return self.get("numa") if self.parent is None else self.parent.numa()


class Machine:
    def __init__(self, text):
        self.nodes, self.devices, self.nvlinks = [], [], []
        stack = []
        for line in text.splitlines():
            line = line.split("#")[0].rstrip()
            words = line.split()
            if not words:
                continue
            if words[0] == "node":
                self.nodes.append((int(words[1]), words[3], words[5]))
            elif words[0] == "nvlink":
                self.nvlinks.append(words[1:])
            else:
                level = (len(line) - len(line.lstrip())) // 2
                del stack[level:]
                device = Device(words, stack[-1] if stack else None)
                if stack:
                    stack[-1].children.append(device)
                stack.append(device)
                self.devices.append(device)

    def gpus(self):
        """In the order of the .expect: by `dev`, else by address."""
        gpus = [device for device in self.devices if device.gpu]
        if all(gpu.get("dev") for gpu in gpus):
            return sorted(gpus, key=lambda gpu: int(gpu.get("dev")))
        return sorted(gpus, key=lambda gpu: gpu.address)


def load(name):
    return Machine((FACTS / f"{name}.topo").read_text())


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def write_link(directory, kind, text):
    speed, width = text.split("x")
    write(directory / f"{kind}_link_speed", f"{speed} GT/s PCIe")
    write(directory / f"{kind}_link_width", width)


def write_device(root, directory, device, numa):
    vendor, identity = (device.get("id") or "unknown:unknown").split(":")
    kind = device.get("class") or ("0604" if device.bridge() else "0300")
    write(directory / "class", f"0x{kind}00")
    write(directory / "numa_node", numa)
    if vendor != "unknown":
        write(directory / "vendor", f"0x{vendor}")
        write(directory / "device", f"0x{identity}")
    if device.get("link"):
        write_link(directory, "current", device.get("link"))
    if device.get("max"):
        write_link(directory, "max", device.get("max"))
    enter(root, directory)


def enter(root, directory):
    """The link in bus/pci/devices, relative as the kernel's."""
    at = root / "bus/pci/devices" / directory.name
    at.parent.mkdir(parents=True, exist_ok=True)
    at.symlink_to(pathlib.Path("../../..") / directory.relative_to(root))


class Tree:
    def __init__(self, machine, root):
        self.root = root
        self.buses = {device.address[:7] for device in machine.devices}
        for node, cpus, socket in machine.nodes:
            self.node(node, cpus, socket)
        for device in machine.devices:
            if device.parent is None:
                self.device(root / "devices" / ("pci" + device.address[:7]), device)

    def node(self, node, cpus, socket):
        if node < 0:
            return
        write(self.root / f"devices/system/node/node{node}/cpulist", cpus)
        for part in cpus.split(","):
            first, _, last = part.partition("-")
            for cpu in range(int(first), int(last or first) + 1):
                topology = self.root / f"devices/system/cpu/cpu{cpu}/topology"
                write(topology / "physical_package_id", socket)

    def free_bus(self, upstream):
        """The bus behind an upstream port, or the next one free."""
        domain, bus = upstream.address[:4], int(upstream.address[5:7], 16)
        for step in range(1, 257):
            name = f"{domain}:{(bus + step) % 256:02x}"
            if name not in self.buses:
                self.buses.add(name)
                return name
        raise ValueError("no free bus")

    def device(self, above, device):
        directory = above / device.address
        numa = device.numa() or "-1"
        write_device(self.root, directory, device, numa)
        switch = device.bridge() and not device.root
        bus = self.free_bus(device) if switch and device.children else None
        for number, child in enumerate(device.children):
            below = directory
            if switch:
                port = Device(["pci", f"{bus}:{number:02x}.0", "class", "0604"], device)
                below = directory / port.address
                write_device(self.root, below, port, numa)
            self.device(below, child)


def build(name, root):
    """Writes the tree of the machine below the empty folder `root`."""
    machine = load(name)
    Tree(machine, root)
    return machine


def expectations(name):
    """{(kind, key): text after the colon or key} of the .expect, a list of each."""
    found = {}
    for line in (FACTS / f"{name}.expect").read_text().splitlines():
        line = line.split("#")[0].strip()
        match = re.match(r"(pcie|smi) (\d+): (.*)|(group) (\S+ \S+): (.*)|"
                         r"(gpu) (\d+) (.*)|(ring-\S+): (.*)|"
                         r"(verdict|caution) (.*)", line)
        if match:
            words = [word for word in match.groups() if word is not None]
            found.setdefault(words[0], []).append(words[1:])
        elif line:
            raise ValueError(f"{name}.expect: {line}")
    return found
