//! NCCL's communicators on the stand-in: splits, several devices in one thread, factors of each rank, what is refused.

use crate::support;

use std::ffi::c_void;
use std::sync::{Arc, Barrier};

use cudarc::driver::CudaContext;
use cudarc::nccl::sys::{self, ncclDataType_t as Type, ncclRedOp_t as Op, ncclResult_t as Code};
use support::{Rank, all_reduce, bytes_of, f32s, last_error, on_the_stand_in, ranks, split, unique_id};

fn position(comm: sys::ncclComm_t) -> (i32, i32) {
    let (mut own, mut all) = (-1, -1);
    // SAFETY: a communicator, and places for the results.
    unsafe {
        assert_eq!(sys::ncclCommUserRank(comm, &raw mut own), Code::ncclSuccess);
        assert_eq!(sys::ncclCommCount(comm, &raw mut all), Code::ncclSuccess);
    }
    (own, all)
}

#[test]
fn splits_are_by_colour_in_the_order_of_keys() {
    on_the_stand_in("splits_are_by_colour_in_the_order_of_keys", &[], || {
        ranks(6, |rank: &Rank| {
            let own = rank.rank as i32;
            // Colours 0 and 1 by parity, keys backwards: 4 2 0 and 5 3 1.
            let part = split(rank, rank.comm, own % 2, -own);
            assert_eq!(position(part), ((5 - own) / 2, 3));
            let sum = all_reduce(rank, part, rank.rank as f32);
            assert_eq!(sum, if own % 2 == 0 { 6.0 } else { 9.0 });
            // Equal keys: in the parent's order; rank 5 wants no part.
            let rest = split(rank, rank.comm, if own == 5 { -1 } else { 7 }, 0);
            assert_eq!(rest.is_null(), own == 5);
            if own != 5 {
                assert_eq!(position(rest), (own, 5));
                assert_eq!(all_reduce(rank, rest, 1.0), 5.0);
                // A part can be split again.
                let pair = split(rank, rest, own / 2, own);
                assert_eq!(
                    all_reduce(rank, pair, own as f32),
                    [1.0, 1.0, 5.0, 5.0, 4.0][own as usize]
                );
            }
            // The parent works on.
            assert_eq!(all_reduce(rank, rank.comm, 1.0), 6.0);
        });
    });
}

#[test]
fn one_thread_drives_several_devices() {
    on_the_stand_in("one_thread_drives_several_devices", &[], || {
        let contexts: Vec<_> = (0..4)
            .map(|device| CudaContext::new(device).expect("a device"))
            .collect();
        let mut all = [std::ptr::null_mut(); 4];
        // SAFETY: places for four communicators.
        let code = unsafe { sys::ncclCommInitAll(all.as_mut_ptr(), 4, std::ptr::null()) };
        assert_eq!(code, Code::ncclSuccess, "{}", last_error());
        // The same by a unique id, in a group.
        let id = unique_id();
        let mut grouped = [std::ptr::null_mut(); 4];
        // SAFETY: each communicator's place lives to the group's end; the context of each device is made current.
        unsafe {
            assert_eq!(sys::ncclGroupStart(), Code::ncclSuccess);
            for (rank, context) in contexts.iter().enumerate() {
                context.bind_to_thread().expect("current");
                let code = sys::ncclCommInitRank(&raw mut grouped[rank], 4, id, rank as i32);
                assert_eq!(code, Code::ncclSuccess, "{}", last_error());
            }
            assert_eq!(sys::ncclGroupEnd(), Code::ncclSuccess, "{}", last_error());
        }
        // And a split of all four by the same thread.
        let mut parts = [std::ptr::null_mut(); 4];
        // SAFETY: as above.
        unsafe {
            assert_eq!(sys::ncclGroupStart(), Code::ncclSuccess);
            for rank in 0..4 {
                let code = sys::ncclCommSplit(
                    all[rank],
                    0,
                    -(rank as i32),
                    &raw mut parts[rank],
                    std::ptr::null_mut(),
                );
                assert_eq!(code, Code::ncclSuccess, "{}", last_error());
            }
            assert_eq!(sys::ncclGroupEnd(), Code::ncclSuccess, "{}", last_error());
        }
        let streams: Vec<_> = contexts
            .iter()
            .map(|context| context.new_stream().expect("a stream"))
            .collect();
        for comms in [all, grouped, parts] {
            let barrier = Arc::new(Barrier::new(1));
            let members: Vec<Rank> = (0..4)
                .map(|rank| Rank::with(comms[rank], rank, 4, &contexts[rank], &streams[rank], &barrier))
                .collect();
            let buffers: Vec<u64> = members
                .iter()
                .map(|rank| {
                    rank.context.bind_to_thread().expect("current");
                    rank.upload(&f32s(50_000, |index| (rank.rank + index % 13) as f32))
                })
                .collect();
            members[0].group(|| {
                for (rank, buffer) in members.iter().zip(&buffers) {
                    let to = *buffer as *mut c_void;
                    // SAFETY: 50 000 f32 there. The stream is another device's than the current one's.
                    rank.check(unsafe {
                        sys::ncclAllReduce(
                            to,
                            to,
                            50_000,
                            Type::ncclFloat32,
                            Op::ncclSum,
                            rank.comm,
                            rank.stream(),
                        )
                    });
                }
            });
            let expected = bytes_of(&f32s(50_000, |index| (6 + 4 * (index % 13)) as f32));
            for (rank, buffer) in members.iter().zip(&buffers) {
                rank.context.bind_to_thread().expect("current");
                assert!(rank.download(*buffer, 200_000) == expected);
            }
        }
    });
}

