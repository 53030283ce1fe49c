//! Connections between processes: one for every two, shared by all communicators, and one thread that reads them all.
//!
//! The reader always drains, so that writers never wait for a rank's own progress. When a process dies its
//! connections end, and every communicator with a rank in it hears of that at once.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::errors::{Failure, Outcome};
use super::inbox::{self, Class, Inbox};
use super::{lock, network};

/// How long ranks wait for each other when a communicator is made.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of a message's head: payload's length, class, communicator, sender, receiver.
const HEAD_BYTES: usize = 24;
/// No message of ours is longer: whoever sends a greater length is a stranger.
const MOST_BYTES: usize = 8 << 20;

/// Ranks of a communicator that are in the process at the other end, and whom to tell when it is gone.
type Watcher = (Weak<Inbox>, Vec<u32>);

/// A connection to another process.
pub(super) struct Link {
    stream: TcpStream,
    writing: Mutex<()>,
    dead: AtomicBool,
    watchers: Mutex<Vec<Watcher>>,
}

fn head(class: Class, key: u64, from: u32, to: u32, bytes: usize) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes());
    head[4] = class as u8;
    head[8..16].copy_from_slice(&key.to_le_bytes());
    head[16..20].copy_from_slice(&from.to_le_bytes());
    head[20..24].copy_from_slice(&to.to_le_bytes());
    head
}

