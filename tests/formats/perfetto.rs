//! What Perfetto's own engine says of a run that was exported to it, against what `gputrace analyze` says of the run.
//!
//! Skipped, loudly, where the engine can't be fetched; never under CI=true.

use crate::common;
use crate::common::consumers::trace_processor;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::{analysis, expect_status, fresh_folder, gputrace, one_line, record_workload, stderr};
use gputrace_interchange::import::Progress;
use gputrace_trace::tables::Tables;
use gputrace_trace::{Process, Recording, TimeNs};
use serde_json::Value;
use trace_processor::{TROUBLE, TraceProcessor};

fn engines() -> Option<[TraceProcessor; 2]> {
    trace_processor::both()
}

/// Exports with these options beside the source, and gives the file.
#[track_caller]
fn export(source: &Path, to: &Path, options: &[&str]) -> PathBuf {
    let mut export = gputrace();
    export
        .arg("export")
        .arg(source)
        .args(["--format", "perfetto", "-o"]);
    expect_status(export.arg(to).args(options), 0);
    to.to_owned()
}

/// Busy time of each GPU: the union of what its streams executed, in SQL. Rank, device, first start, last end, busy.
const BUSY: &str = "
    with operations as (
      select p.name as rank, g.name as gpu, s.ts, s.ts + s.dur as ends
      from slice s join process_track t on t.id = s.track_id join process p using (upid) join track g on g.id = t.parent_id
      where s.category in ('kernel', 'gpu_memcpy', 'gpu_memset')),
    marked as (
      select rank, gpu, ts, ends,
             max(ends) over (partition by rank, gpu order by ts, ends rows between unbounded preceding and 1 preceding) as before
      from operations),
    islands as (
      select rank, gpu, ts, ends, sum(before is null or ts > before) over (partition by rank, gpu order by ts, ends) as island
      from marked),
    busy as (select rank, gpu, min(ts) as starts, max(ends) as ends from islands group by rank, gpu, island)
    select rank, gpu, min(starts), max(ends), sum(ends - starts) from busy group by rank, gpu order by rank, gpu";

