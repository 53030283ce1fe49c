#!/usr/bin/env bash
# Makes mlp.ptx from mlp.cu with NVRTC 12.1, whose PTX 8.1 every driver since CUDA 12.1 takes.
set -euo pipefail
cd "$(dirname "$0")"
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet nvidia-cuda-nvrtc-cu12==12.1.105
"$venv/bin/python" - <<'PYTHON'
import ctypes, glob, pathlib, sys
library = glob.glob(sys.prefix + "/lib/python*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12")[0]
nvrtc = ctypes.CDLL(library)
source = pathlib.Path("mlp.cu").read_bytes()
program = ctypes.c_void_p()
assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"mlp.cu", 0, None, None) == 0
options = (ctypes.c_char_p * 1)(b"--gpu-architecture=compute_80")
status = nvrtc.nvrtcCompileProgram(program, 1, options)
size = ctypes.c_size_t()
if status:
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    sys.exit(log.value.decode())
nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
ptx = ctypes.create_string_buffer(size.value)
nvrtc.nvrtcGetPTX(program, ptx)
pathlib.Path("mlp.ptx").write_bytes(ptx.value)
PYTHON
