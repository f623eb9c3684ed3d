#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ipcshim doctor` of healthy machines, and of the same with one thing made wrong: that is
found, by its name, severity and bus id, and nothing else is.

usage: findings.py IPCSHIM [NAME...]"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

import box as b

SWITCHES, DIRECT = "3090x8-2switch", "4090x2-rome-1socket"
GPU, GPU_PORT, UPLINK, ROOT = "0000:10:00.0", "0000:0d:01.0", "0000:0c:00.0", "0000:0b:01.0"
SIDE, SIDE_ROOT = "0000:46:00.0", "0000:40:03.1"
REQUEST, COMPLETION, EGRESS = 0x04, 0x08, 0x20
SHIM = sys.argv[1]
DOCUMENT = (pathlib.Path(__file__).parents[2] / "docs/doctor.md").read_text()
SEEN = set()
ELSEWHERE = {"not-nvidia", "shm-full",  # machines.py; full_shm, where it can
             "preload-relative", "path-missing", "path-not-shim", "path-relative", "nccl-lib",
             "link-speed"}  # tests/process/verdicts.py, which has GPUs that work


def expect(box, *found, missed=(), options=(), probed=False):
    seen = b.diagnose(SHIM, box.root, *options)
    wanted = set(found)
    SEEN.update(identity for _, identity, _ in found)
    unwatched = {"aer-growth"} if seen.json["machine"]["gpus"] and not options else set()
    if len(seen.json["machine"]["gpus"]) > 1 and not probed:
        unwatched.add("links")
    assert seen.found == wanted, f"found {seen.found - wanted}, not {wanted - seen.found}"
    assert seen.missed == set(missed) | unwatched, seen.json["unseen"]
    return seen


def healthy(box):
    seen = expect(box)
    assert seen.json["machine"]["driver"] == "580.82.07"
    assert seen.json["machine"]["iommu"] == "identity"
    assert seen.json["machine"]["kernel_options"] == "iommu=pt"
    assert seen.json["machine"]["product"] == "Supermicro AS-4124GS-TNR"
    assert "healthy" in seen.text


# --- links
def width(box):
    box.set_link(GPU, "current", "16.0x8")
    seen = expect(box, ("warning", "link-width", GPU))
    (finding,) = seen.of("link-width")
    assert "x8 of x16" in finding["text"] and GPU_PORT in finding["text"], finding
    assert "reseat" in finding["fix"]


def width_of_an_idle_gpu(box):
    """Narrow is a finding at whatever speed."""
    box.set_link(GPU, "current", "2.5x8")
    expect(box, ("warning", "link-width", GPU), ("note", "link-idle", GPU))


def width_of_an_uplink(box):
    box.set_link(UPLINK, "current", "16.0x4")
    (finding,) = expect(box, ("warning", "link-width", UPLINK)).of("link-width")
    assert "shared by 4 GPUs" in finding["text"], finding


def slot(box):
    """Both ends in accord: the slot has no more."""
    box.set_link(GPU, "current", "8.0x8")
    for kind in ("current", "max"):
        box.set_link(GPU_PORT, kind, "8.0x8")
    expect(box, ("note", "link-slot", GPU))


def idle(box):
    for gpu in box.machine.gpus():
        box.set_link(gpu.address, "current", "2.5x16")
    seen = expect(box, *[("note", "link-idle", gpu.address)
                         for gpu in box.machine.gpus()])
    assert seen.text.count("link-idle") == 1, seen.text  # one paragraph, all bus ids


def speed_of_an_uplink(box):
    box.set_link(UPLINK, "current", "2.5x16")
    expect(box, ("warning", "uplink-speed", UPLINK))


def narrow_uplink(box):
    for kind in ("current", "max"):
        box.set_link(UPLINK, kind, "16.0x8")
    (finding,) = expect(box, ("warning", "uplink-narrow", UPLINK)).of("uplink-narrow")
    assert "4 GPUs share" in finding["text"] and "x8" in finding["text"], finding


