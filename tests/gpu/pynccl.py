# SPDX-License-Identifier: Apache-2.0
"""One rank that binds NCCL as vLLM's pynccl does: by path, through ctypes, and mostly
inside CUDA graphs. The path is in VLLM_NCCL_SO_PATH, which `ipcshim run` sets."""
import ctypes
import os

import torch
from torch.distributed import TCPStore

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda", RANK % torch.cuda.device_count())
FLOAT32, SUM = 7, 0
NAMES = ["ncclGetErrorString", "ncclGetVersion", "ncclGetUniqueId", "ncclCommInitRank",
         "ncclAllReduce", "ncclReduce", "ncclAllGather", "ncclReduceScatter", "ncclSend",
         "ncclRecv", "ncclBroadcast", "ncclCommDestroy", "ncclCommAbort", "ncclGroupStart",
         "ncclGroupEnd", "ncclCommWindowRegister", "ncclCommWindowDeregister"]


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


torch.cuda.set_device(DEVICE)
torch.zeros(1, device=DEVICE)
nccl = ctypes.CDLL(os.environ["VLLM_NCCL_SO_PATH"])
functions = {name: getattr(nccl, name) for name in NAMES}
nccl.ncclGetErrorString.restype = ctypes.c_char_p
nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId,
                                  ctypes.c_int]
nccl.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                               ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
nccl.ncclCommDestroy.argtypes = [ctypes.c_void_p]


def check(result):
    assert result == 0, nccl.ncclGetErrorString(result).decode()


store = TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), WORLD, RANK == 0)
unique = UniqueId()
if RANK == 0:
    check(nccl.ncclGetUniqueId(ctypes.byref(unique)))
    store.set("id", bytes(unique.internal))
ctypes.memmove(ctypes.byref(unique), store.get("id"), 128)
comm = ctypes.c_void_p()
check(nccl.ncclCommInitRank(ctypes.byref(comm), WORLD, unique, RANK))


def all_reduce(source, target, stream):
    check(nccl.ncclAllReduce(source.data_ptr(), target.data_ptr(), source.numel(), FLOAT32,
                             SUM, comm, stream.cuda_stream))


stream = torch.cuda.Stream()
source = torch.full((16384,), float(RANK + 1), device=DEVICE)
target = torch.zeros_like(source)
torch.cuda.synchronize()
with torch.cuda.stream(stream):
    all_reduce(source, target, stream)
torch.cuda.synchronize()
expected = WORLD * (WORLD + 1) / 2
assert (target == expected).all().item()

graph = torch.cuda.CUDAGraph()
total = torch.zeros_like(source)
with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
    for _ in range(4):  # as a decode step: small kernels between all-reduces
        all_reduce(source, target, torch.cuda.current_stream())
        total += target
for _ in range(25):
    graph.replay()
torch.cuda.synchronize()
assert (total == 100 * expected).all().item(), total[0].item()
check(nccl.ncclCommDestroy(comm))
print("pynccl: ok", flush=True)
