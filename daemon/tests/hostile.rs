//! Callers that mean harm, or don't know better: refused or served, and the daemon lives.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use gputrace_trace::daemon::{
    Ask, Connection, FromCollector, Hello, MOST_PACKET_BYTES, StepReport, ToCollector,
};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType, connect, recv, send, socket};

use crate::fake::{Fake, PATIENCE, Running, ask, join};

fn raw(path: &Path) -> OwnedFd {
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    connect(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("connected");
    // A daemon that does not answer fails the test.
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).expect("set");
    socket
}

/// Whether the daemon answers, and its one job is as it should be.
fn lives(daemon: &Running, fake: &mut Fake) {
    let steps = daemon.jobs_when(|_| true)[0]["steps"].as_u64().expect("steps");
    fake.write_row();
    fake.end_step(1000, None);
    daemon.jobs_when(|jobs| jobs[0]["steps"] == steps + 1);
}

#[test]
fn what_nobody_says_ends_that_connection_alone() {
    let daemon = Running::new("");
    let mut fake = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    let long = vec![b'['; MOST_PACKET_BYTES];
    let longer = vec![b' '; MOST_PACKET_BYTES * 2];
    let forged: Vec<&[u8]> = vec![
        b"{",
        b"\xff\xfe\x00",
        b"null",
        b"{\"client\":",
        b"{\"client\":{\"job\":{\"job\":7}}}",
        b"{\"collector\":{}}",
        b"{\"join\":{}}",
        b"\"jobs\"",
        &long,
        &longer,
    ];
    for packet in forged {
        let socket = raw(&daemon.socket);
        // A packet that is too long for the socket's buffer is refused by the kernel.
        if send(&socket, packet, SendFlags::empty()).is_err() {
            continue;
        }
        let mut answer = [0; 100];
        let read = recv(&socket, &mut answer, rustix::net::RecvFlags::empty());
        assert!(
            matches!(read, Ok((0, _)) | Err(rustix::io::Errno::CONNRESET)),
            "{:?}: {read:?}",
            &packet[..packet.len().min(40)]
        );
    }
    // A collector's words from one that has not joined, and a second question.
    for (first, second) in [
        (
            serde_json::to_vec(&Hello::Collector {
                version: "9".to_owned(),
            }),
            serde_json::to_vec(&FromCollector::Segment { segment: 0 }),
        ),
        (
            serde_json::to_vec(&Hello::Client(Ask::Jobs)),
            serde_json::to_vec(&Hello::Client(Ask::Jobs)),
        ),
    ] {
        let socket = raw(&daemon.socket);
        send(&socket, &first.expect("text"), SendFlags::empty()).expect("sent");
        // It may be gone already.
        send(&socket, &second.expect("text"), SendFlags::empty()).ok();
        let until = Instant::now() + Duration::from_secs(5);
        let mut answer = vec![0; MOST_PACKET_BYTES];
        while !matches!(
            recv(&socket, &mut answer, rustix::net::RecvFlags::empty()),
            Ok((0, _)) | Err(rustix::io::Errno::CONNRESET)
        ) {
            assert!(Instant::now() < until, "it is still connected");
        }
    }
    lives(&daemon, &mut fake);
}