def slow_root(box):
    """The uplink could, its slot cannot."""
    box.set_link(UPLINK, "current", "8.0x16")
    for kind in ("current", "max"):
        box.set_link(ROOT, kind, "8.0x16")
    expect(box, ("warning", "uplink-narrow", UPLINK), ("note", "link-slot", UPLINK))


def no_links(box):
    for file in ("max_link_width", "current_link_speed"):
        (box.directory(SIDE) / file).unlink()
    (box.directory(SIDE_ROOT) / "current_link_width").unlink()
    expect(box, missed={"width", "speed"})


# --- error counters
def corrected(box):
    box.set_aer(UPLINK, "correctable", BadTLP=3, Timeout=1)
    (finding,) = expect(box, ("note", "aer-corrected", UPLINK)).of("aer-corrected")
    assert "4 corrected" in finding["text"] and "BadTLP 3, Timeout 1" in finding["text"]
    box.set_aer(UPLINK, "correctable", BadTLP=3, RxErr=100_000)
    expect(box, ("warning", "aer-corrected", UPLINK))


def uncorrected(box):
    box.set_aer(GPU, "nonfatal", CmpltTO=1)
    expect(box, ("fault", "aer-nonfatal", GPU))
    box.set_aer(ROOT, "fatal", SDES=2)
    expect(box, ("fault", "aer-nonfatal", GPU), ("fault", "aer-fatal", ROOT))


def old_errors(box):
    """What was there before does not grow."""
    box.set_aer(UPLINK, "correctable", BadTLP=3)
    expect(box, ("note", "aer-corrected", UPLINK), options=["--watch", "1"])


def growth(box, severity="correctable", found="warning"):
    stop = threading.Event()

    def work():
        count = 0
        while not stop.wait(0.02):
            count += 1
            box.set_aer(GPU_PORT, severity, DLP=count, BadTLP=count)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        seen = b.diagnose(SHIM, box.root, "--watch", "1")
    finally:
        stop.set()
        worker.join()
    assert (found, "aer-growth", GPU_PORT) in seen.found, seen.found
    assert {subject for _, _, subject in seen.found} == {GPU_PORT}, seen.found
    assert "within 1 s" in seen.of("aer-growth")[0]["text"]
    assert seen.missed == {"links"} and seen.json["watched_s"] == 1


def growth_of_fatal(box):
    growth(box, "fatal", "fault")


def counters_that_restart(box):
    """As after a reset: fewer than before is no growth."""
    box.set_aer(GPU, "correctable", BadTLP=900)
    timer = threading.Timer(0.7, box.set_aer, (GPU, "correctable"), {"BadTLP": 5})
    timer.start()
    try:
        seen = b.diagnose(SHIM, box.root, "--watch", "3")
    finally:
        timer.join()
    assert seen.found == {("note", "aer-corrected", GPU)}, seen.found


def odd_counters(box):
    for text in ("BadTLP", "BadTLP -1", "BadTLP 99999999999999999999999", " 3", "\x01"):
        box.set(GPU, "aer_dev_fatal", text)
        expect(box, missed={"aer"})
    box.set(GPU, "aer_dev_fatal", "DLP 0\nTLP 1")  # no sum
    expect(box, ("fault", "aer-fatal", GPU))


# --- ACS and IOMMU
def translating(box, kind="DMA-FQ"):
    for number, gpu in enumerate(box.machine.gpus()):
        box.set_group(gpu.address, 100 + number, kind)


def gpus_under(box, found):
    return [(*found, gpu.address) for gpu in box.machine.gpus()]


def acs_under_a_translating_iommu(box):
    """The commonest way in which peer writes are lost."""
    box.set_config(SIDE_ROOT, acs=0x1d)
    translating(box)
    seen = expect(box, ("fault", "acs-iommu", SIDE_ROOT),
                  *gpus_under(box, ("warning", "iommu-translates")))
    (finding,) = seen.of("acs-iommu")
    assert "request and completion redirect" in finding["text"], finding
    assert "setpci" in finding["fix"] and "iommu=pt" in finding["fix"], finding
    assert seen.json["machine"]["iommu"] == "translating"