/// Blocks until a socket can be written; gives up when it never will be.
fn wait_writable(socket: RawFd) {
    let mut poll = libc::pollfd {
        fd: socket,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one pollfd.
    unsafe { libc::poll(&raw mut poll, 1, 1000) };
}

/// Writes what the socket takes of the slices. A peer that is gone is an error, never a signal: the program around this
/// library may have left SIGPIPE as it is.
fn send_vectored(stream: &TcpStream, slices: &mut [IoSlice<'_>]) -> io::Result<usize> {
    // SAFETY: a message header of zeros is an empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices.as_mut_ptr().cast();
    message.msg_iovlen = slices.len();
    // SAFETY: IoSlice is an iovec by its documentation; the slices live until the call returns, which only reads them.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

impl Link {
    fn new(stream: TcpStream) -> io::Result<Arc<Self>> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Arc::new(Self {
            stream,
            writing: Mutex::new(()),
            dead: AtomicBool::new(false),
            watchers: Mutex::new(Vec::new()),
        }))
    }

    fn write(&self, head: &[u8], parts: &[&[u8]], patient: bool) -> io::Result<()> {
        let all: Vec<&[u8]> = std::iter::once(head).chain(parts.iter().copied()).collect();
        let (mut part, mut offset) = (0, 0);
        while part < all.len() {
            let mut slices: Vec<IoSlice<'_>> = vec![IoSlice::new(&all[part][offset..])];
            slices.extend(all[part + 1..].iter().map(|bytes| IoSlice::new(bytes)));
            match send_vectored(&self.stream, &mut slices) {
                Ok(mut written) => {
                    while part < all.len() && written >= all[part].len() - offset {
                        written -= all[part].len() - offset;
                        (part, offset) = (part + 1, 0);
                    }
                    offset += written;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && patient => {
                    if self.dead.load(Ordering::Relaxed) {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                    wait_writable(self.stream.as_raw_fd());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends a message whose payload is all `parts` after each other. A connection that is broken is found out by its
    /// reader, which tells those who wait; so there is no error here.
    pub(super) fn send(&self, class: Class, key: u64, from: u32, to: u32, parts: &[&[u8]]) {
        let bytes = parts.iter().map(|part| part.len()).sum();
        let _writing = lock(&self.writing);
        drop(self.write(&head(class, key, from, to, bytes), parts, true));
    }

    /// As `send`, but drops the message rather than wait: at the process's end.
    pub(super) fn send_if_possible(&self, class: Class, key: u64, from: u32, to: u32) {
        if let Ok(_writing) = self.writing.try_lock() {
            drop(self.write(&head(class, key, from, to, 0), &[], false));
        }
    }

    /// Tells `inbox` when the process at the other end, where `ranks` are, is gone.
    pub(super) fn watch(&self, inbox: &Arc<Inbox>, ranks: Vec<u32>) {
        let mut watchers = lock(&self.watchers);
        watchers.retain(|(inbox, _)| inbox.strong_count() > 0);
        if self.dead.load(Ordering::Acquire) {
            drop(watchers);
            inbox.lost(ranks.into_iter());
        } else {
            watchers.push((Arc::downgrade(inbox), ranks));
        }
    }

    fn died(&self) {
        let mut watchers = lock(&self.watchers);
        self.dead.store(true, Ordering::Release);
        for (inbox, ranks) in watchers.drain(..) {
            if let Some(inbox) = inbox.upgrade() {
                inbox.lost(ranks.into_iter());
            }
        }
    }
}

/// Takes messages out of the bytes of one connection.
struct Reader {
    link: Arc<Link>,
    /// Whether the process at the other end has greeted.
    known: bool,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// A payload that is longer than what is in the buffer, and how much of it is there.
    long: Option<(Class, u64, u32, u32, Vec<u8>, usize)>,
}

impl Reader {
    fn new(link: Arc<Link>, known: bool) -> Self {
        Self {
            link,
            known,
            buffer: vec![0; 64 << 10],
            start: 0,
            end: 0,
            long: None,
        }
    }

    /// Reads what is there; an error when the connection has ended or is not ours.
    fn drain(&mut self) -> io::Result<()> {
        loop {
            let place = match &mut self.long {
                Some((.., payload, filled)) => &mut payload[*filled..],
                None => {
                    self.buffer.copy_within(self.start..self.end, 0);
                    (self.start, self.end) = (0, self.end - self.start);
                    &mut self.buffer[self.end..]
                }
            };
            match (&self.link.stream).read(place) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => self.take(got)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self, got: usize) -> io::Result<()> {
        if let Some((class, key, from, to, payload, filled)) = &mut self.long {
            *filled += got;
            if *filled == payload.len() {
                inbox::deliver(*key, *from, *to, *class, std::mem::take(payload));
                self.long = None;
            }
            return Ok(());
        }
        self.end += got;
        while self.end - self.start >= HEAD_BYTES {
            let head = &self.buffer[self.start..self.start + HEAD_BYTES];
            let short = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap_or_default());
            let bytes = short(0) as usize;
            let class = Class::from_number(head[4]).filter(|class| (*class == Class::Hello) != self.known);
            let key = u64::from_le_bytes(head[8..16].try_into().unwrap_or_default());
            let (from, to) = (short(16), short(20));
            let Some(class) = class.filter(|_| bytes <= MOST_BYTES) else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            let there = (self.end - self.start - HEAD_BYTES).min(bytes);
            let begin = self.start + HEAD_BYTES;
            let payload = &self.buffer[begin..begin + there];
            if there < bytes {
                let mut whole = vec![0; bytes];
                whole[..there].copy_from_slice(payload);
                self.long = Some((class, key, from, to, whole, there));
                (self.start, self.end) = (0, 0);
                return self
                    .known
                    .then_some(())
                    .ok_or_else(|| io::ErrorKind::InvalidData.into());
            }
            let payload = payload.to_vec();
            self.start = begin + there;
            if class == Class::Hello {
                self.greeted(key, &payload)?;
            } else {
                inbox::deliver(key, from, to, class, payload);
            }
        }
        Ok(())
    }

    /// A greeting: to whom (our own number, which only our ranks' peers know) and from whom.
    fn greeted(&mut self, to: u64, payload: &[u8]) -> io::Result<()> {
        let from: [u8; 8] = payload
            .try_into()
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        if to != identity() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.known = true;
        lock(&LINKS).insert(u64::from_le_bytes(from), Arc::clone(&self.link));
        CONNECTED.notify_all();
        Ok(())
    }
}

/// This process's number among all.
pub(super) fn identity() -> u64 {
    *identity_place()
}

/// Where the number lies in memory: other processes read it there, to find out whether they can.
pub(super) fn identity_place() -> &'static u64 {
    static IDENTITY: OnceLock<Box<u64>> = OnceLock::new();
    IDENTITY.get_or_init(|| Box::new(network::random()))
}

static LINKS: Mutex<BTreeMap<u64, Arc<Link>>> = Mutex::new(BTreeMap::new());
static CONNECTED: Condvar = Condvar::new();

/// The process's one listener and its reader thread.
struct Hub {
    epoll: RawFd,
    address: SocketAddr,
    /// Readers that the thread has not taken over yet.
    fresh: Mutex<Vec<Reader>>,
}

fn hub() -> Outcome<&'static Hub> {
    static HUB: OnceLock<Result<Hub, Failure>> = OnceLock::new();
    let hub = HUB.get_or_init(|| {
        let address = network::address()?;
        let cannot = |error: io::Error| {
            Failure::system(format!("cannot listen for other ranks on {address}: {error}"))
        };
        let listener = TcpListener::bind((address, 0)).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        // SAFETY: no arguments but a flag.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let hub = Hub {
            epoll,
            address: listener.local_addr().map_err(cannot)?,
            fresh: Mutex::new(Vec::new()),
        };
        if epoll < 0 || !hub.add(listener.as_raw_fd()) {
            return Err(cannot(io::Error::last_os_error()));
        }
        std::thread::Builder::new()
            .name("simgpu-nccl".to_owned())
            .spawn(move || read_all(&listener))
            .map_err(cannot)?;
        Ok(hub)
    });
    hub.as_ref().map_err(Clone::clone)
}

impl Hub {
    fn add(&self, socket: RawFd) -> bool {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: u64::from(socket.cast_unsigned()),
        };
        // SAFETY: an epoll of ours, an open socket and one event.
        unsafe { libc::epoll_ctl(self.epoll, libc::EPOLL_CTL_ADD, socket, &raw mut event) == 0 }
    }

    fn read(&self, reader: Reader) {
        let socket = reader.link.stream.as_raw_fd();
        lock(&self.fresh).push(reader);
        self.add(socket);
    }
}

/// The reader thread.
fn read_all(listener: &TcpListener) {
    let Ok(hub) = hub() else { return };
    let mut readers: BTreeMap<u64, Reader> = BTreeMap::new();
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
    loop {
        // SAFETY: a buffer with its length.
        let count = unsafe { libc::epoll_wait(hub.epoll, events.as_mut_ptr(), events.len() as i32, -1) };
        for event in &events[..usize::try_from(count).unwrap_or(0)] {
            let socket = event.u64;
            if socket == u64::from(listener.as_raw_fd().cast_unsigned()) {
                if let Ok((stream, _)) = listener.accept()
                    && let Ok(link) = Link::new(stream)
                {
                    hub.read(Reader::new(link, false));
                }
                continue;
            }
            for reader in lock(&hub.fresh).drain(..) {
                readers.insert(u64::from(reader.link.stream.as_raw_fd().cast_unsigned()), reader);
            }
            if let Some(reader) = readers.get_mut(&socket)
                && reader.drain().is_err()
            {
                let link = Arc::clone(&reader.link);
                // SAFETY: takes a socket out of an epoll of ours; it stays open while somebody holds the link, so
                // its number means nothing else meanwhile.
                unsafe {
                    libc::epoll_ctl(
                        hub.epoll,
                        libc::EPOLL_CTL_DEL,
                        link.stream.as_raw_fd(),
                        std::ptr::null_mut(),
                    )
                };
                readers.remove(&socket);
                // Whoever still writes to it finds out.
                drop(link.stream.shutdown(std::net::Shutdown::Both));
                link.died();
            }
        }
    }
}

/// Where other processes reach this one.
pub(super) fn own_address() -> Outcome<SocketAddr> {
    hub().map(|hub| hub.address)
}

/// Begins the connection to another process, if there is none and it is for us to connect: the lower number does.
pub(super) fn connect(identity_there: u64, address: SocketAddr, name: &str) -> Outcome<()> {
    // Two threads must not both connect.
    static CONNECTING: Mutex<()> = Mutex::new(());
    if identity() > identity_there {
        return Ok(());
    }
    let _connecting = lock(&CONNECTING);
    if lock(&LINKS).contains_key(&identity_there) {
        return Ok(());
    }
    let cannot = |error: io::Error| {
        Failure::system(format!(
            "cannot connect to {name} on {address}: {error}; NCCL_SOCKET_IFNAME names the interface that ranks use"
        ))
    };
    let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(cannot)?;
    let link = Link::new(stream).map_err(cannot)?;
    link.send(Class::Hello, identity_there, 0, 0, &[&identity().to_le_bytes()]);
    lock(&LINKS).insert(identity_there, Arc::clone(&link));
    hub()?.read(Reader::new(link, true));
    CONNECTED.notify_all();
    Ok(())
}

/// The connection to another process; waits until that has connected, if it is for it to do so.
pub(super) fn to(identity_there: u64, name: &str) -> Outcome<Arc<Link>> {
    let deadline = Instant::now() + PATIENCE;
    let mut links = lock(&LINKS);
    loop {
        if let Some(link) = links.get(&identity_there) {
            return Ok(Arc::clone(link));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::system(format!(
                "{name} did not connect within {} s",
                PATIENCE.as_secs()
            )));
        }
        links = CONNECTED
            .wait_timeout(links, left)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
}
