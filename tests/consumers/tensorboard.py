"""What TensorBoard's two profiler plugins say of a folder: every endpoint's answer, as one JSON object on stdout.

    python tensorboard.py LOGDIR torch|xprof

TensorBoard is started on a free port of this machine and ended again. An endpoint that does not answer 200 is in the result with its status, so that a test
sees what the plugin refuses.
"""

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request


def fetch(url):
    """The answer's status and content, JSON where it is JSON."""
    try:
        with urllib.request.urlopen(url, timeout=120) as answer:
            body, status = answer.read(), answer.status
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")[:500]
    if body[:2] == b"\x1f\x8b":
        body = gzip.decompress(body)
    try:
        return status, json.loads(body, strict=True)
    except ValueError as error:
        at = getattr(error, "pos", 0)
        return status, {"not JSON": str(error), "there": body.decode(errors="replace")[max(at - 150, 0) : at + 50]}


class TensorBoard:
    """A running TensorBoard over a folder."""

    def __init__(self, logdir):
        self.log = tempfile.NamedTemporaryFile(prefix="tensorboard", suffix=".log")
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", logdir, "--port", "0"]
        command += ["--host", "127.0.0.1", "--load_fast", "false"]
        environment = dict(os.environ, PYTHONWARNINGS="ignore")
        self.process = subprocess.Popen(
            command, stdout=self.log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
        self.address = None
        begun = time.monotonic()
        while self.address is None:
            if self.process.poll() is not None or time.monotonic() - begun > 120:
                self.end()
                raise SystemExit("TensorBoard did not start:\n" + self.text()[-3000:])
            found = re.search(r"at (http://[^ ]+?)/? ", self.text())
            self.address = found and found.group(1)
            time.sleep(0.1)

    def text(self):
        self.log.flush()
        with open(self.log.name, "rb") as log:
            return log.read().decode(errors="replace")

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, 15)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, 9)


def torch(board):
    """Everything that torch-tb-profiler answers."""
    base = board.address + "/data/plugin/pytorch_profiler"

    def get(path, **query):
        status, body = fetch(base + path + ("?" + urllib.parse.urlencode(query) if query else ""))
        return body if status == 200 else {"status": status, "text": body}

    begun = time.monotonic()
    while True:
        runs = get("/runs")
        if isinstance(runs, dict) and runs.get("runs") and not runs.get("loading"):
            break
        if time.monotonic() - begun > 120:
            break
        time.sleep(0.2)
    result = {"runs": {}}
    for run in runs.get("runs", []):
        views = get("/views", run=run)
        found = result["runs"][run] = {"views": views, "workers": {}, "spans": {}, "profiles": {}, "distributed": {}}
        for view in views:
            found["workers"][view] = get("/workers", run=run, view=view)
        for worker in found["workers"].get("Overview", []):
            found["spans"][worker] = get("/spans", run=run, worker=worker)
            for span in found["spans"][worker]:
                at = {"run": run, "worker": worker, "span": span}
                answers = {
                    "overview": get("/overview", **at),
                    "operation": get("/operation", group_by="Operation", **at),
                    "operation/table": get("/operation/table", group_by="Operation", **at),
                    "operation/table by input": get("/operation/table", group_by="OperationAndInputShape", **at),
                    "trace": get("/trace", **at),
                    "tree": get("/tree", **at),
                }
                if "Kernel" in views:
                    answers["kernel"] = get("/kernel", **at)
                    answers["kernel/table"] = get("/kernel/table", group_by="Kernel", **at)
                    answers["kernel/table by operator"] = get("/kernel/table", group_by="KernelNameAndOpName", **at)
                    answers["kernel/tc_pie"] = get("/kernel/tc_pie", **at)
                if "Memory" in views:
                    answers["memory"] = get("/memory", **at)
                    answers["memory_curve"] = get("/memory_curve", **at)
                    answers["memory_events"] = get("/memory_events", **at)
                found["profiles"][f"{worker} {span}"] = answers
        if "Distributed" in views:
            for span in get("/spans", run=run, worker="All"):
                at = {"run": run, "worker": "All", "span": span}
                found["distributed"][str(span)] = {
                    name: get("/distributed/" + name, **at) for name in ("gpuinfo", "overlap", "waittime", "commops")
                }
    return result


def xprof(board):
    """Everything of XProf that has numbers of GPUs."""
    base = board.address + "/data/plugin/profile"

    def get(path, **query):
        status, body = fetch(base + path + ("?" + urllib.parse.urlencode(query) if query else ""))
        return body if status == 200 else {"status": status, "text": body}

    result = {"runs": {}}
    begun = time.monotonic()
    while not (runs := get("/runs")) and time.monotonic() - begun < 60:
        time.sleep(0.2)
    for run in runs:
        tools = get("/run_tools", run=run)
        found = result["runs"][run] = {"tools": tools, "hosts": {}, "answers": {}}
        for tool in ("overview_page", "trace_viewer@", "kernel_stats", "input_pipeline_analyzer", "framework_op_stats"):
            if tool not in tools:
                continue
            hosts = [host["hostname"] for host in get("/hosts", run=run, tag=tool)]
            found["hosts"][tool] = hosts
            for host in hosts:
                found["answers"][f"{tool} {host}"] = get("/data", run=run, tag=tool, host=host)
    return result


def main():
    logdir, plugin = sys.argv[1:3]
    board = TensorBoard(logdir)
    try:
        result = torch(board) if plugin == "torch" else xprof(board)
    finally:
        board.end()
    result["log"] = [
        line for line in board.text().splitlines() if re.search(r"^[WE]\d{4} |Error|Exception|WARNING|ERROR", line)
    ][:200]
    print(json.dumps(result))


main()
