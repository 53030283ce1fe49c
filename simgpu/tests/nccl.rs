//! NCCL's rules on the stand-in: results against their definitions, groups, sends and receives, splits.
//!
//! Each test runs itself again in a process that finds the stand-in under the names of NVIDIA's libraries. There, ranks
//! are threads with a device each, and the C functions are called by NVIDIA's own signatures (cudarc's bindings).

use crate::support;

use std::ffi::c_void;

use support::{Rank, bytes_of, f32s, on_the_stand_in, ranks};

use cudarc::nccl::sys::{self, ncclDataType_t as Type, ncclRedOp_t as Op, ncclResult_t as Code};

#[test]
fn sends_and_receives_move_data() {
    on_the_stand_in("sends_and_receives_move_data", &[], || {
        // To the next, from the one before; small, one that just fits the receiver's buffer, and larger.
        for count in [1usize, 1000, 1 << 20, (1 << 20) + 3] {
            ranks(3, |rank: &Rank| {
                let (next, before) = ((rank.rank + 1) % 3, (rank.rank + 2) % 3);
                let sent = f32s(count, |index| (rank.rank * 1000 + index % 977) as f32);
                let (send, receive) = (rank.upload(&sent), rank.zeros(4 * count));
                rank.group(|| {
                    rank.send(send, count, next);
                    rank.receive(receive, count, before);
                });
                let expected = f32s(count, |index| (before * 1000 + index % 977) as f32);
                assert!(rank.download(receive, 4 * count) == bytes_of(&expected));
            });
        }
    });
}

#[test]
fn sends_and_receives_match_in_order() {
    on_the_stand_in("sends_and_receives_match_in_order", &[], || {
        ranks(2, |rank: &Rank| {
            let values = [10.0f32, 20.0, 30.0];
            let buffers: Vec<u64> = values.iter().map(|value| rank.upload(&[*value])).collect();
            if rank.rank == 0 {
                // Small ones end whether the receiver has come or not.
                for buffer in &buffers {
                    rank.send(*buffer, 1, 1);
                }
                rank.synchronize();
                rank.barrier();
            } else {
                rank.barrier();
                let places: Vec<u64> = values.iter().map(|_| rank.zeros(4)).collect();
                for place in &places {
                    rank.receive(*place, 1, 0);
                }
                for (place, value) in places.iter().zip(values) {
                    assert_eq!(rank.download(*place, 4), bytes_of(&[value]));
                }
            }
        });
    });
}

#[test]
fn a_rank_may_send_to_itself_in_a_group() {
    on_the_stand_in("a_rank_may_send_to_itself_in_a_group", &[], || {
        ranks(2, |rank: &Rank| {
            let own = rank.rank;
            let (send, receive) = (rank.upload(&[7.0f32 + own as f32]), rank.zeros(4));
            rank.group(|| {
                rank.receive(receive, 1, own);
                rank.send(send, 1, own);
            });
            assert_eq!(rank.download(receive, 4), bytes_of(&[7.0f32 + own as f32]));
            // SAFETY: buffers and communicator of this rank.
            let alone = unsafe {
                sys::ncclSend(
                    send as *const c_void,
                    1,
                    Type::ncclFloat32,
                    own as i32,
                    rank.comm,
                    rank.stream(),
                )
            };
            assert_eq!(alone, Code::ncclInvalidUsage);
            assert!(
                rank.last_error().contains("without a matching receive"),
                "{}",
                rank.last_error()
            );
        });
    });
}

