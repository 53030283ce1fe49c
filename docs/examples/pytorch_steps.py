"""Trains a small network and says which steps are to be captured: nothing else is recorded by

    gputrace record --range gputrace.capture -o run1 -- python docs/examples/pytorch_steps.py
"""

import torch

import gputrace

device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

with gputrace.Profile(gputrace.schedule(wait=2, warmup=1, active=3, repeat=1)) as profile:
    for _ in range(10):
        with gputrace.range("load"):
            inputs, targets = torch.randn(32, 64).to(device), torch.randn(32, 1).to(device)
        with gputrace.range("forward"):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        profile.step()
print(f"trained on {device}")