def acs_of_a_switch_port(box):
    box.set_config(GPU_PORT, acs=REQUEST)
    expect(box, ("warning", "acs-redirect", GPU_PORT))
    translating(box, "DMA")
    expect(box, ("fault", "acs-iommu", GPU_PORT),
           *gpus_under(box, ("warning", "iommu-translates")))


def acs_above_a_switch(box):
    """Between the switches; its own GPUs turn around below."""
    box.set_config(ROOT, acs=REQUEST)
    expect(box, ("note", "acs-redirect", ROOT))
    for number, gpu in enumerate(box.machine.gpus()):
        if gpu.address < "0000:80":
            box.set_group(gpu.address, 100 + number, "DMA")
    seen = b.diagnose(SHIM, box.root)
    assert [finding["subject"] for finding in seen.of("acs-iommu")] == [ROOT], seen.found
    for gpu in box.machine.gpus():
        if gpu.address > "0000:80":
            box.set(gpu.address, "class", "0x020000")
    assert not b.diagnose(SHIM, box.root).of("acs-iommu")


def acs_that_passes_through(box):
    for bits in (REQUEST, COMPLETION, EGRESS, REQUEST | COMPLETION):
        box.set_config(SIDE_ROOT, acs=bits)
        expect(box, ("note", "acs-redirect", SIDE_ROOT))


def acs_that_only_validates(box):
    box.set_config(SIDE_ROOT, acs=0x01 | 0x10)
    expect(box)


def acs_beside_the_path(box):
    """A switch's upstream port, and the port of a card that is no GPU."""
    box.set_config("0000:99:00.0", acs=0x1d)
    expect(box)


def not_root(box):
    config = box.directory(SIDE_ROOT) / "config"
    config.write_bytes(b.config(acs=0x1d)[:b.ROOT_ONLY_BYTES])
    translating(box)
    seen = expect(box, *gpus_under(box, ("warning", "iommu-translates")), missed={"acs"})
    assert SIDE_ROOT in seen.json["unseen"][-1]["text"] + seen.text and "root" in seen.text


def odd_config(box):
    """A device that does not answer, a list without an end, and cut ones."""
    endless = bytearray(b.config(acs=0))
    endless[0x100:0x104] = (0x0001 | 2 << 16 | 0x100 << 20).to_bytes(4, "little")
    for content in (b"\xff" * 4096, b"", bytes(endless),
                    b.config(acs=0x1d)[:256], b.config(acs=0x1d)[:0x155]):
        (box.directory(SIDE_ROOT) / "config").write_bytes(content)
        expect(box, missed={"acs"})


def iommu_by_options(box):
    for gpu in box.machine.gpus():
        (box.directory(gpu.address) / "iommu_group").unlink()
    expect(box)
    box.write("proc/cmdline", "ro quiet")
    expect(box, missed={"iommu"})
    box.set_config(SIDE_ROOT, acs=0x1d)
    expect(box, ("warning", "acs-redirect", SIDE_ROOT), missed={"iommu"})
    (box.sys / "class/iommu/ivhd0").unlink()
    seen = expect(box, ("note", "acs-redirect", SIDE_ROOT))
    assert seen.json["machine"]["iommu"] == "off"


# --- what --probe has measured
OTHER = "0000:0f:00.0"


def broken_link(box):
    box.set_verdicts(f"{GPU} {OTHER} alone store ok 24", f"{GPU} {OTHER} alone load drops -",
                     f"{GPU} {OTHER} ring copy corrupts - # 3 of 4", f"{OTHER} {GPU} alone load ok 2")
    (finding,) = expect(box, ("fault", "link-broken", f"{GPU} > {OTHER}"),
                        probed=True).of("link-broken")
    assert "lost (drops); 2 of 3" in finding["text"] and "iommu=pt" in finding["fix"], finding
    box.set_verdicts(f"{OTHER} host alone store late -")
    expect(box, ("fault", "link-broken", f"{OTHER} > host"), probed=True)
    path = box.root / "var/cache/ipcshim/links"  # as the driver writes bus ids
    path.write_text(path.read_text().replace(OTHER, OTHER.upper()))
    expect(box, ("fault", "link-broken", f"{OTHER} > host"), probed=True)


