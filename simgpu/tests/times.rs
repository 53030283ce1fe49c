//! The model's times of collectives against a second writing of NCCL's formulas, which shares no code with them.

use std::path::Path;
use std::process::Command;

#[test]
fn times_and_choices_are_those_of_an_independent_model() {
    let mut printed = Vec::new();
    let scales = |topology: &'static str, ranks: &'static [u32], scale: f64| {
        ranks.iter().map(move |ranks| (topology, *ranks, scale))
    };
    let all = scales("hgx", &[2, 3, 4, 5, 6, 7, 8], 1.0)
        .chain(scales("pcie", &[2, 3, 4, 8], 1.0))
        .chain(scales("two-nodes", &[2, 4, 6, 8, 16], 1.0))
        .chain(scales("hgx", &[2, 4, 8], 1000.0))
        .chain(scales("two-nodes", &[4, 16], 250.0));
    for (topology, ranks, scale) in all {
        let arguments = [topology.to_owned(), ranks.to_string(), scale.to_string()];
        simgpu::times(&arguments, &mut printed).expect("the times of a known topology");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join("modelled_times.jsonl");
    std::fs::write(&file, printed).expect("a file for the printed times");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/independent_nccl_times.py");
    match Command::new("python3").arg(script).arg(&file).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            let failed = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}{failed}");
        }
        Err(error) if std::env::var_os("CI").is_some() => panic!("python3 is needed: {error}"),
        Err(error) => eprintln!("SKIPPED: the independent model needs python3: {error}"),
    }
}
