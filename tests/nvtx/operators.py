"""Pushes what `gputrace.nvtx` is told to, around launches of kernels; without a recorder it does the same and nothing of it."""
import threading

import gpu
import gputrace.nvtx as nvtx
import gputrace.torch

program = gpu.Gpu()
assert nvtx.is_recording() == (nvtx.push("outer") == 0)
assert nvtx.pop() == (0 if nvtx.is_recording() else nvtx.NOT_TRACKED)
with nvtx.range("step 0"):
    with nvtx.range("nn.Module: Linear_0"):
        with nvtx.range('aten::mm, seq = 1, sizes = [[2, 3], [3, 4]], types = ["float", "float"]'):
            program.launch(3)
    nvtx.mark("a mark, \u00e4")

    def other():
        with nvtx.range("another thread's"):
            pass

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    try:
        with nvtx.range("raises"):
            raise ValueError
    except ValueError:
        pass
if not nvtx.is_recording():
    # Nothing of PyTorch is looked for, which need not be there.
    with gputrace.torch.operators():
        gputrace.torch.enable()
    gputrace.torch.disable()
program.launch(1)
print("launched", program.read())
