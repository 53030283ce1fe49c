"""Two devices in one process whose all-reduce is captured into CUDA graphs and launched a number of times."""
import ctypes

LAUNCHES = 5
COUNT = 1024
FLOAT32, SUM = 7, 0
GLOBAL = 0

driver = ctypes.CDLL("libcuda.so.1")
nccl = ctypes.CDLL("libnccl.so.2")


def check(result, what):
    if result != 0:
        raise RuntimeError(f"{what}: error {result}")


check(driver.cuInit(0), "cuInit")
contexts, streams, memory = [], [], []
for device in range(2):
    context, stream, buffer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
    check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    check(driver.cuStreamCreate(ctypes.byref(stream), 1), "cuStreamCreate")
    check(driver.cuMemAlloc_v2(ctypes.byref(buffer), 4 * COUNT), "cuMemAlloc")
    numbers = (ctypes.c_float * COUNT)(*[1.0] * COUNT)
    check(driver.cuMemcpyHtoD_v2(buffer, numbers, ctypes.sizeof(numbers)), "cuMemcpyHtoD")
    contexts.append(context), streams.append(stream), memory.append(buffer)
communicators = (ctypes.c_void_p * 2)()
check(nccl.ncclCommInitAll(communicators, 2, (ctypes.c_int * 2)(0, 1)), "ncclCommInitAll")

for stream in streams:
    check(driver.cuStreamBeginCapture_v2(stream, GLOBAL), "cuStreamBeginCapture")
check(nccl.ncclGroupStart(), "ncclGroupStart")
for device in range(2):
    place, count = ctypes.c_void_p(memory[device].value), ctypes.c_size_t(COUNT)
    result = nccl.ncclAllReduce(place, place, count, FLOAT32, SUM, ctypes.c_void_p(communicators[device]), streams[device])
    check(result, "ncclAllReduce")
check(nccl.ncclGroupEnd(), "ncclGroupEnd")
executables = []
for device, stream in enumerate(streams):
    check(driver.cuCtxSetCurrent(contexts[device]), "cuCtxSetCurrent")
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    check(driver.cuStreamEndCapture(stream, ctypes.byref(graph)), "cuStreamEndCapture")
    check(driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)), "cuGraphInstantiate")
    executables.append(executable)
for _ in range(LAUNCHES):
    for device, stream in enumerate(streams):
        check(driver.cuCtxSetCurrent(contexts[device]), "cuCtxSetCurrent")
        check(driver.cuGraphLaunch(executables[device], stream), "cuGraphLaunch")
sums = []
for device, stream in enumerate(streams):
    check(driver.cuCtxSetCurrent(contexts[device]), "cuCtxSetCurrent")
    check(driver.cuStreamSynchronize(stream), "cuStreamSynchronize")
    numbers = (ctypes.c_float * COUNT)()
    check(driver.cuMemcpyDtoH_v2(numbers, memory[device], ctypes.sizeof(numbers)), "cuMemcpyDtoH")
    sums.append(numbers[0])
print(sums, flush=True)
