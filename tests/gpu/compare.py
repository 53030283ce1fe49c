"""Kernels as torch.profiler saw them beside those that gputrace recorded: counts and mean times, by name."""

import json
import sys


def kernels(path):
    with open(path, encoding="utf-8") as file:
        analysis = json.load(file)
    found = {}
    for rank in analysis["ranks"]:
        for kernel in rank["kernels"]:
            if kernel["kind"] == "compute":
                found[kernel["name"]] = (kernel["count"], kernel["mean_ns"])
    return found


profiler, recorded = kernels(sys.argv[1]), kernels(sys.argv[2])
bad = 0
for name in sorted(profiler, key=lambda name: -profiler[name][0] * profiler[name][1]):
    count, mean = profiler[name]
    if name not in recorded:
        print(f"MISSING {name[:60]}: {count} times by torch.profiler")
        bad += 1
        continue
    own_count, own_mean = recorded[name]
    ratio = own_mean / mean
    # The recording has the whole process, so it may have more of a kernel, never fewer.
    wrong = own_count < count
    bad += wrong
    mark = "FEWER " if wrong else ""
    print(f"{mark}{name[:60]:60} {count:6} {own_count:6} mean {mean:10.0f} ns {own_mean:10.0f} ns ({ratio:.3f})")
sys.exit(1 if bad else 0)
