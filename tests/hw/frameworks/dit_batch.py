"""A batch job: forward passes of a diffusion transformer (random weights, bf16), one after the other, in kernels of
about a millisecond. Prints "ready", then for each pass a line of JSON: when it ended (CLOCK_MONOTONIC, s) and how many
there were; after --seconds, or at the end of its input, a last line with the passes a second over the whole time.
--small --device cpu tries the script itself without a GPU.
"""
import argparse
import json
import sys
import threading
import time

import torch
from torch.nn import functional

SIZES = {False: (1536, 24, 8, 8, 4096), True: (64, 2, 2, 1, 64)}  # small: width, heads, blocks, batch, tokens


class Block(torch.nn.Module):
    """Attention and feed-forward, each scaled and shifted by what a pass is conditioned on."""

    def __init__(self, width, heads, make):
        super().__init__()
        self.heads = heads
        self.condition = torch.nn.Linear(width, 4 * width, **make)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width, **make), torch.nn.Linear(width, width, **make)
        self.up, self.down = torch.nn.Linear(width, 4 * width, **make), torch.nn.Linear(4 * width, width, **make)
        self.norm = torch.nn.LayerNorm(width, elementwise_affine=False)

    def forward(self, x, step):
        batch, tokens, width = x.shape
        scale1, shift1, scale2, shift2 = self.condition(step)[:, None].chunk(4, -1)
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm(x) * (1 + scale1) + shift1).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(functional.gelu(self.up(self.norm(x) * (1 + scale2) + shift2)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    width, heads, blocks, batch, tokens = SIZES[given.small]
    make = dict(device=given.device, dtype=torch.float32 if given.device == "cpu" else torch.bfloat16)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    torch.manual_seed(0)
    with torch.no_grad():
        model = [Block(width, heads, make) for _ in range(blocks)]
        noise, step = torch.randn(batch, tokens, width, **make), torch.randn(batch, width, **make)

        def run_once():
            x = noise
            for block in model:
                x = block(x, step)
            return x.flatten()[0].item()  # waits for it

        for _ in range(3):
            run_once()
        print("ready", flush=True)
        begin, count = time.monotonic(), 0
        while not ended.is_set() and time.monotonic() - begin < given.seconds:
            run_once()
            count += 1
            print(json.dumps({"t": round(time.monotonic(), 4), "n": count}), flush=True)
        seconds = time.monotonic() - begin
    print(json.dumps({"passes": count, "seconds": round(seconds, 3), "per_s": round(count / seconds, 3)}), flush=True)


main()
