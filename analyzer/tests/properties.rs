//! What holds for every recording: parts sum to their wholes, nothing depends on the order of rows, and the measures are
//! those of a model that looks at every unit of time.

use std::collections::BTreeMap;

use gputrace_analyzer::{Analysis, Options, Sort, analyze};
use gputrace_trace::manifest::{Device, ProcessHeader};
use gputrace_trace::tables::{
    ApiCall, Collective, Communicator, Copy, ExternalCorrelation, Kernel, Marker, Memset, Operator,
    Synchronization,
};
use gputrace_trace::{DurationNs, Process, Recording, Table, TimeNs};
use proptest::prelude::*;

/// Random times are whole numbers of this, so that gaps are found on both sides of every threshold (20 us, 1 ms).
const UNIT_NS: i64 = 7_001;
/// Random times lie below this, in units.
const UNITS: i64 = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    Compute,
    AllReduce,
    Copy,
    Memset,
}

/// An operation on a device and the call that launched it, in units of time.
#[derive(Clone, Debug)]
struct Work {
    what: What,
    name: u8,
    device: u32,
    stream: u32,
    start: i64,
    length: i64,
    /// How long before the operation its call began, how long it took, and on which thread; `None` is not recorded.
    call: Option<(i64, i64, u32)>,
}

/// What a thread did besides.
#[derive(Clone, Debug)]
struct HostWork {
    name: &'static str,
    thread: u32,
    start: i64,
    length: i64,
}

#[derive(Clone, Debug)]
pub struct Rank {
    work: Vec<Work>,
    host: Vec<HostWork>,
    /// Stream, thread and time at which it was told to wait for an event.
    waits: Vec<(u32, u32, i64)>,
    steps: Vec<i64>,
}

fn work() -> impl Strategy<Value = Work> {
    let what = prop_oneof![
        5 => Just(What::Compute),
        2 => Just(What::AllReduce),
        1 => Just(What::Copy),
        1 => Just(What::Memset),
    ];
    let call = proptest::option::weighted(0.8, (0..60i64, 0..20i64, 1..3u32));
    (what, 0..4u8, 0..2u32, 0..3u32, 0..UNITS, 0..40i64, call).prop_map(
        |(what, name, device, stream, start, length, call)| Work {
            what,
            name,
            device,
            stream,
            start,
            length,
            call,
        },
    )
}

fn host_work() -> impl Strategy<Value = HostWork> {
    let names = prop::sample::select(vec![
        "aten::mm",
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
        "gloo:all_reduce",
        "cudaDeviceSynchronize",
        "cuMemAlloc_v2",
        "forward",
    ]);
    (names, 1..4u32, 0..UNITS, 0..150i64).prop_map(|(name, thread, start, length)| HostWork {
        name,
        thread,
        start,
        length,
    })
}

pub fn rank() -> impl Strategy<Value = Rank> {
    (
        prop::collection::vec(work(), 0..30),
        prop::collection::vec(host_work(), 0..12),
        prop::collection::vec((0..3u32, 1..3u32, 0..UNITS), 0..6),
        prop::collection::vec(0..UNITS, 0..4),
    )
        .prop_map(|(work, host, waits, steps)| Rank {
            work,
            host,
            waits,
            steps,
        })
}

fn time(units: i64) -> TimeNs {
    TimeNs(units * UNIT_NS)
}

fn length(units: i64) -> DurationNs {
    DurationNs(units * UNIT_NS)
}

