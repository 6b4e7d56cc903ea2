"""Sums over all GPUs with NCCL, one process for each, which waits on its GPU for the others: torch_allreduce.py ROUNDS

Prints the sum of the last round, and on stderr the seconds that the rounds took.
"""
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

NUMBERS = 4 << 20  # small enough for their sums to be exact


def work(rank, world, port, rounds):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    own = torch.arange(NUMBERS, device="cuda", dtype=torch.float32) % 1000 * (rank + 1)
    total = own.clone()
    dist.all_reduce(total)
    torch.cuda.synchronize()
    began = time.monotonic()
    for _ in range(rounds):
        total.copy_(own)
        dist.all_reduce(total)
    torch.cuda.synchronize()
    if rank == 0:
        due = torch.arange(NUMBERS, device="cuda", dtype=torch.float32) % 1000 * (world * (world + 1) // 2)
        print("sum of", world, "GPUs", "right" if torch.equal(total, due) else "WRONG", total.double().sum().item().hex(),
              flush=True)
        print(f"{time.monotonic() - began:.3f} s", file=sys.stderr)
    dist.destroy_process_group()


if __name__ == "__main__":
    gpus = torch.cuda.device_count()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        chosen = free.getsockname()[1]
    mp.spawn(work, args=(gpus, chosen, int(sys.argv[1])), nprocs=gpus)
