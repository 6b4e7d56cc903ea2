"""A tensor on the GPU that two processes share by PyTorch's own queues, and change in turn: torch_share.py ROUNDS

Prints whether it holds at the end what it must: exactly, since the numbers are whole.
"""
import sys

import torch
import torch.multiprocessing as mp

NUMBERS = 16 << 20  # 64 MiB
DIFFERENT = 65521  # numbers, again and again


def work(tensors, turns, done):
    shared = tensors.get()
    while turns.get():
        shared.mul_(3).add_(1).remainder_(DIFFERENT)
        torch.cuda.synchronize()
        done.put(True)
    del shared  # before its owner ends


def main(rounds):
    context = mp.get_context("spawn")
    tensors, turns, done = context.Queue(), context.Queue(), context.Queue()
    child = context.Process(target=work, args=(tensors, turns, done))
    child.start()
    shared = torch.arange(NUMBERS, device="cuda", dtype=torch.int32) % DIFFERENT
    tensors.put(shared)
    expected = torch.arange(DIFFERENT)
    for _ in range(rounds):
        torch.cuda.synchronize()
        turns.put(True)
        done.get(timeout=60)
        shared.add_(7)
        expected = (expected * 3 + 1) % DIFFERENT + 7
    torch.cuda.synchronize()
    right = torch.equal(shared.cpu().long(), expected[torch.arange(NUMBERS) % DIFFERENT])
    print("right" if right else "WRONG", expected.sum().item())
    turns.put(False)
    child.join(30)
    print("child ended with", child.exitcode)


if __name__ == "__main__":
    main(int(sys.argv[1]))
