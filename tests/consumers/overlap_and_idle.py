"""Loads per-rank exports into Holistic Trace Analysis and prints what its four analyses make of them, for the tests that
run it: temporal breakdown, overlap, idle time by stream, kernels by name and by type."""

import json
import sys

from hta.trace_analysis import TraceAnalysis

analysis = TraceAnalysis(trace_dir=sys.argv[1])
overlap = analysis.get_comm_comp_overlap(visualize=False)
breakdown = analysis.get_temporal_breakdown(visualize=False)
ranks = sorted(int(row["rank"]) for row in breakdown.to_dict("records"))
result = {rank: {"streams": {}, "kernels": {}} for rank in ranks}
for row in overlap.to_dict("records"):
    result[int(row["rank"])]["overlap"] = float(row["comp_comm_overlap_pctg"])
for row in breakdown.to_dict("records"):
    result[int(row["rank"])].update(
        idle_us=float(row["idle_time(us)"]),
        compute_us=float(row["compute_time(us)"]),
        non_compute_us=float(row["non_compute_time(us)"]),
        span_us=float(row["kernel_time(us)"]),
    )
idle, _ = analysis.get_idle_time_breakdown(ranks=ranks, visualize=False)
for row in idle.to_dict("records"):
    streams = result[int(row["rank"])]["streams"]
    streams.setdefault(str(int(row["stream"])), {})[row["idle_category"]] = float(
        row["idle_time"]
    )
types, kernels = analysis.get_gpu_kernel_breakdown(
    visualize=False, duration_ratio=1.0, num_kernels=10_000, include_memory_kernels=True
)
for row in kernels.to_dict("records"):
    result[int(row["rank"])]["kernels"][row["name"]] = float(row["sum (us)"])
result["types"] = {row["kernel_type"]: float(row["sum"]) for row in types.to_dict("records")}
print("RESULT " + json.dumps(result))