def sound_links(box):
    box.set_verdicts(f"{GPU} {OTHER} alone store ok 24", f"{OTHER} {GPU} alone load unsupported -",
                     acs=[(GPU_PORT, "0000"), (ROOT, "unknown"), ("0000:77:00.0", "001d")])
    expect(box, probed=True)


def old_verdicts(box):
    """None of them proves anything: neither that the link is broken."""
    row = f"{GPU} {OTHER} alone store drops -"
    path = ("note", "links-old", "/var/cache/ipcshim/links")
    for why, changed in (("started since", {"boot": "0"}), ("driver", {"driver": "580.82.08"}),
                         ("command line", {"cmdline": "1"}), ("line 1", {"format": "2"}),
                         ("GPUs", {"gpu": "0000:fe:00.0 GPU-x"}),
                         ("ACS", {"acs": [(GPU_PORT, "001d")]})):
        box.set_verdicts(row, **changed)
        (finding,) = expect(box, path, probed=True).of("links-old")
        assert why in finding["text"], finding
    box.set_verdicts(row)
    (box.proc / "sys/kernel/random/boot_id").unlink()
    expect(box, path, probed=True)
    box.write("var/cache/ipcshim/links", "\x00" * 5000)
    expect(box, path, probed=True)


# --- settings of the GPUs and the driver
def relaxed_ordering(box):
    box.set_driver(relaxed_ordering=1)
    gpus = [gpu.address for gpu in box.machine.gpus()]
    expect(box, *[("warning", "relaxed-ordering", gpu) for gpu in gpus])
    box.set_config(SIDE, control=0x2810 & ~b.RELAXED_ORDERING)
    expect(box, *[("note" if gpu == SIDE else "warning", "relaxed-ordering", gpu)
                  for gpu in gpus])


def small_bar(box):
    box.set(SIDE, "resource", "0xd0000000 0xd0ffffff 0x40200\n"
            "0xc0000000 0xcfffffff 0x14220c")
    expect(box, ("note", "bar1-small", SIDE))
    hopper = "0x207042000000 0x207042ffffff 0x14220c\n0x0 0x0 0x0\n"
    box.set(SIDE, "resource", hopper + "0x205000000000 0x206fffffffff 0x14220c")
    expect(box)
    box.set(SIDE, "resource", hopper + "0x205000000000 0x20500fffffff 0x14220c")
    expect(box, ("note", "bar1-small", SIDE))
    box.set(SIDE, "resource", "0xd0000000 0xd0ffffff 0x40200\nwhat")
    expect(box, missed={"bar1"})


def numa(box):
    for at in (GPU, GPU_PORT, UPLINK, ROOT):
        box.set(at, "numa_node", "-1")
    expect(box, ("warning", "numa-unknown", GPU))
    shutil.rmtree(box.sys / "devices/system/node/node1")
    shutil.rmtree(box.sys / "devices/system/cpu")
    expect(box)


def virtual(box):
    box.write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor sse2\n")
    expect(box, ("note", "virtual-machine", "Supermicro AS-4124GS-TNR"))


def driver(box):
    box.set_driver("535.154.05")
    expect(box, ("note", "driver-old", "535.154.05"))
    shutil.rmtree(box.proc / "driver")
    expect(box, ("warning", "driver-missing", "nvidia"), missed={"ordering", "params"})


def forced_p2p(box):
    box.set_driver(registry="ForceP2P=0x11;RMForceP2PType=1;RMPcieP2PType=1")
    expect(box, ("note", "p2p-forced", "RegistryDwords"))


# --- containers and processes
def small_shm(box):
    box.set_shm("rw,nosuid,nodev,noexec,relatime,size=65536k,inode64")
    (finding,) = expect(box, ("warning", "shm-small", "/dev/shm")).of("shm-small")
    assert finding["text"].startswith("64 MB") and "64 MB for each" in finding["text"]
    box.set_shm("rw,size=1g")
    expect(box)
    box.set_shm("rw,size=lots")
    expect(box, missed={"shm"})