#[test]
fn all_to_all_gather_and_scatter_are_what_they_say() {
    on_the_stand_in("all_to_all_gather_and_scatter_are_what_they_say", &[], || {
        for count in [1usize, 5, 70_000] {
            ranks(4, |rank: &Rank| {
                let own = rank.rank;
                let value = |from: usize, to: usize, index: usize| (from * 100 + to * 10 + index % 7) as f32;
                let sent = f32s(4 * count, |index| value(own, index / count, index % count));
                let (send, receive) = (rank.upload(&sent), rank.zeros(16 * count));
                let (from, to) = (send as *const c_void, receive as *mut c_void);
                // SAFETY: buffers of four parts each.
                rank.check(unsafe {
                    sys::ncclAlltoAll(from, to, count, Type::ncclFloat32, rank.comm, rank.stream())
                });
                let expected = f32s(4 * count, |index| value(index / count, own, index % count));
                assert!(rank.download(receive, 16 * count) == bytes_of(&expected));
                for root in 0..4 {
                    let gathered = rank.zeros(16 * count);
                    // SAFETY: as above.
                    rank.check(unsafe {
                        let to = gathered as *mut c_void;
                        sys::ncclGather(
                            from,
                            to,
                            count,
                            Type::ncclFloat32,
                            root as i32,
                            rank.comm,
                            rank.stream(),
                        )
                    });
                    let expected = f32s(4 * count, |index| value(index / count, 0, index % count));
                    let got = rank.download(gathered, 16 * count);
                    let zeros = vec![0; 16 * count];
                    assert!(got == if own == root { bytes_of(&expected) } else { zeros });
                    let scattered = rank.zeros(4 * count);
                    // SAFETY: as above.
                    rank.check(unsafe {
                        let to = scattered as *mut c_void;
                        sys::ncclScatter(
                            from,
                            to,
                            count,
                            Type::ncclFloat32,
                            root as i32,
                            rank.comm,
                            rank.stream(),
                        )
                    });
                    let expected = f32s(count, |index| value(root, own, index));
                    assert!(rank.download(scattered, 4 * count) == bytes_of(&expected));
                }
            });
        }
    });
}

/// Bytes of element `index` of rank `rank`, and the value as f64, for one type.
fn element(kind: Type, rank: usize, index: usize) -> (Vec<u8>, f64) {
    let value = ((rank + 2) * (index % 5 + 1) % 11 + 1) as f64;
    (encode(kind, value), value)
}

fn encode(kind: Type, value: f64) -> Vec<u8> {
    match kind {
        Type::ncclInt8 => (value as i8).to_le_bytes().to_vec(),
        Type::ncclUint8 => (value as u8).to_le_bytes().to_vec(),
        Type::ncclInt32 => (value as i32).to_le_bytes().to_vec(),
        Type::ncclUint32 => (value as u32).to_le_bytes().to_vec(),
        Type::ncclInt64 => (value as i64).to_le_bytes().to_vec(),
        Type::ncclUint64 => (value as u64).to_le_bytes().to_vec(),
        Type::ncclFloat16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
        Type::ncclBfloat16 => half::bf16::from_f64(value).to_le_bytes().to_vec(),
        Type::ncclFloat32 => (value as f32).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    }
}

const TYPES: [Type; 10] = [
    Type::ncclInt8,
    Type::ncclUint8,
    Type::ncclInt32,
    Type::ncclUint32,
    Type::ncclInt64,
    Type::ncclUint64,
    Type::ncclFloat16,
    Type::ncclFloat32,
    Type::ncclFloat64,
    Type::ncclBfloat16,
];

/// The reduction of all ranks' elements by its definition; all values here are small enough to be exact.
fn reduced(kind: Type, operation: Op, ranks: usize, index: usize) -> Vec<u8> {
    let values = (0..ranks).map(|rank| element(kind, rank, index).1);
    let value = match operation {
        Op::ncclSum => values.sum(),
        Op::ncclProd => values.product(),
        Op::ncclMax => values.fold(f64::MIN, f64::max),
        Op::ncclMin => values.fold(f64::MAX, f64::min),
        _ => {
            let average = values.sum::<f64>() / ranks as f64;
            let is_float = matches!(
                kind,
                Type::ncclFloat16 | Type::ncclFloat32 | Type::ncclFloat64 | Type::ncclBfloat16
            );
            if is_float { average } else { average.trunc() }
        }
    };
    encode(kind, value)
}

