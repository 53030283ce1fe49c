//! NCCL on the stand-in where things go wrong: calls that do not fit together, ranks that are processes and die, programs
//! that end while a kernel hangs.

use crate::support;

use std::ffi::c_void;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use cudarc::driver::CudaContext;
use cudarc::nccl::sys::{self, ncclDataType_t as Type, ncclRedOp_t as Op, ncclResult_t as Code};
use support::{
    Folder, Rank, again, all_reduce, bytes_of, f32s, last_error, on_the_stand_in, split, unique_id,
};

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