/// The rows of a process; every entry can be taken alone, so that they can be pushed in any order.
fn push(recording: &mut Recording, rank: u32, process: &mut Process, row: &Row<'_>) {
    let mut intern = |text: &str| recording.names.intern(text);
    let tables = &mut process.tables;
    match *row {
        Row::Work(number, work) => {
            let correlation = if work.call.is_some() { number + 1 } else { 0 };
            let (start_ns, duration_ns) = (time(work.start), length(work.length));
            if let Some((before, took, thread)) = work.call {
                tables.api_calls.push(ApiCall {
                    start_ns: time(work.start - before),
                    duration_ns: length(took),
                    name: intern("cuLaunchKernel"),
                    thread,
                    correlation,
                    ..ApiCall::default()
                });
            }
            let name = match work.what {
                What::AllReduce => "ncclDevKernel_AllReduce_Sum_f32_RING_LL".to_owned(),
                _ => format!("kernel_{}", work.name),
            };
            match work.what {
                What::Compute | What::AllReduce => tables.kernels.push(Kernel {
                    start_ns,
                    duration_ns,
                    name: intern(&name),
                    device: work.device,
                    stream: work.stream,
                    correlation,
                    ..Kernel::default()
                }),
                What::Copy => tables.copies.push(Copy {
                    start_ns,
                    duration_ns,
                    device: work.device,
                    stream: work.stream,
                    correlation,
                    copy_kind: 1 + work.name % 2,
                    bytes: u64::from(work.name) << 20,
                    ..Copy::default()
                }),
                What::Memset => tables.memsets.push(Memset {
                    start_ns,
                    duration_ns,
                    device: work.device,
                    stream: work.stream,
                    correlation,
                    ..Memset::default()
                }),
            }
            // NCCL numbers what it launches: half of those with a call are numbered.
            if work.what == What::AllReduce && work.call.is_some() && number % 2 == 0 {
                tables.external_correlations.push(ExternalCorrelation {
                    correlation,
                    kind: 5,
                    id: u64::from(number),
                });
                tables.collectives.push(Collective {
                    start_ns,
                    communicator: 0xabc,
                    rank,
                    sequence: Some(u64::from(number)),
                    function: intern("AllReduce"),
                    datatype: intern("ncclFloat32"),
                    count: 1024,
                    bytes: 4096,
                    plan: Some(u64::from(number)),
                    ..Collective::default()
                });
            }
        }
        Row::Host(host) => {
            let (start_ns, duration_ns) = (time(host.start), length(host.length));
            let (name, thread) = (intern(host.name), host.thread);
            if host.name.starts_with("cu") {
                tables.api_calls.push(ApiCall {
                    start_ns,
                    duration_ns,
                    name,
                    thread,
                    ..ApiCall::default()
                });
            } else if host.name == "forward" {
                tables.markers.push(Marker {
                    start_ns,
                    duration_ns: Some(duration_ns),
                    name,
                    thread,
                    ..Marker::default()
                });
            } else {
                tables.operators.push(Operator {
                    start_ns,
                    duration_ns,
                    name,
                    thread,
                    ..Operator::default()
                });
            }
        }
        Row::Wait(number, (stream, thread, at)) => {
            let correlation = 10_000 + number;
            tables.api_calls.push(ApiCall {
                start_ns: time(at),
                duration_ns: DurationNs(1),
                name: intern("cuStreamWaitEvent"),
                thread,
                correlation,
                ..ApiCall::default()
            });
            tables.synchronizations.push(Synchronization {
                start_ns: time(at),
                kind: 2,
                stream: Some(stream),
                correlation,
                ..Synchronization::default()
            });
        }
        Row::Step(number, start, end) => tables.markers.push(Marker {
            start_ns: time(start),
            duration_ns: Some(length(end - start)),
            name: intern(&format!("step {number}")),
            thread: 1,
            ..Marker::default()
        }),
    }
}

