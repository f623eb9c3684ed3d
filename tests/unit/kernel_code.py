# SPDX-License-Identifier: Apache-2.0
"""What the compiled kernels must contain, whether one looks at their PTX or their SASS, and
what they must not. check_ptx.py and check_sass.py count; complaints() judges.

Counts are floors, not exact: a compiler may duplicate code, but each access that the source
makes through kernels/mem.h must be there once."""
import collections
import os
import re
import shutil
import subprocess
import sys

# Per kernel, the accesses of memory that peers or the host share: all of system scope.
#   load, store       16 bytes in one instruction, none of them weak
#   acquire, release  of words
# The stores of 16 bytes are those of data; while a rank waits, one of its report and four, of
# one loop, of what it has seen of others' calls; and two of the call's note (into the own
# history, and into the one that hosts see). The sites are those of mem.h's functions in
# kernels/*.h.
FLOORS = {
    # A line is loaded in two places (the first try, and the others), and stored in two (data,
    # and the lines beyond the message). Words: the credit at the start and twice in the wait
    # for it; the credit posted in two places, a report, its look around, and its end.
    "ips_ring_ll": {"load": 2, "store": 9, "acquire": 3, "release": 5},
    "ips_ring_ll128": {"load": 1, "store": 8, "acquire": 3, "release": 5},
    # The general way moves one unit, in a stage alone and in two that go together. The fast one
    # has eight units of 16 bytes in flight and then two, or in a sum four of each source and
    # then one: two ways to pass on or keep what came, six sums, one way to begin, and again
    # where two stages go together; there also four of each and then one. The waits for flag
    # and credit, and what tells of them, stand in both places.
    "ips_ring_simple": {"load": 82, "store": 89, "acquire": 9, "release": 7},
    # A line of every rank is loaded at once, in two-shot in both steps; one is sent, or in the
    # first step of two-shot, one to every other rank; LL stores the lines beyond the message,
    # too. No credits: words are those of the report alone.
    "ips_oneshot_ll": {"load": 8, "store": 9, "release": 3},
    "ips_oneshot_ll128": {"load": 8, "store": 8, "release": 3},
    "ips_twoshot_ll": {"load": 16, "store": 7 + 7 + 1 + 2, "release": 3},
    "ips_twoshot_ll128": {"load": 16, "store": 7 + 7 + 1, "release": 3},
    # As the ring's Simple, with three more sums that are not sent on.
    "ips_hierarchical_simple": {"load": 97, "store": 89, "acquire": 9, "release": 7},
    "ips_probe": {"acquire": 1, "release": 2},
    "ips_verify_weigh": {},
    "ips_verify_compare": {"store": 1, "release": 1},
    "ips_link_store": {"store": 4, "release": 1},
    "ips_link_check": {"load": 4, "acquire": 1},
}


def skip(reason):
    print(reason)
    sys.exit(77)


def complaints(kernels):
    """kernels: {name: (counts of accesses, what must not be there)}."""
    bad = [f"{name}: not in the table of this test" for name in kernels if name not in FLOORS]
    for name, floors in FLOORS.items():
        counts, forbidden = kernels.get(name, ({}, ["nothing: the kernel is missing"]))
        bad += [f"{name}: {counts.get(what, 0)} of {what}, at least {floor} are meant"
                for what, floor in floors.items() if counts.get(what, 0) < floor]
        bad += [f"{name}: has {what}" for what in sorted(set(forbidden))]
    return bad


# Compilation, as kernels/build_fatbin.py does it.

