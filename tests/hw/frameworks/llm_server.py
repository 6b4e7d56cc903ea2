"""An LLM server: a decoder of some three billion parameters (random weights, bf16) that answers one request at a time,
each a prompt and then token after token, with a synchronisation after every token, as servers have it. Requests arrive
by a Poisson process and queue.

By itself it measures how long a request takes alone, and then serves at the given part of that load:
  llm_server.py --load 60 --seconds 20            prefill and decode as CUDA graphs; --eager: plain launches
With --orders it prints "ready" and takes orders from standard input, each answered with one line of JSON:
  calibrate N             {"service_s": median time of a request, of N in a row}
  serve RATE SECONDS SEED requests a second, as below
What serving prints: begin and end (CLOCK_MONOTONIC, s), requests, unserved, wrong (answers unlike the first), busy_s
(time in which a request was served), ttft_ms (arrival to first token) and token_ms (between tokens), p50, p90 and p99.
A request that came and was not begun within the time counts in ttft_ms with the time that it had waited: too little.
--small --device cpu tries the script itself without a GPU.
"""
import argparse
import json
import os
import random
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS computes repeatably, before torch loads it

import torch
from torch.nn import functional

VOCABULARY, PROMPT, ANSWER = 32000, 256, 32
SIZES = {False: (3072, 24, 28), True: (64, 2, 2)}  # small: width, heads, layers


class Layer(torch.nn.Module):
    """Attention over a cache of so many tokens and a gated feed-forward part."""

    def __init__(self, width, heads, context, make):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False, **make)
        self.out = torch.nn.Linear(width, width, bias=False, **make)
        self.gate_up = torch.nn.Linear(width, 5 * width, bias=False, **make)
        self.down = torch.nn.Linear(5 * width // 2, width, bias=False, **make)
        self.norm1, self.norm2 = torch.nn.LayerNorm(width, **make), torch.nn.LayerNorm(width, **make)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, heads, context, width // heads, **make))

    def forward(self, x, positions, mask):
        batch, tokens, width = x.shape
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).chunk(3, -1))
        k, v = self.keys.index_copy_(2, positions, k), self.values.index_copy_(2, positions, v)
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up)


class Model:
    """Prefill and decode of one request; the token and its position stay on the device."""

    def __init__(self, device, small, graphs):
        width, heads, layers = SIZES[small]
        context = PROMPT + ANSWER + 8
        torch.manual_seed(0)
        make = dict(device=device, dtype=torch.float32 if device == "cpu" else torch.bfloat16)
        self.layers = [Layer(width, heads, context, make) for _ in range(layers)]
        self.embedding = torch.nn.Embedding(VOCABULARY, width, **make)
        self.head = torch.nn.Linear(width, VOCABULARY, bias=False, **make)
        self.columns = torch.arange(context, device=device)
        self.prompt = torch.randint(0, VOCABULARY, (1, PROMPT), device=device)
        self.prompt_positions = torch.arange(PROMPT, device=device)
        self.token = torch.zeros(1, 1, dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.prefill, self.decode = self._prefill, self._decode
        if graphs:
            self.prefill, self.decode = self._captured(self._prefill), self._captured(self._decode)

    def _step(self, ids, positions):
        mask = (self.columns[None, :] <= positions[:, None])[None, None]
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, positions, mask)
        return self.head(x[:, -1]).argmax(-1, keepdim=True)

    def _prefill(self):
        self.position.fill_(PROMPT)
        self.token.copy_(self._step(self.prompt, self.prompt_positions))

    def _decode(self):
        self.token.copy_(self._step(self.token, self.position))
        self.position.add_(1)

    def _captured(self, work):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.position.fill_(PROMPT)
            work(), work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay

    def request(self):
        """(time of the first token, times between the further tokens, the tokens), of one request; times in s."""
        began = time.monotonic()
        self.prefill()
        tokens, last = [self.token.item()], time.monotonic()
        first, gaps = last - began, []
        for _ in range(ANSWER):
            self.decode()
            tokens.append(self.token.item())
            now = time.monotonic()
            gaps.append(now - last)
            last = now
        return first, gaps, tokens


def percentiles(seconds):
    ordered = sorted(seconds)
    return {f"p{p}": round(ordered[min(len(ordered) - 1, len(ordered) * p // 100)] * 1e3, 3) for p in (50, 90, 99)} \
        if ordered else None


class Server:
    def __init__(self, model):
        self._model = model
        for _ in range(3):
            _, _, self._tokens = model.request()

    def calibrate(self, count):
        times = []
        for _ in range(count):
            began = time.monotonic()
            self._model.request()
            times.append(time.monotonic() - began)
        return sorted(times)[count // 2]

    def serve(self, rate, seconds, seed):
        source = random.Random(seed)
        # A Poisson process of which we know how many it will be: so the load is what was asked for, whatever the seed.
        arrivals = sorted(source.uniform(0, seconds) for _ in range(max(1, round(rate * seconds))))
        ttft, gaps, busy, wrong = [], [], 0.0, 0
        begin = time.monotonic()
        end = begin + seconds
        for arrival in arrivals:
            time.sleep(max(0.0, begin + arrival - time.monotonic()))
            began = time.monotonic()
            if began >= end:
                break
            first, between, tokens = self._model.request()
            ttft.append(began - begin - arrival + first)
            gaps += between
            busy += min(time.monotonic(), end) - began
            if tokens != self._tokens:
                wrong += 1
                where = next(i for i, (a, b) in enumerate(zip(tokens, self._tokens)) if a != b)
                print(f"request {len(ttft)} at {began - begin:.3f} s: token {where} is {tokens[where]}, not "
                      f"{self._tokens[where]}", file=sys.stderr, flush=True)
        served = len(ttft)
        ttft += [seconds - arrival for arrival in arrivals[served:]]  # those still in the queue
        time.sleep(max(0.0, end - time.monotonic()))
        return {"begin": begin, "end": end, "rate": rate, "requests": served, "unserved": len(arrivals) - served,
                "wrong": wrong, "busy_s": round(busy, 3), "ttft_ms": percentiles(ttft), "token_ms": percentiles(gaps)}


def main():
    parser = argparse.ArgumentParser()
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--graphs", action="store_true", help="the default")
    how.add_argument("--eager", action="store_true")
    parser.add_argument("--load", type=float, default=60, help="percent of what it can serve")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--orders", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    with torch.no_grad():
        server = Server(Model(given.device, given.small, not given.eager and given.device == "cuda"))
        if not given.orders:
            service = server.calibrate(15)
            served = server.serve(given.load / 100 / service, given.seconds, given.seed)
            print(json.dumps({"service_s": service, **served}))
            return
        print("ready", flush=True)
        for line in sys.stdin:
            order, *numbers = line.split()
            if order == "calibrate":
                answer = {"service_s": server.calibrate(int(numbers[0]))}
            else:
                answer = server.serve(float(numbers[0]), float(numbers[1]), int(numbers[2]))
            print(json.dumps(answer), flush=True)


main()
