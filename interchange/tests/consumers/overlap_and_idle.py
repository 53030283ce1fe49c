"""Loads per-rank exports into Holistic Trace Analysis and prints what it makes of them, for the test beside it."""

import json
import sys

from hta.trace_analysis import TraceAnalysis

analysis = TraceAnalysis(trace_dir=sys.argv[1])
overlap = analysis.get_comm_comp_overlap(visualize=False)
breakdown = analysis.get_temporal_breakdown(visualize=False)
result = {}
for row in overlap.itertuples(index=False):
    result[int(row.rank)] = {"overlap": float(row.comp_comm_overlap_pctg)}
for row in breakdown.to_dict("records"):
    result[int(row["rank"])].update(
        idle_us=float(row["idle_time(us)"]),
        compute_us=float(row["compute_time(us)"]),
        non_compute_us=float(row["non_compute_time(us)"]),
        span_us=float(row["kernel_time(us)"]),
    )
print("RESULT " + json.dumps(result))
