# SPDX-License-Identifier: Apache-2.0
"""A rank that binds NCCL the way vLLM's and SGLang's pynccl wrappers do: ctypes.CDLL on the
path variable, every name by getattr, the id by value; eager and captured AllReduces, then
replays. The device is the CPU stand-in's, through the driver. pynccl.py RANK RANKS FILE."""
import ctypes
import os
import pathlib
import struct
import sys
import time

P, I, S = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t


class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


# The wrappers' tables (vLLM 0.33.0, SGLang 0.5.23): a name that is absent ends the load, and
# the program then quietly goes without.
MUST = {
    "ncclGetErrorString": (ctypes.c_char_p, [I]),
    "ncclGetVersion": (I, [ctypes.POINTER(I)]),
    "ncclGetUniqueId": (I, [ctypes.POINTER(Id)]),
    "ncclCommInitRank": (I, [ctypes.POINTER(P), I, Id, I]),
    "ncclAllReduce": (I, [P, P, S, I, I, P, P]),
    "ncclReduce": (I, [P, P, S, I, I, I, P, P]),
    "ncclAllGather": (I, [P, P, S, I, P, P]),
    "ncclReduceScatter": (I, [P, P, S, I, I, P, P]),
    "ncclSend": (I, [P, S, I, I, P, P]),
    "ncclRecv": (I, [P, S, I, I, P, P]),
    "ncclBroadcast": (I, [P, P, S, I, I, P, P]),
    "ncclCommDestroy": (I, [P]),
    "ncclCommAbort": (I, [P]),
    "ncclGroupStart": (I, []),
    "ncclGroupEnd": (I, []),
}
# Needed by one of them only, or absent from older NCCLs: the shim has them all.
TOLERATED = {
    "ncclCommSuspend": (I, [P, I]),
    "ncclCommResume": (I, [P]),
    "ncclCommInitRankConfig": (I, [ctypes.POINTER(P), I, Id, I, P]),
    "ncclGetLastError": (ctypes.c_char_p, [P]),
    "ncclCommWindowRegister": (I, [P, P, S, ctypes.POINTER(P), I]),
    "ncclCommWindowDeregister": (I, [P, P]),
    "ncclCommQueryProperties": (I, [P, P]),
    "ncclMemAlloc": (I, [ctypes.POINTER(P), S]),
    "ncclMemFree": (I, [P]),
}
FLOAT32, SUM = 7, 0


class Nccl:
    def __init__(self):
        path = (os.environ.get("VLLM_NCCL_SO_PATH") or os.environ.get("SGLANG_NCCL_SO_PATH") or
                "libnccl.so.2")
        library = ctypes.CDLL(path)
        self.functions, self.absent = {}, []
        for name, (result, arguments) in {**MUST, **TOLERATED}.items():
            try:
                function = getattr(library, name)
            except AttributeError:
                if name in MUST:
                    raise
                self.absent.append(name)
                continue
            function.restype, function.argtypes = result, arguments
            self.functions[name] = function

    def __getattr__(self, name):
        def call(*arguments):
            result = self.functions[name](*arguments)
            if result != 0:
                raise RuntimeError("%s: %s" % (name, self.functions["ncclGetErrorString"](result)))
        return call


class Cuda:
    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name):
        def call(*arguments):
            result = getattr(self.library, name)(*arguments)
            if result != 0:
                raise RuntimeError("%s: error %d" % (name, result))
        return call


def open_device(cuda, rank):
    device, context, stream = I(), P(), P()
    cuda.cuInit(0)
    cuda.cuDeviceGet(ctypes.byref(device), rank)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    cuda.cuCtxSetCurrent(context)
    cuda.cuStreamCreate(ctypes.byref(stream), 1)
    return stream


def share_id(nccl, rank, path):
    unique = Id()
    if rank == 0:
        nccl.ncclGetUniqueId(ctypes.byref(unique))
        path.with_suffix(".part").write_bytes(bytes(unique))
        path.with_suffix(".part").rename(path)
    while not path.exists():
        time.sleep(0.01)
    return Id.from_buffer_copy(path.read_bytes())


def main():
    rank, ranks, path = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    cuda, nccl = Cuda(), Nccl()
    stream, comm, count = open_device(cuda, rank), P(), 256
    nccl.ncclCommInitRank(ctypes.byref(comm), ranks, share_id(nccl, rank, path), rank)
    source, target = ctypes.c_uint64(), ctypes.c_uint64()
    for buffer in (source, target):
        cuda.cuMemAlloc_v2(ctypes.byref(buffer), S(4 * count))

    def put(value):
        cuda.cuMemcpyHtoD_v2(source, struct.pack("f", value) * count, S(4 * count))

    def expect(value):
        got = ctypes.create_string_buffer(4 * count)
        cuda.cuStreamSynchronize(stream)
        cuda.cuMemcpyDtoH_v2(got, target, S(4 * count))
        assert struct.unpack("%df" % count, got.raw) == (value,) * count, (value, got.raw[:16])

    def all_reduce():
        nccl.ncclAllReduce(P(source.value), P(target.value), count, FLOAT32, SUM, comm, stream)

    put(rank + 1.0)
    all_reduce()
    expect(ranks * (ranks + 1) / 2)
    graph, replayed = P(), P()
    cuda.cuStreamBeginCapture_v2(stream, 1)
    all_reduce()
    cuda.cuStreamEndCapture(stream, ctypes.byref(graph))
    cuda.cuGraphInstantiateWithFlags(ctypes.byref(replayed), graph, ctypes.c_ulonglong(0))
    for replay in range(3):
        put(replay + rank + 1.0)
        cuda.cuGraphLaunch(replayed, stream)
        expect(ranks * replay + ranks * (ranks + 1) / 2)
    nccl.ncclGroupStart()
    all_reduce()
    nccl.ncclGroupEnd()
    expect(ranks * 2 + ranks * (ranks + 1) / 2)
    cuda.cuGraphExecDestroy(replayed)
    cuda.cuGraphDestroy(graph)
    nccl.ncclCommDestroy(comm)
    print("rank %d done, absent: %s" % (rank, " ".join(nccl.absent) or "none"))


main()