#[test]
fn a_thousand_connections_a_flood_and_one_that_does_not_read() {
    let daemon = Running::new("");
    let mut fake = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    let idle: Vec<OwnedFd> = (0..1000).map(|_| raw(&daemon.socket)).collect();
    lives(&daemon, &mut fake);
    // Many jobs' worth of reports, without a pause.
    let (flood, answer) = join(&daemon.socket, "node7-2-5", "flood", 0, Some(0));
    assert!(matches!(answer, ToCollector::Welcome { .. }));
    let flooding = std::thread::spawn(move || {
        let until = Instant::now() + Duration::from_secs(2);
        let mut sent = 0u64;
        while Instant::now() < until {
            let report = FromCollector::Report {
                steps: vec![Default::default(); 200],
                totals: Default::default(),
            };
            match flood.send(&report) {
                Ok(()) => sent += 1,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        sent
    });
    // One that asks for segments and never reads what it is answered.
    let (deaf, _) = join(&daemon.socket, "node7-3-5", "deaf", 0, Some(0));
    for _ in 0..20_000 {
        drop(deaf.send(&FromCollector::Open {
            table: "nothing".to_owned(),
            segment: None,
        }));
    }
    let begun = Instant::now();
    for _ in 0..20 {
        lives(&daemon, &mut fake);
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(20), "20 looks took {took:?}");
    assert!(flooding.join().expect("flooded") > 10);
    drop(idle);
    lives(&daemon, &mut fake);
}

#[test]
fn numbers_that_cannot_be_are_not_reckoned_with() {
    let daemon = Running::new("");
    let mut fake = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    let step = |number: u64, ns: i64| StepReport {
        number,
        start_ns: ns,
        duration_ns: ns,
        communication_ns: Some(ns),
        exposed_ns: Some(ns),
        ..StepReport::default()
    };
    let mut steps = Vec::new();
    for number in [0, 1, u64::MAX, 1 << 40] {
        steps.extend([i64::MIN, -1, i64::MAX].map(|ns| step(number, ns)));
    }
    fake.totals.enqueued = u64::MAX;
    fake.totals.finished = Some(0);
    fake.totals.lost_rows = u64::MAX;
    fake.totals.devices = vec![u32::MAX; 1000];
    fake.report(steps);
    let mut other = Fake::new(&daemon.socket, "node7-2-5", "g", 1);
    other.totals = fake.totals.clone();
    other.totals.rank = Some(1);
    // As large as may be.
    other.report(
        (0..200)
            .map(|number| step(number << 50, 3_000_000_000_000_000_000))
            .collect(),
    );
    let jobs = daemon.jobs_when(|jobs| jobs[0]["steps"].as_u64() >= Some(100));
    assert_eq!(jobs[0]["lost_rows"], u64::MAX);
    let job = daemon.ask(Ask::Job { job: None }).expect("a job");
    assert_eq!(job["processes"][0]["devices"].as_array().map(Vec::len), Some(64));
}

#[test]
fn a_rank_stays_what_it_is_and_a_report_that_is_too_long_ends_its_connection() {
    let daemon = Running::new("");
    let mut fake = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    for rank in 1..100 {
        fake.totals.rank = Some(rank);
        fake.totals.world_size = Some(1000 + rank);
        fake.end_step(1000, None);
    }
    let jobs = daemon.jobs_when(|jobs| jobs[0]["steps"] == 99);
    assert_eq!(jobs[0]["world_size"], 8);
    let job = daemon.ask(Ask::Job { job: None }).expect("a job");
    assert_eq!(job["processes"][0]["rank"], 0);
    fake.report(vec![StepReport::default(); 256]);
    daemon.jobs_when(|jobs| jobs[0]["joined"] == 1);
    fake.report(vec![StepReport::default(); 257]);
    // It lives, and may call again.
    daemon.jobs_when(|jobs| jobs[0]["state"] == "waiting");
}

#[test]
fn a_descriptor_that_is_sent_along_is_closed() {
    let daemon = Running::new("");
    let (reader, writer) = io::pipe().expect("a pipe");
    let connection = Connection::connect(&daemon.socket).expect("connected");
    let hello = Hello::Client(Ask::Jobs);
    connection
        .send(&hello, Some(std::os::fd::AsFd::as_fd(&writer)))
        .expect("sent");
    drop(writer);
    assert!(read_in_time(reader).is_empty(), "the daemon kept the other end");
}

/// All that comes out of a pipe until its other end is closed; fails where that takes too long.
fn read_in_time(mut reader: io::PipeReader) -> Vec<u8> {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = reader.read_to_end(&mut bytes);
        drop(tell.send(read.map(|_| bytes)));
    });
    let read = told.recv_timeout(PATIENCE * 3);
    read.expect("the other end was closed in time").expect("read")
}

