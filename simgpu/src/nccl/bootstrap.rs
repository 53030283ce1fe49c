//! How ranks find each other: the unique id names an address where one process introduces all ranks to each other.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::errors::{Failure, Outcome};
use super::link::PATIENCE;
use super::{link, network, result};

/// Begins every unique id of ours.
const MAGIC: [u8; 8] = *b"simnccl2";
/// How long a guest may take to say who it is, once connected.
const GREETING: Duration = Duration::from_secs(5);
/// No line of ours is longer.
const MOST_LINE_BYTES: u64 = 4 << 20;

/// What a unique id says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meeting {
    pub(super) key: u64,
    address: SocketAddr,
}

impl Meeting {
    /// Reads a unique id.
    pub(super) fn from_id(id: &[u8; 128]) -> Option<Self> {
        if id[..8] != MAGIC {
            return None;
        }
        let key = u64::from_le_bytes(id[8..16].try_into().ok()?);
        let port = u16::from_le_bytes([id[16], id[17]]);
        let bytes: [u8; 16] = id[19..35].try_into().ok()?;
        let address = match id[18] {
            4 => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]),
            6 => IpAddr::from(bytes),
            _ => return None,
        };
        Some(Self {
            key,
            address: SocketAddr::new(address, port),
        })
    }

    fn to_id(self) -> [u8; 128] {
        let mut id = [0u8; 128];
        id[..8].copy_from_slice(&MAGIC);
        id[8..16].copy_from_slice(&self.key.to_le_bytes());
        id[16..18].copy_from_slice(&self.address.port().to_le_bytes());
        match self.address.ip() {
            IpAddr::V4(address) => {
                id[18] = 4;
                id[19..23].copy_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                id[18] = 6;
                id[19..35].copy_from_slice(&address.octets());
            }
        }
        id
    }

    /// Opens a meeting in this process and gives its unique id.
    pub(super) fn open() -> Outcome<[u8; 128]> {
        let address = network::address()?;
        let cannot = |error: io::Error| {
            Failure::system(format!(
                "cannot listen for the ranks of a communicator on {address}: {error}"
            ))
        };
        let listener = TcpListener::bind((address, 0)).map_err(cannot)?;
        let meeting = Self {
            key: network::random(),
            address: listener.local_addr().map_err(cannot)?,
        };
        std::thread::Builder::new()
            .name("simgpu-bootstrap".to_owned())
            .spawn(move || introduce(&listener, meeting.key))
            .map_err(cannot)?;
        Ok(meeting.to_id())
    }
}

/// What ranks know of each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    /// The process's number (`link::identity`), and where that lies in its memory.
    pub(super) process: u64,
    pub(super) process_place: u64,
    /// Where its process is reached.
    pub(super) address: SocketAddr,
    pub(super) pid: u32,
    pub(super) hostname: String,
    pub(super) host_hash: u64,
    pub(super) device: u32,
    /// The device's UUID in hex.
    pub(super) uuid: String,
}

impl Member {
    /// This process, with a device, for ranks in other processes.
    pub(super) fn own(device: u32) -> Outcome<Self> {
        Ok(Self {
            address: link::own_address()?,
            ..Self::alone(device)
        })
    }

