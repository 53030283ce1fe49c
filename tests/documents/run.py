#!/usr/bin/env python3
"""Tries every block of code in the documents: commands are run, Python too, files are read by the program.

usage: run.py REPORT [DOCUMENT...]

REPORT is an Nsight Systems export. GPUTRACE names the program, FRAMES a Python with pyarrow and others, PERFETTO Perfetto's engine;
without one of the latter two what needs it is skipped, and said. VERBOSE=1 prints each command with its time. What blocks are is in
table.py. A line for each thing that is wrong; status 1 if there is one.
"""
import concurrent.futures
import glob
import http.cookiejar
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request

import table

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PATIENCE = 120
COMMANDS = re.compile(r"""(\$[ ])?([A-Z_]+=\S+[ ])*
    (gputrace|cargo|pip|sudo|tar|export|docker|sbatch|srun|ssh|kill|umask|chmod|mkdir|tensorboard|packaging/\w+|tests/gpu/\S+)([ ]|$)""", re.VERBOSE)
SERVERS = re.compile(r"^gputrace (view|serve|demo)\b")



def installed(name):
    return lambda: shutil.which(name)


def hosts():
    """Whether a program can have another host's name here."""
    return subprocess.run(["unshare", "--user", "--map-current-user", "--uts", "true"], stderr=subprocess.DEVNULL).returncode == 0


# What a command needs that a machine may lack.
NEEDED = [(rf"\b{name}\b", installed(name)) for name in ("jq", "curl", "openssl")] + [(r"node0\b", hosts)]

used = set()


def looked_up(entries, document, text):
    """The entry of a table that is of a block or a command."""
    for key in entries:
        of, begins = key[:2]
        if of == document and text.startswith(begins):
            used.add((id(entries), key))
            return entries[key]
    return None


def documents():
    for pattern in ("README.md", "docs/*.md", "docs/tutorial/*.md", "python/README.md"):
        yield from sorted(os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, pattern)))


def blocks(text):
    """(line, lines) of each block: fenced, or indented by four behind an empty line."""
    found, inside, fence, before = [], None, False, ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            fence = not fence
            inside = (number, []) if fence else None
            if fence:
                found.append(inside)
        elif fence:
            inside[1].append(line)
        elif line.startswith("    ") and (inside or not before.strip()):
            if not inside:
                inside = (number, [])
                found.append(inside)
            inside[1].append(line[4:])
        elif not line.strip() and inside:
            inside[1].append("")
        else:
            inside = None
        before = line
    for number, lines in found:
        while lines and not lines[-1].strip():
            lines.pop()
        yield number, lines


def command_of(line):
    """A line without what is said of it, which stands two blanks away from the command."""
    return re.split(r" {2,}", line.strip())[0]


def commands(lines):
    """(command, what it is shown to print) of each, in order."""
    lines, found, at = list(lines), [], 0
    behind_gap = False
    has_prompts = any(line.startswith("$ ") for line in lines)
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.strip():
            behind_gap = True
            continue
        if found and behind_gap and not COMMANDS.match(line):
            found[-1][1].append(line)
            continue
        behind_gap = False
        if found and (not line.startswith("$ ") if has_prompts else line.startswith(" ")):
            found[-1][1].append(line)
            continue
        line = line[2:] if line.startswith("$ ") else line
        while line.endswith("\\"):
            line = line[:-1] + lines[at].strip()
            at += 1
        found.append((command_of(line), []))
    return found


def replaced(document, command):
    for place, (of, pattern, instead) in enumerate(table.REPLACED):
        if of in ("", document) and re.search(pattern, command, re.MULTILINE):
            used.add(("REPLACED", place))
            command = re.sub(pattern, instead, command, flags=re.MULTILINE)
    return command


NUMBER = re.compile(r"0x[0-9a-f]+|\b([0-9A-F]{2}:)+|[0-9]+\.[0-9]{6}\b|[0-9][0-9,]*(\.[0-9]+)?")


def pattern_of(line):
    """Finds a line in what was printed: figures may differ, but for losses, which six decimals tell."""
    parts, at = [], 0
    line = re.sub(r"on host \w+", "on host [...]", " ".join(line.split()))
    for match in NUMBER.finditer(line):
        parts.append(re.escape(line[at:match.start()]))
        exact = re.fullmatch(r"[0-9]+\.[0-9]{6}", match.group())
        parts.append(re.escape(match.group()) if exact else r"(0x)?[0-9a-fA-F][0-9a-fA-F,.:]*")
        at = match.end()
    text = "".join(parts) + re.escape(line[at:])
    text = re.sub(r"(\\ )*(\\\[\\\.\\\.\\\.\\\]|\\\.\\\.\\\.|…)(\\ )*", ".*?", text)
    # Units come with the figures.
    return re.compile(re.sub(r"\\ (ns|µs|ms|s|B|KiB|MiB|GiB)(?=\\ |\\,|\\\)|$)", r"\\ (ns|µs|ms|s|B|KiB|MiB|GiB)", text))


