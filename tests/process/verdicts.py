#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ipcshim doctor --probe` on links that drop, mirror, corrupt or delay, each directed pair by
itself: what it says, what the shim makes of it, and what `ipcshim run` tells NCCL."""
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import harness as h
import places

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "doctor"))
import box  # noqa: E402

METHODS = ("store", "load", "copy")
SCRIPT = "comm A\nar count=1000\nar count=3001 type=float16 op=max inplace=1\nar count=9000\n"
BUS = ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]
RING = [(0, 1), (1, 2), (2, 0)]
PAIRS = [(a, b) for a in range(3) for b in range(3) if a != b]
# What a fault makes of stores, loads and copies.
KINDS = {"drop": ("drops", "ok", "drops"), "mirror": ("mirrors", "ok", "mirrors"),
         "corrupt": ("corrupts", "ok", "corrupts"), "delay": ("late", "ok", "late"),
         "blind": ("ok", "drops", "ok")}
FOUND = "`ipcshim doctor --probe` has found that "


def command(*arguments, env=None, timeout=120):
    environment = {**h.clean_environment(), "SIMGPU_DEVICES": "3", **(env or {})}
    done = subprocess.run([h.COMMAND, *arguments], env=environment, capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, timeout=timeout)
    return h.Result(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), {},
                    [], False)


def probe(path, link="", **env):
    """The rows that it measured, by (turn, method, from, to); to: "host"."""
    result = command("doctor", "--probe", "--device", "sim", "--json", "--output", str(path),
                     env={"SIMGPU_LINK": link, **env})
    said = json.loads("\n".join(result.stdout))
    rows = {(row["turn"], row["method"], row["from"], row["to"]): row["verdict"]
            for row in said["links"]}
    h.expect(len(rows) == len(said["links"]), "a row is there twice", result)
    return rows, said, result


def wanted(links):
    """links: {(from, to): fault}."""
    rows = {("alone", method, BUS[a], "host"): "ok" for a in range(3) for method in METHODS}
    for turn, pairs in (("alone", PAIRS), ("ring", RING)):
        for a, b in pairs:
            for i, method in enumerate(METHODS):
                kind = KINDS[links[a, b]][i] if (a, b) in links else "ok"
                rows[turn, method, BUS[a], BUS[b]] = kind
    return rows


def expect_rows(got, links, result):
    differ = {key: (got.get(key), kind) for key, kind in wanted(links).items()
              if got.get(key) != kind}
    h.expect(not differ and len(got) == len(wanted(links)), f"{differ}", result)


class Made:
    """A file made under these links, or none."""

    def __init__(self, link=None, **env):
        self.directory = tempfile.TemporaryDirectory(prefix="ips-links-")
        self.path = pathlib.Path(self.directory.name) / "made" / "links"
        if link is not None:
            probe(self.path, link, **env)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.directory.cleanup()

    def env(self, **more):
        return {"IPCSHIM_VERDICT_FILE": str(self.path), **more}

    def write(self, text):
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(text)
        return self


# --- what the probe finds ---------------------------------------------------------------

def healthy():
    with Made() as made:
        rows, said, result = probe(made.path)
        expect_rows(rows, {}, result)
        h.expect(result.code < 2 and not result.stderr, "sound", result)
        h.expect(not [f for f in said["findings"] if f["check"] == "links"], "findings", result)
        h.expect([made.path] == list(made.path.parent.iterdir()), "nothing beside it")
        h.expect(made.path.stat().st_mode & 0o777 == 0o644, "for everybody to read")


def each_pair(fault):
    """One directed pair at a time: no other is blamed, nor its reverse. A second each, so not all
    with every fault."""
    turn = list(KINDS).index(fault)
    for a, b in PAIRS if turn == 0 else (PAIRS[turn], PAIRS[turn - 3]):
        with Made() as made:
            rows, said, result = probe(made.path, f"{fault}:{a}>{b}")
            expect_rows(rows, {(a, b): fault}, result)
            broken = [f for f in said["findings"] if f["id"] == "link-broken"]
            h.expect(result.code == 2 and len(broken) == 1 and broken[0]["severity"] == "fault"
                     and broken[0]["subject"] == f"{BUS[a]} > {BUS[b]}", f"{broken}", result)
            kind = next(kind for kind in KINDS[fault] if kind != "ok")
            h.expect(f"({kind})" in broken[0]["text"], f"{broken}", result)


def held_back():
    """What arrives only when the kernel goes that stored it: nobody who waits may rely on it."""
    with Made() as none, Made() as made:
        rows, _, result = probe(made.path, "hold:1>2")
        bad = {("alone", "store", BUS[a], BUS[b]): "late" for a, b in ((1, 2), (2, 1))}
        h.expect(rows == {**wanted({}), **bad}, f"{rows}", result)
        for file, line in ((none, r"rank \d: what rank \d .* does not arrive"),
                           (made, f"rank 0: {FOUND}stores of GPU .* late")):
            served("host", ["goes through host memory: " + line], file,
                   env={"SIMGPU_LINK": "hold:1>2"})


def all_at_once():
    links = dict(zip(PAIRS, ("drop", "mirror", "corrupt", "delay", "blind")))
    with Made() as made:
        rows, _, result = probe(made.path, ",".join(f"{fault}:{a}>{b}"
                                                    for (a, b), fault in links.items()))
        expect_rows(rows, links, result)


def stray():
    """What is written to one GPU is in another's memory."""
    with Made() as made:
        rows, _, result = probe(made.path, "stray:0>1")
        alone = {key: kind for key, kind in rows.items() if key[0] == "alone"}
        h.expect({key for key, kind in alone.items() if kind != "ok"} ==
                 {("alone", method, BUS[0], BUS[1]) for method in ("store", "copy")}, f"{alone}",
                 result)
        h.expect("mirrors" in alone.values() and f"it is in the memory of GPU {BUS[2]}" in
                 made.path.read_text(), made.path.read_text(), result)


