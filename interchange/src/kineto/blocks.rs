//! A trace file as a window of bytes that moves on: memory is bounded by the longest event, not by the file.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use gputrace_trace::beneath;

use crate::limits::check_unpacked;

/// How much is read at once: it stays in the processor's cache until it is parsed.
const BLOCK_BYTES: usize = 256 * 1024;

/// A file that counts what is read of it.
struct Counted<'p> {
    file: File,
    done_bytes: &'p AtomicU64,
    /// The same of this file alone.
    own_bytes: Rc<Cell<u64>>,
}

impl Read for Counted<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(into)?;
        self.done_bytes.fetch_add(count as u64, Ordering::Relaxed);
        self.own_bytes.set(self.own_bytes.get() + count as u64);
        Ok(count)
    }
}

/// The bytes of a file, unpacked where it is packed.
pub(crate) struct Blocks<'p> {
    source: Box<dyn Read + 'p>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Place of `start` in the unpacked file.
    offset: u64,
    ended: bool,
    /// What was read of the file itself, and what there is.
    packed_bytes: Rc<Cell<u64>>,
    file_bytes: u64,
    /// How packed bytes ended early, where they did.
    pub(crate) damage: Option<String>,
}

impl<'p> Blocks<'p> {
    /// Opens a file, which may be packed by gzip or zstd (told by its first bytes, not by its name).
    pub(crate) fn open(path: &Path, done_bytes: &'p AtomicU64) -> io::Result<Self> {
        let mut file = beneath::open(path)?;
        let file_bytes = file.metadata().map_or(0, |file| file.len());
        let mut magic = [0; 4];
        let mut known = 0;
        while known < magic.len() {
            match file.read(&mut magic[known..])? {
                0 => break,
                count => known += count,
            }
        }
        done_bytes.fetch_add(known as u64, Ordering::Relaxed);
        let packed_bytes = Rc::new(Cell::new(known as u64));
        let head = io::Cursor::new(magic[..known].to_vec());
        let own_bytes = packed_bytes.clone();
        let file = head.chain(Counted {
            file,
            done_bytes,
            own_bytes,
        });
        let source: Box<dyn Read + 'p> = match magic {
            [0x1f, 0x8b, ..] => {
                let packed = BufReader::with_capacity(BLOCK_BYTES, file);
                Box::new(flate2::bufread::MultiGzDecoder::new(packed))
            }
            [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::stream::read::Decoder::new(file)?),
            _ => Box::new(file),
        };
        Ok(Self {
            source,
            buffer: vec![0; 2 * BLOCK_BYTES],
            start: 0,
            end: 0,
            offset: 0,
            ended: false,
            damage: None,
            packed_bytes,
            file_bytes,
        })
    }

    /// What was read and not consumed yet.
    pub(crate) fn data(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The place of the first byte of [`Self::data`] in the unpacked file.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// How much of the file is still to be read, as a multiple of what was read; 0 where its length is not known.
    pub(crate) fn to_come(&self) -> f64 {
        let read = self.packed_bytes.get();
        self.file_bytes.saturating_sub(read) as f64 / read.max(1) as f64
    }

    /// Leaves the first `count` bytes behind.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        self.offset += count as u64;
    }

    /// Reads until there is twice as much as there was, so that what is tried again whenever there is more is tried a few times,
    /// however long it is. `false` at the end of the file.
    pub(crate) fn grow_much(&mut self) -> io::Result<bool> {
        let wanted = 2 * self.data().len();
        let any = self.grow()?;
        while self.data().len() < wanted && self.grow()? {}
        Ok(any)
    }

    /// Reads more behind what is there; `false` at the end of the file. Packed bytes that can't be unpacked are an end
    /// too, with their [`Self::damage`].
    pub(crate) fn grow(&mut self) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        if self.buffer.len() - self.end < BLOCK_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.buffer.len() - self.end < BLOCK_BYTES {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        let limit = self.end + BLOCK_BYTES;
        loop {
            match self.source.read(&mut self.buffer[self.end..limit]) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(false);
                }
                Ok(count) => {
                    self.end += count;
                    let unpacked = self.offset + (self.end - self.start) as u64;
                    check_unpacked(self.packed_bytes.get(), unpacked)?;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The decoders' own complaints have these kinds; an error of the disk is another.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::UnexpectedEof
                            | io::ErrorKind::InvalidInput
                            | io::ErrorKind::InvalidData
                            | io::ErrorKind::Other
                    ) =>
                {
                    self.ended = true;
                    self.damage = Some(error.to_string());
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
