"""PyTorch sees the vGPU's memory, gets a torch.OutOfMemoryError beyond it, and goes on after that.

The argument bounds what it takes in bytes; "all" takes all it can get.
"""
import sys

import torch

PIECE = 64 << 20


def allocate(most):
    pieces = []
    while len(pieces) * PIECE < most:
        try:
            pieces.append(torch.ones(PIECE // 4, device="cuda"))
        except torch.OutOfMemoryError:
            break
    return pieces


def main(most):
    free, total = torch.cuda.mem_get_info()
    print("# mem_get_info_total", total)
    print("# mem_get_info_free", free)
    print("# device_total", torch.cuda.get_device_properties(0).total_memory)
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        print("1 TiB was given")
    except torch.OutOfMemoryError as error:
        print("1 TiB:", type(error).__name__)
    pieces = allocate(most)
    print("# got", len(pieces) * PIECE)
    pieces.pop()  # room for what a sum needs
    print("sums right:", all(piece.sum().item() == PIECE // 4 for piece in pieces))
    del pieces
    torch.cuda.empty_cache()
    torch.manual_seed(3)
    x = torch.randn(1024, 1024, device="cuda", dtype=torch.float64)
    print("went on", (x @ x).sum().item().hex())


main(float("inf") if sys.argv[1] == "all" else float(sys.argv[1]))
