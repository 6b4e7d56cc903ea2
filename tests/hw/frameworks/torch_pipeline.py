"""AdamW steps of the model of torch_train.py in two halves, one on each of two GPUs: torch_pipeline.py [STEPS]

Activations and gradients go from GPU to GPU. Prints the losses and a checksum of all parameters, bit for bit.
"""
import hashlib
import sys

import torch
from torch_train import BATCH, BATCHES, TOKENS, WIDTH, Block


def main(steps=BATCHES):
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    first = torch.nn.Sequential(Block(), Block()).to("cuda:0")
    second = torch.nn.Sequential(Block(), torch.nn.Linear(WIDTH, WIDTH)).to("cuda:1")
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    inputs = torch.randn(BATCHES, BATCH, TOKENS, WIDTH)
    targets = torch.randn(BATCHES, BATCH, TOKENS, WIDTH)
    losses = []
    for i in range(steps):
        optimizer.zero_grad(set_to_none=True)
        halfway = first(inputs[i % BATCHES].to("cuda:0"))
        loss = torch.nn.functional.mse_loss(second(halfway.to("cuda:1")), targets[i % BATCHES].to("cuda:1"))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    for i, loss in enumerate(losses):
        print(f"loss {i} {loss.hex()}")
    digest = hashlib.sha256()
    for parameter in parameters:
        digest.update(parameter.detach().cpu().numpy().tobytes())
    print("parameters", digest.hexdigest())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
