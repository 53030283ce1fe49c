"""A network in real PyTorch whose operators launch kernels on the stand-in, which PyTorch itself could not.

torch_operators.py MODE: "emit" marks operators as PyTorch does where it finds a GPU, "dispatch" as it is done elsewhere, with types.
The last line is JSON: what has to be found.
"""
import json
import sys

import gpu
import gputrace.nvtx
import gputrace.torch

# Before PyTorch brings NVIDIA's own libcupti, which knows nothing of the stand-in.
program = gpu.Gpu()
import torch

library = torch.library.Library("gputrace_test", "DEF")
library.define("work(Tensor x, int kernels) -> Tensor")


def work(x, kernels):
    program.launch(kernels)
    return x.clone()


library.impl("work", work, "CPU")


class Launch(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return torch.ops.gputrace_test.work(x, 2)

    @staticmethod
    def backward(context, gradient):
        return torch.ops.gputrace_test.work(gradient, 3)


class Kernels(torch.nn.Module):
    def forward(self, x):
        return Launch.apply(x)


class Fails(torch.nn.Module):
    def forward(self, x):
        raise ValueError


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 4), Kernels(), torch.nn.Linear(4, 4), Kernels())
        self.fails = Fails()

    def forward(self, x):
        try:
            self.fails(x)
        except ValueError:
            pass
        return self.layers(x)


# A job of this process alone, over gloo: its collectives are operators of the host.
store = torch.distributed.HashStore()
torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)


def step(net):
    loss = net(torch.ones(2, 8)).sum()
    loss.backward()
    torch.distributed.all_reduce(loss.detach())


assert gputrace.nvtx.is_recording()
net = Net()
if sys.argv[1] == "emit":
    # emit_nvtx waits for a GPU first, and PyTorch takes the stand-in for none.
    torch.cuda.is_available = lambda: True
    torch.cuda.synchronize = lambda *_: None
with gputrace.torch.operators(types=sys.argv[1] == "dispatch"):
    for number in range(2):
        with gputrace.nvtx.range(f"step {number}"):
            step(net)
program.launch(1)
program.read()
print(json.dumps({"torch": torch.__version__}))