def compile_kernels(nvcc, root, *options):
    done = subprocess.run([nvcc, "-O3", "-std=c++17", "-fmad=false", "-I", root, *options,
                           root + "/kernels/allreduce.cu"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"nvcc: {done.stderr}")
    return done.stdout


# PTX

PTX_PART = re.compile(r"^(?:\.visible )?\.(entry|func)\s+(?:\(.*?\)\s*)?(\w+)\((.*?)^\}",
                      re.S | re.M)
PTX_CALL = re.compile(r"\bcall(?:\.uni)?\s+(?:\([^)]*\),\s*)?(\w+)")
PTX_ACCESS = re.compile(r"(?<![.\w])((?:ld|st|atom|red)\.[\w.:]+)")
PTX_KINDS = {"ld.relaxed.sys.global.v4.u32": "load", "st.relaxed.sys.global.v4.u32": "store",
             "ld.acquire.sys.global.u64": "acquire", "st.release.sys.global.u64": "release"}
# The non-coherent path never sees a peer's store; ips_exchange is the one read-modify-write,
# of own memory; .local is what registers did not hold.
PTX_FORBIDDEN = re.compile(r"ld\S*\.nc\b|(?:ld|st)\S*\.(?:gpu|cta|cluster)\b|(?:ld|st)\.local|"
                           r"red\.|atom\.(?!acq_rel\.gpu\.global\.exch\.b64$)")


def with_callees(name, bodies, reached):
    if name in bodies and name not in reached:
        reached.add(name)
        for callee in PTX_CALL.findall(bodies[name]):
            with_callees(callee, bodies, reached)
    return reached


def read_ptx(ptx):
    parts = PTX_PART.findall(ptx)
    bodies = {name: body for _, name, body in parts}
    kernels = {}
    for kind, name, _ in parts:
        if kind != "entry":
            continue
        accesses = [access for part in with_callees(name, bodies, set())
                    for access in PTX_ACCESS.findall(bodies[part])]
        kernels[name] = (collections.Counter(PTX_KINDS.get(access) for access in accesses),
                         [access for access in accesses if PTX_FORBIDDEN.match(access)])
    return kernels


# SASS

SASS_LINE = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)", re.M)
SASS_ACCESS = re.compile(r"(?:LD|ST|LDG|STG|ATOM|ATOMG|RED|REDG)(?:\.|$)")
SASS_FORBIDDEN = re.compile(r"LD\S*\.(?:CONSTANT|NC|CI)\b|(?:LDL|STL)(?:\.|$)|"
                            r"(?:LD|ST)G?\.\S*\.STRONG\.(?!SYS)|REDG?\.|"
                            r"ATOMG?\.(?!E\.EXCH\.64\.STRONG\.GPU$)")
SASS_LOAD_16 = re.compile(r"LDG?\.E\.128\.STRONG\.SYS$")
SASS_STORE_16 = re.compile(r"STG?\.E\.128\.STRONG\.SYS$")
SASS_LOAD_8 = re.compile(r"LDG?\.E\.64\.STRONG\.SYS$")
SASS_STORE_8 = re.compile(r"STG?\.E\.64\.STRONG\.SYS$")


def count_sass(operations):
    """A release is a store with a fence of the system before it and no access between; an
    acquire is a load with the invalidation of the L1 cache after it and no access between."""
    counts, fence, loaded = collections.Counter(), False, False
    for operation in operations:
        if operation.startswith("MEMBAR."):
            fence = operation.endswith(".SYS")
        elif operation.startswith("CCTL.IVALL"):
            counts["acquire"] += loaded
            loaded = False
        elif SASS_ACCESS.match(operation):
            counts["release"] += bool(fence and SASS_STORE_8.match(operation))
            counts["load"] += bool(SASS_LOAD_16.match(operation))
            counts["store"] += bool(SASS_STORE_16.match(operation))
            fence, loaded = False, bool(SASS_LOAD_8.match(operation))
    return counts


def read_sass(sass):
    """{architecture: kernels} of what cuobjdump -sass prints."""
    found = {}
    for part in re.split(r"^\s*(?:code for|arch =) ", sass, flags=re.M)[1:]:
        for function in re.split(r"^\s*Function : ", part, flags=re.M)[1:]:
            operations = [m[0] for m in SASS_LINE.findall(function)]
            kernels = found.setdefault(part.split()[0], {})
            kernels[function.split()[0]] = (
                count_sass(operations),
                [operation for operation in operations if SASS_FORBIDDEN.match(operation)])
    return found


def cuda_tool(name, nvcc):
    """The tool from $NAME, from beside nvcc, from PATH, or from the PyPI wheel
    nvidia-cuda-NAME."""
    places = [os.path.dirname(os.path.realpath(nvcc))] + [
        os.path.join(base, "nvidia", kit, "bin") for base in sys.path
        for kit in ("cu13", "cuda_" + name)]
    return (os.environ.get(name.upper()) or shutil.which(name, path=os.pathsep.join(places)) or
            shutil.which(name))


def disassembler(nvcc):
    """cuobjdump, and a PATH with the nvdisasm that it needs; skips where they are missing."""
    cuobjdump, nvdisasm = cuda_tool("cuobjdump", nvcc), cuda_tool("nvdisasm", nvcc)
    if not cuobjdump or not nvdisasm:
        skip("no cuobjdump or nvdisasm here (PyPI: nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm)")
    return cuobjdump, os.path.dirname(nvdisasm) + os.pathsep + os.environ.get("PATH", "")


def disassemble(nvcc, binary):
    cuobjdump, path = disassembler(nvcc)
    done = subprocess.run([cuobjdump, "-sass", binary], capture_output=True, text=True,
                          env={**os.environ, "PATH": path})
    if done.returncode:
        sys.exit(f"{cuobjdump}: {done.stderr}")
    return done.stdout
