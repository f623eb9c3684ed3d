# SPDX-License-Identifier: Apache-2.0
"""One rank of a CuPy job: NcclCommunicator, all-reduce of two types."""
import os
import pathlib
import time

import cupy
from cupy.cuda import nccl

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
meeting = pathlib.Path(os.environ["CUPY_MEETING"])
cupy.cuda.Device(RANK % cupy.cuda.runtime.getDeviceCount()).use()
cupy.zeros(1)
if RANK == 0:
    meeting.with_suffix(".part").write_text(repr(nccl.get_unique_id()))
    meeting.with_suffix(".part").rename(meeting)
while not meeting.exists():
    time.sleep(0.01)
unique = eval(meeting.read_text(), {"__builtins__": {}})  # a tuple that rank 0 wrote
comm = nccl.NcclCommunicator(WORLD, unique, RANK)
for dtype, number in ((cupy.float32, nccl.NCCL_FLOAT32), (cupy.float16, nccl.NCCL_FLOAT16)):
    for count in (1, 1000, 100000):
        value = cupy.full(count, RANK + 1, dtype=dtype)
        comm.allReduce(value.data.ptr, value.data.ptr, count, number, nccl.NCCL_SUM,
                       cupy.cuda.Stream.null.ptr)
        cupy.cuda.Stream.null.synchronize()
        assert (value == WORLD * (WORLD + 1) / 2).all()
comm.destroy()
print("cupy: ok", flush=True)
