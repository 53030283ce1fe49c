"""Ranges of NVIDIA's Python package, from several threads."""
import ctypes
import threading

import nvtx

assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0


def work(number):
    for step in range(200):
        with nvtx.annotate(f"step {step}", domain="python", color="green", category=f"thread {number}"):
            with nvtx.annotate("inner", domain="python"):
                pass


threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
