"""AdamW steps of a small attention model in float32, deterministic: torch_train.py eager|graph|compile [STEPS]

Twenty of them unless it says otherwise. Prints the losses and a checksum of all parameters, bit for bit.
"""
import hashlib
import sys

import torch

WIDTH, HEADS, TOKENS, BATCH, BATCHES = 256, 8, 64, 16, 20


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)

    def forward(self, x):
        shape = (BATCH, TOKENS, HEADS, WIDTH // HEADS)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        weights = (q @ k.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(BATCH, TOKENS, WIDTH))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


def main(mode, steps=BATCHES):
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    model = torch.nn.Sequential(*[Block() for _ in range(3)], torch.nn.Linear(WIDTH, WIDTH)).cuda()
    inputs = torch.randn(BATCHES, BATCH, TOKENS, WIDTH)
    targets = torch.randn(BATCHES, BATCH, TOKENS, WIDTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=mode == "graph")
    forward = torch.compile(model) if mode == "compile" else model

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(forward(x), y)
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    if mode == "graph":
        x, y = inputs[0].cuda(), targets[0].cuda()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step(x, y)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step(x, y)
        for i in range(steps):
            x.copy_(inputs[i % BATCHES])
            y.copy_(targets[i % BATCHES])
            graph.replay()
            losses.append(captured.item())
    else:
        for i in range(steps):
            losses.append(step(inputs[i % BATCHES].cuda(), targets[i % BATCHES].cuda()).item())

    for i, loss in enumerate(losses):
        print(f"loss {i} {loss.hex()}")
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    print("parameters", digest.hexdigest())


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