/// Every collective, on one type and count, out of place and in place.
fn collectives_are_right(rank: &Rank, count: usize, kind: Type, operation: Op) {
    let size = encode(kind, 0.0).len();
    let (own, all) = (rank.rank, rank.ranks);
    let part = |of: usize, from: usize| -> Vec<u8> {
        (from..from + count)
            .flat_map(|index| element(kind, of, index).0)
            .collect()
    };
    let sums = |from: usize| -> Vec<u8> {
        (from..from + count)
            .flat_map(|index| reduced(kind, operation, all, index))
            .collect()
    };
    let (comm, stream) = (rank.comm, rank.stream());
    let whole: Vec<u8> = (0..all).flat_map(|index| part(own, index * count)).collect();
    for in_place in [false, true] {
        let what = format!("{kind:?} {operation:?} x {count}, in place: {in_place}");
        let pair = |data: &[u8], bytes: usize, offset: usize| {
            if in_place {
                let buffer = rank.zeros(bytes.max(data.len()).max(1));
                rank.write(buffer + offset as u64, data);
                (buffer + offset as u64, buffer)
            } else {
                (rank.upload_bytes(data), rank.zeros(bytes.max(1)))
            }
        };
        // SAFETY: in all of these, buffers as large as the collective's definition has them.
        unsafe {
            let (send, receive) = pair(&part(own, 0), count * size, 0);
            rank.check(sys::ncclAllReduce(
                send as _,
                receive as _,
                count,
                kind,
                operation,
                comm,
                stream,
            ));
            assert!(
                rank.download(receive, count * size) == sums(0),
                "AllReduce {what}"
            );

            let (send, receive) = pair(&part(own, 0), all * count * size, own * count * size);
            rank.check(sys::ncclAllGather(
                send as _,
                receive as _,
                count,
                kind,
                comm,
                stream,
            ));
            let expected: Vec<u8> = (0..all).flat_map(|of| part(of, 0)).collect();
            assert!(
                rank.download(receive, all * count * size) == expected,
                "AllGather {what}"
            );

            let (send, mut receive) = pair(&whole, count * size, 0);
            if in_place {
                receive = send + (own * count * size) as u64;
            }
            rank.check(sys::ncclReduceScatter(
                send as _,
                receive as _,
                count,
                kind,
                operation,
                comm,
                stream,
            ));
            assert!(
                rank.download(receive, count * size) == sums(own * count),
                "ReduceScatter {what}"
            );

            for root in 0..all {
                let (send, receive) = pair(&part(own, 0), count * size, 0);
                let number = root as i32;
                rank.check(sys::ncclBroadcast(
                    send as _,
                    receive as _,
                    count,
                    kind,
                    number,
                    comm,
                    stream,
                ));
                assert!(
                    rank.download(receive, count * size) == part(root, 0),
                    "Broadcast {what}"
                );

                let (send, receive) = pair(&part(own, 0), count * size, 0);
                rank.check(sys::ncclReduce(
                    send as _,
                    receive as _,
                    count,
                    kind,
                    operation,
                    number,
                    comm,
                    stream,
                ));
                let got = rank.download(receive, count * size);
                if own == root {
                    assert!(got == sums(0), "Reduce {what}");
                }
            }
        }
    }
}

#[test]
fn collectives_are_their_definitions() {
    on_the_stand_in("collectives_are_their_definitions", &[], || {
        ranks(3, |rank: &Rank| {
            for kind in TYPES {
                for operation in [Op::ncclSum, Op::ncclMax, Op::ncclMin, Op::ncclAvg] {
                    collectives_are_right(rank, 17, kind, operation);
                }
            }
            for count in [0, 1, 2, 1023, 60_000, 1_200_001] {
                collectives_are_right(rank, count, Type::ncclFloat32, Op::ncclSum);
            }
        });
        ranks(2, |rank: &Rank| {
            collectives_are_right(rank, 9, Type::ncclInt32, Op::ncclProd);
            collectives_are_right(rank, 33_333, Type::ncclBfloat16, Op::ncclSum);
        });
        ranks(1, |rank: &Rank| {
            collectives_are_right(rank, 100, Type::ncclFloat32, Op::ncclSum);
        });
    });
}
