//! NCCL's kernels in CUDA graphs on the stand-in.

use crate::support;

use cudarc::driver::sys as driver;
use cudarc::nccl::sys::{self, ncclDataType_t as Type, ncclRedOp_t as Op};

use support::{Rank, bytes_of, on_the_stand_in, ranks};

const MODE: driver::CUstreamCaptureMode = driver::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

fn all_reduce(rank: &Rank, address: u64, count: usize) {
    // SAFETY: `count` f32 there.
    rank.check(unsafe {
        let (sum, f32) = (Op::ncclSum, Type::ncclFloat32);
        sys::ncclAllReduce(
            address as _,
            address as _,
            count,
            f32,
            sum,
            rank.comm,
            rank.stream(),
        )
    });
}

#[test]
fn a_captured_collective_runs_at_each_launch() {
    on_the_stand_in("a_captured_collective_runs_at_each_launch", &[], || {
        ranks(3, |rank| {
            let values = rank.upload(&[1.0; 100]);
            let other = rank.upload(&[1.0; 10]);
            // One before, so that the graph's comes after it.
            all_reduce(rank, other, 10);
            rank.own_stream.begin_capture(MODE).expect("begins");
            all_reduce(rank, values, 100);
            // A ring of sends and receives, one kernel.
            let next = (rank.rank + 1) % rank.ranks;
            let before = (rank.rank + rank.ranks - 1) % rank.ranks;
            rank.group(|| {
                rank.send(values, 50, next);
                rank.receive(values + 200, 50, before);
            });
            let flags = driver::CUgraphInstantiate_flags(0);
            let graph = rank
                .own_stream
                .end_capture(flags)
                .expect("ends")
                .expect("a graph");
            for launch in 1..=3 {
                graph.launch().expect("launched");
                // Outside, in between.
                all_reduce(rank, other, 10);
                let expected = 3f32.powi(launch);
                assert_eq!(
                    rank.download(values, 400),
                    bytes_of(&[expected; 100]),
                    "launch {launch}"
                );
            }
            assert_eq!(rank.download(other, 40), bytes_of(&[81.0; 10]));
        });
    });
}
