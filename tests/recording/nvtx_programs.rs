//! What NVIDIA's own NVTX sends: its C headers, its Python package, and the NCCL library as it is installed from PyPI.
//!
//! None of them needs a GPU for that. What can't be had (no network, no compiler) is left out, loudly; in CI nothing may be.

use crate::common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use common::consumers::fetched;
use common::{expect_status, fresh_folder, gputrace, stdout};
use gputrace_trace::tables::Tables;
use gputrace_trace::{Recording, Table};

/// Records a command on the stand-in, and gives its output and what was recorded of its one process.
fn recorded(command: &mut dyn FnMut(&mut Command)) -> (String, Tables, Recording) {
    let (_keep, folder) = fresh_folder("recording");
    let mut record = gputrace();
    record
        .args(["record", "--quiet", "--device", "sim", "-o"])
        .arg(&folder)
        .arg("--");
    command(&mut record);
    let output = expect_status(&mut record, 0);
    let mut recording = Recording::open(&folder).expect("the recording opens");
    assert_eq!(recording.losses, [], "nothing was lost");
    assert_eq!(recording.processes.len(), 1);
    let tables = recording.processes.remove(0).tables;
    (stdout(&output), tables, recording)
}

#[test]
fn a_c_program_with_nvidias_headers_is_recorded_whole() {
    let Some(headers) = fetched("nvtx-headers") else {
        return;
    };
    let include = ["nvidia/cu13/include", "nvidia/nvtx/include"]
        .map(|place| headers.join(place))
        .into_iter()
        .find(|place| place.join("nvtx3/nvToolsExt.h").exists())
        .expect("the headers are in the package");
    let (_keep, program) = fresh_folder("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvtx/program.c");
    let mut compiler = Command::new("cc");
    compiler
        .arg("-I")
        .arg(include)
        .arg("-I")
        .arg(source.with_file_name(""))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .args(["-ldl", "-lpthread"]);
    expect_status(&mut compiler, 0);
    let (_, tables, recording) = recorded(&mut |record| _ = record.arg(&program));
    let name = |id| recording.names.get(id);

    let named: Vec<_> = (0..tables.object_names.len())
        .map(|row| tables.object_names.row(row))
        .collect();
    let of_kind = |kind: u8| named.iter().filter(move |row| row.kind == kind);
    let categories: Vec<_> = of_kind(0)
        .map(|row| (name(row.domain), row.identifier, name(row.name)))
        .collect();
    assert_eq!(
        categories,
        [
            ("", 3, "category of the default domain"),
            ("domain", 3, "category of the domain")
        ]
    );
    for (kind, expected) in [
        (1, "main thread"),
        (2, "device"),
        (3, "context"),
        (4, "stream"),
        (6, "mutex"),
    ] {
        let found: Vec<_> = of_kind(kind).map(|row| name(row.name)).collect();
        assert_eq!(found, [expected]);
    }
    let stream = of_kind(4).next().expect("the stream").cupti;
    assert!(stream.is_some() && tables.streams.stream.iter().any(|known| Some(*known) == stream));
    let context = of_kind(3).next().expect("the context").cupti;
    assert_eq!(context, tables.contexts.context.first().copied());
    let resource = of_kind(6).next().expect("the resource");
    assert_eq!((resource.identifier, name(resource.domain)), (77, "domain"));

    let markers: Vec<_> = (0..tables.markers.len())
        .map(|row| tables.markers.row(row))
        .collect();
    let payloads: Vec<_> = markers
        .iter()
        .filter(|row| name(row.name) == "registered" && row.kind == 2)
        .map(|row| (row.payload_type, row.payload_integer, row.payload))
        .collect();
    let negative = (-9_007_199_254_740_993_i64).cast_unsigned();
    let expected = [
        (Some(1), Some(u64::MAX), Some(u64::MAX as f64)),
        (Some(2), Some(negative), Some(-9_007_199_254_740_992.0)),
        (Some(3), None, Some(0.5)),
        (Some(4), Some(4_294_967_295), Some(4_294_967_295.0)),
        (Some(5), Some((-7_i64).cast_unsigned()), Some(-7.0)),
        (Some(6), None, Some(0.25)),
    ];
    assert_eq!(payloads, expected);
    let crossing = markers
        .iter()
        .find(|row| name(row.name) == "registered" && row.kind == 0);
    let crossing = crossing.expect("the domain's range");
    assert_eq!(
        (crossing.color, crossing.category, crossing.depth),
        (Some(0xff12_3456), Some(3), 0)
    );
    let other = markers
        .iter()
        .find(|row| name(row.name) == "default")
        .expect("the other domain's range");
    let end = |row: &gputrace_trace::tables::Marker| row.start_ns + row.duration_ns.expect("a range");
    assert!(
        other.start_ns <= crossing.start_ns && end(other) <= end(crossing),
        "they cross"
    );
    assert!(
        markers
            .iter()
            .any(|row| name(row.name) == "wide \u{e4}" && row.kind == 1)
    );
    // The message is a field of the payload.
    assert!(
        markers
            .iter()
            .any(|row| name(row.name) == "a note" && row.kind == 0)
    );
    assert!(
        markers
            .iter()
            .any(|row| name(row.name) == "at the end" && row.kind == 2)
    );

    let fields: Vec<_> = (0..tables.payload_fields.len())
        .map(|row| tables.payload_fields.row(row))
        .collect();
    assert_eq!(fields.len(), 3 * 8, "three payloads of eight values");
    let first: Vec<_> = fields[..8]
        .iter()
        .map(|row| {
            (
                name(row.field),
                row.element,
                row.integer,
                row.number,
                row.text.map(name),
            )
        })
        .collect();
    let part = |value: i64| Some(value.cast_unsigned());
    assert_eq!(
        first,
        [
            ("bytes", None, Some(u64::MAX - 1), None, None),
            ("level", None, Some(2), None, Some("HIGH")),
            ("share", None, None, Some(0.75), None),
            ("note", None, None, None, Some("a note")),
            ("parts", Some(0), part(1), None, None),
            ("parts", Some(1), part(-2), None, None),
            ("parts", Some(2), part(3), None, None),
            ("tag", None, None, None, Some("tag")),
        ]
    );
    assert!(
        fields
            .iter()
            .all(|row| name(row.schema) == "struct payload" && name(row.domain) == "domain")
    );
    let notes: Vec<_> = fields
        .iter()
        .filter(|row| name(row.field) == "note")
        .map(|row| row.text.map(name))
        .collect();
    assert_eq!(notes, [Some("a note"), Some("at the end"), Some("at the end")]);

    for number in 0..4 {
        let text = format!("thread {number}");
        let of_thread: Vec<_> = markers.iter().filter(|row| name(row.name) == text).collect();
        assert_eq!(of_thread.len(), 1000, "{text}");
        assert!(of_thread.iter().all(|row| row.thread == of_thread[0].thread));
    }
}

