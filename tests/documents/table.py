"""How the documents' blocks are tried, where a block does not tell it itself. Each line of these tables has to be used.

A block is known by its document and by how its first line begins, a command by its document and by how it begins.
"""

# --- Blocks that are no commands. Those that begin with a command's name are; those that begin with "import " are Python.

# What the commands before it print: ("output", pattern of lines that may not be there another time).
OUTPUT = "output"
# A file of the document's folder: ("file", name). Commands read it.
FILE = "file"
# Python, behind the commands: ("python", what the reader has before it).
PYTHON = "python"
# Queries of Perfetto: ("perfetto", trace). They are asked of it.
PERFETTO = "perfetto"
# Lines below "run:" or "script:" are commands.
YAML = "yaml"
# What other commands print, which are wrong and said with status 2: ("refused", [command, ...]), a line each.
REFUSED = "refused"
# All lines in one shell.
SCRIPT = "script"
# Left out, and why: ("none", reason).
NONE = "none"

BLOCKS = {
    ("README.md", "no GPU found here"): (OUTPUT, r" +- |   |no GPU found here|.*(none|itself \(\S+ ms\))$"),
    ("README.md", "training process "): (NONE, "a picture"),
    ("docs/ci.md", "step.p50"): (FILE, "budget.toml"),
    ("docs/ci.md", "name: performance"): (YAML,),
    ("docs/ci.md", "performance:"): (YAML,),
    ("docs/clocks.md", '{"node1"'): (FILE, "clocks.json"),
    ("docs/clusters.md", "rank 5 (pid"): (NONE, "a rank is killed in tests/recording/rank_dies.rs"),
    ("docs/daemon.md", "[nodes]"): (NONE, "read in daemon/src/config.rs's tests; certificates of two nodes in daemon/tests"),
    ("docs/daemon.md", "scrape_configs"): (NONE, "Prometheus reads it"),
    ("docs/exporting.md", "run1.json: "): (OUTPUT, None),
    ("docs/formats.md", "my-run/"): (NONE, "a picture of a folder; trace/tests/documents.rs has the tables"),
    ("docs/formats.md", '{"format":"workload'): (NONE, "shown in two lines; the Python below reads the line itself"),
    ("docs/formats.md", "import json, numpy"): (PYTHON, ""),
    ("docs/install.md", "import gputrace"): (PYTHON, "i, batch, train = 3, None, print"),
    ("docs/install.md", "RUN pip install"): (NONE, "a line of a Dockerfile: packaging/try installs in root file systems"),
    ("docs/parquet.md", "run1.parquet/"): (NONE, "a picture of a folder; tests/formats/parquet.rs has its files"),
    ("docs/parquet.md", "SELECT "): (NONE, "tests/consumers/parquet_counts.py asks DuckDB each query of the document"),
    ("docs/parquet.md", "import pyarrow.dataset"): (PYTHON, "t0, t1 = 0, 2**62"),
    ("docs/parquet.md", "kernels = spark"): (NONE, "needs Spark"),
    ("docs/perfetto.md", "select "): (PERFETTO, "run.pftrace"),
    ("docs/python.md", "import gputrace"): (PYTHON, "loader, model, train = [1, 2], abs, print"),
    ("docs/python.md", "with gputrace.Profile"): (PYTHON, ""),
    ("docs/python.md", "Trainer("): (NONE, "tests/recording/python_marks.rs runs docs/examples, where the frameworks are"),
    ("docs/python.md", "run = gputrace.open"): (PYTHON, ""),
    ("docs/pytorch.md", "import gputrace.torch"): (NONE, "needs PyTorch: tests/recording/pytorch_operators.rs"),
    ("docs/scale.md", "ranks         rows"): (NONE, "what a bench prints: cargo bench --bench scale"),
    ("docs/simulated-gpus.md", "time = latency"): (NONE, "a formula"),
    ("docs/viewer.md", "export GPUTRACE_TOKEN"): (SCRIPT,),
    ("docs/workloads.md", "rank       collective"): (OUTPUT, None),
    ("docs/workloads.md", "9 ranks but 8 GPUs"): (
        REFUSED,
        [
            "gputrace workload ddp --ranks 9",
            "gputrace workload ddp --batch 255",
            "gputrace workload pp --ranks 4 --layers 2",
            "gputrace workload tp --ranks 8 --model transformer --heads 4",
        ],
    ),
    ("docs/workloads.md", "#       size"): (OUTPUT, None),
    ("python/README.md", "import gputrace"): (PYTHON, "i = 3"),
    ("python/README.md", "run = gputrace.open"): (PYTHON, ""),
}

