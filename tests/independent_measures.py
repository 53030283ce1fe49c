"""The measures of a run from the stand-in's truth log alone, one JSON entry for each rank and device.

Shares no code with the analyzer: sweeps over the sorted edges of all operations and adds up the time between
edges by what is running then. Usage: independent_measures.py TRUTH_FOLDER
"""

import json
import pathlib
import re
import sys


def sweep(operations):
    """Nanoseconds by the set of kinds running: {frozenset({"compute"}): 123, ...}."""
    edges = []
    for kind, start, end in operations:
        if end > start:
            edges.append((start, 1, kind))
            edges.append((end, -1, kind))
    edges.sort(key=lambda edge: edge[0])
    running = {"compute": 0, "communication": 0, "copy": 0, "memset": 0}
    times = {}
    last = None
    for at, change, kind in edges:
        if last is not None and at > last:
            key = frozenset(name for name, count in running.items() if count)
            times[key] = times.get(key, 0) + at - last
        running[kind] += change
        last = at
    return times


def kind_of(operation):
    if operation["kind"] == "memcpy":
        return "copy"
    if operation["kind"] == "memset":
        return "memset"
    return "communication" if operation["name"].startswith("nccl") else "compute"


def main():
    by_device = {}
    for path in sorted(pathlib.Path(sys.argv[1]).glob("rank*.jsonl")):
        rank = int(re.fullmatch(r"rank(\d+)", path.stem).group(1))
        for line in path.read_text().splitlines():
            operation = json.loads(line)
            start = operation.get("delivered_start_ns", operation["start_ns"])
            end = operation.get("delivered_end_ns", operation["end_ns"])
            by_device.setdefault((rank, operation["device"]), []).append((kind_of(operation), start, end))
    entries = []
    for (rank, device), operations in sorted(by_device.items()):
        times = sweep(operations)

        def total(*kinds, times=times):
            return sum(length for running, length in times.items() if all(kind in running for kind in kinds))

        span = max(end for _, _, end in operations) - min(start for _, start, _ in operations)
        busy = sum(length for running, length in times.items() if running)
        communication = total("communication")
        hidden = total("communication", "compute")
        entries.append(
            {
                "rank": rank,
                "device_index": device,
                "span_ns": span,
                "busy_ns": busy,
                "idle_ns": span - busy,
                "compute_ns": total("compute"),
                "communication_ns": communication,
                "copy_ns": total("copy"),
                "copy_exposed_ns": total("copy") - total("copy", "compute"),
                "memset_ns": total("memset"),
                "communication_hidden_ns": hidden,
                "communication_exposed_ns": communication - hidden,
                "overlap_ratio": hidden / communication if communication else None,
            }
        )
    json.dump(entries, sys.stdout)


if __name__ == "__main__":
    main()
