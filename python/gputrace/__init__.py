"""What a program can tell gputrace of itself while it is recorded.

`gputrace.torch` marks operators and modules of PyTorch, `gputrace.nvtx` ranges of one's own. Nothing is imported here, so that
each costs nothing until it is used.
"""

__version__ = "0.1.0"
