//! How long the modelled collectives take, as JSON lines: `times [hgx|pcie|two-nodes] [RANKS] [SCALE]`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match simgpu::times(&arguments, &mut std::io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("times: {problem}");
            ExitCode::from(2)
        }
    }
}