/// Runs something as another user, where we may become one; gives what it said.
fn as_user(uid: u32, act: impl FnOnce() -> String) -> Option<String> {
    // SAFETY: always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: only root can become another user");
        return None;
    }
    let (reader, writer) = io::pipe().expect("a pipe");
    // SAFETY: the child does nothing but this, and ends without running anything of ours.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        drop(reader);
        // SAFETY: plain numbers; supplementary groups first, since only root can give them up.
        let changed = unsafe {
            libc::setgroups(0, std::ptr::null()) == 0 && libc::setgid(uid) == 0 && libc::setuid(uid) == 0
        };
        let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match changed {
            true => act(),
            false => "could not change user".to_owned(),
        }));
        let said = said.unwrap_or_else(|_| "panicked".to_owned());
        // SAFETY: the descriptor is ours, and the text is as long as it says.
        unsafe {
            libc::write(writer.as_raw_fd(), said.as_ptr().cast(), said.len());
            libc::_exit(0);
        }
    }
    drop(writer);
    let text = read_in_time(reader);
    // SAFETY: a child of ours, which has closed its end.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    Some(String::from_utf8(text).expect("text"))
}

#[test]
fn another_user_sees_nothing_of_ours_and_joins_a_job_of_its_own() {
    let daemon = Running::for_all("");
    let mut fake = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
    fake.write_row();
    let id = daemon.job_of_one_rank();
    let socket = daemon.socket.clone();
    let said = as_user(65534, move || {
        let jobs = ask(&socket, Ask::Jobs).expect("jobs")["jobs"]
            .as_array()
            .map_or(99, Vec::len);
        let job = ask(
            &socket,
            Ask::Job {
                job: Some(id.clone()),
            },
        )
        .expect_err("not its own");
        let snapshot = ask(
            &socket,
            Ask::Snapshot {
                job: Some(id),
                last_s: None,
            },
        )
        .expect_err("not its own");
        // The same group and the same folder: another job all the same.
        let (_line, answer) = join(&socket, "node7-1-5", "g", 0, Some(0));
        let joined = matches!(answer, ToCollector::Welcome { .. });
        let own = ask(&socket, Ask::Jobs).expect("jobs")["jobs"]
            .as_array()
            .map_or(99, Vec::len);
        format!("{jobs}|{job}|{snapshot}|{joined}|{own}")
    });
    let Some(said) = said else { return };
    let parts: Vec<&str> = said.split('|').collect();
    assert_eq!(parts.len(), 5, "{said}");
    assert_eq!((parts[0], parts[3], parts[4]), ("0", "true", "1"), "{said}");
    assert!(
        parts[1].contains("no job has joined") && parts[2].contains("no job has joined"),
        "{said}"
    );
    let jobs = daemon.jobs_when(|jobs| jobs.as_array().is_some_and(|jobs| jobs.len() == 2));
    assert_eq!((&jobs[0]["uid"], &jobs[1]["uid"]), (&0.into(), &65534.into()));
    lives(&daemon, &mut fake);
}

#[test]
fn a_socket_of_somebody_elses_is_not_trusted() {
    let daemon = Running::new("");
    Connection::connect_trusted(&daemon.socket).expect("our own");
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("daemon.sock");
    let listening = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    rustix::net::bind(&listening, &SocketAddrUnix::new(&path).expect("a path")).expect("bound");
    // Whose it is, is who listens.
    let said = as_user(65534, || match rustix::net::listen(&listening, 1) {
        Ok(()) => "listening".to_owned(),
        Err(error) => error.to_string(),
    });
    let Some(said) = said else { return };
    assert_eq!(said, "listening");
    let refused = Connection::connect_trusted(&path).err().expect("refused");
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
    assert!(refused.to_string().contains("user 65534"), "{refused}");
}

#[test]
fn a_dead_daemons_socket_is_replaced() {
    let place = tempfile::tempdir().expect("a folder");
    let path = place.path().join("daemon.sock");
    // Bound, and closed without being removed.
    let dead = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    rustix::net::bind(&dead, &SocketAddrUnix::new(&path).expect("a path")).expect("bound");
    rustix::net::listen(&dead, 1).expect("listening");
    // SAFETY: the number is that socket's, given up here.
    drop(unsafe { OwnedFd::from_raw_fd(std::os::fd::IntoRawFd::into_raw_fd(dead)) });
    assert!(path.exists());
    let daemon = Running::in_place(place, "");
    daemon.ask(Ask::Jobs).expect("jobs");
}
