//! Ranks as threads of this process, over real sockets.

use std::sync::mpsc;
use std::thread::JoinHandle;

use super::*;

fn rank_of(rank: u32, ranks: u32, port: u16) -> Rank {
    Rank {
        rank,
        ranks,
        local_rank: rank,
        local_ranks: ranks,
        node: 0,
        nodes: 1,
        host: "127.0.0.1".to_owned(),
        port,
        run: "test".to_owned(),
        listener: None,
        launched: false,
        outputs_joined: false,
    }
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

/// The verdict that reached each rank comes out of the receiver.
type Verdicts = mpsc::Receiver<(u32, verdict::Verdict)>;

/// Runs `body` on so many ranks; what each gives, by rank.
fn on_ranks<T: Send + 'static>(
    ranks: u32,
    body: impl Fn(u32, Arc<Store>) -> T + Clone + Send + 'static,
) -> (Vec<T>, Verdicts) {
    let port = free_port();
    let (sender, verdicts) = mpsc::channel();
    let threads: Vec<JoinHandle<T>> = (0..ranks)
        .map(|rank| {
            let (body, sender) = (body.clone(), sender.clone());
            std::thread::spawn(move || {
                let ending = Ending::new(move |verdict| drop(sender.send((rank, verdict.clone()))));
                let store = Store::join_with(&rank_of(rank, ranks, port), ending).expect("all meet");
                body(rank, store)
            })
        })
        .collect();
    let results = threads
        .into_iter()
        .map(|thread| thread.join().expect("the rank ran"))
        .collect();
    (results, verdicts)
}

#[test]
fn ranks_tell_each_other() {
    let (results, verdicts) = on_ranks(4, |rank, store| {
        let told = store
            .broadcast((rank == 0).then_some(&b"from the first"[..]))
            .expect("broadcast");
        let gathered = store.gather(format!("rank {rank}").as_bytes()).expect("gather");
        store.barrier().expect("barrier");
        let id = store.share_id(|| Ok(UniqueId([42; 128]))).expect("share_id");
        store.leave(Ok(())).expect("leaves");
        (told, gathered, id.0)
    });
    for (rank, (told, gathered, id)) in results.into_iter().enumerate() {
        assert_eq!(told, b"from the first");
        let all = (0..4).map(|rank| format!("rank {rank}").into_bytes()).collect();
        assert_eq!(gathered, (rank == 0).then_some(all));
        assert_eq!(id, [42; 128]);
    }
    assert!(verdicts.try_recv().is_err(), "nobody was lost");
}

#[test]
fn large_things_arrive_whole() {
    const BYTES: usize = 40_000_000;
    let pattern = |rank: u32| -> Vec<u8> { (0..BYTES).map(|at| (at / 7 + rank as usize) as u8).collect() };
    let (results, _) = on_ranks(3, move |rank, store| {
        let gathered = store.gather(&pattern(rank)).expect("gather");
        let told = store
            .broadcast((rank == 0).then(|| pattern(9)).as_deref())
            .expect("broadcast");
        store.leave(Ok(())).expect("leaves");
        (gathered, told)
    });
    let [(Some(all), _), ..] = &results[..] else {
        panic!("rank 0 has all")
    };
    for (rank, bytes) in (0..).zip(all) {
        assert!(*bytes == pattern(rank), "rank {rank}");
    }
    assert!(results.iter().all(|(_, told)| *told == pattern(9)));
}

#[test]
fn one_rank_needs_nobody() {
    let store = Store::join(&rank_of(0, 1, 1)).expect("joins");
    store.barrier().expect("barrier");
    assert_eq!(store.gather(b"x").expect("gather"), Some(vec![b"x".to_vec()]));
    assert_eq!(store.broadcast(Some(b"y")).expect("broadcast"), b"y");
    store.leave(Ok(())).expect("leaves");
}

#[test]
fn a_rank_that_vanishes_ends_who_waits_for_it() {
    let started = Instant::now();
    let (results, verdicts) = on_ranks(4, |rank, store| {
        if rank == 2 {
            // As when its process ends: the connection closes without a word.
            return String::new();
        }
        let error = store.barrier().expect_err("one is missing");
        // Those that end do so after the verdict has reached them.
        std::thread::sleep(Duration::from_millis(500));
        error.to_string()
    });
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
    for rank in [0, 1, 3] {
        assert!(
            results[rank].starts_with("rank 2 (pid "),
            "rank {rank}: {}",
            results[rank]
        );
        assert!(
            results[rank].ends_with(" died: ending"),
            "rank {rank}: {}",
            results[rank]
        );
    }
    let mut heard: Vec<(u32, u32, bool)> = verdicts
        .try_iter()
        .map(|(rank, verdict)| (rank, verdict.rank, verdict.speaks))
        .collect();
    heard.sort_unstable();
    assert_eq!(heard, [(0, 2, true), (1, 2, false), (3, 2, false)], "one speaks");
}