#[test]
fn factors_are_each_ranks_own() {
    on_the_stand_in("factors_are_each_ranks_own", &[], || {
        ranks(2, |rank: &Rank| {
            for count in [3, 100_000] {
                for on_device in [false, true] {
                    let factor = [2.0f32, 0.5][rank.rank];
                    let place = rank.upload(&[factor]);
                    let scalar: *mut c_void = if on_device {
                        place as _
                    } else {
                        (&raw const factor).cast_mut().cast()
                    };
                    let residence = if on_device {
                        sys::ncclScalarResidence_t::ncclScalarDevice
                    } else {
                        sys::ncclScalarResidence_t::ncclScalarHostImmediate
                    };
                    let mut made = Op::ncclSum as u32;
                    let buffer = rank.upload(&f32s(count, |index| (index % 7) as f32));
                    // SAFETY: the factor is there; the new reduction's number is written to a plain number, since it is
                    // none of the enumeration's, and only handed back.
                    unsafe {
                        let place = (&raw mut made).cast();
                        rank.check(sys::ncclRedOpCreatePreMulSum(
                            place,
                            scalar,
                            Type::ncclFloat32,
                            residence,
                            rank.comm,
                        ));
                        assert!(made > 4);
                        rank.check(support::all_reduce_with(
                            buffer,
                            count,
                            made,
                            rank.comm,
                            rank.stream(),
                        ));
                    }
                    let expected = f32s(count, |index| 2.5 * (index % 7) as f32);
                    assert!(
                        rank.download(buffer, 4 * count) == bytes_of(&expected),
                        "{count} {on_device}"
                    );
                    rank.barrier();
                }
            }
        });
    });
}

#[test]
fn two_ranks_on_one_gpu_are_refused() {
    let body = || {
        let barrier = Arc::new(Barrier::new(2));
        let id = unique_id_with_context();
        let allowed = std::env::var_os("NCCL_MULTI_RANK_GPU_ENABLE").is_some();
        std::thread::scope(|scope| {
            for rank in 0..2 {
                let barrier = Arc::clone(&barrier);
                scope.spawn(move || {
                    let _context = CudaContext::new(0).expect("a device");
                    let mut comm = std::ptr::null_mut();
                    // SAFETY: a place for the communicator.
                    let code = unsafe { sys::ncclCommInitRank(&raw mut comm, 2, id, rank) };
                    if allowed {
                        assert_eq!(code, Code::ncclSuccess);
                    } else {
                        assert_eq!(code, Code::ncclInvalidUsage);
                        assert!(
                            last_error().contains("ranks 0 and 1 both use GPU 0"),
                            "{}",
                            last_error()
                        );
                    }
                    barrier.wait();
                });
            }
        });
    };
    on_the_stand_in("two_ranks_on_one_gpu_are_refused", &[], body);
    if std::env::var_os(support::IN_CHILD).is_none() {
        let setting = [("NCCL_MULTI_RANK_GPU_ENABLE", "1")];
        on_the_stand_in("two_ranks_on_one_gpu_are_refused", &setting, body);
    }
}

fn unique_id_with_context() -> sys::ncclUniqueId {
    CudaContext::new(0).expect("a device");
    unique_id()
}
