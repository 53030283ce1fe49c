"""What DuckDB and Arrow say of a folder of Parquet files, as one JSON object.

usage: parquet_counts.py FOLDER [DOCUMENT], whose queries are asked
"""

import glob
import json
import os
import re
import sys

import duckdb
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

folder = sys.argv[1]
connection = duckdb.connect()
connection.execute("set threads = 1")


def rows(query):
    return connection.execute(query).fetchall()


def tables():
    for top in ("", "derived/"):
        for name in sorted(os.listdir(os.path.join(folder, top))):
            if name != "derived" and os.path.isdir(os.path.join(folder, top, name)):
                yield top + name


result = {"tables": {}}
for table in tables():
    pattern = f"{folder}/{table}/*.parquet"
    columns = [name for name, *_ in rows(f"describe select * from '{pattern}'")]
    said = {"columns": columns, "files": {}}
    times = ("start_ns", "time_ns", "created_ns", "realtime_ns")
    time = next((name for name in columns if name in times), None)
    lasts = "sum(duration_ns)::bigint" if "duration_ns" in columns else "null"
    if "process" in columns:
        by_process = f"select process, any_value(rank), count(*), {lasts} from '{pattern}' group by process"
        said["duckdb"] = {name: rest for name, *rest in rows(by_process)}
    said["rows"] = rows(f"select count(*) from '{pattern}'")[0][0]
    # Arrow of the same files: nulls of each column, and the sums that need no SQL.
    arrow = ds.dataset(f"{folder}/{table}", format="parquet").to_table()
    said["arrow_rows"] = arrow.num_rows
    said["arrow_nulls"] = {name: arrow[name].null_count for name in columns}
    nulls = ", ".join(f'count(*) - count("{name}")' for name in columns)
    said["duckdb_nulls"] = dict(zip(columns, rows(f"select {nulls} from '{pattern}'")[0]))
    if "duration_ns" in columns:
        said["arrow_duration_ns"] = pc.sum(arrow["duration_ns"]).as_py()
    for path in sorted(glob.glob(pattern)):
        file = pq.ParquetFile(path)
        about = {key.decode(): value.decode() for key, value in file.metadata.metadata.items()}
        about.pop("ARROW:schema")
        found = {"metadata": about, "row_groups": file.metadata.num_row_groups}
        # The first column of times: its statistics, and whether rows are in its order.
        if time and file.metadata.num_rows:
            column = file.read([time])[time].drop_null().to_pylist()
            place = file.schema_arrow.names.index(time)
            groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
            statistics = [group.column(place).statistics for group in groups]
            found["time"] = {
                "column": time,
                "is_sorted": column == sorted(column),
                "first": column[0] if column else None,
                "last": column[-1] if column else None,
                "least": min((s.min for s in statistics if s.has_min_max), default=None),
                "greatest": max((s.max for s in statistics if s.has_min_max), default=None),
                "declared": [[s.column_index for s in group.sorting_columns] == [place] for group in groups],
            }
        names = [f.name for f in file.schema_arrow if str(f.type).startswith("dictionary")]
        found["dictionaries"] = names
        said["files"][os.path.basename(path)] = found
    result["tables"][table] = said

# How much of the kernels is read for the first of a hundred parts of their time.
kernels = f"{folder}/kernels/*.parquet"
first, last = rows(f"select min(start_ns), max(start_ns) from '{kernels}'")[0]
if first is not None:
    query = f"select count(*), sum(duration_ns) from '{kernels}' where start_ns < {first + (last - first) // 100}"
    plan = rows("explain analyze " + query)[0][1]
    scanned = re.search(r"Row Groups Scanned: (\d+) / (\d+)", plan)
    result["pruned"] = [int(number) for number in scanned.groups()] if scanned else plan

# The document's queries, as they stand there.
if len(sys.argv) > 2:
    with open(sys.argv[2]) as document:
        queries = re.findall(r"^    (SELECT .*?;)$", document.read(), re.M | re.S)
    os.chdir(folder)
    result["questions"] = [len(rows(query)) for query in queries]

print("RESULT " + json.dumps(result))
