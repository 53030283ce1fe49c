//! NCCL's communicators on the stand-in: splits, several devices in one thread, what does not fit together, what ends
//! too early, what profilers are told.

mod support;

use std::ffi::c_void;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use cudarc::driver::CudaContext;
use cudarc::nccl::sys::{self, ncclDataType_t as Type, ncclRedOp_t as Op, ncclResult_t as Code};
use support::{Folder, Rank, again, bytes_of, f32s, last_error, on_the_stand_in, ranks, unique_id};

/// All-reduces one f32 in place on a communicator.
fn all_reduce(rank: &Rank, comm: sys::ncclComm_t, value: f32) -> f32 {
    let buffer = rank.upload(&[value]);
    // SAFETY: one f32 there.
    rank.check(unsafe {
        let to = buffer as *mut c_void;
        sys::ncclAllReduce(to, to, 1, Type::ncclFloat32, Op::ncclSum, comm, rank.stream())
    });
    f32::from_le_bytes(rank.download(buffer, 4).try_into().expect("4 bytes"))
}

fn split(rank: &Rank, comm: sys::ncclComm_t, color: i32, key: i32) -> sys::ncclComm_t {
    let mut made = std::ptr::null_mut();
    // SAFETY: a communicator, and a place for the new one.
    rank.check(unsafe { sys::ncclCommSplit(comm, color, key, &raw mut made, std::ptr::null_mut()) });
    made
}

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

/// What rank 0 and rank 1 of three do wrong, and rank 2 with them.
fn mismatch(rank: &Rank, case: usize, buffer: u64) {
    let (to, stream) = (buffer as *mut c_void, rank.stream());
    // SAFETY: 100 000 f32 there.
    let code = unsafe {
        match (case, rank.rank) {
            // Different collectives.
            (0, 1) => sys::ncclBroadcast(to, to, 1000, Type::ncclFloat32, 0, rank.comm, stream),
            // Different counts, small and large.
            (1, 1) => sys::ncclAllReduce(to, to, 999, Type::ncclFloat32, Op::ncclSum, rank.comm, stream),
            (2, 1) => sys::ncclAllReduce(to, to, 100_000, Type::ncclFloat32, Op::ncclSum, rank.comm, stream),
            // One does nothing.
            (3, 1) | (5, 1 | 2) => Code::ncclSuccess,
            // A receive that nobody sends to.
            (4, _) => sys::ncclRecv(
                to,
                1000,
                Type::ncclFloat32,
                (rank.rank as i32 + 1) % 3,
                rank.comm,
                stream,
            ),
            // A send that is too large for the buffers, received by nobody.
            (5, 0) => sys::ncclSend(to, 2 << 20, Type::ncclFloat32, 1, rank.comm, stream),
            _ => sys::ncclAllReduce(to, to, 1000, Type::ncclFloat32, Op::ncclSum, rank.comm, stream),
        }
    };
    rank.check(code);
}

#[test]
fn what_does_not_match_hangs_until_it_is_aborted() {
    on_the_stand_in("what_does_not_match_hangs_until_it_is_aborted", &[], || {
        for case in 0..6 {
            support::ranks_until_abort(3, |rank: &Rank| {
                let buffer = rank.zeros(8 << 20);
                mismatch(rank, case, buffer);
                std::thread::sleep(Duration::from_millis(300));
                let waits = case != 3 && case != 5 || rank.rank == 0;
                let query = rank.is_idle();
                assert!(!waits || !query, "case {case}: rank {} is through", rank.rank);
                let mut error = Code::ncclSuccess;
                // SAFETY: a communicator and a place for the result.
                unsafe {
                    rank.check(sys::ncclCommGetAsyncError(rank.comm, &raw mut error));
                    assert_eq!(error, Code::ncclSuccess);
                }
                rank.barrier();
                let begun = Instant::now();
                if rank.rank != 2 {
                    // SAFETY: a communicator, not used any more.
                    rank.check(unsafe { sys::ncclCommAbort(rank.comm) });
                    rank.synchronize();
                } else {
                    rank.synchronize();
                    // SAFETY: as above.
                    unsafe {
                        // Whoever waited for nobody is told of the aborts a moment later.
                        while error == Code::ncclSuccess && begun.elapsed() < Duration::from_secs(1) {
                            rank.check(sys::ncclCommGetAsyncError(rank.comm, &raw mut error));
                            std::thread::yield_now();
                        }
                        assert_eq!(error, Code::ncclRemoteError);
                        assert!(last_error().contains("aborted"), "{}", last_error());
                        rank.check(sys::ncclCommAbort(rank.comm));
                    }
                }
                assert!(begun.elapsed() < Duration::from_secs(2));
            });
        }
    });
}