#[test]
fn rank_0_that_vanishes_ends_the_others() {
    let (results, verdicts) = on_ranks(3, |rank, store| {
        if rank == 0 {
            return String::new();
        }
        store.barrier().expect_err("rank 0 is gone").to_string()
    });
    assert!(results[1].starts_with("rank 0 (pid "), "{}", results[1]);
    let mut heard: Vec<_> = verdicts
        .iter()
        .take(2)
        .map(|(rank, verdict)| (rank, verdict.rank, verdict.speaks))
        .collect();
    heard.sort_unstable();
    assert_eq!(heard, [(1, 0, true), (2, 0, false)]);
}

#[test]
fn a_rank_with_an_error_is_named_and_those_it_breaks_are_not() {
    let (results, verdicts) = on_ranks(3, |rank, store| {
        let error = match rank {
            1 => {
                std::thread::sleep(Duration::from_millis(50));
                Error::new("CUDA: out of memory")
            }
            2 => Error::new("NCCL all-reduce: remote process exited"),
            _ => return store.barrier().expect_err("they failed").to_string(),
        };
        let line = store.leave::<()>(Err(error)).expect_err("an error stays one");
        line.to_string()
    });
    assert!(
        results[0].starts_with("rank 1 (pid ") && results[0].ends_with(" failed: ending"),
        "{}",
        results[0]
    );
    assert_eq!(results[1], "CUDA: out of memory");
    let mut heard: Vec<_> = verdicts
        .try_iter()
        .map(|(rank, verdict)| (rank, verdict.rank))
        .collect();
    heard.sort_unstable();
    // Rank 1 ends by its own error; its process is not ended for it.
    assert_eq!(heard, [(0, 1), (2, 1)]);
}

#[test]
fn ranks_that_do_different_things_are_told() {
    let (results, _) = on_ranks(2, |rank, store| {
        let outcome = if rank == 0 {
            store.gather(b"bytes").map(|_| ())
        } else {
            store.barrier()
        };
        // Rank 1 waits for an answer that never comes, until rank 0 gives up.
        outcome.map_err(|error| error.to_string())
    });
    let error = results[0].as_ref().expect_err("they differ");
    assert!(
        error.contains("gather (operation 1 of the control plane) here, barrier (1) on rank 1"),
        "{error}"
    );
}

/// Rank 0 and one guest that differ; the errors of both.
fn meet_two(change: impl FnOnce(&mut Rank)) -> [Result<(), String>; 2] {
    let port = free_port();
    let mut guest = rank_of(1, 2, port);
    change(&mut guest);
    let join = |rank: Rank| {
        std::thread::spawn(move || {
            let membership = meeting::meet(&rank, Ending::new(|_| {}), Duration::from_secs(2));
            membership.map(|_| ()).map_err(|error| error.to_string())
        })
    };
    let threads = [join(rank_of(0, 2, port)), join(guest)];
    threads.map(|thread| thread.join().expect("ran"))
}

#[test]
fn ranks_of_different_sizes_do_not_fit() {
    let [first, second] = meet_two(|guest| guest.ranks = 3);
    for error in [first, second] {
        let error = error.expect_err("they differ");
        assert!(error.contains("is one of 3 ranks, but rank 0 of 2"), "{error}");
    }
}

#[test]
fn another_run_is_refused_and_does_not_disturb() {
    let [first, second] = meet_two(|guest| guest.run = "another".to_owned());
    let second = second.expect_err("refused");
    assert!(second.contains("belongs to another run"), "{second}");
    let first = first.expect_err("its own rank 1 never came");
    assert!(first.starts_with("rank 1 did not come to 127.0.0.1:"), "{first}");
}

#[test]
fn nobody_there_and_a_port_in_use_are_told() {
    let port = free_port();
    let error = meeting::meet(
        &rank_of(1, 2, port),
        Ending::new(|_| {}),
        Duration::from_millis(100),
    );
    let error = error.map(|_| ()).expect_err("nobody listens").to_string();
    assert!(
        error.starts_with(&format!(
            "rank 0 cannot be reached on 127.0.0.1:{port} within 0.1 s"
        )),
        "{error}"
    );

    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let error = meeting::meet(&rank_of(0, 2, port), Ending::new(|_| {}), Duration::from_secs(1));
    let error = error.map(|_| ()).expect_err("in use").to_string();
    assert!(
        error.starts_with(&format!("cannot listen on 127.0.0.1:{port}: the port is in use")),
        "{error}"
    );
}

#[test]
fn the_patience_is_as_told() {
    assert_eq!(patience(None).expect("default")[0], Duration::from_secs(120));
    assert_eq!(
        patience(Some("2.5")).expect("a number"),
        [Duration::from_millis(2500); 2]
    );
    for wrong in ["", "0", "-1", "soon", "inf", "nan"] {
        assert!(patience(Some(wrong)).is_err(), "{wrong}");
    }
}