# --- Commands that are not run, and why.

BUILDS = "builds what CI builds"
NETWORK = "needs the network"
BENCH = "a bench: minutes of the whole machine"
SLURM = "needs a cluster: tests/recording/sbatch.rs and tests/clusters"
PACKAGES = "takes a quarter of an hour: CI runs it where packages are asked for (.ci/run)"

LEFT_OUT = {
    ("README.md", "pip install"): NETWORK,
    ("README.md", "cargo test"): BUILDS,
    ("README.md", "gputrace analyze run1 --on slurm"): SLURM,
    ("docs/clusters.md", "sbatch "): SLURM,
    ("docs/gpu.md", "cargo build"): BUILDS,
    ("docs/gpu.md", "tests/gpu/accept.sh"): "needs a GPU",
    ("docs/install.md", "pip install"): "packaging/try does it",
    ("docs/install.md", "sudo apt install"): "changes the machine",
    ("docs/install.md", "tar xzf"): "packaging/check unpacks it",
    ("docs/install.md", "export PATH="): "packaging/check unpacks it",
    ("docs/install.md", "docker run"): "needs a container engine",
    ("docs/install.md", "packaging/"): PACKAGES,
    ("docs/other-tools.md", "cargo bench"): BENCH,
    ("docs/scale.md", "sbatch "): SLURM,
    ("docs/scale.md", "gputrace reduce *.partial --clocks-to"): "of the array jobs before it",
    ("docs/scale.md", "gputrace analyze run1 --on slurm"): SLURM,
    ("docs/scale.md", "gputrace analyze run1 --on ray"): "needs a cluster: tests/formats/spread.rs",
    ("docs/simulated-gpus.md", "cargo run"): "builds an example; simgpu/tests/times.rs has what it prints",
    ("docs/tensorboard.md", "pip install"): NETWORK,
    ("docs/tensorboard.md", "tensorboard "): "a server of others: tests/formats/tensorboard.rs and xplane.rs ask its plugins",
    ("docs/viewer.md", "ssh "): "needs another machine",
}


def until(command):
    """Goes on when it ends with 0, after 20 s at the latest."""
    return f"for _ in $(seq 200); do {command} && break || sleep 0.1; done"


# --- What stands for what the reader has: (document, or "" for all, pattern, what is put there).

