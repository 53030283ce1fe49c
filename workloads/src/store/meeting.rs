//! How ranks find each other: rank 0 listens, the others come, and all must be of one run.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::FromRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::TIMEOUT_VARIABLE;
use super::members::{self, Hello};
use super::membership::{Absence, Membership, listed};
use super::verdict::{Ending, Verdict};
use super::wire::{Kind, read_frame, tune, write_frame};
use crate::error::Error;
use crate::rank::Rank;

/// Whoever connects has so long to say who it is.
const GREETING_PATIENCE: Duration = Duration::from_secs(10);
/// Frames of the meeting are not longer than this.
const MOST_BYTES: u64 = 16 << 20;
/// Rank 0 knows who is missing: the others wait so much longer than it does, to hear that.
const GRACE: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(20);
/// Threads that read a connection need little.
const STACK_BYTES: usize = 256 * 1024;

/// Meets all ranks. Afterwards a thread reads each connection.
pub(super) fn meet(rank: &Rank, ending: Ending, patience: Duration) -> Result<Arc<Membership>, Error> {
    let hello = Hello::own(rank);
    let membership = Membership::new(&hello.member, rank.ranks, ending);
    if rank.ranks > 1 {
        if rank.rank == 0 {
            receive_all(rank, hello, &membership, patience)?;
        } else {
            come(rank, &hello, &membership, patience)?;
        }
    }
    Ok(membership)
}

// ---- Rank 0.

fn receive_all(
    rank: &Rank,
    hello: Hello,
    membership: &Arc<Membership>,
    patience: Duration,
) -> Result<(), Error> {
    let listener = listen(rank)?;
    let address = listener.local_addr()?;
    let is_over = Arc::new(AtomicBool::new(false));
    let door = {
        let (membership, is_over) = (Arc::clone(membership), Arc::clone(&is_over));
        let hello = Arc::new(hello);
        thread("store-door", move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let (membership, hello) = (Arc::clone(&membership), Arc::clone(&hello));
                // Where no thread can be had the guest sees its connection closed.
                drop(thread("store", move || greet(&stream, &hello, &membership)));
            }
        })?
    };
    let outcome = membership.wait_for_all(Instant::now() + patience);
    is_over.store(true, Ordering::Release);
    // The door sees that it is over when one more comes. Then the port is free again.
    drop(TcpStream::connect_timeout(
        &reachable(address),
        Duration::from_secs(1),
    ));
    drop(door.join());
    match outcome {
        Ok(()) => {
            membership.tell_all(Kind::Welcome, &members::to_bytes(&membership.members()));
            Ok(())
        }
        Err(Absence::Lost(line)) => Err(Error::new(line)),
        Err(Absence::Misfit(text)) => {
            membership.call_off(&text);
            Err(Error::new(text))
        }
        Err(Absence::Missing(missing)) => {
            let text = format!(
                "{} did not come to {}:{} within {} s: were all ranks started, with the same \
                 MASTER_ADDR and MASTER_PORT, and can they reach that host? ({TIMEOUT_VARIABLE} sets how long to wait)",
                listed(&missing),
                rank.host,
                address.port(),
                patience.as_secs_f64()
            );
            membership.call_off(&text);
            Err(Error::new(text))
        }
    }
}

/// The socket that our launcher opened, else one of our own: on this host alone where all ranks are on it.
fn listen(rank: &Rank) -> Result<TcpListener, Error> {
    if let Some(descriptor) = rank.listener {
        return adopt(descriptor);
    }
    let is_local = rank
        .host
        .parse::<IpAddr>()
        .map_or(rank.host == "localhost", |address| address.is_loopback());
    let everywhere: [SocketAddr; 2] = [
        (Ipv6Addr::UNSPECIFIED, rank.port).into(),
        (Ipv4Addr::UNSPECIFIED, rank.port).into(),
    ];
    let bound = if is_local {
        TcpListener::bind((rank.host.as_str(), rank.port))
    } else {
        // A host without IPv6 has the second only.
        TcpListener::bind(everywhere[0]).or_else(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Err(error),
            _ => TcpListener::bind(everywhere[1]),
        })
    };
    bound.map_err(|error| {
        let place = format!("{}:{}", rank.host, rank.port);
        Error::new(match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "cannot listen on {place}: the port is in use, by another run perhaps: set MASTER_PORT to \
                 another one for all ranks (they meet on the port after it)"
            ),
            _ => format!("cannot listen on {place}: {error}: set MASTER_PORT to another port"),
        })
    })
}

fn adopt(descriptor: i32) -> Result<TcpListener, Error> {
    let mut is_listening: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: asks for an integer option; a descriptor that is no socket gives an error.
    let code = unsafe {
        libc::getsockopt(
            descriptor,
            libc::SOL_SOCKET,
            libc::SO_ACCEPTCONN,
            (&raw mut is_listening).cast(),
            &raw mut length,
        )
    };
    if code != 0 || is_listening == 0 {
        return Err(Error::new(format!(
            "{}={descriptor}: not the socket of a launcher; this variable is not for setting by hand",
            crate::rank::LISTENER
        )));
    }
    // SAFETY: programs that we start must not inherit it; it is open.
    unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    // SAFETY: open, a listening socket, and nobody else's: the launcher left it to this process.
    Ok(unsafe { TcpListener::from_raw_fd(descriptor) })
}

