//! What must hold of the analysis of any recording: parts sum to their wholes.

use gputrace_analyzer::tables::tables;
use gputrace_analyzer::{Measures, Options, RankAnalysis, Sort, analyze, by_step, compare};
use gputrace_trace::Recording;

fn sum<'a>(parts: impl IntoIterator<Item = &'a i64>) -> i128 {
    parts.into_iter().map(|part| i128::from(*part)).sum()
}

#[track_caller]
fn whole(what: &str, parts: &[i64], whole: i64) {
    assert_eq!(sum(parts), i128::from(whole), "{what}: parts {parts:?}");
    assert!(
        parts.iter().all(|part| *part >= 0),
        "{what}: a negative part of {parts:?}"
    );
}

fn check_measures(measures: &Measures) {
    whole("span", &[measures.busy_ns, measures.idle_ns], measures.span_ns);
    whole(
        "communication",
        &[
            measures.communication_hidden_ns,
            measures.communication_exposed_ns,
        ],
        measures.communication_ns,
    );
    for part in [
        measures.compute_ns,
        measures.communication_ns,
        measures.copy_ns,
        measures.copy_exposed_ns,
        measures.memset_ns,
    ] {
        assert!(
            (0..=measures.busy_ns).contains(&part),
            "{part} of {} busy",
            measures.busy_ns
        );
    }
    for ratio in [measures.idle_ratio, measures.overlap_ratio]
        .into_iter()
        .flatten()
    {
        assert!((0.0..=1.0).contains(&ratio), "a ratio of {ratio}");
    }
}

fn check_rank(rank: &RankAnalysis) {
    check_measures(&rank.measures);
    let causes: Vec<i64> = rank.idle_causes.values().copied().collect();
    whole("idle causes", &causes, rank.measures.idle_ns);
    let late: Vec<i64> = rank.host_late_by.values().copied().collect();
    let host_late = rank.idle_causes.get("host_late").copied().unwrap_or(0);
    whole("host late", &late, host_late);
    for gap in &rank.longest_gaps {
        assert!(
            gap.end_ns > gap.start_ns && (gap.end_ns - gap.start_ns).0 <= rank.measures.idle_ns,
            "a gap lies in the idle time: {gap:?}"
        );
    }
    for stream in &rank.streams {
        whole("stream's span", &[stream.busy_ns, stream.idle_ns], stream.span_ns);
        let parts = [
            stream.idle_host_wait_ns,
            stream.idle_kernel_wait_ns,
            stream.idle_other_ns,
        ];
        whole("stream's idle", &parts, stream.idle_ns);
    }
    let operations: usize = rank.streams.iter().map(|stream| stream.ops).sum();
    let by_kind: usize = rank.kinds.iter().map(|kind| kind.count).sum();
    assert_eq!(by_kind, operations, "operations by kind and by stream");
    for step in &rank.steps {
        check_measures(&step.measures);
    }
    for group in &rank.communication {
        whole(
            "communicator's time",
            &[group.hidden_ns, group.exposed_ns],
            group.time_ns,
        );
    }
}

/// Makes all tables of an analysis. That takes ten times as long as the analysis: it is not for every input.
///
/// # Panics
/// When one can't be made: a bug of the analyzer.
pub fn check_tables(recording: &Recording) {
    for table in tables(&analyze(recording, &Options::default())).expect("an analysis as tables") {
        assert_ne!(table.batch.num_rows(), 0, "{}", table.name);
    }
}

/// Analyses a recording in two ways and checks what holds of any.
///
/// # Panics
/// When it does not: a bug of the analyzer.
pub fn check(recording: &Recording) {
    let all = analyze(recording, &Options::default());
    all.ranks.iter().for_each(check_rank);
    let kept: usize = all
        .ranks
        .iter()
        .flat_map(|rank| &rank.kernels)
        .map(|kernel| kernel.count)
        .sum();
    let by_stream: usize = all
        .ranks
        .iter()
        .flat_map(|rank| &rank.streams)
        .map(|stream| stream.ops)
        .sum();
    assert_eq!(kept, by_stream, "operations by name and by stream");
    serde_json::to_vec(&all).expect("an analysis as JSON");
    let part = Options {
        steps: Some((1, 2)),
        sort: Sort::Mean,
        short_names: true,
        by_step: true,
    };
    let part = analyze(recording, &part);
    part.ranks.iter().for_each(check_rank);
    let (whole, baseline) = by_step(recording, None);
    let same = compare((&whole, &baseline), (&whole, &baseline));
    serde_json::to_vec(&same).expect("a comparison as JSON");
}