/// Compares what the engine counts in `trace` with the recording's tables and its analysis.
#[track_caller]
fn agrees(recording: &Recording, analysis: &Value, trace: &Path) {
    let Some(engines) = engines() else { return };
    let sum = |rows: &dyn Fn(&Tables) -> usize| -> usize {
        recording
            .processes
            .iter()
            .map(|process| rows(&process.tables))
            .sum()
    };
    let calls = |wanted: bool| {
        move |tables: &Tables| {
            tables
                .api_calls
                .kind
                .iter()
                .filter(|&&kind| (kind == 4) == wanted)
                .count()
        }
    };
    let expected: BTreeMap<&str, usize> = [
        ("kernel", sum(&|tables| tables.kernels.start_ns.len())),
        ("gpu_memcpy", sum(&|tables| tables.copies.start_ns.len())),
        ("gpu_memset", sum(&|tables| tables.memsets.start_ns.len())),
        ("cuda_driver", sum(&calls(true))),
        ("cuda_runtime", sum(&calls(false))),
        ("cuda_sync", sum(&|tables| tables.synchronizations.start_ns.len())),
        ("cpu_op", sum(&|tables| tables.operators.start_ns.len())),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .collect();
    let everybody = recording.processes.iter().chain(&recording.hosts);
    let samples: usize = everybody
        .map(|process| {
            let memory = &process.tables.memory;
            process.tables.counters.time_ns.len()
                + memory.memory_kind.iter().filter(|&&kind| kind >= 3).count()
        })
        .sum();
    let launched = |process: &Process| {
        let calls: BTreeMap<u32, i64> = {
            let calls = &process.tables.api_calls;
            // The outermost of those that share a number.
            let rows = calls
                .correlation
                .iter()
                .copied()
                .zip(calls.start_ns.iter().map(|start| start.0));
            let mut first = BTreeMap::new();
            for (correlation, start) in rows.filter(|(correlation, _)| *correlation != 0) {
                first
                    .entry(correlation)
                    .and_modify(|at: &mut i64| *at = start.min(*at))
                    .or_insert(start);
            }
            first
        };
        let tables = &process.tables;
        let begins = |correlations: &[u32], starts: &[TimeNs]| {
            let rows = correlations.iter().zip(starts);
            rows.filter(|(correlation, start)| calls.get(correlation).is_some_and(|&call| call <= start.0))
                .count()
        };
        begins(&tables.kernels.correlation, &tables.kernels.start_ns)
            + begins(&tables.copies.correlation, &tables.copies.start_ns)
            + begins(&tables.memsets.correlation, &tables.memsets.start_ns)
            + begins(
                &tables.graph_launches.correlation,
                &tables.graph_launches.start_ns,
            )
    };
    let flows: usize = recording.processes.iter().map(launched).sum();
    for engine in &engines {
        let answers = engine.ask(
            trace,
            &[
                TROUBLE,
                "select category, count(*) from slice where category in ('kernel', 'gpu_memcpy', 'gpu_memset',
                 'cuda_driver', 'cuda_runtime', 'cuda_sync', 'cpu_op') group by 1",
                "select count(*) from counter",
                "select count(*) from flow",
                BUSY,
                "select count(*) from slice where name is null or dur < 0",
                // Collectives of several ranks: as many processes say one id as the collective has ranks.
                "select n, count(*) from (
                   select count(distinct p.upid) as n from slice s join process_track t on t.id = s.track_id
                   join process p using (upid) where s.category = 'collective'
                   group by extract_arg(s.arg_set_id, 'correlation_id')) group by n order by n",
                "select count(*) from slice s join slice c on c.parent_id = s.id
                 where s.category = 'collective' and c.name = 'wait'
                   and c.dur != extract_arg(s.arg_set_id, 'debug.wait_ns')",
                "select cast(sum(extract_arg(arg_set_id, 'debug.exposed_ns')) as int) from slice where category = 'collective'",
            ],
        );
        let version = engine.version;
        assert_eq!(answers[0], Vec::<Vec<Value>>::new(), "{version}");
        let found: BTreeMap<&str, usize> = answers[1]
            .iter()
            .map(|row| (row[0].as_str().unwrap(), row[1].as_u64().unwrap() as usize))
            .collect();
        assert_eq!(found, expected, "{version}");
        assert_eq!(answers[2], [[samples]], "{version}");
        assert_eq!(answers[3], [[flows]], "{version}");
        busy_is_ours(&answers[4], analysis, version);
        assert_eq!(answers[5], [[0]], "{version}");
        let mut ranks: BTreeMap<u64, u64> = BTreeMap::new();
        for collective in analysis["collectives"].as_array().unwrap() {
            let with_kernels = collective["ranks"].as_array().unwrap().len() as u64;
            *ranks.entry(with_kernels).or_default() += 1;
        }
        let found: BTreeMap<u64, u64> = answers[6]
            .iter()
            .map(|row| (row[0].as_u64().unwrap(), row[1].as_u64().unwrap()))
            .collect();
        assert_eq!(found, ranks, "{version}");
        assert_eq!(answers[7], [[0]], "{version}");
    }
}

/// Busy and idle times of every GPU.
#[track_caller]
fn busy_is_ours(rows: &[Vec<Value>], analysis: &Value, version: &str) {
    let ranks: Vec<&Value> = analysis["ranks"].as_array().unwrap().iter().collect();
    assert_eq!(rows.len(), ranks.len(), "{version}");
    for row in rows {
        let number = |place: usize| row[place].as_i64().unwrap();
        let (rank, gpu) = (row[0].as_str().unwrap(), row[1].as_str().unwrap());
        let ours = ranks
            .iter()
            .find(|ours| {
                let device = ours["device_index"].as_u64().unwrap();
                rank == format!("rank {}", ours["rank"]) && gpu.starts_with(&format!("GPU {device} "))
            })
            .unwrap_or_else(|| panic!("{version}: no analysis of {rank}, {gpu}"));
        let idle = number(3) - number(2) - number(4);
        assert_eq!(
            Some(number(4)),
            ours["busy_ns"].as_i64(),
            "{version}: {rank}, {gpu}: busy"
        );
        assert_eq!(
            Some(idle),
            ours["idle_ns"].as_i64(),
            "{version}: {rank}, {gpu}: idle"
        );
    }
}

