"""Compiles each .cu beside this file to PTX, with the NVRTC of the running Python environment (see build.sh)."""

import ctypes
import glob
import pathlib
import sys

LIBRARY = glob.glob(sys.prefix + "/lib/python*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12")[0]
# bf16 conversions need compute_80 (Ampere).
OPTIONS = [b"--gpu-architecture=compute_80", b"--include-path=."]


def compile_file(nvrtc, path):
    """Writes the PTX of one CUDA source, or ends with the compiler's log."""
    program = ctypes.c_void_p()
    source = path.read_bytes()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, path.name.encode(), 0, None, None) == 0
    status = nvrtc.nvrtcCompileProgram(program, len(OPTIONS), (ctypes.c_char_p * len(OPTIONS))(*OPTIONS))
    size = ctypes.c_size_t()
    if status:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        sys.exit(log.value.decode())
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, ptx)
    path.with_suffix(".ptx").write_bytes(ptx.value)


library = ctypes.CDLL(LIBRARY)
for file in sorted(pathlib.Path(".").glob("*.cu")):
    compile_file(library, file)
