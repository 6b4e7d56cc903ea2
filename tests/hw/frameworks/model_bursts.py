"""The four models of KRYPTON's mixes, with random weights, that work in bursts when they are told. A burst is one batch of
inference, from the input in host memory to the answer there, or one step of training with its loss read. Eager, as most
programs run. Orders on stdin, an answer of one line of JSON for each:
  build MODEL infer|train            makes the model, in place of the one before
  prepare MODEL infer|train BATCH    makes inputs (and optimizer) of that model, works a little    burst_s, memory_mib
  run BEGIN END                      works until END (CLOCK_MONOTONIC, seconds)    bursts between the two, p50_s, p99_s
  drop                               frees what prepare made, but not the model
MODEL "Stream" copies memory, so fast as it can: a burst moves `bytes`. An order that fails has the answer {"error": …}.
--precision half: inference in fp16, training with bf16 autocast. single: fp32, with PyTorch's defaults.
--small --device cpu tries the script itself without a GPU.
"""
import argparse
import gc
import json
import sys
import time
import types

import torch

WARM_BURSTS, WARM_S = 3, 0.25
# The lengths by which the memory and the speed that KRYPTON tells of its models come out, in fp32 on an A100.
TOKENS = 384  # of BERT's inputs
SEGMENT, MEMORY_TOKENS = 128, 128  # of Transformer-XL's inputs, and what its attention reads besides
STREAM_BYTES, STREAM_COPIES = 256 << 20, 8
CLASSES = 1000


class Tiny(torch.nn.Module):
    """Stands for a model where only the script is tried."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, inputs):
        return self.layer(inputs)


def _resnet50():
    from transformers import ResNetConfig, ResNetForImageClassification
    return ResNetForImageClassification(ResNetConfig(num_labels=CLASSES))  # the defaults are those of ResNet-50


def _mobilenet_v2():
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification
    return MobileNetV2ForImageClassification(MobileNetV2Config(num_labels=CLASSES, tf_padding=False))


def _bert_large():
    from transformers import BertConfig, BertForSequenceClassification
    return BertForSequenceClassification(BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
                                                    intermediate_size=4096))


class XlLayer(torch.nn.Module):
    """A layer of Transformer-XL: attention to the segment and to what came before it, by distance."""

    def __init__(self, width, heads, inner, drop=0.2):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.q, self.r, self.out = (torch.nn.Linear(width, width, bias=False) for _ in range(3))
        self.kv = torch.nn.Linear(width, 2 * width, bias=False)
        self.content_bias, self.place_bias = (torch.nn.Parameter(torch.zeros(heads, 1, width // heads)) for _ in range(2))
        self.up, self.down = torch.nn.Linear(width, inner), torch.nn.Linear(inner, width)
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.drop = torch.nn.Dropout(drop)

    def _split(self, x):
        return x.view(*x.shape[:-1], self.heads, -1).transpose(-3, -2)

    @staticmethod
    def _shift(scores):
        """Row i of the scores by distance, moved so that a column is a key: each row one further than the one before."""
        batch, heads, rows, keys = scores.shape
        padded = torch.nn.functional.pad(scores, (1, 0)).view(batch, heads, keys + 1, rows)
        return padded[:, :, 1:].reshape(batch, heads, rows, keys)

    def forward(self, x, memory, places, mask):
        q = self._split(self.q(x))
        k, v = (self._split(part) for part in self.kv(torch.cat([memory, x], 1)).chunk(2, -1))
        r = self._split(self.r(places))
        content = (q + self.content_bias) @ k.transpose(-1, -2)
        place = self._shift((q + self.place_bias) @ r.transpose(-1, -2))
        weights = ((content + place) * self.scale).masked_fill(mask, float("-inf")).softmax(-1)
        attended = (self.drop(weights) @ v).transpose(1, 2).flatten(2)
        x = self.norm1(x + self.drop(self.out(attended)))
        return self.norm2(x + self.drop(self.down(self.drop(torch.relu(self.up(x))))))


class TransformerXl(torch.nn.Module):
    """The size of that paper's large model, but a plain vocabulary of 32,000: transformers has the model no more."""

    def __init__(self, layers=18, width=1024, heads=16, inner=4096, vocabulary=32000):
        super().__init__()
        self.width, self.embed = width, torch.nn.Embedding(vocabulary, width)
        self.layers = torch.nn.ModuleList(XlLayer(width, heads, inner) for _ in range(layers))
        self.head = torch.nn.Linear(width, vocabulary)
        self.memories = None

    def remember_nothing(self, batch, dtype):
        device = self.embed.weight.device
        self.memories = [torch.zeros(batch, MEMORY_TOKENS, self.width, dtype=dtype, device=device) for _ in self.layers]

    def forward(self, input_ids, labels=None):
        x = self.embed(input_ids)
        rows, keys = x.shape[1], x.shape[1] + MEMORY_TOKENS
        distance = torch.arange(keys - 1, -1, -1.0, device=x.device)
        angles = distance[:, None] / 10000 ** (torch.arange(0, self.width, 2.0, device=x.device) / self.width)
        places = torch.cat([angles.sin(), angles.cos()], -1).to(x.dtype)
        mask = torch.ones(rows, keys, dtype=torch.bool, device=x.device).triu(MEMORY_TOKENS + 1)
        for number, layer in enumerate(self.layers):
            memory = self.memories[number]
            self.memories[number] = torch.cat([memory, x.detach().to(memory.dtype)], 1)[:, rows:]
            x = layer(x, memory, places, mask)
        logits = self.head(x)
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
        return types.SimpleNamespace(logits=logits, loss=loss)


MODELS = {"ResNet50": _resnet50, "MobileNetV2": _mobilenet_v2, "BERT-Large": _bert_large, "Transformer-XL": TransformerXl}


