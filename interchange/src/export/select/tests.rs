//! What is left of a recording.

use super::*;

#[test]
fn what_has_a_part_in_the_window_with_its_launches() {
    let mut tables = Tables::default();
    for place in 0..10u32 {
        let at = i64::from(place) * 100;
        tables.kernels.push(gputrace_trace::tables::Kernel {
            start_ns: TimeNs(at + 50),
            duration_ns: DurationNs(60),
            correlation: place + 1,
            ..kernel()
        });
        tables.api_calls.push(gputrace_trace::tables::ApiCall {
            start_ns: TimeNs(at),
            duration_ns: DurationNs(10),
            name: gputrace_trace::NameId::default(),
            kind: 5,
            callback: 0,
            thread: 1,
            correlation: place + 1,
            result: 0,
        });
    }
    let window = Window {
        from: TimeNs(305),
        to: TimeNs(550),
    };
    let part = cut_tables(&tables, Stretch::of(window)).0;
    // The one from 250 to 310 reaches in; the one at 550 begins behind it.
    assert_eq!(part.kernels.correlation, [3, 4, 5]);
    assert_eq!(part.api_calls.correlation, [3, 4, 5, 6]);
    let empty = Window {
        from: TimeNs(200),
        to: TimeNs(200),
    };
    assert!(cut_tables(&tables, Stretch::of(empty)).0.kernels.is_empty());
}

#[test]
fn recordings_of_events_stay_with_their_calls_and_with_their_waits() {
    use gputrace_trace::tables::{ApiCall, EventRecord, Synchronization};
    let mut tables = Tables::default();
    for number in 1..=4u32 {
        tables.api_calls.push(ApiCall {
            start_ns: TimeNs(i64::from(number) * 100),
            duration_ns: DurationNs(10),
            correlation: number,
            ..ApiCall::default()
        });
        tables.event_records.push(EventRecord {
            correlation: number,
            event_synchronization: (number != 4).then_some(u64::from(number) + 10),
            ..EventRecord::default()
        });
    }
    tables.synchronizations.push(Synchronization {
        start_ns: TimeNs(420),
        duration_ns: DurationNs(1),
        kind: 2,
        event_synchronization: Some(12),
        ..Synchronization::default()
    });
    let window = Window {
        from: TimeNs(400),
        to: TimeNs(500),
    };
    // The last one's call is in it; the second was waited for in it.
    let part = cut_tables(&tables, Stretch::of(window)).0;
    assert_eq!(part.event_records.correlation, [2, 4]);
}

fn kernel() -> gputrace_trace::tables::Kernel {
    gputrace_trace::tables::Kernel {
        start_ns: TimeNs(0),
        duration_ns: DurationNs(0),
        name: gputrace_trace::NameId::default(),
        device: 0,
        context: 1,
        stream: 7,
        correlation: 0,
        grid_x: 1,
        grid_y: 1,
        grid_z: 1,
        block_x: 1,
        block_y: 1,
        block_z: 1,
        registers: 0,
        static_shared_bytes: 0,
        dynamic_shared_bytes: 0,
        shared_executed_bytes: 0,
        local_bytes: 0,
        launch_type: 0,
        cluster_x: None,
        cluster_y: None,
        cluster_z: None,
        graph: None,
        graph_node: None,
    }
}

use gputrace_trace::derived::{DerivedCollective, DerivedPart, DerivedStep};
use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::measures::Measures;

/// Two ranks with a kernel each 100 ns, of 50, and a step each 200 ns; the second kernel of each is a collective's.
fn two_ranks() -> (Recording, Derived) {
    let (mut recording, mut derived) = (Recording::default(), Derived::default());
    for rank in 0..2u32 {
        let mut process = Process {
            header: ProcessHeader {
                rank: Some(rank + 4),
                ..ProcessHeader::new()
            },
            ..Process::default()
        };
        let mut known = DerivedProcess::default();
        for place in 0..8 {
            process.tables.kernels.push(gputrace_trace::tables::Kernel {
                start_ns: TimeNs(1000 + i64::from(place) * 100),
                duration_ns: DurationNs(50),
                correlation: place + 1,
                ..kernel()
            });
            known.communicates.push(place % 2 == 1);
            if place % 2 == 1 {
                known.parts.push(DerivedPart {
                    collective: place / 2,
                    kernel: Some(place),
                    row: None,
                    device: Some(0),
                    wait_ns: Some(i64::from(place)),
                    transfer_ns: None,
                    exposed_ns: None,
                });
            }
        }
        for number in 0..4 {
            known.steps.push(step(number, 1000 + 200 * number.cast_signed()));
        }
        recording.processes.push(process);
        derived.processes.push(known);
    }
    derived.collectives = (0..4).map(collective).collect();
    (recording, derived)
}

fn step(number: u64, start_ns: i64) -> DerivedStep {
    DerivedStep {
        device: 0,
        number: Some(number),
        name: format!("step {number}"),
        start_ns,
        end_ns: start_ns + 200,
        host_ns: None,
        detected: false,
        outlier: false,
        measures: Measures::default(),
    }
}

