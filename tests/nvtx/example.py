"""Runs one of docs/examples, on the CPU, after the stand-in was used once: what uses no GPU is not looked at."""
import runpy
import sys

import gpu

program = gpu.Gpu()
program.launch(1)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
program.read()