#[derive(Clone, Copy, Debug)]
enum Row<'a> {
    Work(u32, &'a Work),
    Host(&'a HostWork),
    Wait(u32, (u32, u32, i64)),
    Step(usize, i64, i64),
}

/// A recording of the ranks, their rows in the order that `key` gives.
pub fn recording(ranks: &[Rank], key: impl Fn(usize) -> u64) -> Recording {
    let mut recording = Recording::default();
    recording.manifest.device = "cuda".to_owned();
    let mut processes: Vec<(u64, Process)> = Vec::new();
    for (number, rank) in (0u32..).zip(ranks) {
        let mut rows: Vec<Row<'_>> = Vec::new();
        rows.extend(
            (0..)
                .zip(&rank.work)
                .map(|(number, work)| Row::Work(number, work)),
        );
        rows.extend(rank.host.iter().map(Row::Host));
        rows.extend(
            (0..)
                .zip(&rank.waits)
                .map(|(number, wait)| Row::Wait(number, *wait)),
        );
        let mut steps = rank.steps.clone();
        steps.sort_unstable();
        steps.dedup();
        rows.extend(
            steps
                .windows(2)
                .enumerate()
                .map(|(number, pair)| Row::Step(number, pair[0], pair[1])),
        );
        let mut order: Vec<usize> = (0..rows.len()).collect();
        // Of operators with one time the first holds the others, so those keep their order.
        order.sort_by_key(|&index| match rows[index] {
            Row::Host(_) => None,
            _ => Some(key(index)),
        });
        let device = |index| Device {
            index,
            name: "GPU".to_owned(),
            ..Device::default()
        };
        let mut process = Process {
            folder: format!("rank{number}"),
            header: ProcessHeader {
                rank: Some(number),
                host: "host".to_owned(),
                devices: vec![device(0), device(1)],
                ..ProcessHeader::new()
            },
            ..Process::default()
        };
        process.tables.communicators.push(Communicator {
            communicator: 0xabc,
            rank: number,
            ranks: u32::try_from(ranks.len()).unwrap(),
            ..Communicator::default()
        });
        for index in order {
            push(&mut recording, number, &mut process, &rows[index]);
        }
        processes.push((key(number as usize), process));
    }
    processes.sort_by_key(|(key, _)| *key);
    recording.processes = processes.into_iter().map(|(_, process)| process).collect();
    recording.sort_processes();
    recording
}

/// How many units of time some operations cover, in which `wanted` is true of what runs.
fn units(work: &[&Work], wanted: impl Fn(&dyn Fn(What) -> bool) -> bool) -> i64 {
    let covered = (0..UNITS + 40).filter(|unit| {
        let runs = |what| {
            work.iter()
                .any(|work| work.what == what && (work.start..work.start + work.length).contains(unit))
        };
        wanted(&runs)
    });
    i64::try_from(covered.count()).unwrap() * UNIT_NS
}

/// Name, start and end of a device's steps, step by step: which of its operations were launched in one, and what of them is
/// first and last. Without calls the steps are the host's.
fn steps_on_a_device(rank: &Rank, work: &[&Work]) -> Vec<(String, i64, i64)> {
    let mut edges = rank.steps.clone();
    edges.sort_unstable();
    edges.dedup();
    let host = edges.windows(2).map(|pair| (pair[0], pair[1])).enumerate();
    let in_ns = |(name, start, end): (String, i64, i64)| (name, start * UNIT_NS, end * UNIT_NS);
    if work.iter().all(|work| work.call.is_none()) {
        return host
            .map(|(number, (start, end))| in_ns((format!("step {number}"), start, end)))
            .collect();
    }
    let mut steps: Vec<(String, i64, i64)> = Vec::new();
    for (number, (from, to)) in host {
        let launched: Vec<&&Work> = work
            .iter()
            .filter(|work| {
                work.call
                    .is_some_and(|(before, ..)| (from..to).contains(&(work.start - before)))
            })
            .collect();
        // The first in the order of launches, of equal ones the first to run.
        let launch = |work: &&&Work| work.call.map(|(before, ..)| (work.start - before, work.start));
        let Some((_, first)) = launched.iter().filter_map(launch).min() else {
            continue;
        };
        let last = launched
            .iter()
            .map(|work| work.start + work.length)
            .max()
            .unwrap();
        let start = steps.last().map_or(first, |before| before.1.max(first));
        if let Some(before) = steps.last_mut() {
            before.2 = start;
        }
        steps.push((format!("step {number}"), start, last.max(start)));
    }
    steps.into_iter().map(in_ns).collect()
}

fn sums_hold(analysis: &Analysis) {
    for rank in &analysis.ranks {
        let measures = &rank.measures;
        assert_eq!(measures.busy_ns + measures.idle_ns, measures.span_ns);
        assert_eq!(
            measures.communication_hidden_ns + measures.communication_exposed_ns,
            measures.communication_ns
        );
        assert_eq!(rank.idle_causes.values().sum::<i64>(), measures.idle_ns);
        let late = rank.idle_causes.get("host_late").copied().unwrap_or(0);
        assert_eq!(rank.host_late_by.values().sum::<i64>(), late);
        let totals: i64 = rank.kernels.iter().map(|kernel| kernel.total_ns).sum();
        let counts: usize = rank.kernels.iter().map(|kernel| kernel.count).sum();
        assert_eq!(totals, rank.kinds.iter().map(|kind| kind.total_ns).sum::<i64>());
        assert_eq!(counts, rank.kinds.iter().map(|kind| kind.count).sum::<usize>());
        assert_eq!(
            counts,
            rank.streams.iter().map(|stream| stream.ops).sum::<usize>()
        );
        for stream in &rank.streams {
            assert_eq!(stream.busy_ns + stream.idle_ns, stream.span_ns);
            assert_eq!(
                stream.idle_host_wait_ns + stream.idle_kernel_wait_ns + stream.idle_other_ns,
                stream.idle_ns
            );
            assert!(stream.busy_ns <= measures.busy_ns);
        }
        for part in &rank.communication {
            assert_eq!(part.hidden_ns + part.exposed_ns, part.time_ns);
        }
        for gap in &rank.longest_gaps {
            assert!(gap.start_ns < gap.end_ns && (gap.end_ns - gap.start_ns).0 <= measures.idle_ns);
        }
        if let Some(unattributed) = rank.attribution.unattributed {
            let direct: i64 = rank.attribution.operators.iter().map(|one| one.direct_ns).sum();
            let of_shapes: i64 = rank
                .attribution
                .shapes
                .iter()
                .map(|one| one.operator.direct_ns)
                .sum();
            let nobodys = unattributed.no_operator_ns + unattributed.launch_not_recorded_ns;
            assert_eq!(direct + nobodys, totals);
            assert_eq!(of_shapes, direct);
            assert_eq!(unattributed.operations_ns, totals);
        }
        for step in &rank.steps {
            let measures = &step.measures;
            assert_eq!(measures.busy_ns + measures.idle_ns, measures.span_ns);
            assert_eq!(
                measures.communication_hidden_ns + measures.communication_exposed_ns,
                measures.communication_ns
            );
        }
    }
    for collective in &analysis.collectives {
        for (rank, transfer) in &collective.transfer_ns {
            assert!(*transfer >= 0, "rank {rank}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn parts_sum_to_their_wholes(ranks in prop::collection::vec(rank(), 1..4)) {
        let recording = recording(&ranks, |index| index as u64);
        sums_hold(&analyze(&recording, &Options::default()));
        let options = Options { steps: Some((0, 1)), ..Options::default() };
        sums_hold(&analyze(&recording, &options));
    }

    #[test]
    fn measures_are_those_of_a_model_of_every_unit(rank in rank()) {
        let recording = recording(std::slice::from_ref(&rank), |index| index as u64);
        let analysis = analyze(&recording, &Options::default());
        let mut devices: BTreeMap<u32, Vec<&Work>> = BTreeMap::new();
        for work in &rank.work {
            devices.entry(work.device).or_default().push(work);
        }
        prop_assert_eq!(analysis.ranks.len(), devices.len());
        for (found, (device, work)) in analysis.ranks.iter().zip(devices) {
            use What::{AllReduce, Compute, Copy, Memset};
            let measures = &found.measures;
            prop_assert_eq!(found.device_index, device);
            prop_assert_eq!(measures.compute_ns, units(&work, |runs| runs(Compute)));
            prop_assert_eq!(measures.communication_ns, units(&work, |runs| runs(AllReduce)));
            prop_assert_eq!(measures.copy_ns, units(&work, |runs| runs(Copy)));
            prop_assert_eq!(measures.memset_ns, units(&work, |runs| runs(Memset)));
            prop_assert_eq!(measures.busy_ns, units(&work, |runs| runs(Compute) || runs(AllReduce) || runs(Copy) || runs(Memset)));
            prop_assert_eq!(measures.communication_hidden_ns, units(&work, |runs| runs(Compute) && runs(AllReduce)));
            prop_assert_eq!(measures.copy_exposed_ns, units(&work, |runs| runs(Copy) && !runs(Compute)));
            let start = work.iter().map(|work| work.start).min().unwrap();
            let end = work.iter().map(|work| work.start + work.length).max().unwrap();
            prop_assert_eq!(measures.span_ns, (end - start) * UNIT_NS);
        }
    }

    #[test]
    fn steps_are_what_was_launched_in_them_and_leave_no_time_between_them(rank in rank()) {
        let recording = recording(std::slice::from_ref(&rank), |index| index as u64);
        for found in &analyze(&recording, &Options::default()).ranks {
            let work: Vec<&Work> = rank.work.iter().filter(|work| work.device == found.device_index).collect();
            let windows: Vec<(String, i64, i64)> = found
                .steps
                .iter()
                .filter(|step| !step.detected)
                .map(|step| (step.name.clone(), step.start_ns.0, step.end_ns.0))
                .collect();
            prop_assert_eq!(&windows, &steps_on_a_device(&rank, &work));
            for pair in windows.windows(2) {
                prop_assert_eq!(pair[0].2, pair[1].1);
            }
            let busy: i64 = found.steps.iter().map(|step| step.measures.busy_ns).sum();
            prop_assert!(busy <= found.measures.busy_ns);
        }
    }

    #[test]
    fn nothing_depends_on_the_order_of_rows_or_processes(
        ranks in prop::collection::vec(rank(), 1..4),
        seed: u64,
        by in prop::sample::select(vec![Sort::Total, Sort::Count, Sort::Mean, Sort::Max]),
    ) {
        let options = Options { sort: by, ..Options::default() };
        let in_order = analyze(&recording(&ranks, |index| index as u64), &options);
        let shuffled = recording(&ranks, |index| (index as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17));
        prop_assert_eq!(analyze(&shuffled, &options), in_order);
    }
}