def covered_shm(box):
    """The last mount is the one that counts."""
    box.write("proc/self/mounts", "tmpfs /dev/shm tmpfs rw,size=8388608k 0 0\n"
              "tmpfs /dev/shm tmpfs rw,size=32768k 0 0\nx\n\n /dev/shm")
    expect(box, ("warning", "shm-small", "/dev/shm"))


def little_memory(box):
    box.write("proc/meminfo", "MemTotal:       1572864 kB")  # half of it
    expect(box, ("warning", "shm-small", "/dev/shm"))


def memlock(box):
    box.write("proc/self/limits", "Max locked memory         65536       65536      bytes")
    expect(box, ("note", "memlock", "RLIMIT_MEMLOCK"))


def mps(box):
    (box.root / "tmp/nvidia-mps").mkdir(parents=True)
    (box.root / "tmp/nvidia-mps/control").touch()
    expect(box, ("note", "mps", "/tmp/nvidia-mps"))
    box.set_environment("CUDA_MPS_PIPE_DIRECTORY=/run/mps")
    expect(box, ("note", "mps-missing", "CUDA_MPS_PIPE_DIRECTORY"))


def environment(box):
    box.set_environment("NCCL_P2P_DISABLE=1")
    expect(box, ("note", "p2p-disabled", "NCCL_P2P_DISABLE"))
    box.set_environment("NCCL_P2P_DISABLE=0", "LD_PRELOAD=/usr/lib/libtcmalloc.so.4")
    expect(box)
    box.set_environment("LD_PRELOAD=libnccl.so.2:libipcshim.so")
    expect(box, ("warning", "preload-order", "environment"))
    box.set_environment("LD_PRELOAD=/opt/libipcshim.so")
    expect(box, ("warning", "preload-missing", "environment"))
    box.set_environment("IPCSHIM_PROTOO=LL", "IPCSHIM_ENABLE=0")
    expect(box, ("warning", "setting", "environment"), ("warning", "disabled", "environment"))
    box.set_environment("LD_PRELOAD=/nccl/\x1b[31m\xff")
    assert "\x1b" not in expect(box, ("warning", "preload-missing", "environment")).text


# --- trees with less in them
def one_gpu(box):
    """It has no peer: how its writes to one would go is nothing to find."""
    box.set("0000:01:00.0", "class", "0x020000")
    box.set_config(SIDE_ROOT, acs=0x1d)
    translating(box)
    expect(box)


def no_gpu(box):
    for gpu in box.machine.gpus():
        box.set(gpu.address, "class", "0x020000")
    expect(box, ("note", "no-gpu", "pci"))


def out_of_the_tree(box):
    """Links are not followed, also in the middle of a path, and no FIFO is waited for."""
    outside = box.root / "outside"
    (box.proc / "driver/nvidia").rename(outside)
    (box.proc / "driver/nvidia").symlink_to(outside)
    limits = box.proc / "self/limits"
    limits.rename(outside / "limits")
    limits.symlink_to(outside / "limits")
    missed = {"ordering", "params", "memlock"}
    expect(box, ("warning", "driver-missing", "nvidia"), missed=missed)
    limits.unlink()
    os.mkfifo(limits)
    expect(box, ("warning", "driver-missing", "nvidia"), missed=missed)


def nothing(box):
    shutil.rmtree(box.sys)
    shutil.rmtree(box.proc)
    seen = b.diagnose(SHIM, box.root)
    assert not seen.found and {"gpus", "virtual", "shm", "memlock"} <= seen.missed


