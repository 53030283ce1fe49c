"""A recording by `import gputrace`, held against what the program itself prints: python_package.py RECORDING."""
import csv
import glob
import json
import os
import subprocess
import sys
import tempfile
import urllib.request

import gputrace
import pyarrow.parquet

program, path = os.environ["GPUTRACE"], sys.argv[1]


def said(*arguments):
    return subprocess.run([program, *arguments], check=True, stdout=subprocess.PIPE).stdout


def plain(value):
    """None for what is missing, by whichever name, and for what is no number."""
    return None if str(value) in ("<NA>", "nan") else value


run = gputrace.open(path)
assert run.analysis == json.loads(said("analyze", path, "--json"))

# Tables of the analysis, against the program's CSV.
with tempfile.TemporaryDirectory() as folder:
    said("analyze", path, "--json", "--tables", f"{folder}/tables")
    files = {os.path.basename(file)[:-4]: file for file in glob.glob(f"{folder}/tables/*.csv")}
    assert sorted(run.summary) == sorted(files)
    cells = 0
    for name, table in run.summary.items():
        with open(files[name], newline="") as file:
            headings, *rows = csv.reader(file)
        frame = table.arrow()
        assert frame.column_names == headings and frame.num_rows == len(rows), name
        for heading, column in zip(headings, zip(*rows)):
            values = frame[heading].to_pylist()
            for cell, value in zip(column, values):
                if isinstance(value, float):
                    assert abs(float(cell) - value) <= 1e-12 * abs(value), (name, heading, cell, value)
                elif isinstance(value, (int, str)) and not isinstance(value, bool):
                    assert cell == str(value), (name, heading, cell, value)
                else:
                    assert value is not None or cell == "", (name, heading, cell, value)
                cells += 1

# Events: each table that the program exports, and what it counts.
with tempfile.TemporaryDirectory() as folder:
    said("export", path, "--format", "parquet", "-o", f"{folder}/events")
    exported = {}
    for file in sorted(glob.glob(f"{folder}/events/*/*.parquet")):
        rows = pyarrow.parquet.ParquetFile(file).read().to_pylist()
        exported.setdefault(os.path.basename(os.path.dirname(file)), []).extend(rows)
    assert sorted(exported) == sorted(run.events) and len(exported) > 10, sorted(exported)
    for name, rows in exported.items():
        assert run.events[name].arrow().to_pylist() == rows, name
kernels = run.events["kernels"].arrow()
counted = sum(row["count"] for rank in run.analysis["ranks"] for row in rank["kernels"] if row["kind"] in ("compute", "communication"))
assert kernels.num_rows == counted, (kernels.num_rows, counted)
busy = sum(row["total_ns"] for rank in run.analysis["ranks"] for row in rank["kernels"] if row["kind"] in ("compute", "communication"))
assert sum(kernels["duration_ns"].to_pylist()) == busy

# The same in each kind of frame, with integers that stay integers.
read = ["arrow"]
for kind in ("pandas", "polars"):
    try:
        __import__(kind)
    except ImportError:
        continue
    read.append(kind)
    for tables in (run.events, run.summary):
        for name, table in tables.items():
            expected, frame = table.arrow(), getattr(table, kind)()
            assert list(frame.columns) == expected.column_names, (kind, name)
            for column in expected.column_names:
                given = frame[column].to_list() if kind == "polars" else frame[column].tolist()
                assert list(map(plain, given)) == list(map(plain, expected[column].to_pylist())), (kind, name, column)

with run.view() as view:
    # As browsers do: the token is exchanged for a cookie.
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    assert "<title>" in browser.open(view.url).read().decode()
    assert view.url in view._repr_html_()
report = run.report()
assert "srcdoc=" in report._repr_html_() and "<html" in report.page

# A bar's parts sum to what it is of.
def bars(axes):
    return [sum(part[place].get_height() for part in axes.containers) for place in range(len(axes.containers[0]))]


def near(heights, expected_ns):
    return len(heights) == len(expected_ns) and all(abs(height - ns / 1e6) < 1e-6 for height, ns in zip(heights, expected_ns))


first = run.analysis["ranks"][0]
assert near(bars(run.plot()), [rank["span_ns"] for rank in run.analysis["ranks"]])
steps = run.plot(rank=first["rank"])
assert near(bars(steps), [step["duration_ns"] for step in first["steps"]]) and "SIMULATED" in steps.get_title()

for wrong, error in ((lambda: gputrace.open("/nowhere"), FileNotFoundError), (lambda: run.events["kernel"], KeyError), (lambda: run.plot(rank=99), ValueError)):
    try:
        wrong()
    except error as told:
        assert "nowhere" in str(told) or "there are" in str(told)
    else:
        raise AssertionError("it is refused")
broken = tempfile.NamedTemporaryFile(suffix=".json")
try:
    gputrace.open(broken.name).analysis
except gputrace.GputraceError as told:
    assert str(told).startswith("gputrace: ") and "\n" not in str(told), told
else:
    raise AssertionError("an empty file is refused")
print(json.dumps({"cells": cells, "kernels": kernels.num_rows, "frames": read}))
