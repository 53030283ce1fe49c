//! The model against the tables of NCCL 2.30.7, which its own search and tuning printed for HGX H100 and H200 nodes.

use super::*;

/// A shape with NVSwitch and nothing slower than it is.
fn hgx(nodes: u32, local: u32) -> Shape {
    Shape {
        ranks: nodes * local,
        nodes,
        fewest_local: local,
        link: Link::NvSwitch,
        slower: 1.0,
    }
}

fn pcie(ranks: u32, link: Link) -> Shape {
    Shape {
        ranks,
        nodes: 1,
        fewest_local: ranks,
        link,
        slower: 1.0,
    }
}

/// Latency in microseconds and the algorithm's bandwidth in GB/s.
fn cell(shape: &Shape, function: Function, algorithm: Algorithm, protocol: Protocol) -> (f64, f64) {
    let estimate = estimate(shape, function, algorithm, protocol).expect("NCCL has it");
    (estimate.latency_us, estimate.bandwidth)
}

/// The tables print latencies with one decimal and bandwidths with about three digits.
fn assert_cell(found: (f64, f64), (latency_us, bandwidth): (f64, f64), what: &str) {
    assert!(
        (found.0 - latency_us).abs() < 0.051,
        "{what}: {} us, expected {latency_us}",
        found.0
    );
    let close = (found.1 / bandwidth - 1.0).abs() < 0.006 || (found.1 - bandwidth).abs() < 0.51;
    assert!(close, "{what}: {} GB/s, expected {bandwidth}", found.1);
}

use Algorithm::{Nvls, NvlsTree, Pat, Ring, Tree};
use Function::{AllGather, AllReduce, Broadcast, Reduce, ReduceScatter};
use Protocol::{Ll, Ll128, Simple};

/// Function, algorithm, protocol; then latency and bandwidth for 2, 4 and 8 GPUs of one node and for two nodes of 8.
type Row = (Function, Algorithm, Protocol, [Option<(f64, f64)>; 4]);

fn published() -> Vec<Row> {
    let all = |cells: [(f64, f64); 4]| cells.map(Some);
    let mut rows = vec![
        (
            AllReduce,
            Ring,
            Ll,
            all([(7.8, 141.0), (10.2, 94.0), (15.0, 80.6), (40.0, 20.8)]),
        ),
        (
            AllReduce,
            Ring,
            Ll128,
            all([(17.8, 331.0), (25.4, 221.0), (40.6, 189.0), (75.2, 157.0)]),
        ),
        (
            AllReduce,
            Ring,
            Simple,
            all([(15.2, 360.0), (28.8, 240.0), (56.0, 206.0), (131.6, 205.0)]),
        ),
        (
            AllReduce,
            Tree,
            Ll,
            all([(8.0, 61.0), (10.4, 44.0), (15.2, 44.0), (25.2, 16.6)]),
        ),
        (
            AllReduce,
            Tree,
            Ll128,
            all([(16.5, 181.0), (21.5, 129.0), (31.5, 129.0), (48.5, 125.0)]),
        ),
        (
            AllReduce,
            Tree,
            Simple,
            all([(16.4, 232.0), (32.4, 166.0), (64.4, 166.0), (92.4, 141.0)]),
        ),
        (
            AllReduce,
            Nvls,
            Simple,
            [
                Some((25.0, 102.0)),
                Some((25.0, 160.0)),
                Some((25.0, 272.0)),
                None,
            ],
        ),
        (
            AllReduce,
            NvlsTree,
            Simple,
            [None, None, None, Some((66.8, 246.0))],
        ),
    ];
    for function in [AllGather, ReduceScatter] {
        rows.extend([
            (
                function,
                Ring,
                Ll,
                all([(7.2, 282.0), (8.4, 188.0), (10.8, 161.0), (23.3, 41.6)]),
            ),
            (
                function,
                Ring,
                Ll128,
                all([(15.9, 662.0), (19.7, 442.0), (27.3, 379.0), (44.6, 313.0)]),
            ),
            (
                function,
                Ring,
                Simple,
                all([(11.8, 720.0), (18.6, 480.0), (32.2, 411.0), (70.0, 410.0)]),
            ),
        ]);
    }
    for function in [Broadcast, Reduce] {
        rows.extend([
            (
                function,
                Ring,
                Ll,
                all([(7.2, 141.0), (7.2, 141.0), (7.2, 141.0), (49.8, 39.0)]),
            ),
            (
                function,
                Ring,
                Ll128,
                all([(15.9, 331.0), (15.9, 331.0), (15.9, 331.0), (78.0, 294.0)]),
            ),
            (
                function,
                Ring,
                Simple,
                all([(11.8, 360.0), (11.8, 360.0), (11.8, 360.0), (232.4, 384.0)]),
            ),
        ]);
    }
    rows
}

