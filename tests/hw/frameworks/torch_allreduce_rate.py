"""Sums over all GPUs with NCCL, again and again until stdin ends. Prints "ready", then every 0.1 s the time and the number
of rounds so far: TIME ROUNDS; at last whether all sums were right. Starts a process for each GPU.

  torch_allreduce_rate.py RANK WORLD PORT

is one of WORLD processes that others start, each on a GPU that it sees. All end when the stdin of rank 0 does, and say
"ready" and whether their sums were right.
"""
import datetime
import os
import socket
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

NUMBERS = 4 << 20  # small enough for their sums to be exact
BATCH = 20         # rounds between looks
LIMIT = datetime.timedelta(seconds=120)  # of a round, and for all ranks to come


def work(rank, world, port, ended, talks=None):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    talks = rank == 0 if talks is None else talks
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=device, timeout=LIMIT)
    own = torch.arange(NUMBERS, device="cuda", dtype=torch.float32) % 1000 * (rank + 1)
    due = torch.arange(NUMBERS, device="cuda", dtype=torch.float32) % 1000 * (world * (world + 1) // 2)
    total, stop = own.clone(), torch.zeros(1, device="cuda")
    dist.all_reduce(total)
    torch.cuda.synchronize()
    rounds, told, right = 0, time.monotonic(), torch.ones((), device="cuda", dtype=torch.bool)
    if talks:
        print("ready", flush=True)
    while True:
        for _ in range(BATCH):
            total.copy_(own)
            dist.all_reduce(total)
        right &= (total == due).all()
        stop.fill_(1.0 if rank == 0 and ended.is_set() else 0.0)
        dist.all_reduce(stop)  # all end after the same round
        ends = bool(stop.item())
        rounds += BATCH
        now = time.monotonic()
        if rank == 0 and now - told >= 0.1:
            told = now
            print(now, rounds, flush=True)
        if ends:
            break
    if talks:
        print("right" if bool(right) else "WRONG", flush=True)
    dist.destroy_process_group()


def all_ranks(ended):
    gpus = torch.cuda.device_count()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, args=(gpus, port, ended), nprocs=gpus)


if __name__ == "__main__":
    own_rank, *others = map(int, sys.argv[1:]) if len(sys.argv) > 1 else [0]
    over = mp.get_context("spawn").Event()
    if own_rank == 0:
        threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    if others:
        work(own_rank, *others, over, True)
    else:
        all_ranks(over)
