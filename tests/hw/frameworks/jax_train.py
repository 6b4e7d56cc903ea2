"""JAX: a network trained under jit, and integers through matmul, sort and scan. By default JAX first takes three
quarters of the GPU's memory for itself. jax_train.py [TIMES] does all of it so often, and tells the losses once.

XLA chooses matmul algorithms by timing them, so floating-point losses are compared to four digits; the integers are
small enough that every algorithm gives the same.
"""
import hashlib
import sys

import jax
import jax.numpy as jnp
import numpy as np


def loss(weights, x, y):
    for w in weights[:-1]:
        x = jnp.tanh(x @ w)
    return jnp.mean((x @ weights[-1] - y) ** 2)


@jax.jit
def step(weights, x, y):
    value, slopes = jax.value_and_grad(loss)(weights, x, y)
    return [w - 0.05 * s for w, s in zip(weights, slopes)], value


@jax.jit
def integers(a):
    product = (a @ a.T).astype(jnp.int32)
    mixed = jnp.sort(product, axis=1)[:, ::-1].cumsum(axis=0)
    return jax.lax.scan(lambda carry, row: (carry * 31 + row, carry[0]), mixed[0], mixed)


def once(rng, tells_losses):
    weights = [jnp.asarray(rng.standard_normal((256, 256)) / 16, jnp.float32) for _ in range(4)]
    x, y = (jnp.asarray(rng.standard_normal((512, 256)), jnp.float32) for _ in range(2))
    with jax.default_matmul_precision("highest"):
        for i in range(30):
            weights, value = step(weights, x, y)
            if tells_losses and i % 5 == 0:
                print("loss", i, f"{float(value):.3e}")
    parts = integers(jnp.asarray(rng.integers(0, 16, (512, 256)), jnp.float32))
    print("integers", hashlib.sha256(b"".join(np.asarray(part).tobytes() for part in parts)).hexdigest())


def main(times=1):
    print("platform", jax.devices()[0].platform)
    rng = np.random.default_rng(2)
    for n in range(times):
        once(rng, tells_losses=n == 0)
    print("# bytes_limit", jax.devices()[0].memory_stats()["bytes_limit"])


main(*map(int, sys.argv[1:]))