/// Starts `count` processes that run test `name` again as one rank each, with `PROCESS_RANK` and a unique id.
fn processes(name: &str, count: usize, settings: &[(&str, &str)]) -> (Folder, Vec<Child>) {
    let folder = Folder::new(name);
    let mut children = Vec::new();
    let mut id = String::new();
    for rank in 0..count {
        let mut command: Command = again(name, &folder);
        command
            .env("PROCESS_RANK", rank.to_string())
            .env("PROCESS_RANKS", count.to_string())
            .env("PROCESS_ID", &id)
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = command.spawn().expect("it starts");
        if rank == 0 {
            // The first says the unique id.
            let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
            id = lines
                .by_ref()
                .map_while(Result::ok)
                .find_map(|line| line.split_once("ID ").map(|(_, id)| id.to_owned()))
                .expect("a unique id");
            std::thread::spawn(move || lines.for_each(drop));
        }
        children.push(child);
    }
    (folder, children)
}

fn number(name: &str) -> usize {
    std::env::var(name).expect("set").parse().expect("a number")
}

/// This process's rank; the first makes the unique id.
fn process_rank() -> Rank {
    let (rank, count) = (number("PROCESS_RANK"), number("PROCESS_RANKS"));
    CudaContext::new(0).expect("a device");
    let id = if rank == 0 {
        let id = unique_id();
        let hex: Vec<String> = id
            .internal
            .iter()
            .map(|byte| format!("{:02x}", *byte as u8))
            .collect();
        println!("\nID {}", hex.concat());
        id
    } else {
        let hex = std::env::var("PROCESS_ID").expect("an id");
        // SAFETY: plain bytes.
        let mut id: sys::ncclUniqueId = unsafe { std::mem::zeroed() };
        for (index, byte) in id.internal.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).expect("hex") as _;
        }
        id
    };
    Rank::join(id, rank, count, rank, Arc::new(Barrier::new(1)))
}

fn is_process() -> bool {
    std::env::var_os("PROCESS_RANK").is_some()
}

