"""The measures of Kineto (PyTorch profiler) Chrome JSON files, one JSON entry for each rank and device.

Shares no code with the analyzer. The only tool for time is the length of a union of intervals: what two kinds have in
common is the sum of their lengths minus the length of both together. Times are read from the decimal text of the file
and are integer nanoseconds from then on.

    independent_kineto.py PATH...                            print the measures
    independent_kineto.py --compare ANALYSIS.json PATH...    compare with what `gputrace analyze --json` printed;
                                                             exit status 1 and a list when any number differs

PATH is a .json or .json.gz file, or a folder of such files; files of a folder without `traceEvents` are passed over.
"""

import collections
import decimal
import gzip
import json
import pathlib
import re
import sys

SHORT_GAP_NS = 30_000
COPIES = {"gpu_memcpy": "copy", "memcpy": "copy", "gpu_memset": "memset", "memset": "memset"}
KINDS = ("compute", "communication", "copy", "memset")
RANK_IN_NAME = re.compile(r"(?:rank|worker)[-_.]?(\d+)", re.IGNORECASE)
STEP_NAME = re.compile(r"ProfilerStep#\d+")

# Compared with the function's own name, small letters, without underscores.
ALL_REDUCE_WITHOUT_NCCL = re.compile(
    r"(lamportstyle)?(oneshot|twoshot)allreduce"
    r"|multimem(oneshot|twoshot)?(all)?(reduce|gather)"
    r"|crossdevicereduce"
    r"|allreduce(fusionkernel|prototype)"
)


class Unreadable(Exception):
    pass


# Reading


def nanoseconds(microseconds):
    """Integer nanoseconds of a number (or its text) in microseconds; digits beyond are rounded half to even."""
    exact = decimal.Decimal(str(microseconds)).scaleb(3)
    return int(exact.to_integral_value(rounding=decimal.ROUND_HALF_EVEN))


def whole(value):
    """The integer that a JSON value is or spells; other text stays text."""
    try:
        number = decimal.Decimal(str(value))
        return int(number) if number == number.to_integral_value() else str(value)
    except (decimal.InvalidOperation, OverflowError, ValueError):
        return str(value)


def read_json(path):
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    if data[:4] == b"\x28\xb5\x2f\xfd":
        raise Unreadable(f"{path}: zstd is not in the standard library; decompress it first")
    text = data.decode("utf-8-sig", errors="replace")
    return json.loads(text, parse_float=decimal.Decimal, strict=False)


def trace_files(paths):
    """(path, top level object) of every trace, in the order given, those of a folder by name."""
    traces = []
    for path in map(pathlib.Path, paths):
        in_folder = path.is_dir()
        files = [path]
        if in_folder:
            names = (".json", ".json.gz")
            files = sorted(file for file in path.iterdir() if file.name.lower().endswith(names))
        for file in files:
            top = read_json(file)
            if isinstance(top, list):
                top = {"traceEvents": top}
            if isinstance(top, dict) and isinstance(top.get("traceEvents"), list):
                traces.append((file, top))
            elif not in_folder:
                raise Unreadable(f"{file}: no traceEvents")
    if not traces:
        raise Unreadable(f"no trace in {' '.join(map(str, paths))}")
    return traces


def rank_of(file, top, position, files):
    info = top.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    if rank is not None:
        return whole(rank)
    in_name = RANK_IN_NAME.search(file.name)
    if in_name:
        return int(in_name.group(1))
    # A lone file of no rank has none.
    return position if files > 1 else None


def is_communication(name, args):
    if "Collective name" in args:
        return True
    head = name.strip().replace("(anonymous namespace)::", "")
    head = head.removeprefix("void ")
    parts = re.split(r"[<(]", head, maxsplit=1)[0].strip().split("::")
    function = parts[-1]
    if function.startswith("nccl") and ("Kernel" in function or function.startswith("ncclSymk")):
        return True
    if function.startswith("rccl"):
        return True
    if any(part == "deep_ep" or part.startswith(("msccl", "nvshmem")) for part in parts):
        return True
    return ALL_REDUCE_WITHOUT_NCCL.match(function.lower().replace("_", "")) is not None


