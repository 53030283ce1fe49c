//! Real traces of PyTorch's profiler: equal to what Holistic Trace Analysis says where it is right, to a script that shares
//! no code with this program, and to themselves in every form that a file can have.

use crate::common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{expect_status, gputrace, stdout};
use serde_json::Value;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/kineto")
        .join(name)
}

/// Of a job whose host is ahead of its GPU.
const AHEAD: &str = "../operators/mi300_resnet_ac";

/// The trace files of a folder, by name.
fn traces(name: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(data(name))
        .expect("test data")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.to_string_lossy().ends_with(".json.gz"))
        .collect();
    files.sort();
    files
}

fn unpacked(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    let file = std::fs::File::open(path).expect("test data");
    flate2::read::GzDecoder::new(file)
        .read_to_end(&mut text)
        .expect("gzip");
    text
}

fn analyze<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Value {
    let mut command = gputrace();
    command.args(["analyze", "--json"]);
    for path in paths {
        command.arg(path.as_ref());
    }
    let output = expect_status(&mut command, 0);
    serde_json::from_str(&stdout(&output)).expect("one JSON object")
}

fn expected(name: &str) -> Value {
    let text = std::fs::read(data(name).join("expected.json")).expect("test data");
    serde_json::from_slice(&text).expect("JSON")
}

/// Within what HTA's microseconds in a double can say.
#[track_caller]
fn same_time(ours_ns: &Value, theirs_us: &Value, what: &str) {
    let (ours, theirs) = (
        ours_ns.as_i64().expect("ns") as f64,
        theirs_us.as_f64().expect("us") * 1000.0,
    );
    assert!(
        (ours - theirs).abs() < 20.0,
        "{what}: {ours} ns, HTA has {theirs}"
    );
}

fn check_against_hta(name: &str, unlaunched: &[(i64, u64)]) {
    let (analysis, expected) = (analyze([data(name)]), expected(name));
    let ranks = analysis["ranks"].as_array().expect("ranks");
    let rank = |number: &Value| {
        ranks
            .iter()
            .find(|rank| rank["rank"] == *number || ranks.len() == 1)
            .expect("a rank")
    };
    for row in expected["temporal_breakdown"].as_array().expect("rows") {
        let rank = rank(&row["rank"]);
        same_time(&rank["idle_ns"], &row["idle_time(us)"], "idle");
        same_time(&rank["compute_ns"], &row["compute_time(us)"], "compute");
        same_time(&rank["span_ns"], &row["kernel_time(us)"], "span");
        let non_compute =
            rank["busy_ns"].as_i64().expect("busy") - rank["compute_ns"].as_i64().expect("compute");
        same_time(&non_compute.into(), &row["non_compute_time(us)"], "non-compute");
    }
    for row in expected["comm_comp_overlap"].as_array().expect("rows") {
        let ours = rank(&row["rank"])["overlap_ratio"].as_f64().expect("a ratio") * 100.0;
        let theirs = row["comp_comm_overlap_pctg"].as_f64().expect("a percentage");
        assert!((ours - theirs).abs() < 1e-4, "overlap: {ours}, HTA has {theirs}");
    }
    let mut compared = 0;
    for row in expected["idle_time_breakdown"].as_array().expect("rows") {
        // HTA takes the file's first event for the launch of operations that have none in the file.
        if unlaunched.contains(&(
            row["rank"].as_i64().expect("rank"),
            row["stream"].as_u64().expect("stream"),
        )) {
            continue;
        }
        let streams = rank(&row["rank"])["streams"].as_array().expect("streams");
        let stream = streams
            .iter()
            .find(|stream| stream["stream"] == row["stream"])
            .expect("a stream");
        let class = row["idle_category"].as_str().expect("a class");
        same_time(&stream[format!("idle_{class}_ns")], &row["idle_time"], class);
        compared += 1;
    }
    assert!(compared >= 5);
    check_kinds(&expected, ranks);
}

