"""A program in which a profiler of its own records for a while, as PyTorch's does: it registers its buffers over whatever
was there, switches kinds on, and switches them off again at its end. Prints how many memsets it saw of those it was to see.
"""
import ctypes
import struct
import time

MEMSET = 2
KINDS = [1, 2, 4, 10, 17]
BUFFER_BYTES = 1 << 20

driver = ctypes.CDLL("libcuda.so.1")
cupti = ctypes.CDLL("libcupti.so.13")


def check(result, what):
    if result != 0:
        raise RuntimeError(f"{what}: error {result}")


check(driver.cuInit(0), "cuInit")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
check(driver.cuMemAlloc_v2(ctypes.byref(memory), 1024), "cuMemAlloc")


def work(seconds):
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        check(driver.cuMemsetD8Async(memory, 1, 1024, None), "cuMemsetD8Async")
        count += 1
        time.sleep(0.005)
    check(driver.cuCtxSynchronize(), "cuCtxSynchronize")
    return count


buffers, seen = {}, 0


@ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t))
def requested(buffer, size, most):
    memory = ctypes.create_string_buffer(BUFFER_BYTES)
    buffers[ctypes.addressof(memory)] = memory
    buffer[0], size[0], most[0] = ctypes.addressof(memory), BUFFER_BYTES, 0


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
def completed(_context, _stream, buffer, _size, valid):
    global seen
    memory = buffers.pop(buffer, None)
    if memory is None:
        return  # Somebody else's.
    record = ctypes.c_void_p()
    while cupti.cuptiActivityGetNextRecord(ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)) == 0:
        kind = struct.unpack("I", ctypes.string_at(record.value, 4))[0]
        seen += kind == MEMSET


before = work(1.0)
check(cupti.cuptiActivityRegisterCallbacks(requested, completed), "cuptiActivityRegisterCallbacks")
for kind in KINDS:
    check(cupti.cuptiActivityEnable(kind), "cuptiActivityEnable")
during = work(5.0)
for kind in KINDS:
    check(cupti.cuptiActivityDisable(kind), "cuptiActivityDisable")
check(cupti.cuptiActivityFlushAll(1), "cuptiActivityFlushAll")
time.sleep(3.0)
after = work(1.0)
print(f"before {before}, during {during}, after {after}; seen {seen}", flush=True)
