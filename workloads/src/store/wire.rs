//! What ranks say to each other over TCP: frames, and the fields inside them.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// A connection whose other side has not been heard of for so long is lost: its host is down or cannot be reached.
const SILENCE: Duration = Duration::from_secs(15);
/// Payloads up to this size are written together with their header, as one packet.
const TOGETHER_BYTES: usize = 4096;
const HEADER_BYTES: usize = 16;

/// What a frame is. Numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A rank that comes: its [`super::members::Hello`].
    Hello = 1,
    /// To all ranks, when all have come: who they are.
    Welcome = 2,
    /// To a rank that cannot join, or when the meeting failed: why.
    Refused = 3,
    /// Bytes of an operation.
    Data = 4,
    /// Many bytes wait to be sent: the payload's length.
    Offer = 5,
    /// What was offered may be sent.
    Go = 6,
    /// The rank ends, and all is well.
    Goodbye = 7,
    /// The rank ends with an error: its text.
    Failed = 8,
    /// From rank 0: all end, because of this.
    Verdict = 9,
}

impl Kind {
    fn from_number(number: u8) -> Option<Self> {
        [
            Self::Hello,
            Self::Welcome,
            Self::Refused,
            Self::Data,
            Self::Offer,
            Self::Go,
            Self::Goodbye,
            Self::Failed,
            Self::Verdict,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == number)
    }
}

/// One message. The header is 16 bytes, little-endian: kind u8, operation u8, 0 u16, sequence u32, length u64.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    /// Which operation of the store it belongs to; 0 for none.
    pub(super) operation: u8,
    /// Which operation in order, counted by each rank.
    pub(super) sequence: u32,
    pub(super) payload: Vec<u8>,
}

/// Writes a frame around `payload`, which is not copied where it is large.
pub(super) fn write_frame(
    mut stream: impl Write,
    kind: Kind,
    (operation, sequence): (u8, u32),
    payload: &[u8],
) -> io::Result<()> {
    let mut header = Vec::with_capacity(HEADER_BYTES + payload.len().min(TOGETHER_BYTES));
    header.extend_from_slice(&[kind as u8, operation, 0, 0]);
    header.extend_from_slice(&sequence.to_le_bytes());
    header.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    if payload.len() <= TOGETHER_BYTES {
        header.extend_from_slice(payload);
        return stream.write_all(&header);
    }
    stream.write_all(&header)?;
    stream.write_all(payload)
}

/// Reads a frame. Longer ones than `most_bytes`, and what is no frame at all, are errors of kind `InvalidData`.
pub(super) fn read_frame(mut stream: impl Read, most_bytes: u64) -> io::Result<Frame> {
    let mut header = [0u8; HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let [number, operation, _, _, s0, s1, s2, s3, length @ ..] = header;
    let kind = Kind::from_number(number).ok_or(io::ErrorKind::InvalidData)?;
    let length = u64::from_le_bytes(length);
    if length > most_bytes {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let room = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidData)?;
    let mut payload = Vec::new();
    payload
        .try_reserve_exact(room)
        .map_err(|_| io::ErrorKind::OutOfMemory)?;
    if stream.take(length).read_to_end(&mut payload)? < room {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Frame {
        kind,
        operation,
        sequence: u32::from_le_bytes([s0, s1, s2, s3]),
        payload,
    })
}

/// Small packets go at once, and a host that falls silent is noticed.
pub(super) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let set = |level: libc::c_int, name: libc::c_int, value: libc::c_int| {
        // SAFETY: an option of plain integer type, on a socket that is open.
        let code = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if code == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 5)?;
    set(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 2)?;
    set(libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 5)?;
    // Counts for the keep-alive probes too, in place of their number.
    set(
        libc::IPPROTO_TCP,
        libc::TCP_USER_TIMEOUT,
        SILENCE.as_millis() as libc::c_int,
    )
}

/// Fields of a payload, written one after the other: numbers as 4 bytes, texts with their length before them.
#[derive(Default)]
pub(super) struct Fields(Vec<u8>);

impl Fields {
    pub(super) fn number(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    pub(super) fn text(mut self, text: &str) -> Self {
        // No text of ours comes near 4 GB.
        self = self.number(text.len() as u32);
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Reads what [`Fields`] wrote.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    pub(super) fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    pub(super) fn text(&mut self) -> Option<String> {
        let length = self.number()? as usize;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_were() {
        for length in [0, 1, TOGETHER_BYTES, TOGETHER_BYTES + 1, 1_000_000] {
            let payload: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let mut wire = Vec::new();
            write_frame(&mut wire, Kind::Data, (3, 77), &payload).expect("writes");
            let frame = read_frame(wire.as_slice(), u64::MAX).expect("reads");
            assert_eq!((frame.kind, frame.operation, frame.sequence), (Kind::Data, 3, 77));
            assert_eq!(frame.payload, payload);
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let http = b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n";
        let error = read_frame(http.as_slice(), 1000).expect_err("no frame");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let mut wire = Vec::new();
        write_frame(&mut wire, Kind::Hello, (0, 0), &[0; 2000]).expect("writes");
        assert!(read_frame(wire.as_slice(), 1999).is_err(), "too long");
        assert!(read_frame(&wire[..1500], 2000).is_err(), "cut");
    }

    #[test]
    fn fields_come_back_and_cut_ones_do_not() {
        let bytes = Fields::default().number(7).text("host b").into_bytes();
        let mut reader = Reader(&bytes);
        assert_eq!(
            (reader.number(), reader.text()),
            (Some(7), Some("host b".to_owned()))
        );
        let mut reader = Reader(&bytes[..bytes.len() - 1]);
        assert_eq!((reader.number(), reader.text()), (Some(7), None));
    }
}