/// HTA's kernel types: time in which exactly these kinds run, cut to microseconds segment by segment and summed over ranks.
/// What ours must equal is the total of all states that hold a kind, up to that cutting.
fn check_kinds(expected: &Value, ranks: &[Value]) {
    for (word, measure) in [
        ("COMPUTATION", "compute_ns"),
        ("COMMUNICATION", "communication_ns"),
    ] {
        let rows = expected["gpu_kernel_type_breakdown"].as_array().expect("rows");
        let theirs: f64 = rows
            .iter()
            .filter(|row| row["kernel_type"].as_str().expect("a type").contains(word))
            .map(|row| row["sum"].as_f64().expect("a sum"))
            .sum();
        let ours: f64 = ranks
            .iter()
            .map(|rank| rank[measure].as_i64().expect("ns") as f64 / 1e3)
            .sum();
        assert!(
            ours >= theirs && ours < theirs * 1.02 + 5.0,
            "{word}: {ours} us, HTA has {theirs}"
        );
    }
}

#[test]
fn measures_equal_htas_on_eight_ranks_of_v100() {
    check_against_hta("dlrm8_v100", &[(1, 7), (3, 7)]);
}

#[test]
fn measures_equal_htas_on_an_a100_with_nanoseconds() {
    check_against_hta("ddp_cnn_a100", &[]);
}

#[test]
fn measures_equal_those_of_an_independent_script() {
    for name in ["dlrm8_v100", "ddp_cnn_a100", AHEAD] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("analysis.json");
        let analysis = analyze(traces(name));
        std::fs::write(&path, analysis.to_string()).expect("a file");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/independent_kineto.py");
        let output = Command::new("python3")
            .arg(script)
            .arg("--compare")
            .arg(&path)
            .args(traces(name))
            .output();
        let Ok(output) = output else {
            eprintln!("SKIPPED: no python3, so nothing was compared");
            return;
        };
        assert!(output.status.success(), "{name}:\n{}", stdout(&output));
    }
}

#[test]
fn steps_of_a_gpu_that_the_host_is_ahead_of_are_what_was_launched_in_them() {
    let analysis = analyze(traces(AHEAD));
    let steps = analysis["ranks"][0]["steps"].as_array().expect("steps");
    let of = |member: &str| -> Vec<i64> { steps.iter().filter_map(|step| step[member].as_i64()).collect() };
    // From the first operation launched in each to the first of the next, the last to its last end; the host is through with
    // each in 16 ms. Kernels but NCCL's, as a script adds them up.
    assert_eq!(of("duration_ns"), [18_980_345, 18_982_928, 18_554_330]);
    assert_eq!(of("host_duration_ns"), [16_819_343, 15_968_298, 15_887_029]);
    assert_eq!(of("compute_ns"), [6_434_141, 6_354_816, 6_445_137]);
    assert_eq!(
        analysis["step"]["mean_ns"],
        (18_980_345 + 18_982_928 + 18_554_330) / 3
    );
    // What runs for 30 ms before was launched before the recording.
    assert_eq!(of("start_ns")[0] - of("host_start_ns")[0], 30_081_574);
}

#[test]
fn rank_7_is_the_straggler_of_the_dlrm_run() {
    // Taken from the kernels by hand: it comes last at 5 of 8 collectives and waits 1,534 us, where others wait 3,280 and more.
    let analysis = analyze(traces("dlrm8_v100"));
    let arrivals = analysis["arrivals"].as_array().expect("arrivals");
    let last: BTreeMap<i64, i64> = arrivals
        .iter()
        .map(|arrival| {
            (
                arrival["rank"].as_i64().expect("rank"),
                arrival["last_count"].as_i64().expect("count"),
            )
        })
        .collect();
    assert_eq!(
        last,
        BTreeMap::from([(0, 0), (1, 0), (2, 0), (3, 0), (4, 1), (5, 2), (6, 0), (7, 5)])
    );
    assert_eq!(arrivals[7]["wait_ns"], 1_534_000);
    assert!(
        arrivals[..7]
            .iter()
            .all(|arrival| arrival["wait_ns"].as_i64() >= Some(3_280_000))
    );
    // Ends of a collective agree within microseconds: the ranks share a clock.
    assert_eq!(analysis["clock_end_spread_ns"], 5_000);
    let findings = analysis["findings"].as_array().expect("findings");
    assert!(
        findings
            .iter()
            .any(|finding| finding["code"] == "late_rank" && finding["rank"] == 7)
    );
    let unlaunched = analysis["losses"]
        .as_array()
        .expect("losses")
        .iter()
        .find(|loss| loss["count"] == 128);
    assert!(
        unlaunched.is_some(),
        "ranks 1 and 3 have 64 operations each without a launch: {}",
        analysis["losses"]
    );
}