def is_launch_category(category):
    return category.endswith(("runtime", "driver")) or category.startswith("hip")


Operation = collections.namedtuple("Operation", "kind name device stream start end launched")


def read_trace(top):
    """(GPU operations, steps of the host) of one file."""
    base = whole(top.get("baseTimeNanoseconds") or 0)
    operations = []
    launches = {}
    ranges = {}
    for event in top["traceEvents"]:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        if event.get("ts") is None or event.get("dur") is None:
            continue
        category = str(event.get("cat", "")).lower()
        args = event.get("args") or {}
        name = str(event.get("name", ""))
        is_gpu = category == "kernel" or category in COPIES
        is_step = category == "user_annotation" and STEP_NAME.fullmatch(name)
        if not (is_gpu or is_step or is_launch_category(category)):
            continue
        start = nanoseconds(event["ts"]) + base
        end = start + nanoseconds(event["dur"])
        correlation = whole(args.get("correlation", 0))
        if is_gpu:
            kind = COPIES.get(category) or ("communication" if is_communication(name, args) else "compute")
            device = whole(args.get("device", event.get("pid", 0)))
            stream = whole(args.get("stream", event.get("tid", 0)))
            if end >= start:
                operations.append(Operation(kind, name, device, stream, start, end, correlation))
        elif is_step:
            thread = (str(event.get("pid")), str(event.get("tid")))
            ranges.setdefault(thread, []).append((start, end, name))
        elif correlation not in (0, -1):
            launches[correlation] = min(start, launches.get(correlation, start))
    operations = [operation._replace(launched=launches.get(operation.launched)) for operation in operations]
    steps = []
    for of_thread in ranges.values():
        of_thread.sort()
        next_starts = [start for start, _, _ in of_thread[1:]] + [of_thread[-1][1]]
        for (start, _, name), until in zip(of_thread, next_starts):
            steps.append((start, until, name))
    return operations, sorted(steps)


# Measuring


def length(intervals):
    """How much time the union of half-open intervals covers."""
    total = 0
    reached = None
    for start, end in sorted(intervals):
        if reached is None or start > reached:
            reached = start
        if end > reached:
            total += end - reached
            reached = end
    return total


def measures(spans):
    """Busy time, time by kind and hidden communication of [(kind, start, end)]."""
    of_kind = {kind: [span[1:] for span in spans if span[0] == kind] for kind in KINDS}
    result = {"busy_ns": length(span[1:] for span in spans)}
    for kind in KINDS:
        result[kind + "_ns"] = length(of_kind[kind])
    either = length(of_kind["compute"] + of_kind["communication"])
    result["communication_hidden_ns"] = result["compute_ns"] + result["communication_ns"] - either
    result["communication_exposed_ns"] = either - result["compute_ns"]
    result["copy_exposed_ns"] = length(of_kind["compute"] + of_kind["copy"]) - result["compute_ns"]
    return result


def steps_on_device(operations, steps):
    """The host's steps as what was launched in them: from the first operation of each to the first of the next."""
    if not any(operation.launched is not None for operation in operations):
        return steps
    launched = []
    for place, (start, end, name) in enumerate(steps):
        own = [
            operation
            for operation in operations
            if operation.launched is not None
            and start <= operation.launched < end
            and not any(later[0] <= operation.launched < later[1] for later in steps[place + 1 :])
        ]
        if own:
            launched.append((min(operation.start for operation in own), max(operation.end for operation in own), name))
    starts = []
    for start, _, _ in launched:
        starts.append(max([start, *starts[-1:]]))
    ends = starts[1:] + [max(end, starts[-1]) for _, end, _ in launched[-1:]]
    return [(start, end, name) for start, end, (_, _, name) in zip(starts, ends, launched)]


def step_measures(operations, start, end, name):
    spans = [
        (operation.kind, max(operation.start, start), min(operation.end, end))
        for operation in operations
        if operation.start < end and operation.end > start
    ]
    found = measures(spans)
    names = ("busy_ns", "compute_ns", "communication_ns", "communication_hidden_ns")
    return {"name": name, "start_ns": start, "end_ns": end} | {key: found[key] for key in names}


