"""A training loop fed by a DataLoader with four workers, started by fork or by spawn.

Forked workers stay on the CPU, as they must; spawned ones compute on the GPU, each with a context of its own.
"""
import sys

import torch


class Squares(torch.utils.data.Dataset):
    def __init__(self, on_gpu):
        self.on_gpu = on_gpu

    def __len__(self):
        return 256

    def __getitem__(self, index):
        x = torch.arange(128, dtype=torch.float64) * index
        if self.on_gpu:
            return (x.cuda() ** 2).cpu()
        return x**2


def main(start):
    torch.cuda.init()
    torch.ones(1, device="cuda")
    loader = torch.utils.data.DataLoader(Squares(start == "spawn"), batch_size=16, num_workers=4,
                                         pin_memory=True, persistent_workers=True, multiprocessing_context=start)
    total = torch.zeros(128, dtype=torch.float64, device="cuda")
    for epoch in range(2):
        for batch in loader:
            total += batch.cuda(non_blocking=True).sum(0)
        print("epoch", epoch, total.sum().item().hex())


if __name__ == "__main__":
    main(sys.argv[1])