/// Waits for a process; kills it and fails after `patience`.
fn wait(child: &mut Child, patience: Duration) -> std::process::ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("waiting") {
            return status;
        }
        if begun.elapsed() > patience {
            drop(child.kill());
            panic!("a process did not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn processes_exchange_data() {
    if is_process() {
        let rank = process_rank();
        for count in [1usize, 1000, 300_000, 1_500_001] {
            let buffer = rank.upload(&f32s(count, |index| (rank.rank + index % 11) as f32));
            let (next, before) = ((rank.rank + 1) % 3, (rank.rank + 2) % 3);
            let received = rank.zeros(4 * count);
            rank.group(|| {
                let to = buffer as *mut c_void;
                // SAFETY: `count` f32 there.
                rank.check(unsafe {
                    sys::ncclAllReduce(
                        to,
                        to,
                        count,
                        Type::ncclFloat32,
                        Op::ncclSum,
                        rank.comm,
                        rank.stream(),
                    )
                });
                rank.send(buffer, count, next);
                rank.receive(received, count, before);
            });
            // Collectives of a group go before its sends and receives.
            let expected = bytes_of(&f32s(count, |index| (3 + 3 * (index % 11)) as f32));
            assert!(rank.download(buffer, 4 * count) == expected, "{count}");
            assert!(rank.download(received, 4 * count) == expected, "{count}");
        }
        let part = split(&rank, rank.comm, (rank.rank / 2) as i32, 0);
        assert_eq!(all_reduce(&rank, part, 1.0), [2.0, 2.0, 1.0][rank.rank]);
        rank.destroy();
        return;
    }
    // Reading each other's memory; and only by connections, as between hosts.
    let apart = [("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1")];
    for settings in [&[][..], &apart] {
        let (_folder, mut children) = processes("processes_exchange_data", 3, settings);
        for child in &mut children {
            assert!(wait(child, Duration::from_secs(60)).success());
        }
    }
}

#[test]
fn a_rank_that_dies_is_named() {
    if is_process() {
        let rank = process_rank();
        assert_eq!(all_reduce(&rank, rank.comm, 1.0), 3.0);
        if rank.rank == 2 {
            // The others are through with theirs.
            std::thread::sleep(Duration::from_millis(200));
            match std::env::var("DEATH").as_deref() {
                Ok("exit") => std::process::exit(3),
                // SAFETY: ends this process.
                _ => unsafe { _ = libc_kill(std::process::id() as i32, 9) },
            }
        }
        let begun = Instant::now();
        let buffer = rank.zeros(4 << 20);
        let to = buffer as *mut c_void;
        // SAFETY: 1 << 20 f32 there.
        let code = unsafe {
            sys::ncclAllReduce(
                to,
                to,
                1 << 20,
                Type::ncclFloat32,
                Op::ncclSum,
                rank.comm,
                rank.stream(),
            )
        };
        // It may be known already.
        assert!(
            matches!(code, Code::ncclSuccess | Code::ncclRemoteError),
            "{code:?}"
        );
        rank.synchronize();
        let mut error = Code::ncclSuccess;
        while error == Code::ncclSuccess && begun.elapsed() < Duration::from_secs(5) {
            // SAFETY: a communicator and a place for the result.
            rank.check(unsafe { sys::ncclCommGetAsyncError(rank.comm, &raw mut error) });
        }
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert_eq!(error, Code::ncclRemoteError);
        let text = last_error();
        assert!(
            text.starts_with("rank 2 (pid ") && text.ends_with("closed its connection"),
            "{text}"
        );
        // SAFETY: a communicator, not used any more.
        rank.check(unsafe { sys::ncclCommAbort(rank.comm) });
        return;
    }
    for death in ["kill", "exit"] {
        let (_folder, mut children) = processes("a_rank_that_dies_is_named", 3, &[("DEATH", death)]);
        let statuses: Vec<_> = children
            .iter_mut()
            .map(|child| wait(child, Duration::from_secs(30)))
            .collect();
        assert!(
            statuses[0].success() && statuses[1].success(),
            "{death}: {statuses:?}"
        );
        assert!(!statuses[2].success());
    }
}

unsafe extern "C" {
    #[link_name = "kill"]
    fn libc_kill(pid: i32, signal: i32) -> i32;
}

#[test]
fn a_process_with_a_hanging_kernel_can_end() {
    if is_process() {
        let rank = process_rank();
        let way = std::env::var("ENDS").expect("set");
        if rank.rank == 0 {
            // Never answered: rank 1 does nothing.
            let buffer = rank.zeros(4);
            rank.receive(buffer, 1, 1);
            std::thread::sleep(Duration::from_millis(200));
            if way == "exit" {
                std::process::exit(7);
            }
            // SAFETY: a signal to this process.
            unsafe { libc_kill(std::process::id() as i32, if way == "SIGTERM" { 15 } else { 2 }) };
        }
        // Rank 1, and rank 0 until the signal comes.
        std::thread::sleep(Duration::from_secs(2));
        return;
    }
    for way in ["exit", "SIGTERM", "SIGINT"] {
        let (_folder, mut children) =
            processes("a_process_with_a_hanging_kernel_can_end", 2, &[("ENDS", way)]);
        let begun = Instant::now();
        let status = wait(&mut children[0], Duration::from_secs(20));
        assert!(
            !status.success() && begun.elapsed() < Duration::from_secs(2),
            "{way}: {status:?}"
        );
        // A rank that wanted nothing of the other is not disturbed.
        assert!(wait(&mut children[1], Duration::from_secs(20)).success(), "{way}");
    }
}

/// Builds the tool of tool.c, and gives its path and that of its log.
fn tool(name: &str) -> (Folder, String, String) {
    let folder = Folder::new(&format!("tool-{name}"));
    let library = folder.0.join("libtool.so").to_string_lossy().into_owned();
    let log = folder.0.join("log").to_string_lossy().into_owned();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o", &library])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tool.c"))
        .arg("-lpthread")
        .status()
        .expect("cc, which Rust needs to link too");
    assert!(built.success());
    (folder, library, log)
}

