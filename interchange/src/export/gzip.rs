//! Gzip on all cores: one stream that every reader knows, its blocks packed side by side.
//!
//! Each block is packed by itself and ends at a byte (a flush as in RFC 1951, 3.2.4), so blocks can stand one behind the
//! other in one gzip member (RFC 1952). The bytes depend on the contents alone, not on how many cores there are.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use flate2::{Compress, Compression, Crc, FlushCompress};

/// Bytes packed at a time: what a reference back can't reach over costs about a thousandth of the size.
const BLOCK: usize = 1 << 20;
/// Fast: what is exported is read once or twice.
const LEVEL: u32 = 4;
/// The header: deflate, no name, no time, no system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// A block, packed or to be packed.
struct Job {
    bytes: Vec<u8>,
    last: bool,
    done: SyncSender<io::Result<Vec<u8>>>,
}

/// Packs what is written to it.
pub struct ParallelGzip<'w> {
    out: &'w mut dyn Write,
    block: Vec<u8>,
    crc: Crc,
    /// Blocks that are being packed, in their order.
    waiting: VecDeque<Receiver<io::Result<Vec<u8>>>>,
    jobs: Option<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
    header_written: bool,
}

fn pack(block: &[u8], last: bool) -> io::Result<Vec<u8>> {
    let mut compress = Compress::new(Compression::new(LEVEL), false);
    let mut out = Vec::with_capacity(block.len() / 4 + 1024);
    let flush = if last {
        FlushCompress::Finish
    } else {
        FlushCompress::Sync
    };
    loop {
        let taken = usize::try_from(compress.total_in())
            .unwrap_or(usize::MAX)
            .min(block.len());
        let status = compress.compress_vec(&block[taken..], &mut out, flush)?;
        let all_in = compress.total_in() == block.len() as u64;
        // A flush is complete when it leaves room.
        if all_in && (status == flate2::Status::StreamEnd || !last && out.len() < out.capacity()) {
            return Ok(out);
        }
        out.reserve(block.len() / 4 + 1024);
    }
}

impl<'w> ParallelGzip<'w> {
    /// Packs into `out`, on as many threads as there are cores (8 at most).
    pub fn new(out: &'w mut dyn Write) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from).min(8);
        let (jobs, taken) = sync_channel::<Job>(cores);
        let taken = Arc::new(Mutex::new(taken));
        let threads = (0..cores)
            .map_while(|_| {
                let taken = Arc::clone(&taken);
                let work = move || {
                    loop {
                        let job = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
                        let Ok(job) = job else { return };
                        // Nobody waits any longer where the output failed.
                        drop(job.done.send(pack(&job.bytes, job.last)));
                    }
                };
                std::thread::Builder::new()
                    .name("gzip".to_owned())
                    .spawn(work)
                    .ok()
            })
            .collect::<Vec<_>>();
        Self {
            out,
            block: Vec::with_capacity(BLOCK),
            crc: Crc::new(),
            waiting: VecDeque::new(),
            jobs: (!threads.is_empty()).then_some(jobs),
            threads,
            header_written: false,
        }
    }

    fn write_packed(&mut self, packed: &[u8]) -> io::Result<()> {
        if !self.header_written {
            self.out.write_all(&HEADER)?;
            self.header_written = true;
        }
        self.out.write_all(packed)
    }

    /// Waits for the blocks that are being packed until no more than `most` are left.
    fn settle(&mut self, most: usize) -> io::Result<()> {
        while self.waiting.len() > most {
            let Some(packed) = self.waiting.pop_front() else {
                break;
            };
            let packed = packed.recv().map_err(io::Error::other)??;
            self.write_packed(&packed)?;
        }
        Ok(())
    }

    fn hand_on(&mut self, last: bool) -> io::Result<()> {
        let bytes = std::mem::replace(&mut self.block, Vec::with_capacity(BLOCK));
        self.crc.update(&bytes);
        let Some(jobs) = &self.jobs else {
            let packed = pack(&bytes, last)?;
            return self.write_packed(&packed);
        };
        let (done, packed) = sync_channel(1);
        jobs.send(Job { bytes, last, done }).map_err(io::Error::other)?;
        self.waiting.push_back(packed);
        self.settle(self.threads.len() * 2)
    }

    /// Packs what is left, and ends the stream.
    ///
    /// # Errors
    /// When the output refuses.
    pub fn finish(mut self) -> io::Result<()> {
        self.hand_on(true)?;
        self.settle(0)?;
        // The length stands there modulo 2^32.
        let trailer = [self.crc.sum().to_le_bytes(), self.crc.amount().to_le_bytes()].concat();
        self.write_packed(&trailer)?;
        self.out.flush()
    }
}

impl Drop for ParallelGzip<'_> {
    fn drop(&mut self) {
        self.jobs = None;
        self.waiting.clear();
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

impl Write for ParallelGzip<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(BLOCK - self.block.len());
        self.block.extend_from_slice(&bytes[..taken]);
        if self.block.len() == BLOCK {
            self.hand_on(false)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        // Blocks end where they are full, so that the bytes are the same however often this is called.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn packed(bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let mut gzip = ParallelGzip::new(&mut out);
        for piece in bytes.chunks(piece) {
            gzip.write_all(piece).unwrap();
        }
        gzip.finish().unwrap();
        out
    }

    #[test]
    fn one_member_with_all_bytes_whatever_the_pieces() {
        let mut state = 1u32;
        let mixed: Vec<u8> = (0..3 * BLOCK + 17)
            .map(|place| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if place % (2 * BLOCK) < BLOCK {
                    b'a'
                } else {
                    (state >> 24) as u8
                }
            })
            .collect();
        for length in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, mixed.len()] {
            let bytes = &mixed[..length];
            let out = packed(bytes, 100_003);
            let mut read = Vec::new();
            let mut decoder = flate2::bufread::GzDecoder::new(&out[..]);
            decoder.read_to_end(&mut read).unwrap();
            assert!(read == bytes, "{length} bytes");
            assert!(
                decoder.into_inner().is_empty(),
                "one member, and nothing behind it"
            );
            assert!(out == packed(bytes, 777_777), "the same bytes");
        }
    }

    #[test]
    fn a_full_disk_is_an_error_and_no_thread_is_left_waiting() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut full = Full;
        let mut gzip = ParallelGzip::new(&mut full);
        let written = (0..64).try_for_each(|_| gzip.write_all(&vec![7; BLOCK]));
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::StorageFull);
        drop(gzip);
    }
}
