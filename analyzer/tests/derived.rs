//! What exporters write beside raw events, computed by hand.

use crate::support;

use gputrace_analyzer::derive;
use support::Build;

#[test]
fn parts_of_collectives_with_what_was_exposed() {
    let mut build = Build::new(2);
    // Rank 0 arrives at 100, rank 1 at 140, both end at 200; rank 0 computes from 90 to 130 and from 190 to 250.
    build
        .kernel(0, "gemm", 7, 90, 130, 1)
        .collective(0, 3, 400, 100, 200)
        .collective(1, 3, 400, 140, 200)
        .kernel(0, "gemm", 7, 190, 250, 2)
        .kernel(0, "gemm", 7, 300, 310, 3)
        .step(4, 80, 400);
    let derived = derive(&build.recording);
    let [zero, one] = derived.processes.as_slice() else {
        panic!("two processes")
    };
    assert_eq!(zero.communicates, [false, true, false, false]);
    assert_eq!(one.communicates, [true]);
    let [part] = zero.parts_of_kernel(1) else {
        panic!("one part: {:?}", zero.parts)
    };
    assert_eq!(
        (part.wait_ns, part.transfer_ns, part.exposed_ns, part.row),
        (Some(40), Some(60), Some(100 - 30 - 10), Some(0))
    );
    let [part] = one.parts_of_kernel(0) else {
        panic!("one part: {:?}", one.parts)
    };
    assert_eq!((part.wait_ns, part.exposed_ns), (Some(0), Some(60)));
    let [collective] = derived.collectives.as_slice() else {
        panic!("one collective")
    };
    assert_eq!(
        (collective.sequence, collective.bytes, collective.skew_ns),
        (Some(3), Some(400), Some(40))
    );
    assert_ne!(collective.id, 0);
    // The one gap: from 250 to 300.
    let gaps: Vec<(i64, i64)> = zero.gaps.iter().map(|gap| (gap.start_ns, gap.end_ns)).collect();
    assert_eq!(gaps, [(250, 300)]);
    let [step] = zero.steps.as_slice() else {
        panic!("one step: {:?}", zero.steps)
    };
    assert_eq!(
        (step.number, step.start_ns, step.end_ns, step.measures.compute_ns),
        (Some(4), 80, 400, 40 + 60 + 10)
    );
}

#[test]
fn collectives_of_one_kernel_have_a_part_each() {
    let mut build = Build::new(1);
    build
        .member(0, 0xa, "a", 0, 1)
        .carrier(0, 7, 100, 150)
        .carried(0, 7, 0xa, "AllReduce", Err(0), 8)
        .carried(0, 7, 0xa, "AllReduce", Err(1), 16);
    let derived = derive(&build.recording);
    let parts = derived.processes[0].parts_of_kernel(0);
    let rows: Vec<Option<u32>> = parts.iter().map(|part| part.row).collect();
    assert_eq!(rows, [Some(0), Some(1)]);
    let [first, second] = derived.collectives.as_slice() else {
        panic!("two: {:?}", derived.collectives)
    };
    assert_ne!(first.id, second.id);
    assert!(parts.iter().all(|part| part.exposed_ns == Some(50)));
}
