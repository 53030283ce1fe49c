#!/usr/bin/env bash
# What only a machine with NVIDIA GPUs can show: runs the workloads there, records them, compares with torch.profiler
# where PyTorch is installed, and measures what recording costs.
#
#   tests/gpu/accept.sh OUT [FOLDER_WITH_GPUTRACE]
#
# OUT gets a log of each part, the recordings' analyses, and summary.txt. The folder defaults to target/release.
# ACCEPT_DEVICE=sim tries the script itself on simulated GPUs. Status 1 if a part failed.
set -uo pipefail
out=${1:?usage: tests/gpu/accept.sh OUT [FOLDER_WITH_GPUTRACE]}
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "${2:-$here/../../target/release}" && pwd)/gputrace
device=${ACCEPT_DEVICE:-cuda}
mkdir -p "$out"
out=$(cd "$out" && pwd)
summary=$out/summary.txt
: >"$summary"
failed=0

say() { printf '%s\n' "$*" | tee -a "$summary"; }

# part NAME SECONDS COMMAND...: runs it with a limit, keeps its output, says how it ended.
part() {
    local name=$1 limit=$2 status started=$SECONDS
    shift 2
    timeout --signal=TERM --kill-after=10 "$limit" "$@" >"$out/$name.log" 2>&1
    status=$?
    [ "$status" -eq 0 ] || failed=1
    say "$(printf '%-28s status %-3s %4s s' "$name" "$status" $((SECONDS - started)))"
    return "$status"
}

say "gputrace acceptance on $(uname -n), $(date -u +%FT%TZ), device $device"
part doctor 60 "$bin" doctor
if [ "$device" = cuda ]; then
    part nvidia-smi 60 nvidia-smi
    gpus=$(nvidia-smi --list-gpus | wc -l)
    share=()
    [ "$gpus" -ge 4 ] || share=(--share-gpus)
else
    gpus=8
    share=()
fi
say "GPUs: $gpus"
ranks=2
devices=$((gpus < 2 ? 1 : 2))

if [ "$device" = cuda ]; then
    part check 300 "$bin" workload check --ranks "$ranks" "${share[@]}"
else
    part check 300 env SIMGPU_SCALE=1 "$bin" workload check --ranks "$ranks"
fi

# record NAME WORDS...: a recording with its analysis.
record() {
    local name=$1
    shift
    part "record-$name" 240 "$bin" record --quiet --device "$device" -o "$out/$name" -- workload "$@" || return
    "$bin" analyze "$out/$name" --json >"$out/$name.json" 2>"$out/$name.analyze.log" || failed=1
    "$bin" analyze "$out/$name" >"$out/$name.txt" 2>&1
    du -sk "$out/$name" | awk '{print "    recording of " $1 " KiB"}' | tee -a "$summary"
}
small=(--steps 20)
record single single "${small[@]}"
record transformer single --model transformer --dtype bf16 "${small[@]}"
for way in ddp fsdp pp tp; do
    record "$way" "$way" --ranks "$ranks" "${share[@]}" "${small[@]}"
done
record dp dp --ranks "$devices" "${small[@]}"
record mp mp --ranks "$devices" "${small[@]}"
record collectives collectives --ranks "$ranks" "${share[@]}" --max-bytes 1M
record async async "${share[@]}"
[ "$devices" -lt 2 ] || record p2p p2p --ranks "$devices"

# What recording costs: the same run with and without, three pairs, milliseconds a step.
if [ "$device" = cuda ]; then
    for pair in 1 2 3; do
        for mode in plain recorded; do
            rm -rf "$out/overhead"
            if [ "$mode" = plain ]; then
                "$bin" workload single --steps 200 >"$out/overhead.log" 2>&1
            else
                "$bin" record --quiet -o "$out/overhead" -- workload single --steps 200 >"$out/overhead.log" 2>&1
            fi
            say "overhead pair $pair $mode: $(grep -o '[0-9.]* ms a step' "$out/overhead.log")"
        done
    done
    rm -rf "$out/overhead"
fi

# The same kernels as torch.profiler sees.
if [ "$device" = cuda ] && python3 -c 'import torch' 2>/dev/null; then
    part torch-profiler 240 python3 "$here/train.py" --profile "$out/torch.json"
    part torch-recorded 240 "$bin" record --quiet -o "$out/torch" -- python3 "$here/train.py"
    "$bin" analyze "$out/torch.json" --json >"$out/torch.profiler.json" || failed=1
    "$bin" analyze "$out/torch" --json >"$out/torch.recorded.json" || failed=1
    part torch-compare 60 python3 "$here/compare.py" "$out/torch.profiler.json" "$out/torch.recorded.json"
    cat "$out/torch-compare.log" | tee -a "$summary"
else
    say "SKIPPED: the comparison with torch.profiler needs PyTorch and a real GPU"
fi
say "failed: $failed"
exit "$failed"