#[test]
fn a_profiler_hears_of_groups_in_nccls_order() {
    let name = "a_profiler_hears_of_groups_in_nccls_order";
    let body = || {
        ranks(2, |rank: &Rank| {
            let other = 1 - rank.rank;
            let (a, b) = (rank.zeros(4000), rank.zeros(4000));
            let to = a as *mut c_void;
            let reduce = |count| {
                // SAFETY: 1000 f32 there.
                rank.check(unsafe {
                    sys::ncclAllReduce(
                        to,
                        to,
                        count,
                        Type::ncclFloat32,
                        Op::ncclSum,
                        rank.comm,
                        rank.stream(),
                    )
                });
            };
            reduce(1000);
            rank.group(|| {
                rank.send(a, 10, other);
                rank.receive(b, 10, other);
                reduce(500);
            });
            // SAFETY: enough of both.
            rank.check(unsafe {
                sys::ncclAllGather(a as _, b as _, 8, Type::ncclFloat32, rank.comm, rank.stream())
            });
            rank.synchronize();
        });
    };
    if std::env::var_os(support::IN_CHILD).is_some() {
        body();
        return;
    }
    let (_folder, library, log) = tool(name);
    on_the_stand_in(
        name,
        &[("NCCL_PROFILER_PLUGIN", &library), ("TOOL_LOG", &log)],
        body,
    );
    let log = std::fs::read_to_string(log).expect("a log");
    let expected = "\
init - nodes 1 ranks 2
start GroupApi depth 1
state 23
start CollApi AllReduce 1000 ncclFloat32 root 0 in GroupApi
stop CollApi
state 24
start KernelLaunch in GroupApi
stop KernelLaunch
start Group in GroupApi
start Coll AllReduce #0 1000 ncclFloat32 RING/LL in CollApi
stop Coll
stop Group
stop GroupApi
start GroupApi depth 2
state 23
start P2pApi Send 10 ncclFloat32 in GroupApi
stop P2pApi
start P2pApi Recv 10 ncclFloat32 in GroupApi
stop P2pApi
start CollApi AllReduce 500 ncclFloat32 root 0 in GroupApi
stop CollApi
state 24
start KernelLaunch in GroupApi
stop KernelLaunch
start Group in GroupApi
start Coll AllReduce #1 500 ncclFloat32 RING/LL in CollApi
start P2p Recv 10 ncclFloat32 peer 1 in P2pApi
start P2p Send 10 ncclFloat32 peer 1 in P2pApi
stop Coll
stop P2p
stop P2p
stop Group
stop GroupApi
start GroupApi depth 1
state 23
start CollApi AllGather 8 ncclFloat32 root 0 in GroupApi
stop CollApi
state 24
start KernelLaunch in GroupApi
stop KernelLaunch
start Group in GroupApi
start Coll AllGather #0 32 ncclInt8 RING/LL in CollApi
stop Coll
stop Group
stop GroupApi
finalize
";
    assert_eq!(log, expected);
}

#[test]
fn nvtx_ranges_say_what_was_called() {
    let name = "nvtx_ranges_say_what_was_called";
    let body = || {
        ranks(1, |rank: &Rank| {
            let (a, b) = (rank.zeros(4000), rank.zeros(4000));
            let (from, to) = (a as *const c_void, b as *mut c_void);
            let (comm, stream, kind) = (rank.comm, rank.stream(), Type::ncclFloat32);
            // SAFETY: 1000 f32 in each.
            unsafe {
                rank.check(sys::ncclAllReduce(
                    from,
                    to,
                    1000,
                    kind,
                    Op::ncclMax,
                    comm,
                    stream,
                ));
                rank.check(sys::ncclReduce(from, to, 10, kind, Op::ncclProd, 0, comm, stream));
                rank.check(sys::ncclAlltoAll(from, to, 5, kind, comm, stream));
            }
            rank.synchronize();
        });
    };
    if std::env::var_os(support::IN_CHILD).is_some() {
        body();
        return;
    }
    let (_folder, library, path) = tool(name);
    let settings = [("NVTX_INJECTION64_PATH", library.as_str()), ("TOOL_LOG", &path)];
    on_the_stand_in(name, &settings, body);
    let log = std::fs::read_to_string(&path).expect("a log");
    assert!(log.contains("domain NCCL\n"), "{log}");
    assert!(
        log.contains("schema 5 ncclAllReduce fields 3 bytes 24\n"),
        "{log}"
    );
    assert!(
        log.contains("schema 13 ncclCommSplit fields 7 bytes 40\n"),
        "{log}"
    );
    let ranges = log.split_once("push").expect("ranges").1;
    // ncclMax is 2; ncclProd 1; the root is 0.
    let expected = " ncclCommInitRank
pop with payload schema 0 size 24 1 0
push ncclAllReduce with payload
payload schema 5 size 24 fa0 2
pop
push ncclReduce with payload
payload schema 8 size 24 28 100000000
pop
push ncclAlltoAll with payload
payload schema 16 size 16 14
pop
push ncclCommDestroy with payload
payload schema 2 size 24 1 0
pop
";
    assert_eq!(ranges, expected);
    std::fs::remove_file(&path).expect("a log");
    let off = [settings[0], settings[1], ("NCCL_NVTX_DISABLE", "1")];
    on_the_stand_in(name, &off, body);
    assert!(std::fs::read_to_string(&path).is_err());
}