/// Where a listener on all addresses can be reached from here.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() {
            Ipv4Addr::LOCALHOST.into()
        } else {
            Ipv6Addr::LOCALHOST.into()
        });
    }
    address
}

/// Hears who connected, and reads that connection from then on.
fn greet(stream: &TcpStream, hello: &Hello, membership: &Membership) {
    let greeting = stream
        .set_read_timeout(Some(GREETING_PATIENCE))
        .and_then(|()| read_frame(stream, MOST_BYTES));
    // Not one of ours: closing the connection is all the answer it gets.
    let Ok(frame) = greeting else { return };
    if frame.kind != Kind::Hello {
        return;
    }
    let Some(guest) = Hello::from_bytes(&frame.payload) else {
        return;
    };
    let refuse = |text: &str| drop(write_frame(stream, Kind::Refused, (0, 0), text.as_bytes()));
    if guest.run != hello.run {
        refuse(&format!(
            "{} belongs to another run than {}, which listens here: give each run a MASTER_PORT of its own",
            guest.member.name(),
            hello.member.name()
        ));
        return;
    }
    if let Some(text) = hello.misfit(&guest) {
        // Rank 0 says the same.
        let verdict = Verdict::of_rank_0(&text, guest.member.output != hello.member.output);
        drop(write_frame(stream, Kind::Verdict, (0, 0), &verdict.to_bytes()));
        membership.note_misfit(text);
        return;
    }
    let peer = guest.member.rank;
    if tune(stream).is_err() || stream.set_read_timeout(None).is_err() {
        return;
    }
    if let Err(text) = membership.admit(guest.member, stream) {
        refuse(&text);
        return;
    }
    membership.read_from(peer, stream);
}

// ---- The others.

fn come(rank: &Rank, hello: &Hello, membership: &Arc<Membership>, patience: Duration) -> Result<(), Error> {
    let deadline = Instant::now() + patience;
    let place = format!("{}:{}", rank.host, rank.port);
    let stream = loop {
        // Until rank 0 listens there is nobody to connect to; its name may not be known yet either.
        match connect(&rank.host, rank.port, deadline) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() >= deadline => {
                return Err(Error::new(format!(
                    "rank 0 cannot be reached on {place} within {} s: {error}: was it started, and do MASTER_ADDR \
                     and MASTER_PORT lead to it? ({TIMEOUT_VARIABLE} sets how long to wait)",
                    patience.as_secs_f64()
                )));
            }
            Err(_) => std::thread::sleep(RETRY),
        }
    };
    tune(&stream)?;
    let left = deadline.saturating_duration_since(Instant::now()) + GRACE;
    stream.set_read_timeout(Some(left))?;
    let stranger = |why: &str| {
        Error::new(format!(
            "{place} is not rank 0 of this run ({why}): set MASTER_PORT to a free port for all ranks (they meet on \
             the port after it)"
        ))
    };
    write_frame(&stream, Kind::Hello, (0, 0), &hello.to_bytes())
        .map_err(|error| stranger(&error.to_string()))?;
    let frame = read_frame(&stream, MOST_BYTES).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::new(format!(
            "rank 0 on {place} does not answer ({TIMEOUT_VARIABLE} sets how long to wait)"
        )),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            Error::new(format!("rank 0 on {place} ended before all ranks had come"))
        }
        _ => stranger("it answers something else"),
    })?;
    let members = match frame.kind {
        Kind::Welcome => members::from_bytes(&frame.payload, rank.ranks),
        Kind::Refused => return Err(Error::new(String::from_utf8_lossy(&frame.payload))),
        Kind::Verdict => {
            let verdict = Verdict::from_bytes(&frame.payload).ok_or_else(|| stranger("unclear"))?;
            let line = verdict.line.clone();
            membership.hear(&verdict);
            return Err(Error::new(line));
        }
        _ => None,
    };
    let members = members.ok_or_else(|| stranger("it answers something else"))?;
    membership
        .admit(members[0].clone(), &stream)
        .map_err(Error::new)?;
    membership.know(members);
    stream.set_read_timeout(None)?;
    let membership = Arc::clone(membership);
    thread("store", move || membership.read_from(0, &stream)).map(drop)
}

fn connect(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    const ONE_ADDRESS: Duration = Duration::from_secs(5);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = deadline.saturating_duration_since(Instant::now());
        match TcpStream::connect_timeout(&address, ONE_ADDRESS.min(left.max(RETRY))) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn thread(name: &str, body: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>, Error> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK_BYTES)
        .spawn(body)
        .map_err(|error| Error::new(format!("no thread can be had: {error}")))
}