#[test]
fn every_cell_of_the_tables() {
    let shapes = [hgx(1, 2), hgx(1, 4), hgx(1, 8), hgx(2, 8)];
    for (function, algorithm, protocol, cells) in published() {
        for (shape, expected) in shapes.iter().zip(cells) {
            let what = format!(
                "{function:?} {algorithm:?} {protocol:?} on {}x{}",
                shape.nodes, shape.fewest_local
            );
            match expected {
                Some(expected) => assert_cell(cell(shape, function, algorithm, protocol), expected, &what),
                None => assert!(estimate(shape, function, algorithm, protocol).is_none(), "{what}"),
            }
        }
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn chosen(shape: &Shape, function: Function, bytes: u64) -> (&'static str, &'static str) {
    let choice = choose_on(shape, function, bytes, 1);
    let text = |name: &'static CStr| name.to_str().expect("ASCII");
    (text(choice.algorithm), text(choice.protocol))
}

#[test]
fn choices_over_sizes() {
    // Up to and including which size each is taken, in powers of two from 128 bytes to 1 GiB.
    type Ranges = &'static [(u64, (&'static str, &'static str))];
    let gathers: Ranges = &[
        (4 * MIB, ("RING", "LL")),
        (16 * MIB, ("RING", "LL128")),
        (1 << 30, ("RING", "SIMPLE")),
    ];
    let expected: &[(u32, Function, Ranges)] = &[
        (
            8,
            AllReduce,
            &[(MIB, ("RING", "LL")), (1 << 30, ("NVLS", "SIMPLE"))],
        ),
        (8, AllGather, gathers),
        (8, ReduceScatter, gathers),
        (
            4,
            AllReduce,
            &[
                (2 * MIB, ("RING", "LL")),
                (8 * MIB, ("RING", "LL128")),
                (1 << 30, ("RING", "SIMPLE")),
            ],
        ),
        (
            2,
            AllReduce,
            &[(MIB, ("RING", "LL")), (1 << 30, ("RING", "SIMPLE"))],
        ),
    ];
    for (ranks, function, ranges) in expected {
        for power in 7..=30 {
            let bytes = 1u64 << power;
            let (_, name) = ranges.iter().find(|(to, _)| bytes <= *to).expect("a range");
            assert_eq!(
                chosen(&hgx(1, *ranks), *function, bytes),
                *name,
                "{function:?} of {bytes} bytes on {ranks}"
            );
        }
    }
}

#[test]
fn a_time_by_hand_for_each_formula() {
    let time = |shape: &Shape, function, bytes| choose_on(shape, function, bytes, 1).transfer_ns as f64 / 1e3;
    let of = |shape: &Shape, function, algorithm, protocol, bytes, operations| {
        estimate(shape, function, algorithm, protocol)
            .expect("NCCL has it")
            .time_us(bytes, operations)
    };
    let close =
        |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-3, "{found} {expected}");
    // 1 GiB on 8 GPUs by NVLS: 8 channels x 40 GB/s x 0.85 x 7/8 x 2 x 8/14 = 272 GB/s; 25 + 1073741824 / 272000.
    close(time(&hgx(1, 8), AllReduce, 1 << 30), 3972.6);
    // 128 bytes on two nodes of 8 by Tree/LL: 25.2 + 128 / 16575.
    close(time(&hgx(2, 8), AllReduce, 128), 25.2077);
    // Tree/LL of 256 KiB: log2(256 Ki / 64) = 12, where 0.4 of the 16.575 GB/s is reached.
    close(
        of(&hgx(2, 8), AllReduce, Tree, Ll, 256 * KIB, 1),
        25.2 + 262_144.0 / (1e3 * 16.575 * 0.4),
    );
    // Ring/Simple between nodes: 131.6 us, 1.4 times that from 64 bytes a rank and channel on: 16 x 16 x 64 = 16 KiB.
    close(
        of(&hgx(2, 8), AllReduce, Ring, Simple, 16 * KIB - 1, 1),
        131.6 + 16_383.0 / 204_800.0,
    );
    close(
        of(&hgx(2, 8), AllReduce, Ring, Simple, 16 * KIB, 1),
        131.6 * 1.4 + 16_384.0 / 204_800.0,
    );
    // 25 fused operations on 24 channels are two in turn for a ring, and one batch for NVLS.
    close(of(&hgx(1, 8), AllReduce, Ring, Ll, 0, 25), 30.0);
    close(of(&hgx(1, 8), AllReduce, Nvls, Simple, 0, 25), 25.0);
    close(of(&hgx(1, 8), AllReduce, Ring, Ll, 0, 24), 15.0);
    // PAT on 4 nodes of one rank: 8 + 2 x 14 / 3.5 + 2.8 x 4 = 27.2 us, 48 x 0.75 = 36 GB/s.
    assert_cell(cell(&hgx(4, 1), AllGather, Pat, Simple), (27.2, 36.0), "PAT");
    // One rank a node: the ring's network latency is the tree's, 6.6 + 3 x 5 us; 20.4 GB/s x 4/3 from 3 nodes on.
    assert_cell(
        cell(&hgx(4, 1), AllGather, Ring, Ll),
        (21.6, 20.4 * 4.0 / 3.0),
        "ring of nodes",
    );
    // PCIe within a socket, 4 GPUs: 6.6 + 6 x 1 us; 40 / 2 x 4 / 6 GB/s; no LL128.
    assert_cell(
        cell(&pcie(4, Link::PcieSocket), AllReduce, Ring, Ll),
        (12.6, 13.33),
        "PCIe",
    );
    assert_cell(
        cell(&pcie(8, Link::PcieSystem), AllReduce, Ring, Simple),
        (8.4 + 14.0 * 5.7, 20.0 * 8.0 / 14.0),
        "PCIe",
    );
    assert!(estimate(&pcie(4, Link::PcieSocket), AllReduce, Ring, Ll128).is_none());
    // NVLS on 6 GPUs: 6 x min(60 x 0.85 x 5/6 x 2, 60) x 6/10; on 7 the search falls to 50 GB/s a channel.
    assert_cell(cell(&hgx(1, 6), AllReduce, Nvls, Simple), (25.0, 216.0), "6 GPUs");
    assert_cell(cell(&hgx(1, 7), AllReduce, Nvls, Simple), (25.0, 245.0), "7 GPUs");
    // Two nodes of 4: 8 channels less: ring 4 x 48 x 8 / 14; NVLSTree 4 x 57.7 x 8 / 14.
    assert_cell(
        cell(&hgx(2, 4), AllReduce, Ring, Simple),
        (8.4 + 12.0 * 3.4 + 28.0, 109.7),
        "2x4",
    );
    assert_cell(
        cell(&hgx(2, 4), AllReduce, NvlsTree, Simple),
        (66.8, 131.9),
        "2x4",
    );
}

#[test]
fn larger_never_takes_less() {
    let mut shapes: Vec<Shape> = (2..=8).map(|ranks| hgx(1, ranks)).collect();
    shapes.extend((2..=8).map(|ranks| pcie(ranks, Link::PcieSocket)));
    shapes.extend([hgx(2, 1), hgx(2, 2), hgx(2, 4), hgx(2, 8), hgx(4, 1), hgx(4, 8)]);
    for shape in shapes {
        for slower in [1.0, 3.0, 1000.0] {
            let shape = Shape { slower, ..shape };
            for function in Function::ALL {
                let mut before = 0;
                for power in 0..=34 {
                    let choice = choose_on(&shape, function, 1 << power, 1);
                    assert!(
                        choice.transfer_ns >= before && choice.transfer_ns > 6_000,
                        "{shape:?} {function:?} 2^{power}"
                    );
                    before = choice.transfer_ns;
                }
            }
        }
    }
}

#[test]
fn slower_links_divide_bandwidths_and_leave_latencies() {
    let bytes = 360_000_000;
    let time = |slower| {
        let shape = Shape { slower, ..hgx(1, 2) };
        choose_on(&shape, AllReduce, bytes, 1).transfer_ns
    };
    assert_eq!(time(1.0), 15_200 + 1_000_000);
    assert_eq!(time(4.0), 15_200 + 4_000_000);
    assert_eq!(time(1000.0), 15_200 + 1_000_000_000);
    let empty = |slower| {
        let shape = Shape { slower, ..hgx(1, 2) };
        choose_on(&shape, AllReduce, 0, 1).transfer_ns
    };
    assert_eq!((empty(1.0), empty(1000.0)), (7_800, 7_800));
}

#[test]
fn kernels_grow_with_the_bytes() {
    let size = |ranks, function, bytes| {
        let choice = choose_on(&hgx(1, ranks), function, bytes, 1);
        (choice.channels, choice.threads)
    };
    // 8 bytes: one channel, 512 threads halved while 64 bytes a thread are not there: 256, 128, 64, and 96 at least.
    assert_eq!(size(8, AllReduce, 8), (1, 96));
    // 1 MiB by LL: 512 threads x 64 bytes = 32 KiB a channel: 32 channels' worth, and there are 24.
    assert_eq!(size(8, AllReduce, MIB), (24, 512));
    assert_eq!(size(8, AllReduce, 320 * KIB), (10, 512));
    assert_eq!(size(8, AllReduce, 64 * MIB), (16, 640));
    // Simple: 512 threads and the warp of flags.
    assert_eq!(size(8, AllGather, 64 * MIB), (24, 544));
    assert_eq!(size(2, AllReduce, 64 * MIB), (24, 544));
    // LL128: 640 threads.
    assert_eq!(size(8, AllGather, 8 * MIB), (24, 640));
    // 64 KiB of a broadcast by LL on 2 GPUs are 8 channels by threads, 8 by traffic (LL writes four times as much).
    assert_eq!(size(2, Broadcast, 64 * KIB), (8, 512));
}

#[test]
fn sends_take_their_path() {
    let pair = |nodes, link| Shape {
        ranks: 2,
        nodes,
        fewest_local: 2 / nodes,
        link,
        slower: 1.0,
    };
    let us = |nodes, link, bytes| send_receive(&pair(nodes, link), bytes).transfer_ns as f64 / 1e3;
    assert!((us(1, Link::NvSwitch, 0) - 7.0).abs() < 1e-9);
    // 32 channels x 16 KiB by LL, more by Simple.
    assert_eq!(send_receive(&pair(1, Link::NvSwitch), 512 * KIB).protocol, c"LL");
    assert_eq!(
        send_receive(&pair(1, Link::NvSwitch), 512 * KIB + 1).protocol,
        c"SIMPLE"
    );
    // 315.18 MB at 370.8 x 0.85 GB/s are a millisecond.
    assert!((us(1, Link::NvSwitch, 315_180_000) - 1012.0).abs() < 0.1);
    // Two channels of 20.6 GB/s to the network, 40 and 20 GB/s over PCIe.
    assert!((us(2, Link::NvSwitch, 35_020_000) - 1012.0).abs() < 0.1);
    assert!((us(1, Link::PcieSocket, 34_000_000) - 1012.0).abs() < 0.1);
    assert!((us(1, Link::PcieSystem, 17_000_000) - 1012.0).abs() < 0.1);
}
