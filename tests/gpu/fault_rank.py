# SPDX-License-Identifier: Apache-2.0
"""One rank that does what faults.py tells it: a JSON list per line on stdin, a JSON value
per line on stdout. Reaches NCCL by path, through the shim (IPS_SHIM)."""
import ctypes
import json
import os
import sys
import time

import torch

DEVICE = int(sys.argv[1]) % torch.cuda.device_count()
FLOAT32, SUM, IN_PROGRESS = 7, 0, 7


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


class Rank:
    def __init__(self):
        torch.cuda.set_device(DEVICE)
        self.nccl = ctypes.CDLL(os.environ["IPS_SHIM"])
        self.nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int,
                                               UniqueId, ctypes.c_int]
        self.nccl.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p,
                                            ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                                            ctypes.c_void_p, ctypes.c_void_p]
        for name in ("ncclCommDestroy", "ncclCommAbort"):
            getattr(self.nccl, name).argtypes = [ctypes.c_void_p]
        self.nccl.ncclCommGetAsyncError.argtypes = [ctypes.c_void_p,
                                                    ctypes.POINTER(ctypes.c_int)]
        self.stream = torch.cuda.Stream()
        self.comm = None
        self.world = 0
        torch.zeros(1, device="cuda")

    def id(self):
        unique = UniqueId()
        assert self.nccl.ncclGetUniqueId(ctypes.byref(unique)) == 0
        return bytes(unique.internal).hex()

    def init(self, unique, world, rank):
        given = UniqueId()
        ctypes.memmove(ctypes.byref(given), bytes.fromhex(unique), 128)
        self.comm, self.world = ctypes.c_void_p(), world
        return self.nccl.ncclCommInitRank(ctypes.byref(self.comm), world, given, rank)

    def async_error(self):
        error = ctypes.c_int(-1)
        result = self.nccl.ncclCommGetAsyncError(self.comm, ctypes.byref(error))
        return error.value if result == 0 else -result

    def call(self, count, times=1):
        """Results of the enqueueing, what the stream ended with, whether the sum is right,
        the asynchronous error, and the time of the end."""
        source = torch.ones(count, device="cuda")
        target = torch.zeros(count, device="cuda")
        torch.cuda.current_stream().synchronize()
        result = 0
        for _ in range(times):
            result = self.nccl.ncclAllReduce(source.data_ptr(), target.data_ptr(), count,
                                             FLOAT32, SUM, self.comm, self.stream.cuda_stream)
            if result:
                break
        device = "ok"
        try:
            while not self.stream.query():
                time.sleep(0.001)
        except Exception as error:  # pylint: disable=broad-except
            device = str(error).splitlines()[0]
        end = time.time()
        right = None
        if device == "ok":
            right = bool((target == self.world).all().item())
        return {"result": result, "device": device, "right": right,
                "async": self.async_error(), "end": end}

    def alive(self):
        """Whether the context still works."""
        try:
            return bool((torch.ones(1000, device="cuda") * 2).sum().item() == 2000)
        except Exception as error:  # pylint: disable=broad-except
            return str(error).splitlines()[0]

    def destroy(self):
        return self.nccl.ncclCommDestroy(self.comm)

    def abort(self):
        return self.nccl.ncclCommAbort(self.comm)


def main():
    rank = Rank()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(rank, name)(*arguments)), flush=True)


main()