class Program:
    def __init__(self, device, half, small):
        self.device, self.half, self.small = device, half, small
        self.built = self.model = self.burst = None

    # Orders

    def build(self, name, mode):
        if self.built == (name, mode) or name == "Stream":
            return {}
        self.drop()
        self.built = self.model = None
        self._forget()
        if self.small:
            model = Tiny()
        else:
            with torch.device(self.device):
                model = MODELS[name]()
        if self.half and mode == "infer" and not self.small:
            model = model.half()
        self.model = model.train() if mode == "train" else model.eval()
        self.built = (name, mode)
        return {}

    def prepare(self, name, mode, batch):
        self.build(name, mode)
        self._forget()
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        if name == "Stream":
            self.burst = self._stream()
        else:
            inputs, labels = self._inputs(name, mode, int(batch))
            self.burst = self._training(name, inputs, labels) if mode == "train" else self._inference(inputs)
        ends = [time.monotonic()]
        while len(ends) <= WARM_BURSTS or ends[-1] - ends[0] < WARM_S:
            self.burst()
            ends.append(time.monotonic())
        memory = torch.cuda.max_memory_reserved() if self.device == "cuda" else 0
        told = {"burst_s": (ends[-1] - ends[-3]) / 2, "memory_mib": -(-memory // (1 << 20))}
        return {**told, "bytes": 2 * STREAM_BYTES * STREAM_COPIES} if name == "Stream" else told

    def run(self, begin, end):
        """Bursts are counted in parts: between two ends the count grows evenly."""
        begin, end = float(begin), float(end)
        ends = [time.monotonic()]
        while ends[-1] < end:
            self.burst()
            ends.append(time.monotonic())
        lengths = sorted(b - a for a, b in zip(ends, ends[1:]) if b > begin)
        if not lengths or ends[0] > begin:
            return {"error": "it began too late"}
        return {"bursts": self._count(ends, end) - self._count(ends, begin), "p50_s": lengths[len(lengths) // 2],
                "p99_s": lengths[min(len(lengths) - 1, int(len(lengths) * 0.99))]}

    def drop(self):
        self.burst = None
        if self.model is not None:
            self.model.memories = None
            self.model.zero_grad(set_to_none=True)
        self._forget()
        return {}

    # How

    @staticmethod
    def _count(ends, moment):
        for i, (a, b) in enumerate(zip(ends, ends[1:])):
            if a <= moment <= b:
                return i + (moment - a) / (b - a)
        return len(ends) - 1

    def _forget(self):
        gc.collect()
        if self.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()

    def _host(self, tensor):
        """Pinned, as loaders of data do."""
        return tensor.pin_memory() if self.device == "cuda" else tensor

    def _inputs(self, name, mode, batch):
        """({name: tensor} in host memory, labels on the GPU)."""
        single = torch.float16 if self.half and mode == "infer" else torch.float32
        if self.small:
            return {"inputs": torch.randn(batch, 64)}, torch.zeros(batch, dtype=torch.long)
        if name in ("ResNet50", "MobileNetV2"):
            return ({"pixel_values": self._host(torch.randn(batch, 3, 224, 224, dtype=single))},
                    torch.randint(CLASSES, (batch,), device=self.device))
        if name == "BERT-Large":
            return ({"input_ids": self._host(torch.randint(1000, 30000, (batch, TOKENS)))},
                    torch.randint(2, (batch,), device=self.device))
        self.model.remember_nothing(batch, single)
        tokens = torch.randint(1000, 30000, (batch, SEGMENT))
        return {"input_ids": self._host(tokens)}, tokens.to(self.device)

    def _forward(self, inputs, **more):
        given = {key: value.to(self.device, non_blocking=True) for key, value in inputs.items()}
        return self.model(**given, **more)

    def _inference(self, inputs):
        def burst():
            with torch.inference_mode():
                answer = self._forward(inputs)
                logits = answer if self.small else answer.logits
                return logits.argmax(-1).cpu()  # waits for it

        return burst

    def _training(self, name, inputs, labels):
        image = name in ("ResNet50", "MobileNetV2")
        optimizer = (torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9) if image
                     else torch.optim.AdamW(self.model.parameters(), lr=1e-5))

        def burst():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(self.device, torch.bfloat16, enabled=self.half and not self.small):
                loss = self._forward(inputs).square().mean() if self.small else self._forward(inputs, labels=labels).loss
            loss.backward()
            optimizer.step()
            return loss.item()  # as jobs that log their loss do

        return burst

    def _stream(self):
        size = 1 << 20 if self.small else STREAM_BYTES
        a, b = (torch.zeros(size, dtype=torch.uint8, device=self.device) for _ in range(2))

        def burst():
            for _ in range(STREAM_COPIES):
                # Words of 4 bytes and a sum, so that it is a kernel on the SMs and no engine that copies
                torch.add(a.view(torch.int32), 1, out=b.view(torch.int32))
            if self.device == "cuda":
                torch.cuda.synchronize()

        return burst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=("half", "single"), default="half")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # there are many of us, and the processor has little to do
    if not given.small:
        import transformers
        transformers.logging.set_verbosity_error()
        from transformers import (BertForSequenceClassification, MobileNetV2ForImageClassification,  # noqa: F401  (takes long)
                                  ResNetForImageClassification)
    program = Program(given.device, given.precision == "half", given.small)
    print("ready", flush=True)
    for line in sys.stdin:
        order, *words = line.split()
        try:
            answer = {"build": program.build, "prepare": program.prepare, "run": program.run, "drop": program.drop}[order](*words)
        except Exception as error:  # the other workloads can still be measured
            answer = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
        print(json.dumps(answer), flush=True)


main()
