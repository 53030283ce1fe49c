#!/usr/bin/env bash
# Makes a .ptx of each .cu with NVRTC 12.1, whose PTX 8.1 every driver since CUDA 12.1 takes.
set -euo pipefail
cd "$(dirname "$0")"
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet nvidia-cuda-nvrtc-cu12==12.1.105
"$venv/bin/python" compile.py