#[test]
fn a_simulated_run_of_two_ranks() {
    let (keep, folder) = fresh_folder("recording");
    let truth = keep.path().join("truth");
    expect_status(
        &mut record_workload(&folder, &truth, &[], ["ddp", "--steps", "5"]),
        0,
    );
    let trace = export(&folder, &keep.path().join("run.pftrace"), &[]);
    let recording = Recording::open(&folder).unwrap();
    agrees(&recording, &analysis(&folder), &trace);

    // Twice the same, and as small as is said.
    let again = export(&folder, &keep.path().join("again.pftrace"), &[]);
    assert!(std::fs::read(&trace).unwrap() == std::fs::read(again).unwrap());
    let lean = export(&folder, &keep.path().join("lean.pftrace"), &["--no-arguments"]);
    assert!(lean.metadata().unwrap().len() < trace.metadata().unwrap().len());
    let packed = export(&folder, &keep.path().join("run.pftrace.gz"), &[]);
    assert!(packed.metadata().unwrap().len() * 3 < trace.metadata().unwrap().len());

    let stages = export(&folder, &keep.path().join("stages.pftrace"), &["--gpu-stages"]);
    if let Some([newer, _]) = engines() {
        // The critical path is what the analysis says, one piece after the other.
        let path = &analysis(&folder)["critical_path"];
        let answers = newer.ask(
            &trace,
            &[
                "select sum(dur), max(ts + dur) - min(ts), count(distinct track_id) from slice where category = 'critical_path'",
                "select name, sum(dur) as spent from slice where category = 'critical_path' group by name order by spent desc limit 1",
            ],
        );
        let total = &path["total_ns"];
        assert_eq!(
            serde_json::json!(answers[0]),
            serde_json::json!([[total, total, 1]])
        );
        let named = |part: &Value| {
            format!(
                "{} {}",
                part["what"].as_str().unwrap(),
                part["name"].as_str().unwrap()
            )
            .trim_end()
            .to_owned()
        };
        let mut of_name: BTreeMap<String, i64> = BTreeMap::new();
        for part in path["parts"].as_array().unwrap() {
            *of_name.entry(named(part)).or_default() += part["time_ns"].as_i64().unwrap();
        }
        let most = of_name.values().max().copied();
        assert_eq!(answers[1][0][1].as_i64(), most);
        let tables = |process: &Process| {
            let tables = &process.tables;
            (
                tables.kernels.start_ns.len(),
                tables.copies.start_ns.len() + tables.memsets.start_ns.len(),
            )
        };
        let (kernels, others) = recording
            .processes
            .iter()
            .map(tables)
            .fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1));
        let answers = newer.ask(
            &stages,
            &[
                TROUBLE,
                "select count(*) from gpu_slice where render_stage_category = 2",
                "select count(*) from gpu_slice where render_stage_category = 0",
                "select count(*), count(distinct uuid) from gpu",
                "select count(*) from flow f join gpu_slice b on b.id = f.slice_in",
            ],
        );
        assert_eq!(answers[0], Vec::<Vec<Value>>::new());
        assert_eq!(answers[1], [[kernels]]);
        assert_eq!(answers[2], [[others]]);
        // One for each rank, though every process sees all of them.
        assert_eq!(answers[3], [[2, 2]]);
        assert_eq!(answers[4], [[kernels + others]]);
        // Packed, and in a part.
        let answers = newer.ask(
            &packed,
            &[TROUBLE, "select count(*) from slice where category = 'kernel'"],
        );
        assert_eq!(answers[0], Vec::<Vec<Value>>::new());
        assert_eq!(answers[1], [[kernels]]);
        let part = export(
            &folder,
            &keep.path().join("part.pftrace"),
            &["--ranks", "1", "--steps", "1..2"],
        );
        let answers = newer.ask(
            &part,
            &[
                TROUBLE,
                "select distinct p.name from slice s join process_track t on t.id = s.track_id join process p using (upid)
                 where s.category = 'kernel'",
                "select count(*) from slice where category = 'kernel'",
            ],
        );
        assert_eq!(answers[0], Vec::<Vec<Value>>::new());
        assert_eq!(answers[1], [["rank 1"]]);
        let some = answers[2][0][0].as_u64().unwrap() as usize;
        assert!(some > 0 && some < kernels / 2, "{some} of {kernels}");
    }
}

#[test]
fn an_imported_trace_of_eight_ranks() {
    let (keep, _) = fresh_folder("unused");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/kineto/dlrm8_v100");
    let trace = export(&source, &keep.path().join("dlrm.pftrace"), &[]);
    let recording =
        gputrace_interchange::import::open(std::slice::from_ref(&source), &Progress::default()).unwrap();
    agrees(&recording, &analysis(&source), &trace);
}

#[test]
fn options_of_perfetto_are_for_perfetto() {
    let (keep, folder) = fresh_folder("no recording");
    let mut export = gputrace();
    export
        .arg("export")
        .arg(&folder)
        .args(["--format", "chrome", "--gpu-stages", "-o"]);
    let output = expect_status(export.arg(keep.path().join("x.json")), 2);
    assert!(
        one_line(&output).contains("--format perfetto"),
        "{}",
        stderr(&output)
    );
}
