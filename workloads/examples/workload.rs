//! The workloads without anything around them: `cargo run --release -p workloads --example workload -- ddp`.

fn main() {
    let program =
        std::env::current_exe().map_or_else(|_| "workload".into(), std::path::PathBuf::into_os_string);
    let launch = workloads::Launch {
        program: vec![program],
        env: Vec::new(),
    };
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let status = workloads::run(&arguments, &launch).unwrap_or_else(|error| {
        eprintln!("{error}");
        2
    });
    std::process::exit(status);
}