def text():
    """The table, and what stands below it."""
    result = command("doctor", "--probe", "--device", "sim", env={"SIMGPU_LINK": "drop:0>2"})
    h.expect(result.code == 2 and not result.stderr, "probe", result)
    row = next(line.split() for line in result.stdout if line.startswith(f"{BUS[0]}  {BUS[2]}"))
    h.expect(row[2] == "drops" and float(row[3]) > 0 and row[4] == "drops", f"{row}", result)
    line = f"stores of GPU {BUS[0]} to GPU {BUS[2]} are lost (drops): nothing of 64 KB arrived"
    h.expect(line in result.stdout, line, result)
    h.expect(not any("written" in line for line in result.stdout),
             "the stand-in's is not kept where nobody asked for it", result)


def no_peer_access():
    """No fault of a link: the driver says so to everybody."""
    with Made() as made:
        rows, _, result = probe(made.path, SIMGPU_NO_PEER="1")
        kinds = {(row[3] == "host", kind) for row, kind in rows.items()}
        h.expect(kinds == {(True, "ok"), (False, "unsupported")} and result.code < 2,
                 f"{kinds}", result)
        served("host", ["goes through host memory: rank 0: the driver reports no peer"], made,
               env={"SIMGPU_NO_PEER": "1"})


def one_gpu():
    result = command("doctor", "--probe", "--device", "sim", env={"SIMGPU_DEVICES": "1"})
    h.expect(result.code < 2 and "One GPU: there is no pair to measure." in result.stdout,
             "told", result)
    h.expect(any("host memory" in line for line in result.stdout), "the host", result)


# --- the process that measures ----------------------------------------------------------

def child_fails(error, reason, least=1, **env):
    """What it was at is charged, and the rest is measured by others."""
    with Made() as made:
        # Each child ends at its 60th launch; there are about 200 in all.
        rows, _, result = probe(made.path, SIMGPU_FAIL=f"cuLaunchKernel:60:{error}", **env)
        kinds = list(rows.values())
        h.expect(len(rows) == len(wanted({})), f"{len(rows)} rows", result)
        h.expect(least <= kinds.count("fails") <= 12 and set(kinds) == {"ok", "fails"},
                 f"{kinds}", result)
        h.expect(not result.stderr and result.code == 2, "told", result)
        h.expect(reason in made.path.read_text(), made.path.read_text(), result)


