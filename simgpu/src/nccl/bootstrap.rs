//! How ranks find each other: the unique id names a port on which one process introduces all ranks to each other,
//! and then every two ranks hold a connection.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Begins every unique id of ours.
const MAGIC: [u8; 8] = *b"simnccl1";
/// How long ranks wait for each other when a communicator is made.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a unique id says.
#[derive(Clone, Copy)]
pub(super) struct Meeting {
    pub(super) key: u64,
    port: u16,
}

impl Meeting {
    /// Reads a unique id.
    pub(super) fn from_id(id: &[u8; 128]) -> Option<Self> {
        if id[..8] != MAGIC {
            return None;
        }
        let key = u64::from_le_bytes(id[8..16].try_into().ok()?);
        Some(Self {
            key,
            port: u16::from_le_bytes([id[16], id[17]]),
        })
    }

    /// Opens a meeting in this process and gives its unique id.
    pub(super) fn open() -> io::Result<[u8; 128]> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut key = u64::from(std::process::id()) << 32 ^ crate::clock::now_ns().cast_unsigned();
        key = key
            .wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut id = [0u8; 128];
        id[..8].copy_from_slice(&MAGIC);
        id[8..16].copy_from_slice(&key.to_le_bytes());
        id[16..18].copy_from_slice(&listener.local_addr()?.port().to_le_bytes());
        std::thread::Builder::new()
            .name("simgpu-bootstrap".to_owned())
            .spawn(move || introduce(&listener, key))?;
        Ok(id)
    }
}

/// Takes every rank's port, then tells all of them all ports.
fn introduce(listener: &TcpListener, key: u64) {
    let mut guests: Vec<(u32, u16, TcpStream)> = Vec::new();
    let mut ranks = u32::MAX;
    while (guests.len() as u64) < u64::from(ranks) {
        let Ok((mut guest, _)) = listener.accept() else {
            return;
        };
        let mut hello = [0u8; 18];
        // Somebody else's connection, or a rank that died at once: not a guest.
        if guest.read_exact(&mut hello).is_err() || hello[..8] != key.to_le_bytes() {
            continue;
        }
        let number = |at: usize| u32::from_le_bytes([hello[at], hello[at + 1], hello[at + 2], hello[at + 3]]);
        ranks = number(12);
        guests.push((number(8), u16::from_le_bytes([hello[16], hello[17]]), guest));
    }
    guests.sort_by_key(|(rank, ..)| *rank);
    let ports: Vec<u8> = guests
        .iter()
        .flat_map(|(_, port, _)| port.to_le_bytes())
        .collect();
    for (.., guest) in &mut guests {
        // A rank that is gone by now shows up as a broken connection to its peers.
        drop(guest.write_all(&ports));
    }
}

/// Connects this rank with all others: one stream each, `None` for itself.
pub(super) fn connect(meeting: Meeting, rank: u32, ranks: u32) -> io::Result<Vec<Option<TcpStream>>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut host = TcpStream::connect((Ipv4Addr::LOCALHOST, meeting.port))?;
    host.set_read_timeout(Some(PATIENCE))?;
    let mut hello = Vec::with_capacity(18);
    hello.extend_from_slice(&meeting.key.to_le_bytes());
    hello.extend_from_slice(&rank.to_le_bytes());
    hello.extend_from_slice(&ranks.to_le_bytes());
    hello.extend_from_slice(&listener.local_addr()?.port().to_le_bytes());
    host.write_all(&hello)?;
    let mut ports = vec![0u8; 2 * ranks as usize];
    host.read_exact(&mut ports)?;
    let mut peers: Vec<Option<TcpStream>> = (0..ranks).map(|_| None).collect();
    // To lower ranks we connect, from higher ones we accept: every pair once, and nobody waits in a circle,
    // since connecting does not wait for the accept.
    for peer in 0..rank as usize {
        let port = u16::from_le_bytes([ports[2 * peer], ports[2 * peer + 1]]);
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.write_all(&meeting.key.to_le_bytes())?;
        stream.write_all(&rank.to_le_bytes())?;
        peers[peer] = Some(stream);
    }
    while peers.iter().filter(|peer| peer.is_some()).count() + 1 < ranks as usize {
        let (mut stream, _) = listener.accept()?;
        let mut hello = [0u8; 12];
        stream.read_exact(&mut hello)?;
        let peer = u32::from_le_bytes([hello[8], hello[9], hello[10], hello[11]]);
        if hello[..8] == meeting.key.to_le_bytes() && peer > rank && peer < ranks {
            peers[peer as usize] = Some(stream);
        }
    }
    for stream in peers.iter().flatten() {
        stream.set_nodelay(true)?;
    }
    Ok(peers)
}
