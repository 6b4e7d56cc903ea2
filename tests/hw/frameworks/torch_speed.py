"""A training job and an LLM decoder that wait for orders: for each line "train" or "decode" on standard input it does a
fixed amount of that work and prints the seconds it took.
"""
import sys
import time

import torch

TRAIN_STEPS, DECODE_TOKENS = 24, 600


class Block(torch.nn.Module):
    """One transformer layer; with `context`, attention reads keys and values of that many tokens from a cache."""

    def __init__(self, width, heads, context=None):
        super().__init__()
        self.heads, self.context = heads, context
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.out = torch.nn.Linear(width, width, bias=False)
        self.up = torch.nn.Linear(width, 4 * width, bias=False)
        self.down = torch.nn.Linear(4 * width, width, bias=False)
        self.norm1, self.norm2 = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)
        if context:
            for name in ("keys", "values"):
                self.register_buffer(name, torch.zeros(1, heads, context, width // heads))

    def forward(self, x, position=None):
        batch, tokens, width = x.shape
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm1(x)).chunk(3, -1))
        mask = None
        if self.context:
            k, v = self.keys.index_copy_(2, position, k), self.values.index_copy_(2, position, v)
            mask = (torch.arange(self.context, device=x.device) <= position)[None, None, None]
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=not self.context)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


def make_trainer():
    with torch.device("cuda"):
        model = torch.nn.Sequential(*[Block(1024, 16) for _ in range(12)])
        x, y = torch.randn(8, 512, 1024), torch.randn(8, 512, 1024)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def train():
        for _ in range(TRAIN_STEPS):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", torch.bfloat16):
                loss = torch.nn.functional.mse_loss(model(x).float(), y)
            loss.backward()
            optimizer.step()
            loss.item()  # as jobs that log their loss do

    return train


def make_decoder(width=2048, layers=16, heads=16, vocabulary=32000, context=1024):
    with torch.device("cuda"):
        blocks = torch.nn.ModuleList([Block(width, heads, context) for _ in range(layers)]).bfloat16()
        embed = torch.nn.Embedding(vocabulary, width).bfloat16()
        head = torch.nn.Linear(width, vocabulary, bias=False).bfloat16()
        token, position = torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long)

    def step():
        x = embed(token)
        for block in blocks:
            x = block(x, position)
        token.copy_(head(x[:, -1]).argmax(-1, keepdim=True))
        position.add_(1)

    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step(), step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()

    def decode():
        position.zero_()
        for _ in range(DECODE_TOKENS):
            graph.replay()
            token.item()  # a server sends each token when it has it

    return decode


def main():
    torch.manual_seed(0)
    work = {"train": make_trainer(), "decode": make_decoder()}
    for run in work.values():
        run()
    print("ready", flush=True)
    for line in sys.stdin:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work[line.strip()]()
        torch.cuda.synchronize()
        print(time.perf_counter() - begin, flush=True)


main()
