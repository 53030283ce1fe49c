//! Steps on devices, computed by hand: what was launched in them.

use crate::support;

use gputrace_analyzer::{Options, RankAnalysis, analyze, derive};
use gputrace_trace::tables::{Copy, Window};
use gputrace_trace::{DurationNs, Table, TimeNs};
use support::Build;

/// Name, start, end, and duration on the host of a rank's steps.
fn steps(rank: &RankAnalysis) -> Vec<(&str, i64, i64, Option<i64>)> {
    let steps = rank.steps.iter();
    steps
        .map(|step| {
            assert_eq!(step.duration_ns, step.end_ns.0 - step.start_ns.0);
            (
                step.name.as_str(),
                step.start_ns.0,
                step.end_ns.0,
                step.host_duration_ns,
            )
        })
        .collect()
}

/// A host that is through with its three steps of 10 before the first runs; then each takes 100.
fn two_steps_ahead() -> Build {
    let mut build = Build::new(1);
    // Start-up: launched before the first step.
    build.call(0, 1, 1).kernel(0, "init", 7, 5, 95, 1);
    for step in 0..3u32 {
        let (host, device) = (10 + 10 * i64::from(step), 100 + 100 * i64::from(step));
        build.step(step.into(), host, host + 8);
        let first = 10 * (step + 1);
        build
            .call(host + 1, host + 2, first)
            .kernel(0, "gemm", 7, device, device + 60, first);
        build
            .call(host + 3, host + 4, first + 1)
            .kernel(0, "relu", 7, device + 60, device + 90, first + 1);
    }
    // Launched between the ranges of steps 1 and 2, from another thread: it is of step 1.
    build.call(29, 30, 40).kernel(0, "copy_kernel", 8, 230, 250, 40);
    build.recording.processes[0].tables.api_calls.thread.pop();
    build.recording.processes[0].tables.api_calls.thread.push(5);
    // Launched behind the last range.
    build.call(45, 46, 50).kernel(0, "after", 8, 395, 420, 50);
    build
}

#[test]
fn where_the_host_runs_ahead_a_step_is_what_was_launched_in_it() {
    let build = two_steps_ahead();
    let analysis = analyze(&build.recording, &Options::default());
    let rank = &analysis.ranks[0];
    // The last one ends with its relu; the host has each from its range's beginning to that of the next, the last to its end.
    assert_eq!(
        steps(rank),
        [
            ("step 0", 100, 200, Some(10)),
            ("step 1", 200, 300, Some(10)),
            ("step 2", 300, 390, Some(8)),
        ]
    );
    let starts: Vec<Option<TimeNs>> = rank.steps.iter().map(|step| step.host_start_ns).collect();
    assert_eq!(starts, [10, 20, 30].map(|start| Some(TimeNs(start))));
    // 60 and 30 in each.
    let computed: Vec<i64> = rank.steps.iter().map(|step| step.measures.compute_ns).collect();
    assert_eq!(computed, [90, 90, 90]);
    let idle: Vec<i64> = rank.steps.iter().map(|step| step.parts.idle).collect();
    assert_eq!(idle, [10, 10, 0]);
    let step = analysis.step.expect("the job's step");
    assert_eq!((step.mean_ns, step.count), ((100 + 100 + 90) / 3, 3));
    assert!(analysis.notes.is_empty(), "{:?}", analysis.notes);
    // Exporters that count by the host have its times.
    let host: Vec<_> = derive(&build.recording).processes[0]
        .steps
        .iter()
        .map(|step| step.host_ns)
        .collect();
    assert_eq!(host, [Some((10, 20)), Some((20, 30)), Some((30, 38))]);
}

#[test]
fn chosen_steps_cut_each_device_by_its_own_time() {
    let mut build = two_steps_ahead();
    // Another GPU of the process, which is 1000 later, and does nothing in step 0.
    for (call, start) in [(22, 1200), (32, 1300), (34, 1350)] {
        let correlation = 100 + call;
        build.call(i64::from(call), i64::from(call) + 1, correlation);
        build.recording.processes[0].tables.copies.push(Copy {
            start_ns: TimeNs(start),
            duration_ns: DurationNs(10),
            device: 1,
            correlation,
            ..Copy::default()
        });
    }
    let whole = analyze(&build.recording, &Options::default());
    assert_eq!(
        steps(&whole.ranks[1]),
        [("step 1", 1200, 1300, Some(10)), ("step 2", 1300, 1360, Some(8)),]
    );
    let of = |first, last| {
        let options = Options {
            steps: Some((first, last)),
            ..Options::default()
        };
        let ranks = analyze(&build.recording, &options).ranks;
        let spans = ranks
            .iter()
            .map(|rank| (rank.device_index, rank.measures.span_ns));
        spans.collect::<Vec<_>>()
    };
    // Step 1: 200..300, of which 290..300 is idle; and the copy alone.
    assert_eq!(of(1, 1), [(0, 90), (1, 10)]);
    assert_eq!(of(1, 2), [(0, 190), (1, 160)]);
    assert_eq!(of(0, 0), [(0, 90)], "the other GPU has no step 0");
}

#[test]
fn a_copy_that_is_launched_within_a_step_and_runs_early_does_not_begin_it() {
    let mut build = Build::new(1);
    build.step(0, 0, 10).step(1, 10, 20);
    build.call(1, 2, 1).kernel(0, "gemm", 7, 100, 150, 1);
    build.call(11, 12, 2).kernel(0, "gemm", 7, 150, 200, 2);
    // The next batch, on a stream of its own: it runs at once.
    build.call(13, 14, 3).kernel(0, "prefetch", 8, 40, 60, 3);
    let analysis = analyze(&build.recording, &Options::default());
    assert_eq!(
        steps(&analysis.ranks[0]),
        [("step 0", 100, 150, Some(10)), ("step 1", 150, 200, Some(10)),]
    );
}

