//! What the documents show works: each command and block of code in them is run, or stands in a list with the reason why not
//! (`tests/documents/table.py`).

use crate::common;

use std::fs::File;
use std::path::Path;
use std::process::Command;

use common::{consumers, fresh_folder, gputrace};
use serde_json::Value;

#[test]
fn every_block_of_the_documents_is_run_or_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = gputrace();
    let (_keep, report) = fresh_folder("report.sqlite");
    let packed = root.join("interchange/tests/data/nsys/saxpy-mpi-2022.2.sqlite.zst");
    let packed = File::open(packed).expect("an Nsight Systems export");
    zstd::stream::copy_decode(packed, File::create(&report).expect("a file")).expect("unpacked");
    let mut command = Command::new("python3");
    command.arg(root.join("tests/documents/run.py")).arg(&report);
    command.env("GPUTRACE", program.get_program());
    command.env_remove("FRAMES").env_remove("PERFETTO");
    if let Some(python) = consumers::python("arrow") {
        command.env("FRAMES", python);
    }
    if let Some(engine) = consumers::fetched("perfetto-v55.3") {
        command.env("PERFETTO", engine.join("trace_processor.wasm"));
    }
    let output = command.output().expect("python3");
    let text = common::stdout(&output);
    print!("{text}");
    assert!(output.status.success(), "{text}{}", common::stderr(&output));
    let last = text.lines().last().unwrap_or_default();
    let said: Value = serde_json::from_str(last).expect("it ends with what it did");
    assert!(said["tried"].as_u64() > Some(170), "{said}");
}