#[test]
fn collectives_carry_their_sizes_and_groups() {
    let analysis = analyze(traces("ddp_cnn_a100"));
    let rank = &analysis["ranks"][0];
    let rows = rank["communication"].as_array().expect("rows");
    let reduce = rows
        .iter()
        .find(|row| row["name"] == "AllReduce")
        .expect("AllReduce");
    assert_eq!(
        (&reduce["communicator_name"], &reduce["count"]),
        (&"default_pg".into(), &15.into())
    );
    // Summed from the file's args: 76,671,096 floats.
    assert_eq!(reduce["bytes"], 306_684_384);
    assert_eq!(reduce["time_ns"], 46_762_159);
    assert_eq!(rank["kinds"][1]["count"], 21);
    let collective = &analysis["collectives"][0];
    assert_eq!(
        (&collective["communicator_ranks"], &collective["dtype"]),
        (&2.into(), &"Float".into())
    );
    assert!(
        collective["busbw"].is_null(),
        "the other rank's arrival is not known"
    );
    let steps: Vec<&str> = rank["steps"]
        .as_array()
        .expect("steps")
        .iter()
        .map(|step| step["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(steps, ["ProfilerStep#4", "ProfilerStep#5", "ProfilerStep#6"]);
}

/// The first place at which two analyses differ.
fn difference(a: &Value, b: &Value, place: &str) -> Option<String> {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) if x.keys().eq(y.keys()) => x
            .iter()
            .find_map(|(name, value)| difference(value, &y[name], &format!("{place}.{name}"))),
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => x
            .iter()
            .zip(y)
            .enumerate()
            .find_map(|(index, (x, y))| difference(x, y, &format!("{place}[{index}]"))),
        _ if a == b => None,
        _ => Some(format!("{place}: {a:.200} and {b:.200}")),
    }
}

#[track_caller]
fn assert_same(a: &Value, b: &Value, what: &str) {
    if let Some(difference) = difference(a, b, "") {
        panic!("{what}: {difference}");
    }
}

/// What does not depend on where the files are.
fn content(mut analysis: Value) -> Value {
    let members = analysis.as_object_mut().expect("an object");
    members.remove("source");
    members.remove("notes");
    analysis
}

#[test]
fn every_form_of_a_file_gives_the_same_analysis() {
    let original = content(analyze(traces("dlrm8_v100")));
    let folder = tempfile::tempdir().expect("a folder");
    let write = |form: &str, transform: &dyn Fn(Vec<u8>) -> Vec<u8>| -> PathBuf {
        let into = folder.path().join(form);
        std::fs::create_dir(&into).expect("a folder");
        for path in traces("dlrm8_v100") {
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .replace(".gz", "");
            std::fs::write(into.join(name), transform(unpacked(&path))).expect("a file");
        }
        into
    };
    let parsed = |text: &[u8]| -> Value { serde_json::from_slice(text).expect("JSON") };
    let plain = write("plain", &|text| text);
    assert_same(
        &content(analyze([&plain])),
        &original,
        "plain files, by their folder",
    );
    let compact = write("compact", &|text| {
        serde_json::to_vec(&parsed(&text)).expect("JSON")
    });
    assert_same(
        &content(analyze([compact])),
        &original,
        "compact, members by name",
    );
    let pretty = write("pretty", &|text| {
        serde_json::to_vec_pretty(&parsed(&text)).expect("JSON")
    });
    assert_same(&content(analyze([pretty])), &original, "pretty");
    let zstd = write("zstd", &|text| {
        zstd::encode_all(text.as_slice(), 3).expect("zstd")
    });
    assert_same(
        &content(analyze([zstd])),
        &original,
        "zstd whatever the name says",
    );
    let backwards = write("backwards", &|text| {
        let mut value = parsed(&text);
        value["traceEvents"].as_array_mut().expect("events").reverse();
        serde_json::to_vec(&value).expect("JSON")
    });
    assert_same(
        &content(analyze([backwards])),
        &original,
        "events in another order",
    );
    let mut files: Vec<PathBuf> = traces("dlrm8_v100");
    files.reverse();
    assert_same(&content(analyze(files)), &original, "files in another order");
    // A bare array has no frame: the rank is in the name, the GPU's name and with it its links are not known.
    let bare = write("bare", &|text| {
        serde_json::to_vec(&parsed(&text)["traceEvents"]).expect("JSON")
    });
    let bare = analyze([bare]);
    for (with, without) in original["ranks"]
        .as_array()
        .expect("ranks")
        .iter()
        .zip(bare["ranks"].as_array().expect("ranks"))
    {
        for member in [
            "rank",
            "span_ns",
            "busy_ns",
            "idle_causes",
            "streams",
            "kernels",
            "steps",
        ] {
            let (mut with, mut without) = (with[member].clone(), without[member].clone());
            // Occupancy and utilization need to know the device, and only the whole file tells of it.
            for rows in [&mut with, &mut without] {
                for row in rows.as_array_mut().into_iter().flatten() {
                    let row = row.as_object_mut();
                    row.map(|row| ["occupancy", "mfu", "hfu"].map(|member| row.remove(member)));
                }
            }
            assert_eq!(with, without, "{member} from a bare array");
        }
    }
}

