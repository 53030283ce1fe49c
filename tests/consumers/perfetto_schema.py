"""Whether a trace is what Perfetto's published messages say: prints every field that they do not know, then DONE.

usage: perfetto_schema.py TRACE

Needs the package `perfetto` of PyPI. Fields of its extensions for GPUs are not in that package and are let pass.
"""

import sys

from google.protobuf import unknown_fields
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages

EXTENSIONS = {
    ("perfetto.protos.TrackEvent", 3000),
    ("perfetto.protos.TrackEvent", 3001),
    ("perfetto.protos.InternedData", 1000),
    ("perfetto.protos.InternedData", 1001),
}


def unknown(message):
    """The unknown fields of a message and of all messages in it."""
    name = message.DESCRIPTOR.full_name
    for field in unknown_fields.UnknownFieldSet(message):
        if (name, field.field_number) not in EXTENSIONS:
            yield f"{name} has no field {field.field_number}"
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                yield from unknown(inner)


with open(sys.argv[1], "rb") as file:
    trace = messages.Trace.FromString(file.read())
for line in sorted({line for packet in trace.packet for line in unknown(packet)}):
    print(line)
print(f"DONE {len(trace.packet)}")
