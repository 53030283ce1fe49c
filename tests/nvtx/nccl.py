"""Calls the real NCCL without a GPU: all that it does is to refuse, after it has told NVTX of the call."""
import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
nccl = ctypes.CDLL(sys.argv[1])
version = ctypes.c_int()
assert nccl.ncclGetVersion(ctypes.byref(version)) == 0
assert nccl.ncclGetUniqueId((ctypes.c_char * 128)()) == 0
buffer, count = ctypes.c_void_p(0x1000), ctypes.c_size_t(1000)
FLOAT32, MAX = 7, 2
assert nccl.ncclGroupStart() == 0
refused = nccl.ncclAllReduce(buffer, buffer, count, FLOAT32, MAX, None, None)
nccl.ncclGroupEnd()
refused |= nccl.ncclBroadcast(buffer, buffer, count, FLOAT32, 3, None, None)
assert refused == 4, refused  # ncclInvalidArgument
print(version.value)
