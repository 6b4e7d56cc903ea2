"""A job on all GPUs that it sees, in one process, with much memory on each: torch_jobs.py BYTES

It has BYTES of whole numbers on each GPU. A round changes all of them, in place, then sums up a part of them over the GPUs
with NCCL and compares the sums. Says "ready PID SECONDS" and does what the lines on stdin say, as swap.cc does (times are
those of CLOCK_MONOTONIC):
  pass N    N rounds; "round N" every second meanwhile    passed BEGIN FIRST END    FIRST: the first round's end
  check     compares all memory, and counts wrong sums    checked WRONG
"""
import os
import sys
import time

import torch
from torch.cuda import nccl

BLOCK = 1 << 28    # numbers of 4 bytes in a tensor
TILE = 16 << 20    # that are compared at a time
SUMMED = 4 << 20   # of the first tensor
FACTOR, ODD = 3, 2654435761


def number(value):
    """As 4 bytes with a sign have it. All arithmetic is modulo 2^32, so that it is exact."""
    value %= 1 << 32
    return value - (1 << 32) if value >= 1 << 31 else value


class Gpu:
    """Its number at i in a tensor is (i + seed) * factor + added, with factor and added of the job."""

    def __init__(self, index, count):
        self.device = torch.device("cuda", index)
        self.blocks, self.seeds = [], []
        self.total = torch.zeros(SUMMED, dtype=torch.int32, device=self.device)
        self.base = torch.arange(TILE, dtype=torch.int32, device=self.device)
        self.wrong_sums = torch.zeros((), dtype=torch.int64, device=self.device)
        self.count = count

    def plant(self):
        for at in range(0, self.count, BLOCK):
            self.seeds.append((self.device.index * 1000 + len(self.blocks)) * ODD)
            block = torch.arange(min(BLOCK, self.count - at), dtype=torch.int32, device=self.device)
            self.blocks.append(block.add_(number(self.seeds[-1])))

    def change(self, added):
        for block in self.blocks:
            block.mul_(FACTOR).add_(added)
        self.total.copy_(self.blocks[0][:SUMMED])

    def compare_sum(self, factor, added):
        """With base * factor + added."""
        due = (self.base[:SUMMED] * number(factor)).add_(number(added))
        self.wrong_sums += (self.total != due).sum()

    def wrong(self, factor, added):
        found = self.wrong_sums.clone()
        due = self.base * number(factor)
        for block, seed in zip(self.blocks, self.seeds):
            for at in range(0, block.numel(), TILE):
                tile = block[at:at + TILE]
                found += (tile != due[:tile.numel()] + number((at + seed) * factor + added)).sum()
        return int(found.item())


class Job:
    def __init__(self, bytes_):
        self.gpus = [Gpu(index, bytes_ // 4) for index in range(torch.cuda.device_count())]
        self.rounds, self.factor, self.added = 0, 1, 0
        self.sum_up()  # makes the connections
        for gpu in self.gpus:
            gpu.plant()
        self.synchronize()

    def sum_up(self):
        nccl.all_reduce([gpu.total for gpu in self.gpus])

    def synchronize(self):
        for gpu in self.gpus:
            torch.cuda.synchronize(gpu.device)

    def round(self):
        self.rounds += 1
        self.factor = self.factor * FACTOR % (1 << 32)
        self.added = (self.added * FACTOR + self.rounds) % (1 << 32)
        for gpu in self.gpus:
            with torch.cuda.device(gpu.device):
                gpu.change(self.rounds)
        self.sum_up()
        seeds = sum(gpu.seeds[0] for gpu in self.gpus)
        for gpu in self.gpus:
            with torch.cuda.device(gpu.device):
                gpu.compare_sum(self.factor * len(self.gpus), seeds * self.factor + self.added * len(self.gpus))
        self.synchronize()

    def rounds_in_a_row(self, count):
        begin = told = time.monotonic()
        first = None
        for done in range(1, count + 1):
            self.round()
            now = time.monotonic()
            first = first or now
            if now - told >= 1:
                told = now
                print("round", done, flush=True)
        print(f"passed {begin:.6f} {first:.6f} {time.monotonic():.6f}", flush=True)

    def wrong(self):
        return sum(gpu.wrong(self.factor, self.added) for gpu in self.gpus)


if __name__ == "__main__":
    started = time.monotonic()
    job = Job(int(sys.argv[1]))
    print("ready", os.getpid(), f"{time.monotonic() - started:.6f}", flush=True)
    for line in sys.stdin:
        order = line.split()
        if order[0] == "pass":
            job.rounds_in_a_row(int(order[1]))
        else:
            print("checked", job.wrong(), flush=True)
