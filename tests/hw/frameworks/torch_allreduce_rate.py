"""Sums over all GPUs with NCCL, again and again until stdin ends. Prints "ready", then every 0.1 s the time and the number
of rounds so far: TIME ROUNDS; at last whether all sums were right.
"""
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


def work(rank, world, port, ended):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    own = torch.arange(NUMBERS, device="cuda", dtype=torch.float32) % 1000 * (rank + 1)
    due = torch.arange(NUMBERS, device="cuda", dtype=torch.float32) % 1000 * (world * (world + 1) // 2)
    total, stop = own.clone(), torch.zeros(1, device="cuda")
    dist.all_reduce(total)
    torch.cuda.synchronize()
    rounds, told, right = 0, time.monotonic(), torch.ones((), device="cuda", dtype=torch.bool)
    if rank == 0:
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
    if rank == 0:
        print("right" if bool(right) else "WRONG", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    gpus = torch.cuda.device_count()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        chosen = free.getsockname()[1]
    over = mp.get_context("spawn").Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    mp.spawn(work, args=(gpus, chosen, over), nprocs=gpus)
