"""PyTorch with gigabytes of tensors that change, go and come in all sizes, beside a model that learns:
torch_large.py [ROUNDS [GIB]]

Prints sums of all tensors, which are integers, and losses, bit for bit. What the allocator keeps goes back now and then.
"""
import random
import sys

import torch

SIZES = [mib << 20 for mib in (1, 2, 11, 20, 65, 130, 514)]
CHANGES, EXCHANGES = 6, 2  # tensors, in a round
EMPTY_EVERY, TELL_EVERY = 100, 250  # rounds


def tensor(size, seed):
    return torch.arange(seed, seed + size // 8, dtype=torch.int64, device="cuda")


def main(rounds=5000, gib=6):
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    dice = random.Random(1)
    kept = []
    while sum(each.numel() * 8 for each in kept) < gib << 30:
        kept.append(tensor(dice.choice(SIZES), len(kept)))
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(256, 512).cuda()
    for n in range(rounds):
        for _ in range(CHANGES):
            dice.choice(kept).mul_(3).add_(n)
        for _ in range(EXCHANGES):
            i = dice.randrange(len(kept))
            size = kept[i].numel() * 8
            kept[i] = None
            kept[i] = tensor(size, n)
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(x), x)
        loss.backward()
        optimizer.step()
        if n % EMPTY_EVERY == EMPTY_EVERY - 1:
            torch.cuda.empty_cache()
        if n % TELL_EVERY == TELL_EVERY - 1:
            print(f"round {n} loss {loss.item().hex()} sum {sum(each.sum().item() for each in kept)}", flush=True)


main(*map(int, sys.argv[1:]))
