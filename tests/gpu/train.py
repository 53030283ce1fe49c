"""A small training loop in PyTorch: the same with torch.profiler (--profile FILE) and without."""

import argparse
import contextlib

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--profile")
options = parser.parse_args()

torch.manual_seed(1)
device = torch.device("cuda")
sizes = [1024, 4096, 4096, 1024]
layers = []
for inputs, outputs in zip(sizes, sizes[1:]):
    layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
model = torch.nn.Sequential(*layers[:-1]).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(512, sizes[0], device=device)
y = torch.randn(512, sizes[-1], device=device)


def step():
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


profiler = contextlib.nullcontext()
if options.profile:
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    profiler = torch.profiler.profile(activities=activities)
with profiler:
    for _ in range(30):
        loss = step()
    torch.cuda.synchronize()
if options.profile:
    profiler.export_chrome_trace(options.profile)
print(f"loss {loss.item():.6f}")