#[test]
fn nvidias_python_package_is_recorded_from_all_threads() {
    let Some(package) = fetched("nvtx") else {
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvtx/threads.py");
    let (_, tables, recording) = recorded(&mut |record| {
        record.arg("python3").arg(&script).env("PYTHONPATH", &package);
    });
    let mut by_thread: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for row in 0..tables.markers.len() {
        let marker = tables.markers.row(row);
        assert_eq!(recording.names.get(marker.domain), "python");
        by_thread
            .entry(marker.thread)
            .or_default()
            .push(recording.names.get(marker.name));
    }
    assert_eq!(by_thread.len(), 4);
    for names in by_thread.values() {
        assert_eq!(names.len(), 400);
        for step in 0..200 {
            assert_eq!(names[2 * step..2 * step + 2], ["inner", &format!("step {step}")]);
        }
    }
    let categories = (0..tables.object_names.len())
        .map(|row| tables.object_names.row(row))
        .filter(|row| row.kind == 0)
        .count();
    assert_eq!(categories, 4, "a category a thread");
}

/// The real NCCL tells of its calls and loads the plugin's library, whatever it is called with.
fn assert_real_nccl(version: &str) {
    let Some(package) = fetched(&format!("nccl-{version}")) else {
        return;
    };
    let library = package.join("nvidia/nccl/lib/libnccl.so.2");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvtx/nccl.py");
    let (told, tables, recording) = recorded(&mut |record| {
        record.arg("python3").arg(&script).arg(&library);
    });
    eprintln!("NCCL {}", told.trim());
    let name = |id| recording.names.get(id);
    let calls: Vec<&str> = (0..tables.markers.len())
        .map(|row| tables.markers.row(row))
        .filter(|row| name(row.domain) == "NCCL")
        .map(|row| name(row.name))
        .collect();
    assert_eq!(
        calls,
        ["ncclGroupStart", "ncclAllReduce", "ncclGroupEnd", "ncclBroadcast"]
    );
    let of_call = |call: &str| -> Vec<u64> {
        (0..tables.payload_fields.len())
            .map(|row| tables.payload_fields.row(row))
            .filter(|row| name(row.range) == call)
            .map(|row| row.integer.expect("an integer"))
            .collect()
    };
    // Communicator, bytes, and reduction or root.
    assert_eq!(of_call("ncclAllReduce"), [0, 4000, 2]);
    assert_eq!(of_call("ncclBroadcast"), [0, 4000, 3]);
    assert_eq!(tables.collectives.len(), 0, "what was refused is no operation");
}

#[test]
fn the_real_nccl_of_pytorch_tells_of_its_calls() {
    assert_real_nccl("2.28.9");
}

#[test]
fn the_newest_real_nccl_tells_of_its_calls() {
    assert_real_nccl("newest");
}