fn collective(number: u64) -> DerivedCollective {
    DerivedCollective {
        id: number + 1,
        name: "AllReduce".to_owned(),
        communicator: "0xa".to_owned(),
        communicator_name: None,
        sequence: Some(number),
        ranks: vec![4, 5],
        communicator_ranks: Some(2),
        bytes: None,
        dtype: String::new(),
        algbw: None,
        busbw: None,
        skew_ns: None,
        last_rank: None,
        warm_up: false,
    }
}

fn selected(selection: &Selection) -> Result<(Recording, Derived), NothingSelected> {
    let (recording, derived) = two_ranks();
    selection.of(recording, derived)
}

#[test]
fn everything_is_left_alone() {
    let (recording, derived) = selected(&Selection::default()).unwrap();
    assert_eq!((recording.processes, derived), {
        let (recording, derived) = two_ranks();
        (recording.processes, derived)
    });
}

#[test]
fn steps_and_what_is_known_of_them() {
    let (recording, derived) = selected(&Selection {
        steps: Some((1, 2)),
        ranks: Some(vec![5, 99]),
        ..Selection::default()
    })
    .unwrap();
    let [process] = recording.processes.as_slice() else {
        panic!("one rank");
    };
    assert_eq!(process.header.rank, Some(5));
    assert_eq!(process.tables.kernels.correlation, [3, 4, 5, 6]);
    let [known] = derived.processes.as_slice() else {
        panic!("one rank");
    };
    assert_eq!(known.communicates, [false, true, false, true]);
    // Waits stay those of the whole; kernels and collectives have new numbers.
    let parts = known.parts.iter();
    let parts: Vec<_> = parts
        .map(|part| (part.kernel, part.collective, part.wait_ns))
        .collect();
    assert_eq!(parts, [(Some(1), 0, Some(3)), (Some(3), 1, Some(5))]);
    let sequences = derived.collectives.iter().map(|collective| collective.sequence);
    assert_eq!(sequences.collect::<Vec<_>>(), [Some(1), Some(2)]);
    let steps = known.steps.iter().map(|step| step.number);
    assert_eq!(steps.collect::<Vec<_>>(), [Some(1), Some(2)]);
}

#[test]
fn where_the_host_is_ahead_each_has_its_own_time_of_a_step() {
    let (mut recording, mut derived) = two_ranks();
    recording.processes.truncate(1);
    derived.processes.truncate(1);
    // The host launches each kernel 5 after the one before, and is through with step 1 when its first kernel begins at 1200.
    for place in 0..8 {
        let at = TimeNs(1000 + i64::from(place) * 5);
        recording.processes[0]
            .tables
            .api_calls
            .push(gputrace_trace::tables::ApiCall {
                start_ns: at,
                duration_ns: DurationNs(2),
                correlation: place + 1,
                ..gputrace_trace::tables::ApiCall::default()
            });
        recording.processes[0]
            .tables
            .markers
            .push(gputrace_trace::tables::Marker {
                start_ns: at,
                duration_ns: Some(DurationNs(4)),
                depth: u16::try_from(place).unwrap(),
                ..gputrace_trace::tables::Marker::default()
            });
    }
    for (number, step) in (0i64..).zip(&mut derived.processes[0].steps) {
        step.host_ns = Some((1000 + number * 10, 1010 + number * 10));
    }
    let selection = Selection {
        steps: Some((1, 1)),
        ..Selection::default()
    };
    let (part, known) = selection.of(recording, derived).unwrap();
    let tables = &part.processes[0].tables;
    assert_eq!(tables.kernels.correlation, [3, 4]);
    assert_eq!(tables.api_calls.correlation, [3, 4]);
    assert_eq!(tables.markers.depth, [2, 3]);
    let steps = known.processes[0].steps.iter().map(|step| step.number);
    assert_eq!(steps.collect::<Vec<_>>(), [Some(1)]);
    assert!(
        part.notes[0].contains("between 1010 and 1400 ns"),
        "{:?}",
        part.notes
    );
}

#[test]
fn a_range_counts_from_the_first_event() {
    let (recording, _) = selected(&Selection {
        range_ns: Some((120, 250)),
        ..Selection::default()
    })
    .unwrap();
    for process in &recording.processes {
        assert_eq!(process.tables.kernels.correlation, [2, 3]);
    }
    assert!(recording.notes[0].contains("between 1120 and 1250 ns"));
}

#[test]
fn what_holds_nothing_is_refused() {
    let why = |selection: Selection| selected(&selection).map(drop).unwrap_err().to_string();
    let ranks = why(Selection {
        ranks: Some(vec![0]),
        ..Selection::default()
    });
    assert_eq!(ranks, "none of these ranks was recorded; recorded: 4, 5");
    let steps = why(Selection {
        steps: Some((9, 12)),
        ..Selection::default()
    });
    assert_eq!(steps, "no rank has the steps 9..12");
    let range = why(Selection {
        range_ns: Some((5000, i64::MAX)),
        ..Selection::default()
    });
    assert_eq!(range, "there is no event in that range");
}
