#!/usr/bin/env bash
# What only a machine with NVIDIA GPUs can show; see accept.py. Needs the built binaries and Python 3, with PyTorch for the
# comparison with torch.profiler. Ends in under 9 minutes; status 1 if a line of its table failed.
#
#   tests/gpu/accept.sh OUT [FOLDER_WITH_GPUTRACE]
#
# ACCEPT_DEVICE=sim tries the script itself on simulated GPUs, where there is no PyTorch part.
set -euo pipefail
out=${1:?usage: tests/gpu/accept.sh OUT [FOLDER_WITH_GPUTRACE]}
here=$(cd "$(dirname "$0")" && pwd)
exec python3 "$here/accept.py" "$out" "${2:-$here/../../target/release}"