def speed(now, later, gpus=3):
    """What `doctor --probe` of so many GPUs finds of the second one's link, which is so fast
    at first, and then, while the GPUs work."""
    with tempfile.TemporaryDirectory(prefix="ips-sys-") as folder:
        tree = pathlib.Path(folder) / "sys"
        shutil.copytree(places.tree((0, 0, 0), True, "16.0x16"), tree, symlinks=True)
        file = next(tree.glob(f"devices/**/{BUS[1]}/current_link_speed"))
        file.write_text(f"{now} GT/s PCIe\n")
        inside = (f"mount --bind {tree} /sys || exit 99; "
                  f"(sleep 0.3; echo '{later} GT/s PCIe' > /sys/{file.relative_to(tree)}) & "
                  f"{h.COMMAND} doctor --probe --device sim --json --output {folder}/links")
        done = subprocess.run(["unshare", "-m", "sh", "-c", inside], text=True, timeout=120,
                              env={**h.clean_environment(), "SIMGPU_DEVICES": str(gpus),
                                   "SIMGPU_LINK": "delay:1>2"},  # it takes a second
                              capture_output=True, check=False)
        h.expect(done.returncode < 3, done.stderr)
        return [(found["id"], found["severity"]) for found in json.loads(done.stdout)["findings"]
                if found["subject"] == BUS[1] and found["check"] == "speed"]


def speed_under_load():
    """An idle GPU's link is slow. It is a finding only if it stays so."""
    if not h.private_shm():
        raise h.Skip("no mount can be made here")
    h.expect(speed("2.5", "16.0") == [], "it sped up")
    h.expect(speed("2.5", "8.0") == [("link-speed", "warning")], "it stayed slower")
    h.expect(speed("2.5", "8.0", 1) == [("link-idle", "note")], "it had no work")


def cannot_begin():
    for fault, reason in (("cuMemAlloc_v2:0:2", "cannot be used: CUDA_ERROR_OUT_OF_MEMORY"),
                          ("cuInit:0:100", "no usable CUDA driver"),
                          ("cuStreamCreate:0:-9", "Killed")):
        with Made() as made:
            result = command("doctor", "--probe", "--device", "sim", "--output",
                             str(made.path), env={"SIMGPU_FAIL": fault})
            h.expect(result.code == 2 and not made.path.exists(), fault, result)
            h.expect([line for line in result.stderr if reason in line], reason, result)
            h.expect(not result.stdout, "nothing else is said", result)


def cannot_write():
    result = command("doctor", "--probe", "--device", "sim", "--output", "/proc/none/links")
    h.expect_stderr(result, ["cannot write /proc/none/links"])
    h.expect(any("host memory" in line for line in result.stdout), "the table", result)


# --- what the shim does -----------------------------------------------------------------

def served(transport, lines, made, ranks=3, env=None, script=SCRIPT, **options):
    env = {"IPCSHIM_TRANSPORT": "auto", **made.env(), **(env or {})}
    result = h.run(script, ranks, env, **options)
    h.expect_fine(result, ranks)
    h.expect_stderr(result, lines)
    events = [e for rank in result.traces for e in result.traces[rank] if e["event"] == "comm"]
    h.expect(len(events) == ranks and all(e["transport"] == transport for e in events),
             f"{[e['transport'] for e in events]}", result)
    h.expect_route(result, ranks, "engine" if transport else "nccl")
    return result


def failed_pair(fault):
    """Not used, whether it still fails or not; results are right."""
    method, kind = [(method, kind) for method, kind in zip(METHODS, KINDS[fault])
                    if kind != "ok"][0]
    line = (f"rank 0: {FOUND}{'stores' if method == 'store' else 'loads'} of GPU {BUS[1]} "
            rf".* GPU {BUS[2]} .*\({kind}\)")
    link = f"{fault}:1>2"
    with Made(link) as made:
        for now in ("", link):
            served("host", ["goes through host memory: " + line], made,
                   env={"SIMGPU_LINK": now})
            served(None, ["3 ranks: " + line], made,
                   env={"SIMGPU_LINK": now, "IPCSHIM_TRANSPORT": "ipc"})
        served("ipc", [], made, ranks=2)  # GPUs 0 and 1


def count_launches(made, script, **env):
    with tempfile.NamedTemporaryFile("r") as log:
        result = h.run(script, 3, made.env(SIMGPU_LOG=log.name, **env))
        h.expect_fine(result, 3)
        return sum(line.endswith(" cuLaunchKernel\n") for line in log), result


def sound_links():
    """They are not probed: one launch less on each rank, and rank 0 says so at info."""
    with Made() as none, Made("") as made:
        probed, _ = count_launches(none, SCRIPT)
        known, result = count_launches(made, SCRIPT, IPCSHIM_LOG="info")
        h.expect(probed == known + 3, f"{probed} launches, then {known}", result)
        told = [line for line in result.stderr if "the links are not probed" in line]
        h.expect(len(told) == 1, "told", result)
        served("ipc", [], made)


