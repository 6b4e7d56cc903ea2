"""The same work again and again, with pauses, whose result must be the same each time: whoever stops and starts others
beside it must not change it.

  steady.py --seconds 20 [--pause-ms 30]    prints one line of JSON: rounds, wrong, and where the first wrong one differed
  steady.py --seconds 20 --busy             without pauses: the one that is stopped and started
"""
import argparse
import json
import random
import time

import torch

WIDTH, LAYERS, STEPS = 3072, 16, 8


class Work:
    def __init__(self, seed):
        torch.manual_seed(seed)
        make = dict(device="cuda", dtype=torch.bfloat16)
        scale = WIDTH ** -0.5
        self.layers = [torch.randn(WIDTH, WIDTH, **make) * scale for _ in range(LAYERS)]
        self.start = torch.randn(256, WIDTH, **make)
        self.x, self.out = torch.empty_like(self.start), torch.empty(STEPS, 256, WIDTH, **make)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._round()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._round()
        self.graph.replay()
        torch.cuda.synchronize()
        self.expected = self.out.clone()

    def _round(self):
        self.x.copy_(self.start)
        for step in range(STEPS):
            for layer in self.layers:
                self.x.copy_(torch.nn.functional.silu(self.x @ layer) * 1.5)
            self.out[step].copy_(self.x)

    def check(self):
        """The first step that differs and how many of its values do; None if all is as it was."""
        self.out.zero_()
        self.graph.replay()
        same = (self.out == self.expected).flatten(1).all(1)
        if bool(same.all()):
            return None
        step = int((~same).nonzero()[0])
        return step, int((self.out[step] != self.expected[step]).sum())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--pause-ms", type=float, default=30)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    work, source = Work(given.seed), random.Random(given.seed)
    print("ready", flush=True)
    rounds, wrong, first = 0, 0, None
    end = time.monotonic() + given.seconds
    while time.monotonic() < end:
        differs = work.check()
        rounds += 1
        wrong += differs is not None
        first = first or differs
        if not given.busy:
            time.sleep(source.uniform(0.5, 1.5) * given.pause_ms / 1e3)
    print(json.dumps({"rounds": rounds, "wrong": wrong, "first": first}), flush=True)


main()