def stream_measures(stream, operations):
    operations = sorted(operations, key=lambda operation: (operation.start, operation.end))
    idle = {"host_wait": 0, "kernel_wait": 0, "other": 0}
    reached = operations[0].start
    for operation in operations:
        gap = operation.start - reached
        if gap > 0:
            if operation.launched is not None and operation.launched > reached:
                cause = "host_wait"
            else:
                cause = "kernel_wait" if gap < SHORT_GAP_NS else "other"
            idle[cause] += gap
        reached = max(reached, operation.end)
    span = reached - operations[0].start
    busy = length((operation.start, operation.end) for operation in operations)
    if span - busy != sum(idle.values()):
        raise AssertionError(f"stream {stream}: gaps {sum(idle.values())} do not add up to idle {span - busy}")
    result = {"stream": stream, "ops": len(operations), "span_ns": span, "busy_ns": busy, "idle_ns": span - busy}
    return result | {f"idle_{cause}_ns": time for cause, time in idle.items()}


def nearest_rank(ordered, percent):
    return ordered[(percent * len(ordered) + 99) // 100 - 1]


def keyed_by_name(entries):
    """{name: value} of [((name, kind), value)]; the kind is added to a name that stands for two kinds."""
    names = [name for (name, _), _ in entries]
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()
    return {f"{name} [{kind}]" if name in twice else name: value for (name, kind), value in entries}


def kernel_measures(operations):
    durations = {}
    for operation in operations:
        durations.setdefault((operation.name, operation.kind), []).append(operation.end - operation.start)
    entries = []
    for key, times in durations.items():
        times.sort()
        value = {
            "count": len(times),
            "total_ns": sum(times),
            "min_ns": times[0],
            "max_ns": times[-1],
            "p50_ns": nearest_rank(times, 50),
            "p99_ns": nearest_rank(times, 99),
        }
        entries.append((key, value))
    entries.sort(key=lambda entry: (-entry[1]["total_ns"], entry[0]))
    return keyed_by_name(entries)


def device_measures(rank, device, operations, steps, window):
    first = min(operation.start for operation in operations)
    last = max(operation.end for operation in operations)
    found = measures([(operation.kind, operation.start, operation.end) for operation in operations])
    communication = found["communication_ns"]
    hidden = found["communication_hidden_ns"]
    streams = {}
    for operation in operations:
        streams.setdefault(operation.stream, []).append(operation)
    return {
        "rank": rank,
        "device_index": device,
        "span_ns": last - first,
        "idle_ns": last - first - found["busy_ns"],
        "idle_before_ns": first - window[0],
        "idle_after_ns": window[1] - last,
        **found,
        "overlap_ratio": hidden / communication if communication else None,
        "streams": [stream_measures(stream, streams[stream]) for stream in sorted(streams, key=sort_key)],
        "kernels": kernel_measures(operations),
        "steps": [step_measures(operations, *step) for step in steps_on_device(operations, steps)],
    }


def sort_key(value):
    """Numbers by value, before text."""
    return (0, value, "") if isinstance(value, int) else (1, 0, str(value))


def analyze(paths):
    devices = []
    files = list(trace_files(paths))
    for position, (file, top) in enumerate(files):
        operations, steps = read_trace(top)
        of_device = {}
        for operation in operations:
            of_device.setdefault(operation.device, []).append(operation)
        rank = rank_of(file, top, position, len(files))
        devices.extend((rank, device, of_device[device], steps) for device in of_device)
    if not devices:
        return {"ranks": []}
    window = (
        min(operation.start for _, _, operations, _ in devices for operation in operations),
        max(operation.end for _, _, operations, _ in devices for operation in operations),
    )
    devices.sort(key=lambda entry: (sort_key(entry[0]), sort_key(entry[1])))
    return {"ranks": [device_measures(*entry, window) for entry in devices]}


# Comparing


def differences(ours, theirs, where):
    """Every place where their value is not ours; members that only they have are passed over."""
    if isinstance(ours, dict):
        if not isinstance(theirs, dict):
            return [f"{where}: {theirs!r} instead of an object"]
        found = []
        for key, value in ours.items():
            if key in theirs:
                found += differences(value, theirs[key], f"{where}.{key}")
            else:
                found.append(f"{where}.{key}: missing")
        return found
    same = ours == theirs and type(ours) is type(theirs)
    if isinstance(ours, float):
        number = isinstance(theirs, (int, float)) and not isinstance(theirs, bool)
        same = number and abs(ours - theirs) <= 1e-12
    return [] if same else [f"{where}: {theirs!r}, independently {ours!r}"]


def keyed(entries, *names):
    """Entries by the values of `names`; those that have the same values are numbered."""
    result = {}
    for entry in entries or []:
        key = " ".join(f"{name} {entry.get(name)}" for name in names)
        number = sum(other == key or other.startswith(key + " again") for other in result)
        result[f"{key} again {number}" if number else key] = entry
    return result


def compare_entries(ours, theirs, where):
    found = [f"{where} {key}: only in the analysis" for key in theirs if key not in ours]
    for key, entry in ours.items():
        if key in theirs:
            found += differences(entry, theirs[key], f"{where} {key}")
        else:
            found.append(f"{where} {key}: not in the analysis")
    return found


def pooled(entries):
    """Entries of one name and kind as one: there are several where the kind is known in several ways."""
    if len(entries) == 1:
        return entries[0]
    kept = {"count": sum, "total_ns": sum, "min_ns": min, "max_ns": max}
    return {key: together(entry[key] for entry in entries) for key, together in kept.items()}


def compare_kernels(ours, theirs, where):
    """By name. The analysis may show a mangled name readable, and calls copies and memsets by one form: then the numbers must
    be found under another name."""
    entries, ours = {}, dict(ours)
    for entry in theirs or []:
        entries.setdefault((entry["name"], entry.get("kind")), []).append(entry)
    theirs = keyed_by_name([(key, pooled(of_key)) for key, of_key in entries.items()])
    for (name, _), of_key in entries.items():
        if len(of_key) > 1 and name in ours and name in theirs:
            ours[name] = {key: ours[name][key] for key in theirs[name]}
    renamed = [name for name in ours if name.startswith(("_Z", "Mem", "Copy", "Fill")) and name not in theirs]
    for name in renamed:
        candidates = [other for other in theirs if other not in ours]
        match = next((other for other in candidates if not differences(ours[name], theirs[other], "")), None)
        if match is not None:
            ours[match] = ours.pop(name)
    return compare_entries(ours, theirs, f"{where}, kernel")


def compare(analysis, paths):
    ours = keyed(analyze(paths)["ranks"], "rank", "device_index")
    theirs = keyed(analysis.get("ranks"), "rank", "device_index")
    found = [f"{key}: only in the analysis" for key in theirs if key not in ours]
    for where, entry in ours.items():
        other = theirs.get(where)
        if other is None:
            found.append(f"{where}: not in the analysis")
            continue
        lists = ("streams", "kernels", "steps")
        found += differences({key: entry[key] for key in entry if key not in lists}, other, where)
        causes = sum((other.get("idle_causes") or {}).values())
        if causes != entry["idle_ns"]:
            found.append(f"{where}.idle_causes: their sum is {causes}, idle_ns independently {entry['idle_ns']}")
        streams = [keyed(side.get("streams"), "stream") for side in (entry, other)]
        found += compare_entries(*streams, f"{where},")
        found += compare_kernels(entry["kernels"], other.get("kernels"), where)
        marked = [step for step in other.get("steps") or [] if not step.get("detected")]
        found += compare_entries(keyed(entry["steps"], "name"), keyed(marked, "name"), f"{where}, step")
    return found


def main(arguments):
    try:
        if arguments[:1] == ["--compare"] and len(arguments) > 2:
            found = compare(json.loads(pathlib.Path(arguments[1]).read_text()), arguments[2:])
            print("\n".join(found) if found else "no difference")
            return 1 if found else 0
        if arguments and not arguments[0].startswith("-"):
            print(json.dumps(analyze(arguments)))
            return 0
    except (Unreadable, OSError, EOFError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
