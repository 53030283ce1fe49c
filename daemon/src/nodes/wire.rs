//! The threads that call the other nodes' daemons, and hear them: a line of JSON for each thing that is said, over TLS with
//! certificates on both sides.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};

use super::said::Said;

/// For connecting, and for each part of the rest. Each says something every second.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries to reach one.
const BETWEEN: Duration = Duration::from_secs(2);
/// Lines that wait for one that does not read.
const MOST_WAITING: usize = 64;
/// A line's length.
const MOST_LINE_BYTES: u64 = 4 << 20;
/// Nodes that speak to us at a time.
const MOST_CALLERS: usize = 4096;

/// Between two lines of what is wrong with one.
const QUIET: Duration = Duration::from_secs(600);

/// What a node has said, with its length in bytes, or what is wrong with one.
pub type Heard = Result<(usize, Said), String>;

/// Begins the thread that tells one node, and gives what it is to be told by. `trouble` takes a line now and then where that is of no
/// use.
///
/// # Errors
/// When there is no thread.
pub fn call(
    node: String,
    tls: Arc<ClientConfig>,
    trouble: impl Fn(String) + Send + 'static,
) -> io::Result<SyncSender<Arc<str>>> {
    let (tell, lines) = sync_channel(MOST_WAITING);
    std::thread::Builder::new()
        .name("node".to_owned())
        .spawn(move || tell_all(&node, &tls, &lines, &trouble))?;
    Ok(tell)
}

fn tell_all(node: &str, tls: &Arc<ClientConfig>, lines: &Receiver<Arc<str>>, trouble: &impl Fn(String)) {
    let mut stream = None;
    let mut complained: Option<Instant> = None;
    let mut complain = |error: &io::Error| {
        if complained.is_none_or(|complained| complained.elapsed() >= QUIET) {
            complained = Some(Instant::now());
            trouble(format!("node {node} is not told of the jobs here: {error}"));
        }
    };
    let mut tried: Option<Instant> = None;
    // What is said while a node can't be reached is old when it can.
    while let Ok(line) = lines.recv() {
        if stream.is_none() && tried.is_none_or(|tried| tried.elapsed() >= BETWEEN) {
            tried = Some(Instant::now());
            match connect(node, tls) {
                Ok(connected) => stream = Some(connected),
                Err(error) => complain(&error),
            }
        }
        let said = stream.as_mut().map(|stream| {
            stream.write_all(line.as_bytes())?;
            stream.write_all(b"\n")?;
            stream.flush()
        });
        if let Some(Err(error)) = said {
            complain(&error);
            stream = None;
        }
    }
}

fn connect(node: &str, tls: &Arc<ClientConfig>) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let name = node
        .rsplit_once(':')
        .map_or(node, |(name, _)| name)
        .trim_matches(['[', ']']);
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let mut socket = Err(io::Error::other("no such host"));
    for address in node.to_socket_addrs()? {
        socket = TcpStream::connect_timeout(&address, PATIENCE);
        if socket.is_ok() {
            break;
        }
    }
    let socket = socket?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.set_nodelay(true)?;
    let session = ClientConnection::new(tls.clone(), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(session, socket))
}

/// Begins to hear nodes at an address; `wake` is called when one has said something. Gives where that is.
///
/// # Errors
/// When the address can't be had.
pub fn listen(
    address: SocketAddr,
    tls: Arc<ServerConfig>,
    tell: SyncSender<Heard>,
    wake: impl Fn() + Clone + Send + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let callers = Arc::new(AtomicUsize::new(0));
    std::thread::Builder::new()
        .name("nodes".to_owned())
        .spawn(move || {
            for socket in listener.incoming() {
                let Ok(socket) = socket else {
                    // No descriptor is left, or the like.
                    std::thread::sleep(Duration::from_millis(200));
                    continue;
                };
                if callers.fetch_add(1, Ordering::Relaxed) >= MOST_CALLERS {
                    callers.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (tls, tell, wake, count) = (tls.clone(), tell.clone(), wake.clone(), callers.clone());
                let hearing = std::thread::Builder::new()
                    .name("node".to_owned())
                    .spawn(move || {
                        // One that breaks off, or is not trusted, calls again or does not.
                        drop(hear(socket, tls, &tell, &wake));
                        count.fetch_sub(1, Ordering::Relaxed);
                    });
                if hearing.is_err() {
                    callers.fetch_sub(1, Ordering::Relaxed);
                }
            }
        })?;
    Ok(address)
}

fn hear(
    mut socket: TcpStream,
    tls: Arc<ServerConfig>,
    tell: &SyncSender<Heard>,
    wake: &impl Fn(),
) -> io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut session = ServerConnection::new(tls).map_err(io::Error::other)?;
    // Who has shown no certificate until then is no node, however slowly it speaks.
    let until = Instant::now() + PATIENCE;
    while session.is_handshaking() {
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if session.wants_write() {
            session.write_tls(&mut socket)?;
            continue;
        }
        if session.read_tls(&mut socket)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        session.process_new_packets().map_err(io::Error::other)?;
    }
    let mut lines = BufReader::new(StreamOwned::new(session, socket));
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut lines).take(MOST_LINE_BYTES).read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // Another version's words are passed over.
        if let Ok(said) = serde_json::from_slice::<Said>(&line) {
            if tell.send(Ok((line.len(), said))).is_err() {
                return Ok(());
            }
            wake();
        }
    }
}