    /// This process, with a device, for a communicator that has no ranks elsewhere: it needs no network.
    pub(super) fn alone(device: u32) -> Self {
        let uuid = crate::device::uuid(device);
        Self {
            process: link::identity(),
            process_place: std::ptr::from_ref(link::identity_place()) as u64,
            address: SocketAddr::new(IpAddr::from([0, 0, 0, 0]), 0),
            pid: std::process::id(),
            hostname: network::hostname(),
            host_hash: network::host_hash(),
            device,
            uuid: uuid.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "process": self.process, "place": self.process_place, "address": self.address.to_string(), "pid": self.pid,
            "host": self.hostname, "hash": self.host_hash, "device": self.device, "uuid": self.uuid,
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let number = |name: &str| value[name].as_u64();
        let text = |name: &str| value[name].as_str();
        Some(Self {
            process: number("process")?,
            process_place: number("place")?,
            address: text("address")?.parse().ok()?,
            pid: number("pid")?.try_into().ok()?,
            hostname: text("host")?.to_owned(),
            host_hash: number("hash")?,
            device: number("device")?.try_into().ok()?,
            uuid: text("uuid")?.to_owned(),
        })
    }
}

fn read_line(mut stream: &TcpStream) -> io::Result<Value> {
    let mut line = Vec::new();
    let mut byte = [0u8; 1024];
    loop {
        let got = match stream.read(&mut byte) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        line.extend_from_slice(&byte[..got]);
        // One line each way: what ends in a line's end is all of it.
        if line.ends_with(b"\n") {
            return Ok(serde_json::from_slice(&line)?);
        }
        if line.len() as u64 > MOST_LINE_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}

fn write_line(mut stream: &TcpStream, value: &Value) -> io::Result<()> {
    stream.write_all(format!("{value}\n").as_bytes())
}

/// Numbers with commas, at most a handful.
fn listed(ranks: &[u32]) -> String {
    let mut text: Vec<String> = ranks.iter().take(8).map(u32::to_string).collect();
    if ranks.len() > 8 {
        text.push(format!("and {} more", ranks.len() - 8));
    }
    text.join(", ")
}

struct Guest {
    rank: u32,
    member: Value,
    stream: TcpStream,
}

/// Takes every rank's card, then tells all of them everything.
fn introduce(listener: &TcpListener, key: u64) {
    let mut guests: Vec<Guest> = Vec::new();
    let mut ranks = None;
    let mut deadline: Option<Instant> = None;
    let answer = loop {
        if let Some(ranks) = ranks
            && guests.len() as u64 == ranks
        {
            guests.sort_by_key(|guest| guest.rank);
            let members: Vec<&Value> = guests.iter().map(|guest| &guest.member).collect();
            break json!({ "members": members });
        }
        // Nobody may ever come to a meeting; the first guest starts the clock.
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            let count = u32::try_from(ranks.unwrap_or(0)).unwrap_or(0);
            let missing: Vec<u32> = (0..count)
                .filter(|rank| guests.iter().all(|guest| guest.rank != *rank))
                .collect();
            break json!({ "error": format!(
                "of {count} ranks these did not come within {} s: {}", PATIENCE.as_secs(), listed(&missing)
            )});
        }
        let Some(guest) = accept(listener, left) else {
            continue;
        };
        let Some((hello, stream)) = greet(guest, key) else {
            continue;
        };
        let (rank, count) = (hello["rank"].as_u64(), hello["ranks"].as_u64());
        let (Some(rank), Some(count)) = (rank.and_then(|rank| u32::try_from(rank).ok()), count) else {
            continue;
        };
        deadline.get_or_insert_with(|| Instant::now() + PATIENCE);
        let member = hello["member"].clone();
        let twice = guests.iter().any(|guest| guest.rank == rank);
        guests.push(Guest { rank, member, stream });
        let expected = *ranks.get_or_insert(count);
        if twice {
            break json!({ "error": format!("rank {rank} came twice") });
        }
        if count != expected {
            break json!({ "error": format!("ranks disagree on their number: {expected} and {count}") });
        }
    };
    for guest in &guests {
        // A rank that is gone by now shows up as a broken connection to its peers.
        drop(write_line(&guest.stream, &answer));
    }
}

/// The next guest, or nothing after `left`.
fn accept(listener: &TcpListener, left: Option<Duration>) -> Option<TcpStream> {
    use std::os::fd::AsRawFd;
    let mut poll = libc::pollfd {
        fd: listener.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let milliseconds = left.map_or(-1, |left| i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX));
    // SAFETY: one pollfd.
    if unsafe { libc::poll(&raw mut poll, 1, milliseconds) } <= 0 {
        return None;
    }
    listener.accept().ok().map(|(guest, _)| guest)
}

/// Somebody else's connection, or a rank that died at once, is no guest.
fn greet(stream: TcpStream, key: u64) -> Option<(Value, TcpStream)> {
    stream.set_read_timeout(Some(GREETING)).ok()?;
    stream.set_write_timeout(Some(GREETING)).ok()?;
    let hello = read_line(&stream).ok()?;
    (hello["key"].as_u64() == Some(key)).then_some((hello, stream))
}

/// A rank at the meeting, waiting for the others.
pub(super) struct Attendance {
    stream: TcpStream,
    rank: u32,
    ranks: u32,
}

/// Goes to the meeting as `rank` of `ranks`; does not wait for the others yet.
pub(super) fn attend(meeting: Meeting, rank: u32, ranks: u32, own: &Member) -> Outcome<Attendance> {
    let cannot = |error: io::Error| {
        Failure::system(format!(
            "rank {rank} of {ranks} cannot reach the process that made the unique id on {}: {error}; it must run, and NCCL_SOCKET_IFNAME there must name an interface that other ranks reach",
            meeting.address
        ))
    };
    let stream = TcpStream::connect_timeout(&meeting.address, PATIENCE).map_err(cannot)?;
    stream
        .set_read_timeout(Some(PATIENCE + GREETING))
        .map_err(cannot)?;
    let hello = json!({ "key": meeting.key, "rank": rank, "ranks": ranks, "member": own.to_json() });
    write_line(&stream, &hello).map_err(cannot)?;
    Ok(Attendance { stream, rank, ranks })
}

impl Attendance {
    /// Waits for the others; gives all ranks' cards.
    pub(super) fn members(self) -> Outcome<Vec<Member>> {
        let (rank, ranks) = (self.rank, self.ranks);
        let answer = read_line(&self.stream).map_err(|error| {
            Failure::new(
                result::REMOTE_ERROR,
                format!("rank {rank} of {ranks} lost the process that made the unique id: {error}"),
            )
        })?;
        if let Some(text) = answer["error"].as_str() {
            return Err(Failure::system(format!("rank {rank} of {ranks}: {text}")));
        }
        answer["members"]
            .as_array()
            .and_then(|members| members.iter().map(Member::from_json).collect::<Option<Vec<_>>>())
            .filter(|members| members.len() == ranks as usize)
            .ok_or_else(|| Failure::system(format!("rank {rank} of {ranks}: no list of ranks came")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unique_id_carries_its_address() {
        for address in ["10.1.2.3:4567", "[2001:db8::7]:89"] {
            let meeting = Meeting {
                key: 0x1234_5678_9abc_def0,
                address: address.parse().expect("an address"),
            };
            assert_eq!(Meeting::from_id(&meeting.to_id()), Some(meeting));
        }
        assert_eq!(Meeting::from_id(&[0; 128]), None);
    }
}