def free_port():
    """With the one after it, on which a workload's ranks meet; none that the system gives to others meanwhile."""
    for port in random.sample(range(20000, 30000, 2), 100):
        try:
            with socket.socket() as first, socket.socket() as second:
                first.bind(("127.0.0.1", port))
                second.bind(("127.0.0.1", port + 1))
                return port
        except OSError:
            continue
    raise OSError("no free port")


class Skipped(Exception):
    """What this machine lacks."""


class Wrong(Exception):
    """What a document says and is not so."""


class Folder:
    """Where a document's reader is: with recordings, traces and programs of the names that documents use."""

    def __init__(self, prepared, document):
        self.path = os.path.join(os.path.dirname(prepared), document.replace("/", "-"))
        self.printed, self.groups = "", []
        os.makedirs(self.path)
        for name in os.listdir(prepared):
            os.symlink(os.path.join(prepared, name), os.path.join(self.path, name))
        self.environment = environment(self.path)

    def run(self, command, statuses=(0,)):
        for pattern, needed in NEEDED:
            if re.search(pattern, command) and not needed():
                raise Skipped(command)
        # Made by what was shown before in its place, or prepared for documents that do not make it.
        for name in re.findall(r"(?:-o|--output|--tables|--save|mkdir) (\S+)", command):
            given = os.path.join(self.path, name.rstrip("/"))
            if os.path.islink(given) or os.path.isfile(given):
                os.unlink(given)
            elif os.path.isdir(given):
                shutil.rmtree(given)
        with tempfile.TemporaryFile("w+", errors="replace") as said:
            began = time.monotonic()
            child = subprocess.Popen(["bash", "-ec", command], cwd=self.path, env=self.environment, stdin=subprocess.DEVNULL,
                                     stdout=said, stderr=subprocess.STDOUT, start_new_session=True)
            self.groups.append(child.pid)
            try:
                if SERVERS.match(command):
                    self.visit(child, said)
                status = child.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                raise Wrong(f"{command}: still runs after {PATIENCE} s") from None
            said.seek(0)
            text = said.read()
        self.printed += text
        if os.environ.get("VERBOSE"):
            print(f"    {time.monotonic() - began:.1f} s  {command}", flush=True)
        if status not in statuses:
            raise Wrong(f"{command}: status {status}: {text.strip()[-1500:]}")
        return text

    def write(self, name, text):
        path = os.path.join(self.path, name)
        if os.path.islink(path):
            os.unlink(path)
        with open(path, "w") as file:
            file.write(text)

    def visit(self, child, said):
        """Opens the page of a server as a browser does, and ends the server as Ctrl-C does."""
        address, until = None, time.monotonic() + PATIENCE
        while not address and child.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
            said.seek(0)
            address = re.search(r"^(https?://\S+)$", said.read(), re.MULTILINE)
        if not address:
            raise Wrong("no address is printed")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        browser = urllib.request.build_opener(jar, urllib.request.HTTPSHandler(context=context), urllib.request.ProxyHandler({}))
        try:
            page = browser.open(address.group(1)).read().decode()
        except OSError as error:
            raise Wrong(f"{address.group(1)}: {error}") from None
        finally:
            os.killpg(child.pid, signal.SIGINT)
        if "<title>" not in page:
            raise Wrong(f"no page at {address.group(1)}")

    def shows(self, lines, text=None):
        """That lines of a document are among what was printed."""
        text = " ".join((self.printed if text is None else text).split())
        for line in lines:
            if line.strip(" .") and not pattern_of(line).search(text):
                raise Wrong(f"not printed: {line.strip()}\n{text[-3000:]}")

    def python(self, cells):
        python = os.environ.get("FRAMES")
        if not python:
            raise Skipped("no pyarrow, pandas and polars")
        script = "".join(f"exec(compile({text!r}, {place!r}, 'exec'))\n" for place, text in cells)
        done = subprocess.run([python, "-c", script], cwd=self.path, env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE)
        if done.returncode:
            raise Wrong(f"Python: {done.stdout[-1500:]}")

    def perfetto(self, trace, queries):
        engine = os.environ.get("PERFETTO")
        if not engine:
            raise Skipped("no engine of Perfetto's")
        done = subprocess.run(["node", os.path.join(ROOT, "tests/consumers/trace_processor.mjs"), engine, trace], cwd=self.path,
                              input=json.dumps(queries), stdout=subprocess.PIPE, text=True, timeout=PATIENCE)
        answer = json.loads(done.stdout)
        for query, rows in zip(queries, answer.get("answers", [answer])):
            if not rows.get("rows"):
                raise Wrong(f"{query}: {rows}")

    def close(self):
        for group in self.groups:
            try:
                os.killpg(group, signal.SIGTERM)
            except ProcessLookupError:
                pass


