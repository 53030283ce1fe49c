//! `gputrace env`: what makes jobs come to be watched.

use crate::cli::EnvArgs;
use crate::failure::Failure;
use crate::libraries;

/// A TaskProlog for Slurm.
const SLURM: &str = include_str!("../../packaging/slurm/task_prolog");
/// Manifests for Kubernetes.
const KUBERNETES: &str = include_str!("../../packaging/kubernetes/gputrace.yaml");
/// What stands in them for the collector's path.
const PLACEHOLDER: &str = "@COLLECTOR@";

/// Prints it.
pub fn run(args: &EnvArgs) -> Result<i32, Failure> {
    if args.kubernetes {
        anstream::print!("{KUBERNETES}");
        return Ok(0);
    }
    let collector = libraries::collector()?;
    let collector = std::path::absolute(&collector).unwrap_or(collector);
    let path = collector.to_string_lossy();
    if args.slurm {
        anstream::print!("{}", SLURM.replace(PLACEHOLDER, &quoted(&path)));
    } else {
        anstream::println!(
            "# Programs that use CUDA are watched by gputrace's daemon where one runs; a value of your own stays.\n\
             [ -n \"$CUDA_INJECTION64_PATH\" ] || export CUDA_INJECTION64_PATH={}",
            quoted(&path)
        );
    }
    Ok(0)
}

/// A text as a shell takes it whole.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