def host_is_probed():
    """What is known of the links says nothing of host memory, nor of ranks that share a GPU."""
    with Made() as none, Made("") as made:
        for env in ({"IPCSHIM_TRANSPORT": "host"}, {"SIMGPU_DEVICES": "1"},
                    {"SIMGPU_DEVICES": "2"}):
            h.expect(count_launches(none, SCRIPT, **env)[0] ==
                     count_launches(made, SCRIPT, **env)[0], f"{env}")


def partly_known():
    """GPU 3 was not there then: all links are probed, as without a file."""
    with Made("") as made:
        result = h.run(SCRIPT, 4, made.env(SIMGPU_LINK="drop:3>0"))
        h.expect_fine(result, 4)
        h.expect_stderr(result, ["rank 0: what rank 3 .* writes to rank 0 .*does not arrive"])


def rank_0_decides():
    with Made("drop:1>2") as bad, Made("") as good, Made() as none:
        for first, others, transport in ((bad, good, "host"), (good, bad, "ipc"),
                                         (none, bad, "ipc")):
            served(transport, ["goes through host memory"] if first is bad else [], first,
                   rank_env={rank: others.env() for rank in (1, 2)})


def ignored(text, reason, mode=0o644):
    """As without a file; rank 0 says why at info."""
    with Made() as made:
        made.write(text)
        os.chmod(made.path, mode)
        served("ipc", [], made)
        result = h.run(SCRIPT, 3, made.env(IPCSHIM_LOG="info"))
        told = [line for line in result.stderr if "the verdicts on links in" in line]
        h.expect(len(told) == 1 and re.search(f"links are ignored: {reason}", told[0]),
                 f"{told}", result)
        veto = command("run", "--device", "sim", "--", "sh", "-c", SHOW, env=made.env())
        h.expect(veto.stdout == ["P2P unset"] and not veto.stderr, "run", veto)


def of_no_use():
    with Made("drop:1>2") as made:
        text = made.path.read_text()

    def key(name):
        return re.sub(rf"(?m)^{name} = .*$", f"{name} = 123", text)
    ignored(key("boot"), "the machine was started since")
    ignored(key("driver"), "the driver is another")
    ignored(key("cmdline"), "the kernel's command line is another")
    ignored(key("format"), "line 3: ")
    ignored(text + "\0\xff\n", r"line \d+: ")
    ignored(text[:text.rindex(" ok ") + 3], r"line \d+: ")
    ignored("", 'it has no line "format')
    ignored(text + "#" * (2 << 20), "it is larger than 1 MB")
    ignored(text, "everybody may write", mode=0o666)
    with Made() as made:  # of other GPUs at the same places: no line, and the links are probed
        served("ipc", [], made.write(text.replace("GPU-7369", "GPU-1111")))


def acs_changed():
    """What root can see is compared; what nobody sees is not."""
    with Made("drop:1>2") as made:
        made.write(made.path.read_text().replace("gpu = ", "acs = 0000:07:00.0 001d\ngpu = ", 1))
        device = "/sys/bus/pci/devices/0000:07:00.0"
        for acs, cut, used in ((0x1d, 4096, True), (0x1c, 4096, False), (0x1c, 64, True),
                               (None, 4096, False)):
            config = pathlib.Path(made.directory.name) / "config"
            config.write_bytes(box.config(acs=acs)[:cut])
            result = h.run(SCRIPT, 3, made.env(IPCSHIM_LOG="info"), shm={
                "before": f"mount -t tmpfs tmpfs /sys/bus/pci/devices && mkdir {device} && "
                          f"cp {config} {device} || exit 99"})
            h.expect_fine(result, 3)
            h.expect(any(FOUND in line for line in result.stderr) == used, f"{acs} {cut}",
                     result)
            h.expect(any("ACS control of a bridge was changed" in line
                         for line in result.stderr) != used, f"{acs} {cut}", result)


def machines_place():
    """It serves where the user's own file is of no use, or older."""
    with Made("drop:1>2") as bad, Made("") as good:
        own = pathlib.Path(bad.directory.name) / "ipcshim" / "links"
        own.parent.mkdir()
        env = {"XDG_CACHE_HOME": bad.directory.name, "IPCSHIM_VERDICT_FILE": ""}
        shm = {"before": "mount -t tmpfs tmpfs /var/cache && mkdir /var/cache/ipcshim && "
                         f"cp {bad.path} /var/cache/ipcshim/links || exit 99"}
        newer = good.path.read_text()
        older = re.sub(r"(?m)^made = \d+", "made = 2001", newer)
        newer = re.sub(r"(?m)^made = \d+", "made = 2999", newer)
        for text, used in ((None, True), ("format = 9\n", True), (newer, False), (older, True)):
            if text:
                own.write_text(text)
            served("host" if used else "ipc", [FOUND] if used else [], bad, env=env, shm=shm)