#[test]
fn no_step_begins_before_the_one_before_it() {
    let mut build = Build::new(1);
    build.step(0, 0, 10).step(1, 10, 20).step(2, 20, 30);
    // What step 1 launches first, on another stream, runs before all of step 0, whose queue is long.
    build.call(1, 2, 1).kernel(0, "gemm", 7, 100, 150, 1);
    build.call(11, 12, 2).kernel(0, "prefetch", 8, 40, 60, 2);
    build.call(13, 14, 3).kernel(0, "gemm", 7, 150, 200, 3);
    build.call(21, 22, 4).kernel(0, "gemm", 7, 200, 240, 4);
    let analysis = analyze(&build.recording, &Options::default());
    assert_eq!(
        steps(&analysis.ranks[0]),
        [
            ("step 0", 100, 100, Some(10)),
            ("step 1", 100, 200, Some(10)),
            ("step 2", 200, 240, Some(10)),
        ]
    );
    assert_eq!(analysis.ranks[0].steps[0].measures.span_ns, 0);
}

#[test]
fn a_step_does_not_last_into_a_pause_in_recording() {
    let mut build = Build::new(1);
    let active = build.recording.names.intern("active");
    for (start, end) in [(0, 25), (100, 130)] {
        build.recording.processes[0].tables.windows.push(Window {
            start_ns: TimeNs(start),
            duration_ns: DurationNs(end - start),
            what: active,
            ..Window::default()
        });
    }
    build
        .step(0, 0, 10)
        .step(1, 10, 20)
        .step(8, 101, 110)
        .step(9, 110, 120);
    // The last of what was recorded before the pause runs on in it, until 40.
    for (number, (call, start, end)) in
        (1..).zip([(1, 5, 15), (11, 15, 40), (102, 108, 118), (112, 118, 128)])
    {
        build
            .call(call, call + 1, number)
            .kernel(0, "gemm", 7, start, end, number);
    }
    let analysis = analyze(&build.recording, &Options::default());
    assert_eq!(
        steps(&analysis.ranks[0]),
        [
            ("step 0", 5, 15, Some(10)),
            // On the host it lasts until recording pauses at 25.
            ("step 1", 15, 40, Some(15)),
            ("step 8", 108, 118, Some(9)),
            ("step 9", 118, 128, Some(10)),
        ]
    );
}

#[test]
fn ranges_of_several_threads_with_one_number_are_one_step() {
    let mut build = Build::new(1);
    build
        .step(0, 0, 10)
        .step(0, 2, 12)
        .step(1, 20, 30)
        .step(1, 22, 32);
    build.recording.processes[0].tables.markers.thread = vec![1, 2, 1, 2];
    // By the ranges' own threads; one of a thread without ranges goes by the range that began last.
    for (number, (thread, call, start)) in
        (1u32..).zip([(1, 5, 50), (2, 21, 60), (1, 25, 80), (3, 26, 85), (2, 31, 90)])
    {
        build
            .call(call, call + 1, number)
            .kernel(0, "gemm", 7, start, start + 5, number);
        *build.recording.processes[0]
            .tables
            .api_calls
            .thread
            .last_mut()
            .unwrap() = thread;
    }
    // The call at 21 is in step 1 by time, and in step 0 by its own thread, which begins step 1 at 22.
    let analysis = analyze(&build.recording, &Options::default());
    assert_eq!(
        steps(&analysis.ranks[0]),
        [("step 0", 50, 80, Some(22)), ("step 1", 80, 95, Some(12))]
    );
}

#[test]
fn without_recorded_launches_steps_are_those_of_the_host() {
    let mut build = Build::new(2);
    build.step(0, 0, 10).step(1, 10, 20);
    build
        .kernel(0, "gemm", 7, 30, 60, 0)
        .kernel(1, "gemm", 7, 30, 60, 0);
    let analysis = analyze(&build.recording, &Options::default());
    assert_eq!(
        steps(&analysis.ranks[0]),
        [("step 0", 0, 10, Some(10)), ("step 1", 10, 20, Some(10))]
    );
    let note = "no call that launched anything is recorded of 1 of 2 devices";
    assert!(
        analysis.notes.iter().any(|found| found.starts_with(note)),
        "{:?}",
        analysis.notes
    );
    // One that is recorded says that the others of its step were not launched there.
    build.call(15, 16, 9).kernel(0, "gemm", 7, 70, 75, 9);
    let analysis = analyze(&build.recording, &Options::default());
    assert_eq!(steps(&analysis.ranks[0]), [("step 1", 70, 75, Some(10))]);
    assert!(analysis.notes.is_empty(), "{:?}", analysis.notes);
}

#[test]
fn graph_launches_and_collectives_count_by_their_calls() {
    let mut build = Build::new(1);
    build.step(0, 0, 10).step(1, 10, 20);
    // One call launches a graph of two kernels; a collective's kernel is launched like any other.
    build
        .call(1, 2, 1)
        .kernel(0, "in a graph", 7, 50, 60, 1)
        .kernel(0, "in a graph", 8, 70, 80, 1);
    build.collective(0, 0, 400, 90, 120).call(11, 12, 1000);
    let analysis = analyze(&build.recording, &Options::default());
    assert_eq!(
        steps(&analysis.ranks[0]),
        [("step 0", 50, 90, Some(10)), ("step 1", 90, 120, Some(10))]
    );
}
