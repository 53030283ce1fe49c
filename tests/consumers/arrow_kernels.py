"""Reads a table as any Arrow reader would and prints its rows, for the test beside it to compare."""

import sys

import pyarrow as pa

with pa.ipc.open_stream(sys.argv[1]) as reader:
    table = reader.read_all()
for row in table.to_pylist():
    print("\t".join("null" if value is None else str(value) for value in row.values()))
