//! The batch scripts of docs/examples: they are whole, and record what they say, with an srun that starts all tasks on
//! this host.

use crate::common;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{analysis, expect_status, gputrace};

/// Starts SLURM_NTASKS_PER_NODE tasks on each of SLURM_NNODES nodes, which are names only; passes the first failure on.
const SRUN: &str = r#"#!/bin/bash
while [[ $1 == -* ]]; do shift; done
export SLURM_NTASKS=$((SLURM_NNODES * SLURM_NTASKS_PER_NODE)) SLURM_STEP_ID=0 SLURM_STEP_NODELIST=127.0.0.1
export SLURM_STEP_NUM_TASKS=$SLURM_NTASKS SLURM_STEP_NUM_NODES=$SLURM_NNODES
export SLURM_STEP_TASKS_PER_NODE="$SLURM_NTASKS_PER_NODE(x$SLURM_NNODES)"
tasks=()
for ((rank = 0; rank < SLURM_NTASKS; rank++)); do
    export SLURM_PROCID=$rank SLURM_NODEID=$((rank / SLURM_NTASKS_PER_NODE))
    export SLURM_LOCALID=$((rank % SLURM_NTASKS_PER_NODE))
    if ((SLURM_NNODES > 1)); then
        unshare --user --map-current-user --uts --keep-caps sh -c 'hostname node$SLURM_NODEID; exec "$@"' - "$@" &
    else
        "$@" &
    fi
    tasks+=($!)
done
status=0
for task in "${tasks[@]}"; do
    wait "$task" || status=$?
done
exit $status
"#;

/// gputrace as it is on a machine with GPUs, simulated ones.
const GPUTRACE: &str = r#"#!/bin/sh
if [ "$1" = record ]; then shift; exec "$GPUTRACE_REAL" record --device sim "$@"; fi
exec "$GPUTRACE_REAL" "$@"
"#;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs/examples")
        .join(name)
}

fn write_program(path: &Path, text: &str) {
    std::fs::write(path, text).expect("writes");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("executable");
}

/// What a line `#SBATCH --KEY=VALUE` says.
fn setting(text: &str, key: &str) -> String {
    let start = format!("#SBATCH --{key}=");
    text.lines()
        .find_map(|line| line.strip_prefix(&start))
        .unwrap_or_else(|| panic!("no {key}"))
        .to_owned()
}

/// Runs a script as sbatch does, and gives how many ranks its recording has, and their hosts.
fn recorded(name: &str) -> (usize, std::collections::BTreeSet<String>) {
    let text = std::fs::read_to_string(script(name)).expect("the script");
    let folder = tempfile::tempdir().expect("a folder");
    write_program(&folder.path().join("srun"), SRUN);
    write_program(&folder.path().join("gputrace"), GPUTRACE);
    // The same environment as other tests: nothing of this one's own rank or settings.
    let program = gputrace();
    let mut command = Command::new("bash");
    for (variable, value) in program.get_envs() {
        if value.is_none() {
            command.env_remove(variable);
        }
    }
    let path = std::env::var("PATH").expect("PATH");
    // A job each: its number makes the port on which its ranks meet.
    let job = format!("{}{}", std::process::id(), setting(&text, "nodes"));
    // Few tasks: this host has few cores.
    command
        .arg(script(name))
        .args(["ddp", "--steps", "2", "--batch", "96"])
        .current_dir(folder.path())
        .env("PATH", format!("{}:{path}", folder.path().display()))
        .env("GPUTRACE_REAL", program.get_program())
        .env("SIMGPU_SCALE", "10")
        .env("ENVIRONMENT", "BATCH")
        .env("SLURM_JOB_ID", &job)
        .env("SLURM_PROCID", "0")
        .env("SLURM_NNODES", setting(&text, "nodes"))
        .env("SLURM_NTASKS_PER_NODE", "2")
        .env("SLURM_CPUS_PER_TASK", setting(&text, "cpus-per-task"));
    expect_status(&mut command, 0);
    let analysis = analysis(&folder.path().join(format!("gputrace-{job}")));
    let ranks = analysis["ranks"].as_array().expect("ranks").clone();
    let hosts = ranks
        .iter()
        .map(|rank| rank["host"].as_str().unwrap_or_default().to_owned())
        .collect();
    (ranks.len(), hosts)
}

#[test]
fn the_scripts_are_whole_and_give_each_gpu_a_task() {
    for name in ["one-node.sbatch", "two-nodes.sbatch"] {
        expect_status(Command::new("bash").arg("-n").arg(script(name)), 0);
        let text = std::fs::read_to_string(script(name)).expect("the script");
        assert!(text.starts_with("#!/bin/bash\n"), "sbatch wants an interpreter");
        assert_eq!(
            setting(&text, "ntasks-per-node"),
            setting(&text, "gpus-per-node"),
            "{name}"
        );
        // sbatch reads its lines up to the first command.
        let first_command = text.find("\nset ").expect("a command");
        assert!(text.rfind("#SBATCH") < Some(first_command), "{name}");
    }
}

#[test]
fn the_script_for_one_node_records_all_its_ranks() {
    let (ranks, hosts) = recorded("one-node.sbatch");
    assert_eq!((ranks, hosts.len()), (2, 1));
}

#[test]
fn the_script_for_two_nodes_records_the_ranks_of_both() {
    let can_name_hosts = Command::new("unshare")
        .args([
            "--user",
            "--map-current-user",
            "--uts",
            "--keep-caps",
            "hostname",
            "node0",
        ])
        .output()
        .is_ok_and(|output| output.status.success());
    if !can_name_hosts {
        println!("SKIPPED: two-nodes.sbatch was not run: hosts cannot be given names of their own here");
        return;
    }
    let (ranks, hosts) = recorded("two-nodes.sbatch");
    assert_eq!(ranks, 4);
    assert_eq!(hosts.into_iter().collect::<Vec<_>>(), ["node0", "node1"]);
}
