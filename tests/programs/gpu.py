"""The least of a CUDA program in Python, by ctypes: what the Python programs of these tests are made of."""
import ctypes
import os

CODE = b""".version 8.1
.target sm_80
.address_size 64
.visible .entry scale(
 .param .u64 scale_param_0,
 .param .f32 scale_param_1,
 .param .u32 scale_param_2
)
{
 ret;
}
"""
NUMBERS = 4


def check(result, what):
    if result != 0:
        raise RuntimeError(f"{what}: error {result}")


class Gpu:
    """A context on a device, a kernel, and a few numbers."""

    def __init__(self, device=0):
        self.driver = ctypes.CDLL("libcuda.so.1")
        check(self.driver.cuInit(0), "cuInit")
        context, module = ctypes.c_void_p(), ctypes.c_void_p()
        self.function, self.memory = ctypes.c_void_p(), ctypes.c_uint64()
        check(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
        self.context = context
        self.use()
        check(self.driver.cuModuleLoadData(ctypes.byref(module), CODE), "cuModuleLoadData")
        check(self.driver.cuModuleGetFunction(ctypes.byref(self.function), module, b"scale"), "cuModuleGetFunction")
        numbers = (ctypes.c_float * NUMBERS)(*[1.0] * NUMBERS)
        check(self.driver.cuMemAlloc_v2(ctypes.byref(self.memory), ctypes.sizeof(numbers)), "cuMemAlloc")
        check(self.driver.cuMemcpyHtoD_v2(self.memory, numbers, ctypes.sizeof(numbers)), "cuMemcpyHtoD")

    def use(self):
        """On a thread, before it launches."""
        check(self.driver.cuCtxSetCurrent(self.context), "cuCtxSetCurrent")

    def launch(self, count, factor=1.0):
        factor, numbers = ctypes.c_float(factor), ctypes.c_int(NUMBERS)
        places = [ctypes.addressof(value) for value in (self.memory, factor, numbers)]
        parameters = (ctypes.c_void_p * 3)(*places)
        for _ in range(count):
            result = self.driver.cuLaunchKernel(self.function, 1, 1, 1, 32, 1, 1, 0, None, parameters, None)
            check(result, "cuLaunchKernel")

    def read(self):
        numbers = (ctypes.c_float * NUMBERS)()
        check(self.driver.cuCtxSynchronize(), "cuCtxSynchronize")
        check(self.driver.cuMemcpyDtoH_v2(numbers, self.memory, ctypes.sizeof(numbers)), "cuMemcpyDtoH")
        return list(numbers)

    def work(self, who, count):
        """Launches `count` kernels and says what came of it."""
        self.launch(count - 1)
        self.launch(1, 2.0)
        print(f"{who}: {self.read()}", flush=True)


def end_as_a_worker():
    """As frameworks end workers: nothing that Python or libc would do at exit."""
    os._exit(11)