#[test]
fn a_cut_file_is_analysed_up_to_the_cut() {
    let path = &traces("dlrm8_v100")[0];
    let text = unpacked(path);
    let folder = tempfile::tempdir().expect("a folder");
    let cut = folder.path().join("worker0.json");
    let mut last = 0;
    for tenths in 7..10 {
        std::fs::write(&cut, &text[..text.len() * tenths / 10]).expect("a file");
        let analysis = analyze([&cut]);
        let losses = analysis["losses"].to_string();
        assert!(losses.contains("ends in the middle"), "{losses}");
        let count: i64 = analysis["ranks"]
            .as_array()
            .expect("ranks")
            .iter()
            .flat_map(|rank| rank["kinds"].as_array().expect("kinds"))
            .map(|kind| kind["count"].as_i64().expect("a count"))
            .sum();
        assert!(count >= last, "more of the file has no fewer operations");
        last = count;
    }
    assert!(last > 100);
    // Of packed bytes too.
    let packed = std::fs::read(path).expect("test data");
    std::fs::write(&cut, &packed[..packed.len() * 9 / 10]).expect("a file");
    let losses = analyze([&cut])["losses"].to_string();
    assert!(losses.contains("packed bytes end early"), "{losses}");
}

#[test]
fn tables_are_written_as_parquet_and_csv() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("tables");
    let mut command = gputrace();
    command
        .arg("analyze")
        .args(traces("dlrm8_v100"))
        .arg("--tables")
        .arg(&out);
    expect_status(&mut command, 0);
    let ranks = std::fs::read_to_string(out.join("ranks.csv")).expect("ranks.csv");
    let headings: Vec<&str> = ranks.lines().next().expect("headings").split(',').collect();
    assert_eq!(ranks.lines().count(), 9);
    for heading in ["rank", "span_ns", "communication_exposed_ns", "overlap_ratio"] {
        assert!(headings.contains(&heading), "{headings:?}");
    }
    let kernels = std::fs::read_to_string(out.join("kernels_of_all_ranks.csv")).expect("a table");
    // Five on each of eight ranks, summed by the frames' group-by.
    assert!(
        kernels
            .lines()
            .nth(1)
            .expect("a row")
            .ends_with(",communication,40,37935000,7000,7635000"),
        "{kernels}"
    );
    for entry in std::fs::read_dir(&out).expect("tables") {
        let path = entry.expect("an entry").path();
        if path.ends_with(gputrace_trace::place::MARK_FILE) {
            continue;
        }
        let ending = path
            .extension()
            .expect("an ending")
            .to_string_lossy()
            .into_owned();
        assert!(ending == "csv" || ending == "parquet", "{}", path.display());
        if ending == "parquet" {
            let bytes = std::fs::read(&path).expect("a file");
            assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
        }
    }
}

#[test]
fn a_zip_of_noise_does_not_pass_for_a_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("noise.json.gz");
    let mut encoder = flate2::write::GzEncoder::new(
        std::fs::File::create(&path).expect("a file"),
        flate2::Compression::fast(),
    );
    encoder.write_all(b"\x01\x02 not a trace").expect("written");
    encoder.finish().expect("written");
    let mut command = gputrace();
    command.arg("analyze").arg(&path);
    let output = expect_status(&mut command, 2);
    assert!(common::one_line(&output).contains("is not JSON"));
}