def usual_place():
    with Made("drop:1>2") as made:
        for variable, place in (("XDG_CACHE_HOME", "ipcshim"), ("HOME", ".cache/ipcshim")):
            folder = pathlib.Path(made.directory.name) / variable / place
            folder.mkdir(parents=True)
            (folder / "links").write_text(made.path.read_text())
            env = {"XDG_CACHE_HOME": "", "IPCSHIM_VERDICT_FILE": "",
                   variable: str(pathlib.Path(made.directory.name) / variable)}
            served("host", ["goes through host memory: rank 0: " + FOUND], made, env=env)
            served("ipc", [], made, env=dict(env, IPCSHIM_VERDICT_FILE="none"))


# --- ipcshim run ------------------------------------------------------------------------

SHOW = 'echo "P2P ${NCCL_P2P_DISABLE-unset}"'


def run_vetoes():
    def shown(made, **env):
        return command("run", "--device", "sim", "--", "sh", "-c", SHOW, env=made.env(**env))
    for fault in KINDS:
        with Made(f"{fault}:1>2") as made:
            result = shown(made)
            h.expect(result.stdout == ["P2P 1"] and result.code == 0, fault, result)
            h.expect_stderr(result, [rf"run: NCCL_P2P_DISABLE=1 is set for NCCL, since .*"
                                     rf"GPU {BUS[1]} .* GPU {BUS[2]} .*prevents that"])
            for value in ("0", "1", ""):
                result = shown(made, NCCL_P2P_DISABLE=value)
                h.expect(result.stdout == [f"P2P {value}"] and not result.stderr,
                         f"the user's {value!r}", result)
            result = shown(made, SIMGPU_DEVICES="2")
            h.expect(result.stdout == ["P2P unset"] and not result.stderr,
                     "the pair is not among the visible GPUs", result)
    with Made("") as sound, Made() as none:
        for made in (sound, none):
            result = shown(made)
            h.expect(result.stdout == ["P2P unset"] and not result.stderr, "no pair", result)


def run_serves():
    """NCCL has it in its environment, and the shim goes through host memory by choice."""
    with Made("corrupt:0>1") as made, tempfile.TemporaryDirectory() as name:
        script = pathlib.Path(name) / "script"
        script.write_text(SCRIPT)
        environment = {"SIMGPU_LINK": "corrupt:0>1", "SIMNCCL_LOG": str(pathlib.Path(name) / "l")}
        result = command("run", "--device", "sim", "--", h.WORKER, "--ranks", "2", "--env",
                         "*:LD_PRELOAD=" + h.SHIM, str(script), env=made.env(**environment))
        h.expect(result.code == 0, "run", result)
        h.expect_stderr(result, ["run: NCCL_P2P_DISABLE=1 is set"])
        h.expect(sum("0 failed" in line for line in result.stdout) == 2, "results", result)


def tests():
    yield "sound links", healthy
    for fault in KINDS:
        yield f"{fault}, each directed pair", functools.partial(each_pair, fault)
    yield "writes that are held back", held_back
    yield "a fault on every pair", all_at_once
    yield "writes to another GPU", stray
    yield "the table", text
    yield "no peer access", no_peer_access
    yield "one GPU", one_gpu
    yield "the process is killed", functools.partial(child_fails, -9, "Killed")
    yield "the driver fails", functools.partial(child_fails, 719, "CUDA_ERROR_LAUNCH_FAILED")
    yield "the process stands still", functools.partial(
        child_fails, -19, "the measurement did not end", IPS_LINKS_STILL_S="2")
    yield "a link's speed under load", speed_under_load
    yield "it cannot begin", cannot_begin
    yield "it cannot be written", cannot_write
    for fault in KINDS:
        yield f"{fault}: what serves", functools.partial(failed_pair, fault)
    yield "sound links are not probed", sound_links
    yield "host memory is", host_is_probed
    yield "a GPU that is not in the file", partly_known
    yield "rank 0 decides", rank_0_decides
    yield "files of no use", of_no_use
    yield "the ACS control of a bridge", acs_changed
    yield "the usual place", usual_place
    yield "the machine's place", machines_place
    yield "run vetoes NCCL's peer-to-peer", run_vetoes
    yield "run serves", run_serves


if __name__ == "__main__":
    h.main(list(tests()), at_once=2)
