# SPDX-License-Identifier: Apache-2.0
"""One rank of the overlap measurement: matrix products on one stream, AllReduces on another.
Started by overlap.py through turns.py."""
import math

import torch
import torch.distributed as dist

from turns_rank import DEVICE, RANK, WORLD, serve, together


def mark(stream):
    event = torch.cuda.Event(enable_timing=True)
    event.record(stream)
    return event


class Overlap:
    """Products of size x size bf16 matrices beside AllReduces of `bytes` bytes of bf16.

    A sample is four measurements: either alone, both at once for as long as the products last,
    and steps of a fixed amount of both. `products` is how many of them one measurement has.
    The AllReduces go round over more buffers than caches hold; sums in place grow by a factor
    of WORLD each time, a power of two, so they stay exact."""
    BUFFERS, ALONE, STEPS, PER_STEP, MOST = 16, 8, 4, 4, 250

    def __init__(self, size, bytes, products):
        assert WORLD & (WORLD - 1) == 0, "sums in place are exact for a power of two of ranks"
        torch.manual_seed(0)
        self.a, self.b = (torch.randn(size, size, device=DEVICE).to(torch.bfloat16)
                          for _ in range(2))
        self.c = torch.mm(self.a, self.b)
        self.product_expected = self.c.clone()
        index = torch.arange(bytes // 2, device=DEVICE) % 7
        self.pattern = (index + RANK).to(torch.bfloat16)
        self.total = (index * WORLD + WORLD * (WORLD - 1) // 2).to(torch.bfloat16)
        self.buffers = [self.pattern.clone() for _ in range(self.BUFFERS)]
        self.uses = 0
        self.products = products
        self.compute, self.comm = torch.cuda.Stream(), torch.cuda.Stream()
        self.reduces = self.enough_reduces()
        self.covered = 1.0

    def product(self):
        with torch.cuda.stream(self.compute):
            torch.mm(self.a, self.b, out=self.c)

    def reduce(self):
        with torch.cuda.stream(self.comm):
            dist.all_reduce(self.buffers[self.uses % self.BUFFERS])
        self.uses += 1

    def refill(self):
        for buffer in self.buffers:
            buffer.copy_(self.pattern)
        self.c.fill_(float("nan"))
        self.uses = 0

    def judge(self):
        torch.cuda.synchronize()
        for i, buffer in enumerate(self.buffers):
            times = (self.uses - i + self.BUFFERS - 1) // self.BUFFERS
            expected = self.total * float(WORLD ** (times - 1)) if times else self.pattern
            assert torch.equal(buffer, expected), f"buffer {i} is wrong after {times} sums"
        torch.testing.assert_close(self.c, self.product_expected, rtol=0.02, atol=1)

    def alone_us(self, stream, work, times):
        together()
        begin = mark(stream)
        for _ in range(times):
            work()
        end = mark(stream)
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e3 / times

    def beside(self, reduces):
        """Both streams from one point in time on. Returns us per product; us per AllReduce that
        began and ended within the products' time; and which part of that time AllReduces ran."""
        together()
        origin = mark(self.compute)
        self.comm.wait_event(origin)
        self.reduce()
        done = [mark(self.comm)]
        for i in range(1, self.products + 1):
            self.product()
            while len(done) < reduces * i // self.products:
                self.reduce()
                done.append(mark(self.comm))
        end = mark(self.compute)
        torch.cuda.synchronize()
        window = origin.elapsed_time(end)
        times = [origin.elapsed_time(event) for event in done]
        inside = [t for t in times if t <= window]
        each = (inside[-1] - inside[0]) / (len(inside) - 1) if len(inside) > 1 else times[0]
        return window * 1e3 / self.products, each * 1e3, min(times[-1] / window, 1.0)

    def enough_reduces(self):
        """How many AllReduces last as long as the products beside them, on all ranks. The first
        round, which warms up, does not count."""
        self.refill()
        self.beside(4)
        reduces = 4
        while reduces < self.MOST:
            self.refill()
            covered = torch.tensor(self.beside(reduces)[2], device=DEVICE)
            dist.all_reduce(covered, op=dist.ReduceOp.MIN)
            if covered.item() >= 1:
                break
            reduces = math.ceil(reduces * 1.4)
        return math.ceil(reduces * 1.25)

    def steps_us(self):
        """A step starts PER_STEP products and one AllReduce, and ends when both have."""
        together()
        begin = mark(self.compute)
        for _ in range(self.STEPS):
            self.comm.wait_stream(self.compute)
            self.reduce()
            for _ in range(self.PER_STEP):
                self.product()
            self.compute.wait_stream(self.comm)
        end = mark(self.compute)
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e3 / self.STEPS

    def sample(self):
        self.refill()
        us = {"product alone": self.alone_us(self.compute, self.product, self.products),
              "AllReduce alone": self.alone_us(self.comm, self.reduce, self.ALONE)}
        us["product beside"], us["AllReduce beside"], covered = self.beside(self.reduces)
        us["step"] = self.steps_us()
        self.covered = min(self.covered, covered)
        self.judge()
        return us

    def check(self):
        return {"reduces": self.reduces, "covered": self.covered}

    def close(self):
        torch.cuda.synchronize()


serve({"overlap": Overlap})