REPLACED = [
    # The program of this build.
    ("README.md", r"^cargo run --release -- ", "SIMGPU_SCALE=1000 gputrace "),
    ("docs/perfetto.md", r"--gpu-stages -o run.pftrace", "--gpu-stages -o stages.pftrace"),
    # Hosts and ports are this machine's. A rank alone is all.
    ("docs/clusters.md", r"^RANK=0 WORLD_SIZE=16 LOCAL_RANK=0 LOCAL_WORLD_SIZE=8", "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1"),
    ("docs/clusters.md", r"MASTER_ADDR=node1 MASTER_PORT=29500", "MASTER_ADDR=127.0.0.1 MASTER_PORT=$PORT"),
    ("docs/clusters.md", r"--master-addr node1 --master-port 29500", "--master-addr 127.0.0.1 --master-port $PORT"),
    ("docs/clusters.md", r"MASTER_ADDR=node1 (?=-|\\)", "MASTER_ADDR=127.0.0.1 "),
    ("docs/viewer.md", r"--listen 10\.0\.0\.5 --host-name node7", "--listen 0.0.0.0 --host-name localhost"),
    ("docs/viewer.md", r"(--port |127\.0\.0\.1:)7007", r"\g<1>$PORT"),
    ("docs/clocks.md", r"^gputrace analyze run1", "gputrace analyze hosts"),
    ("docs/clocks.md", r"node1", "sim-0"),
    ("docs/clocks.md", r"node2", "sim-1"),
    # Few steps and small sizes are enough, but where figures are compared.
    ("", r"^(?!SIMGPU_SCALE)(.*workload (ddp|fsdp|3d|tp)\b(?!.*--steps).*)$", r"\1 --steps 6"),
    ("", r"(workload collectives .*--ranks )8", r"\g<1>4"),
    ("docs/workloads.md", r"3d --ranks 16", "3d --ranks 8"),
    ("", r"--max-bytes 128M", "--max-bytes 64K"),
    ("docs/workloads.md", r"--variant blocking,late-wait --compute 3 --bytes 64M", "--variant blocking,late-wait --compute 3 --bytes 1M"),
    ("docs/scale.md", r"--ranks 1000 --events 100000 --slow-rank 417", "--ranks 40 --events 2000 --slow-rank 17"),
    ("docs/exporting.md", r"--range 2\.5\.\.3", "--range 0.2..0.3"),
    # The other node of two does the same.
    ("docs/clusters.md", r"^gputrace record -o run1-node0 (.*)--node-rank 0(.*)$",
     r"gputrace record -o run1-node0 \1--node-rank 0\2 & gputrace record -o run1-node1 \1--node-rank 1\2 && wait $!"),
    # What "..." and "WAY" stand for.
    ("docs/exporting.md", r"torchrun \.\.\. train.py", "torchrun train.py"),
    ("docs/privacy.md", r"(--follow-umask -o )/shared/run1 -- \.\.\.", r"\1shared -- python train.py"),
    ("docs/workloads.md", r"workload WAY", "workload tp"),
    ("docs/workloads.md", r"(--pipeline (1f1b|gpipe)) \.\.\.",
     r"\1 --ranks 4 --sizes 512,512,512,512,512,512,512,512,512 --batch 512 --steps 6 --microbatches 16"),
    # Nothing was saved before.
    ("docs/ci.md", r"^gputrace check run .*--baseline main",
     r"[ -e home/.saved ] || { gputrace baseline save main run && touch home/.saved; }; \g<0>"),
    # A recording of gputrace.torch.operators() has modules, and so have PyTorch's traces.
    ("", r"^gputrace analyze run1 --by", "gputrace analyze operators.json.gz --by"),
    # The process that records is one.
    ("docs/recording.md", r"^kill -USR1 RECORDER", "gputrace record -o paused -- sh -c 'kill -USR1 $PPID; python train.py'"),
    # What runs beside what follows.
    ("docs/daemon.md", r"^gputrace daemon --user$", "gputrace daemon --user > said 2>&1 & " + until("gputrace jobs")),
    ("docs/daemon.md", r"^gputrace env --shell$",
     'eval "$(gputrace env --shell)" && { gputrace workload ddp --steps 4000 > job 2>&1 & } && ' + until("gputrace jobs | grep ' ms'")),
    ("docs/daemon.md", r"^gputrace top$", "gputrace top --once"),
    # The numbers that the answer before it has; the first answers are that it is still being read.
    ("docs/viewer.md", r"^ask /api/recordings .*", until("ask /api/recordings > list") + r"\n\g<0>"),
    ("docs/viewer.md", r"^ask /api/rec/\$ID/info",
     r"ID=$(jq -r '.recordings[0].id' list)\n"
     + until("GENERATION=$(ask /api/rec/$ID/info | jq -er 'select(.analysed).generation')") + r"\n\g<0>"),
    ("docs/viewer.md", r"--dir /scratch/runs", "--dir runs"),
    # Neither flash attention nor time for many steps.
    ("docs/ci.md", r"flash_fwd", ""),
    ("docs/ci.md", r"train\.py( --steps 40)?", "--no-python gputrace workload ddp --steps 12"),
]

# Statuses other than 0.
STATUS = {
    ("README.md", "gputrace check"): (0, 1),
    ("docs/ci.md", "gputrace check"): (0, 1),
    ("docs/workloads.md", "gputrace record --sim SCALE=4000 --sim MEMORY=0.0125 -- workload pp --pipeline gpipe"): (1, 2),
    ("docs/workloads.md", "gputrace record --hang-after 5"): (124,),
}