def usage(box):
    for arguments in (["--watch"], ["--watch", "0"], ["--watch", "1e3"], ["--watch", "-1"],
                      ["--root"], ["--root", str(box.root / "none")], ["--json", "x"],
                      ["--fix"], ["--probe", "--root", "/"], ["--output", "x"],
                      ["--device", "sim"], ["--probe", "--device", "auto"]):
        done = subprocess.run([SHIM, "doctor", *arguments], capture_output=True, text=True,
                              timeout=60)
        assert done.returncode == 2 and not done.stdout, arguments
        assert len(done.stderr.splitlines()) == 1, done.stderr
    done = subprocess.run([SHIM, "doctor", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--watch" in done.stdout


def here(_):
    """Whatever this machine is, both forms end well."""
    for options in ([], ["--json"]):
        done = subprocess.run([SHIM, "doctor", *options], capture_output=True, timeout=60)
        assert done.returncode in (0, 1, 2) and done.stdout and not done.stderr, done


def full_shm(_):
    """In a mount of its own, where that can be made."""
    script = ("mount -t tmpfs -o size=16m tmpfs /dev/shm || exit 77; "
              "fallocate -l 12m /dev/shm/left || exit 77; exec \"$0\" doctor --json")
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, SHIM], capture_output=True,
                          timeout=60)
    if done.returncode != 1 or not done.stdout:
        print("full_shm: no mount could be made:", done.stderr.decode().strip())
        return
    found = {finding["id"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert "shm-small" in found and "shm-full" in found, found
    assert found["shm-full"]["text"] == "4 of 16 MB are free", found["shm-full"]


def documented(box):
    """The machine of docs/doctor.md, word for word."""
    for number, gpu in enumerate(box.machine.gpus()):
        box.set_group(gpu.address, 100 + number, "DMA-FQ")
        box.set_link(gpu.address, "current", "2.5x16")
    box.set_link(GPU, "current", "2.5x8")
    box.set_config(GPU_PORT, acs=0x1d)
    box.set_aer("0000:98:00.0", "correctable", BadTLP=41, Timeout=2)
    box.write("proc/cmdline", "ro quiet")
    box.set_shm("rw,size=65536k")
    box.set_environment("LD_PRELOAD=libnccl.so.2:libipcshim.so")
    said = b.diagnose(SHIM, box.root).text.split("\n")
    shown = DOCUMENT.split("## A bad machine")[1].split("## Findings")[0]
    shown = [line[4:] for line in shown.split("\n") if line.startswith("    ")]
    assert [line for line in said if line] == shown, "\n".join(said)


ON_SWITCHES = [healthy, width, width_of_an_idle_gpu, width_of_an_uplink, slot, idle,
               speed_of_an_uplink, narrow_uplink, slow_root, corrected, uncorrected,
               old_errors, growth, growth_of_fatal, odd_counters, acs_of_a_switch_port,
               acs_above_a_switch, counters_that_restart, acs_beside_the_path, numa,
               virtual, small_shm, broken_link, sound_links, old_verdicts, documented]
ON_DIRECT = [healthy, no_links, acs_under_a_translating_iommu, acs_that_passes_through,
             acs_that_only_validates, not_root, odd_config, iommu_by_options,
             relaxed_ordering, small_bar, driver, forced_p2p, covered_shm, little_memory,
             memlock, mps, environment, one_gpu, no_gpu, out_of_the_tree,
             nothing, usage, here, full_shm]


def check_document():
    """Each finding of the table has a case, and each case is in the table."""
    rows = re.findall(r"^\| (`[^|]*) \|", DOCUMENT, re.M)
    listed = {identity for row in rows for identity in re.findall(r"`([\w-]+)`", row)}
    missing = (listed ^ SEEN) - ELSEWHERE - {"aer-growth"}
    if missing or len(listed) < 30:
        print(f"docs/doctor.md and the cases differ: {sorted(missing)}")
    return len(missing)


def main():
    failed = 0
    cases = [(SWITCHES, case) for case in ON_SWITCHES] + [(DIRECT, case)
                                                          for case in ON_DIRECT]
    for name, case in cases:
        if sys.argv[2:] and case.__name__ not in sys.argv[2:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                case(b.healthy(name, pathlib.Path(folder)))
            except (AssertionError, ValueError, subprocess.TimeoutExpired) as error:
                print(f"{case.__name__}: {type(error).__name__}: {error}")
                failed += 1
    if not sys.argv[2:]:
        failed += check_document()
    print(f"{len(cases)} cases, {failed} failed")
    return 1 if failed else 0


raise SystemExit(main())