def environment(folder):
    ours = ("SIMGPU_", "GPUTRACE", "NCCL_", "CUDA_", "NVTX_", "SLURM_", "OMPI_", "PMI", "RANK", "WORLD_SIZE", "LOCAL_", "COLUMNS")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    home = os.path.join(folder, "home")
    os.makedirs(os.path.join(home, "tmp"), exist_ok=True)
    programs = os.path.join(os.path.dirname(folder), "programs")
    return {
        **kept,
        "PATH": programs + os.pathsep + kept["PATH"],
        "PYTHONPATH": os.pathsep.join([os.path.join(ROOT, "python"), os.path.join(ROOT, "tests/programs")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "GPUTRACE": os.environ["GPUTRACE"],
        "HOME": home,
        "TMPDIR": os.path.join(home, "tmp"),
        "XDG_RUNTIME_DIR": home,
        "MPLBACKEND": "agg",
        "PORT": str(free_port()),
        # A hundred times as fast as simulated GPUs are otherwise, where a command does not say it.
        "SIMGPU_SCALE": "10",
    }


def write_program(path, text):
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)


# gputrace as it is on a machine with GPUs, simulated ones, and without a browser.
GPUTRACE = """#!/bin/sh
command=$1
[ $# = 0 ] || shift
case $command in
    record) exec "$GPUTRACE" record --device sim "$@" ;;
    view | demo) exec "$GPUTRACE" "$command" --no-open "$@" ;;
    '') exec "$GPUTRACE" ;;
    *) exec "$GPUTRACE" "$command" "$@" ;;
esac
"""

# A training script: steps of a few kernels.
TRAIN = """import gpu
import gputrace

program = gpu.Gpu()
for i in range(130):
    with gputrace.step(i), gputrace.capture():
        program.launch(3)
        program.read()
"""


def prepare(work, sqlite):
    """What documents have names for: recordings, traces and programs."""
    programs, prepared = os.path.join(work, "programs"), os.path.join(work, "prepared")
    os.makedirs(programs)
    os.makedirs(prepared)
    write_program(os.path.join(programs, "gputrace"), GPUTRACE)
    for name in ("torchrun", "mpirun", "srun"):
        shutil.copy(os.path.join(HERE, "launch"), os.path.join(programs, name))
    write_program(os.path.join(programs, "python"), f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    write_program(os.path.join(prepared, "train"), "#!/bin/sh\nexec python train.py\n")

    def given(name):
        return os.path.join(prepared, name)

    with open(given("train.py"), "w") as file:
        file.write(TRAIN)
    shutil.copy(sqlite, given("report.sqlite"))
    traces = os.path.join(ROOT, "tests/data/kineto/dlrm8_v100")
    os.makedirs(given("traces"))
    for rank in (0, 1):
        trace = glob.glob(os.path.join(traces, f"worker{rank}_*"))[0]
        shutil.copy(trace, given("traces"))
        shutil.copy(trace, given(f"rank{rank}.json.gz"))
    shutil.copy(glob.glob(os.path.join(ROOT, "tests/data/operators/h100_qwen/*.json.gz"))[0], given("operators.json.gz"))
    for name in ("one-node.sbatch", "two-nodes.sbatch"):
        shutil.copy(os.path.join(ROOT, "docs/examples", name), prepared)
    with open(os.path.join(ROOT, "docs/ci.md")) as file:
        budget = next(lines for _, lines in blocks(file.read()) if lines[0].startswith("step.p50"))
    with open(given("budget.toml"), "w") as file:
        # What can be judged of any run.
        file.write("\n".join(line for line in budget if line.startswith(("step", "idle", "lost")) and "+" not in line))

    def run(command):
        subprocess.run(["bash", "-ec", command], cwd=prepared, env=environment(prepared), check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    job = "gputrace workload --trace-only --one-host --ranks 9 --events 5000 --layers 1"
    run(f"{job} -o run1; {job} -o run2 --slow-rank 3; mkdir runs; cp -r run1 runs/first")
    run("gputrace partial run1 --ranks 0..7 -o 0.partial; gputrace partial run1 --ranks 8..8 -o 1.partial")
    run("gputrace workload --trace-only --ranks 16 --events 1000 --layers 1 -o hosts")
    run("gputrace record -o my-run -- workload single --steps 2 --save state")
    process = next(path for path in glob.glob(given("my-run/*/kernels.arrows")))
    os.rename(os.path.dirname(process), given("my-run/rank0"))
    node = "gputrace record -o node{0}/run1 -- torchrun --nnodes 2 --node-rank {0} --no-python gputrace workload ddp --steps 2"
    if hosts():
        run("mkdir node0 node1; " + node.format(0) + " & " + node.format(1) + " && wait $!")
    for name in ("run", "before", "a1", "a2", "a3", "RECORDING"):
        os.symlink("run1", given(name))
    for name in ("after", "b1", "b2", "b3"):
        os.symlink("run2", given(name))
    shutil.rmtree(given("home"))
    return prepared


def tried(document, prepared):
    """What is wrong with a document, and what was skipped."""
    with open(os.path.join(ROOT, document)) as file:
        found = list(blocks(file.read()))
    folder, wrong, skipped, ran = Folder(prepared, document), [], [], 0
    cells, queries = [], {}

    def attempt(number, what):
        try:
            what()
        except Wrong as error:
            wrong.append(f"{document}:{number}: {error}")
        except Skipped as error:
            skipped.append(f"{document}:{number}: {error}")

    known = [(number, lines, looked_up(table.BLOCKS, document, lines[0].strip())) for number, lines in found]
    for _, lines, entry in known:
        if entry and entry[0] == table.FILE:
            folder.write(entry[1], "".join(replaced(document, line) + "\n" for line in lines))
    for number, lines, entry in known:
        kind = entry[0] if entry else None
        if kind in (table.NONE, table.FILE):
            continue
        if kind == table.OUTPUT:
            attempt(number, lambda: folder.shows([line for line in lines if not entry[1] or not re.match(entry[1], line)]))
        elif kind == table.PYTHON or not entry and re.match(r"import |from ", lines[0]):
            if entry and entry[1]:
                cells.append((document, entry[1]))
            cells.append((f"{document}:{number}", "\n".join(lines)))
            ran += 1
        elif kind == table.PERFETTO:
            queries.setdefault(entry[1], []).append("\n".join(lines))
            ran += 1
        elif kind == table.REFUSED:
            if len(entry[1]) != len(lines):
                wrong.append(f"{document}:{number}: {len(lines)} lines, but {len(entry[1])} commands in the table")
            for command, line in zip(entry[1], lines):
                attempt(number, lambda: folder.shows([line], folder.run(command, (2,))))
                ran += 1
        elif kind == table.SCRIPT:
            script = "\n".join(replaced(document, line) for line in lines)
            attempt(number, lambda: folder.run(script))
            ran += 1
        elif kind == table.YAML or COMMANDS.match(lines[0]):
            if kind == table.YAML:
                lines = [match.group(1) for match in map(re.compile(r" *- (?:run: )?(gputrace .*)").fullmatch, lines) if match]
            for command, output in commands(lines):
                if looked_up(table.LEFT_OUT, document, command) is not None:
                    continue
                if not COMMANDS.match(command):
                    wrong.append(f"{document}:{number}: neither run nor listed in tests/documents/table.py: {command}")
                    continue
                statuses = looked_up(table.STATUS, document, command) or (0,)
                attempt(number, lambda: folder.shows(output, folder.run(replaced(document, command), statuses)))
                ran += 1
        else:
            wrong.append(f"{document}:{number}: neither run nor listed in tests/documents/table.py: {lines[0]}")
    if cells:
        attempt(0, lambda: folder.python(cells))
    for trace, texts in queries.items():
        attempt(0, lambda: folder.perfetto(trace, texts))
    folder.close()
    return wrong, skipped, ran


def main():
    sqlite, *chosen = sys.argv[1:]
    # A short path: those of sockets are limited.
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="d") as work:
        prepared = prepare(work, sqlite)
        everything = list(documents())
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda document: tried(document, prepared), chosen or everything))
    wrong = [line for lines, _, _ in answers for line in lines]
    if not chosen:
        for entries in (table.BLOCKS, table.LEFT_OUT, table.STATUS):
            wrong += [f"tests/documents/table.py: no document has {key}" for key in entries if (id(entries), key) not in used]
        wrong += [f"tests/documents/table.py: nothing is {row}" for at, row in enumerate(table.REPLACED) if ("REPLACED", at) not in used]
    for line in wrong:
        print("WRONG", line)
    for _, lines, _ in answers:
        for line in lines:
            print("SKIPPED", line)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(json.dumps({"tried": sum(ran for _, _, ran in answers), "wrong": len(wrong), "cpu_s": round(spent.ru_utime + spent.ru_stime, 1)}))
    sys.exit(bool(wrong))


main()
