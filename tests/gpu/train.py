"""A training loop in PyTorch, with torch.profiler around the measured steps (--profile FILE) or without.

The measured steps lie in an NVTX range "measured", between two synchronisations, so that a recorder that is told to record
that range sees what the profiler sees. The last line is JSON: the loss, and the milliseconds of each measured step.
"""

import argparse
import contextlib
import json
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["perceptron", "transformer"], default="perceptron")
parser.add_argument("--profile", help="write torch.profiler's trace here")
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--warmup", type=int, default=10)
parser.add_argument("--graph", action="store_true", help="capture the step as a CUDA graph and replay it")
parser.add_argument("--compile", action="store_true", help="torch.compile the model")
parser.add_argument("--rest", type=float, default=0, help="seconds of further steps after the measured ones")
parser.add_argument("--device", default="cuda")
options = parser.parse_args()

torch.manual_seed(1)
device = torch.device(options.device)


class Block(torch.nn.Module):
    """One block of a decoder."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width) for _ in range(2)])
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norms[1](x))


class Decoder(torch.nn.Module):
    """A small decoder over a vocabulary of 8192."""

    def __init__(self, width=512, heads=8, layers=4, words=8192):
        super().__init__()
        self.words = torch.nn.Embedding(words, width)
        self.blocks = torch.nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.head = torch.nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.blocks(self.words(tokens)))


if options.model == "perceptron":
    sizes = [1024, 4096, 4096, 1024]
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1]).to(device)
    x = torch.randn(512, sizes[0], device=device)
    y = torch.randn(512, sizes[-1], device=device)

    def loss_of(output):
        return torch.nn.functional.mse_loss(output, y)

else:
    model = Decoder().to(device)
    x = torch.randint(0, 8192, (8, 256), device=device)
    y = torch.randint(0, 8192, (8, 256), device=device)

    def loss_of(output):
        return torch.nn.functional.cross_entropy(output.flatten(0, 1), y.flatten())


optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
called = torch.compile(model) if options.compile else model


def step():
    # Gradients stay where they are: a graph needs them at one address.
    optimizer.zero_grad(set_to_none=False)
    loss = loss_of(called(x))
    loss.backward()
    optimizer.step()
    return loss


def synchronize():
    if device.type == "cuda":
        torch.cuda.synchronize()


run = step
if options.graph:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()

    def run():
        graph.replay()
        return captured


for _ in range(options.warmup):
    loss = run()
synchronize()
profiler = contextlib.nullcontext()
if options.profile:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    profiler = torch.profiler.profile(activities=activities)
times = []
with profiler:
    if device.type == "cuda":
        torch.cuda.nvtx.range_push("measured")
    for _ in range(options.steps):
        begun = time.perf_counter()
        loss = run()
        synchronize()
        times.append((time.perf_counter() - begun) * 1e3)
    if device.type == "cuda":
        torch.cuda.nvtx.range_pop()
until = time.perf_counter() + options.rest
while time.perf_counter() < until:
    run()
    synchronize()
if options.profile:
    profiler.export_chrome_trace(options.profile)
print(json.dumps({"loss": round(loss.item(), 6), "step_ms": times}))
