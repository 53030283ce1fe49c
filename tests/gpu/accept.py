"""Records the bundled workloads and PyTorch on a real GPU, compares with torch.profiler, and measures what recording costs.

    accept.py OUT FOLDER_WITH_GPUTRACE

OUT gets a log of each part, the recordings, raw CUPTI buffers and NCCL events to keep as test data, and results.json. One
table is printed: a line a part. Status 1 if a line failed. Without a GPU it says so and does nothing.
"""

import gzip
import json
import math
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
DEVICE = os.environ.get("ACCEPT_DEVICE", "cuda")
# In all, seconds; parts that would begin later are not run, and said to be.
BUDGET_S = 500
# What has not ended then is stopped.
LAST_S = 530
# Kernels of this length and more are compared with torch.profiler one name at a time.
LONG_NS = 20_000
# Medians may differ by so much: two runs of one program differ themselves.
MEDIAN_TOLERANCE = 0.02
# What may be kept as test data, bytes.
DUMP_BYTES = 4 << 20


class Failed(Exception):
    """A part that did not do what it should; the text says what."""


class Acceptance:
    """The parts that were run, and how they ended."""

    def __init__(self, out, binaries):
        self.out = out
        self.gputrace = binaries / "gputrace"
        self.begun = time.monotonic()
        self.lines = []
        self.figures = {}

    def part(self, name, body, *arguments, **options):
        """Runs one part and keeps its line."""
        if time.monotonic() - self.begun > BUDGET_S:
            self.line(name, "FAIL", 0.0, "not run: no time left")
            return
        begun = time.monotonic()
        try:
            detail = body(*arguments, **options) or ""
            state = "ok"
        except Failed as failure:
            state, detail = "FAIL", str(failure)
        except Exception as error:  # A part that breaks must not cost the ones after it.
            state, detail = "FAIL", f"{type(error).__name__}: {error}"
        self.line(name, state, time.monotonic() - begun, detail)

    def line(self, name, state, seconds, detail):
        self.lines.append({"part": name, "state": state, "seconds": round(seconds, 1), "detail": detail})
        print(f"{name:30} {state:5} {seconds:6.1f} s  {detail}", flush=True)

    def remaining(self, seconds):
        """So many seconds, but not beyond the end of all."""
        return max(1.0, min(seconds, LAST_S - (time.monotonic() - self.begun)))

    def run(self, name, command, limit=90, environment=None, status=0):
        """Runs a command, keeps what it says in NAME.log, and gives its standard output."""
        log = self.out / f"{name}.log"
        limit = self.remaining(limit)
        try:
            done = subprocess.run(
                [str(word) for word in command],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=limit,
                env={**os.environ, **(environment or {})},
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            log.write_bytes(late.stdout or b"")
            raise Failed(f"took more than {limit:.0f} s") from None
        log.write_bytes(done.stdout)
        text = done.stdout.decode(errors="replace")
        if done.returncode != status:
            last = text.strip().splitlines()[-1:] or [""]
            raise Failed(f"status {done.returncode}: {last[0][:90]}")
        return text

    def record(self, name, command, options=(), limit=90, environment=None, status=0):
        """Records a command and gives the recording's folder and the command's output."""
        folder = self.out / name
        shutil.rmtree(folder, ignore_errors=True)
        words = [self.gputrace, "record", "--quiet", "--device", DEVICE, "-o", folder, *options, "--", *command]
        return folder, self.run(f"record-{name}", words, limit, environment, status)

    def analysis(self, path):
        text = self.run(f"analyze-{pathlib.Path(path).name}", [self.gputrace, "analyze", path, "--json"])
        return json.loads(text[text.index("{") :])


def losses_of(analysis):
    return "; ".join(f"{loss['what']} ({loss['count']})" for loss in analysis["losses"])


def workload(accept, name, command, ranks, share):
    """One bundled workload: every rank has kernels, every collective its kernel, nothing is lost."""
    folder, _ = accept.record(name, ["workload", *command, *share], limit=60)
    analysis = accept.analysis(folder)
    busy = [rank for rank in analysis["ranks"] if rank["kernels"]]
    if len(busy) < ranks:
        raise Failed(f"kernels on {len(busy)} of {ranks} ranks")
    if analysis["device"] != DEVICE:
        raise Failed(f"recorded as {analysis['device']}")
    unmatched = [c for c in analysis["collectives"] if not c["matched_by"]]
    if unmatched:
        raise Failed(f"{len(unmatched)} of {len(analysis['collectives'])} collectives not joined over ranks")
    if analysis["losses"]:
        raise Failed(f"lost: {losses_of(analysis)[:80]}")
    return f"{len(busy)} ranks, {len(analysis['collectives'])} collectives"


def last_json(text):
    return json.loads(text.strip().splitlines()[-1])


def profiled_kernels(path):
    """The kernels of a torch.profiler trace: durations in nanoseconds by name."""
    opened = gzip.open if str(path).endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    found = {}
    for event in events:
        if event.get("cat") == "kernel":
            found.setdefault(event["name"], []).append(event["dur"] * 1e3)
    return found


def recorded_kernels(analysis):
    """The same of a recording's analysis: count and median by name. Copies and memsets are no kernels."""
    found = {}
    for rank in analysis["ranks"]:
        for kernel in rank["kernels"]:
            if kernel["kind"] in ("compute", "communication"):
                found[kernel["name"]] = (kernel["count"], kernel["p50_ns"])
    return found


def compare(profiled, recorded):
    """Raises what differs between the two: names, counts, medians of long kernels."""
    wrong, worst = [], 0.0
    for name in sorted(set(profiled) | set(recorded)):
        durations = profiled.get(name, [])
        count, median = recorded.get(name, (0, math.nan))
        if len(durations) != count:
            wrong.append(f"{name[:40]}: {len(durations)} by torch.profiler, {count} by us")
            continue
        theirs = statistics.median(durations)
        if theirs >= LONG_NS:
            difference = abs(median / theirs - 1)
            worst = max(worst, difference)
            if difference > MEDIAN_TOLERANCE:
                wrong.append(f"{name[:40]}: median {theirs:.0f} and {median:.0f} ns")
    if wrong:
        raise Failed(f"{len(wrong)} names differ, the first: {wrong[0]}")
    launches = sum(len(durations) for durations in profiled.values())
    return f"{len(profiled)} names, {launches} kernels, medians within {worst * 100:.1f} %"


def torch_part(accept, name, words, rounds=3):
    """Plain, recorded and profiled in alternation: the same kernels, and what each costs a step."""
    train = [sys.executable, HERE / "train.py", *words]
    times = {"plain": [], "recorded": [], "profiled": []}
    losses = set()
    trace = accept.out / f"{name}.profiler.json"
    folder = None
    for turn in range(rounds):
        said = last_json(accept.run(f"{name}-plain-{turn}", train))
        times["plain"] += said["step_ms"]
        losses.add(said["loss"])
        folder, output = accept.record(name, train, ["--range", "measured"])
        said = last_json(output)
        times["recorded"] += said["step_ms"]
        losses.add(said["loss"])
        said = last_json(accept.run(f"{name}-profiled-{turn}", [*train, "--profile", trace]))
        times["profiled"] += said["step_ms"]
        losses.add(said["loss"])
    medians = {mode: statistics.median(values) for mode, values in times.items()}
    accept.figures[name] = {
        "step_ms": medians,
        "recorded_over_plain": medians["recorded"] / medians["plain"] - 1,
        "profiled_over_plain": medians["profiled"] / medians["plain"] - 1,
    }
    analysis = accept.analysis(folder)
    detail = compare(profiled_kernels(trace), recorded_kernels(analysis))
    if analysis["losses"]:
        raise Failed(f"lost: {losses_of(analysis)[:80]}")
    if len(losses) > 1 and max(losses) - min(losses) > 1e-3 * abs(max(losses)):
        raise Failed(f"losses differ: {sorted(losses)}")
    cost = accept.figures[name]
    return (
        f"{detail}; a step {medians['plain']:.2f} ms, recorded {cost['recorded_over_plain'] * 100:+.1f} %, "
        f"torch.profiler {cost['profiled_over_plain'] * 100:+.1f} %"
    )


def torch_inside(accept):
    """torch.profiler inside a recorded program: its trace is whole, and ours says what it missed."""
    trace = accept.out / "inside.profiler.json"
    # Long enough that it is noticed, and that recording goes on after it.
    train = [sys.executable, HERE / "train.py", "--steps", "10", "--profile", trace, "--rest", "6"]
    folder, _ = accept.record("torch-inside", train)
    analysis = accept.analysis(folder)
    theirs = sum(len(durations) for durations in profiled_kernels(trace).values())
    if theirs == 0:
        raise Failed("torch.profiler saw no kernels while we recorded")
    ours = sum(count for count, _ in recorded_kernels(analysis).values())
    told = any("another profiler" in loss["what"] for loss in analysis["losses"])
    if ours < theirs and not told:
        raise Failed(f"{theirs} kernels by torch.profiler, {ours} by us, and nothing says so")
    return f"{theirs} kernels by torch.profiler, {ours} by us; losses told: {losses_of(analysis)[:60] or 'none'}"


def killed(accept, command):
    """SIGKILL in the middle: what was recorded until then is readable."""
    folder = accept.out / "killed"
    shutil.rmtree(folder, ignore_errors=True)
    words = [accept.gputrace, "record", "--quiet", "--device", DEVICE, "-o", folder, "--", *command]
    recorder = subprocess.Popen(
        [str(word) for word in words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + accept.remaining(60)
    while not list(folder.glob("*/kernels.arrows")):
        if time.monotonic() > deadline or recorder.poll() is not None:
            os.killpg(recorder.pid, signal.SIGKILL)
            raise Failed("no kernels were written before it was to be killed")
        time.sleep(0.1)
    time.sleep(1.0)
    os.killpg(recorder.pid, signal.SIGKILL)
    recorder.wait()
    analysis = accept.analysis(folder)
    kernels = sum(kernel["count"] for rank in analysis["ranks"] for kernel in rank["kernels"])
    if not kernels:
        raise Failed("nothing could be read")
    if not analysis["losses"]:
        raise Failed("the missing end is not told")
    return f"{kernels} operations read; told: {losses_of(analysis)[:50]}"


def dump(accept, share):
    """Raw CUPTI buffers and NCCL events, small enough to keep as test data."""
    folder = accept.out / "dump"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    accept.record(
        "dumped",
        ["workload", "ddp", "--ranks", "2", "--steps", "3", *share],
        environment={"GPUTRACE_DUMP": str(folder)},
    )
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_size)
    if not files:
        raise Failed("nothing was dumped")
    kept = 0
    for file in files:
        data = gzip.compress(file.read_bytes(), mtime=0)
        file.unlink()
        if kept + len(data) <= DUMP_BYTES:
            kept += len(data)
            file.with_name(file.name + ".gz").write_bytes(data)
    return f"{len(list(folder.iterdir()))} of {len(files)} files kept, {kept} bytes"


def bundled_overhead(accept):
    """Steps of the bundled single-GPU workload, recorded and not, in alternation."""
    times = {"plain": [], "recorded": []}
    words = ["workload", "single", "--steps", "200"]
    for turn in range(3):
        texts = {
            "plain": accept.run(f"overhead-plain-{turn}", [accept.gputrace, *words]),
            "recorded": accept.record("overhead", words)[1],
        }
        for mode, text in texts.items():
            found = [line.split(" ms a step")[0].split()[-1] for line in text.splitlines() if " ms a step" in line]
            if not found:
                raise Failed("the workload does not say how long a step took")
            times[mode].append(float(found[-1]))
    plain, recorded = (statistics.median(times[mode]) for mode in ("plain", "recorded"))
    accept.figures["single"] = {"plain_ms": times["plain"], "recorded_ms": times["recorded"]}
    return f"a step {plain:.3f} ms, recorded {recorded:.3f} ms ({(recorded / plain - 1) * 100:+.1f} %)"


def has_gpu():
    found = shutil.which("nvidia-smi") and subprocess.run(
        ["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False
    )
    return len(found.stdout.splitlines()) if found and found.returncode == 0 else 0


def has_torch():
    test = "import torch, sys; sys.exit(0 if torch.cuda.is_available() else 1)"
    return subprocess.run([sys.executable, "-c", test], capture_output=True, check=False).returncode == 0


def main():
    out, binaries = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    gpus = has_gpu() if DEVICE == "cuda" else 8
    if not gpus:
        print("no NVIDIA GPU here: nothing was run")
        return 0
    out.mkdir(parents=True, exist_ok=True)
    accept = Acceptance(out, binaries)
    accept.part("doctor", lambda: accept.run("doctor", [accept.gputrace, "doctor"]) and "")
    if DEVICE == "cuda":
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        accept.part("versions", lambda: accept.run("nvidia-smi", query).strip().splitlines()[0])

    share = ["--share-gpus"] if gpus < 4 else []
    scale = {"SIMGPU_SCALE": "1"} if DEVICE == "sim" else {}
    check = [accept.gputrace, "workload", "check", "--ranks", "2", *share]
    accept.part("check", lambda: accept.run("check", check, 90, scale).strip().splitlines()[-1][:80])
    # The comparison first: it is what nothing else can show.
    if DEVICE == "cuda" and has_torch():
        accept.part("torch perceptron", torch_part, accept, "perceptron", ["--model", "perceptron"])
        accept.part("torch transformer", torch_part, accept, "transformer", ["--model", "transformer"])
        accept.part("torch CUDA graph", torch_part, accept, "graph", ["--graph"], rounds=1)
        compiled = ["--model", "transformer", "--compile"]
        accept.part("torch.compile", torch_part, accept, "compile", compiled, rounds=1)
        accept.part("torch.profiler inside", torch_inside, accept)
        accept.part("kill -9, PyTorch", killed, accept, [sys.executable, HERE / "train.py", "--steps", "100000"])
    else:
        state = "skip" if DEVICE == "sim" else "FAIL"
        accept.line("torch.profiler", state, 0.0, "needs PyTorch with CUDA and a real GPU")
    accept.part("kill -9, workload", killed, accept, ["workload", "single", "--steps", "100000"])
    accept.part("dump", dump, accept, share)
    if DEVICE == "cuda":
        accept.part("cost of recording", bundled_overhead, accept)

    small = ["--steps", "6"]
    accept.part("single", workload, accept, "single", ["single", *small], 1, [])
    bf16 = ["single", "--model", "transformer", "--dtype", "bf16", *small]
    accept.part("single transformer bf16", workload, accept, "transformer-bf16", bf16, 1, [])
    accept.part("async", workload, accept, "async", ["async"], 1, [])
    for ranks in (2, 4):
        count = ["--ranks", str(ranks)]
        for way in ("ddp", "fsdp", "tp", "pp", "ring", "collectives"):
            command = [way, *count]
            if way in ("ddp", "fsdp", "tp", "pp"):
                command += small
            if way == "pp":
                command += ["--layers", str(ranks)]
            if way == "collectives":
                command += ["--max-bytes", "1M"]
            accept.part(f"{way} on {ranks} ranks", workload, accept, f"{way}-{ranks}", command, ranks, share)
    if gpus >= 2:
        for way in ("dp", "mp", "p2p"):
            accept.part(f"{way} on 2 GPUs", workload, accept, way, [way, "--ranks", "2"], 1, [])
    else:
        accept.line("dp, mp, p2p", "skip", 0.0, "one process with several GPUs: there is one GPU")

    failed = sum(line["state"] == "FAIL" for line in accept.lines)
    with open(out / "results.json", "w", encoding="utf-8") as file:
        json.dump({"lines": accept.lines, "figures": accept.figures}, file, indent=1)
    print(f"{len(accept.lines)} parts, {failed} failed, {time.monotonic() - accept.begun:.0f} s; logs in {out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
