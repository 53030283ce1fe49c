//! A batch of a table as the bytes of an Arrow IPC message: columns packed one by one, straight from their vectors.
//!
//! arrow's own writer packs each column with zstd at one level. Here each gets what suits it ([`Packing`]): that is most of what
//! writing costs inside the training process.

use std::cell::RefCell;
use std::io;

use arrow_ipc::{
    BodyCompressionBuilder, BodyCompressionMethod, Buffer, CompressionType, FieldNode, MessageBuilder,
    MessageHeader, MetadataVersion, RecordBatchBuilder,
};
use arrow_schema::ArrowError;
use flatbuffers::FlatBufferBuilder;
use zstd::bulk::Compressor;

use crate::frame;
use crate::seal::Sealer;

/// zstd's level, for columns whose values come again: what lower levels leave, and higher ones cost, is little of a row
/// (`cargo bench -p gputrace-trace`). The packaged collector has no more of zstd than levels below 0 use (`packaging/release`).
const ZSTD_LEVEL: i32 = -2;
/// Fewer bytes than this are not worth a frame.
const LEAST_PACKED_BYTES: usize = frame::LEAST_CONSTANT_BYTES;
/// Scattered values that take more bytes each than this are tried with zstd too.
const GOOD_BYTES_A_VALUE: usize = 4;
/// Buffers and messages begin at multiples of this.
const ALIGNMENT: usize = 8;

/// How a column's numbers are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Values that differ from row to row in their low bytes: times, durations, addresses, ids that are counted up.
    Scattered,
    /// Values of which few come again and again: names, shapes, streams.
    Repeating,
}

impl Packing {
    /// What suits the column of this name with values of `width` bytes.
    #[must_use]
    pub fn of(column: &str, width: usize) -> Self {
        match column {
            "correlation" => Self::Scattered,
            // A number with a fraction has its noise in its low bytes, and little else that repeats.
            "value" | "payload" => Self::Repeating,
            _ if width == 8 => Self::Scattered,
            _ => Self::Repeating,
        }
    }
}

/// A batch under construction.
pub struct Body {
    bytes: Vec<u8>,
    nodes: Vec<FieldNode>,
    buffers: Vec<Buffer>,
    /// A column's values as words, and as bytes.
    words: Vec<u64>,
    raw: Vec<u8>,
    /// What zstd makes of them.
    packed: Vec<u8>,
    zstd: Compressor<'static>,
}

impl Body {
    /// An empty one.
    ///
    /// # Errors
    /// When zstd gets no memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            bytes: Vec::new(),
            nodes: Vec::new(),
            buffers: Vec::new(),
            words: Vec::new(),
            raw: Vec::new(),
            packed: Vec::new(),
            zstd: Compressor::new(ZSTD_LEVEL)?,
        })
    }

    /// Begins a column of so many rows.
    pub fn column(&mut self, rows: usize, nulls: usize) {
        self.nodes.push(FieldNode::new(rows as i64, nulls as i64));
    }

    /// A buffer of no bytes: the validity of a column without nulls.
    pub fn nothing(&mut self) {
        self.buffers.push(Buffer::new(self.bytes.len() as i64, 0));
    }

    /// One bit a row: which rows are not null.
    pub fn validity(&mut self, rows: impl Iterator<Item = bool>) {
        self.raw.clear();
        let (mut byte, mut bit) = (0u8, 0);
        for is_valid in rows {
            byte |= u8::from(is_valid) << bit;
            bit += 1;
            if bit == 8 {
                self.raw.push(byte);
                (byte, bit) = (0, 0);
            }
        }
        if bit > 0 {
            self.raw.push(byte);
        }
        self.packed();
    }

    /// A buffer of one value, so many times.
    pub fn same(&mut self, value: u64, width: usize, rows: usize) {
        let value = &value.to_le_bytes()[..width];
        let bytes = rows * width;
        if bytes < LEAST_PACKED_BYTES {
            self.raw.clear();
            self.raw.extend(value.iter().copied().cycle().take(bytes));
            self.packed();
            return;
        }
        let start = self.open(bytes as i64);
        frame::constant(value, rows, &mut self.bytes);
        self.close(start);
    }

    /// A buffer of numbers of `WIDTH` bytes each, given as words whose higher bytes are 0.
    #[inline]
    pub fn numbers<const WIDTH: usize>(
        &mut self,
        values: impl ExactSizeIterator<Item = u64> + Clone,
        packing: Packing,
    ) {
        let mut rest = values.clone();
        if let Some(first) = rest.next()
            && rest.all(|value| value == first)
        {
            return self.same(first, WIDTH, values.len());
        }
        if packing == Packing::Scattered && WIDTH >= 4 {
            self.words.clear();
            self.words.extend(values.clone());
            let start = self.open((values.len() * WIDTH) as i64);
            let most = values.len() * GOOD_BYTES_A_VALUE * WIDTH / 8;
            if frame::scattered(&self.words, WIDTH, most, &mut self.bytes) {
                return self.close(start);
            }
            self.bytes.truncate(start);
        }
        self.raw.clear();
        self.raw.reserve(values.len() * WIDTH);
        for value in values {
            let mut bytes = [0; WIDTH];
            bytes.copy_from_slice(&value.to_le_bytes()[..WIDTH]);
            self.raw.extend_from_slice(&bytes);
        }
        self.packed();
    }

    /// Begins a buffer that unpacks to so many bytes; -1 for one that is not packed.
    fn open(&mut self, unpacked: i64) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&unpacked.to_le_bytes());
        start
    }

    fn close(&mut self, start: usize) {
        let length = self.bytes.len() - start;
        self.buffers.push(Buffer::new(start as i64, length as i64));
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }

    /// The bytes in `raw` as a buffer, packed by zstd where that makes them shorter.
    fn packed(&mut self) {
        if self.raw.is_empty() {
            return self.nothing();
        }
        if self.raw.len() >= LEAST_PACKED_BYTES {
            // What does not get shorter is not worth unpacking.
            let most = self.raw.len();
            self.packed.clear();
            self.packed.reserve(zstd::zstd_safe::compress_bound(most));
            let written = self.zstd.compress_to_buffer(&self.raw, &mut self.packed);
            if written.is_ok_and(|length| length < most) {
                let start = self.open(most as i64);
                self.bytes.extend_from_slice(&self.packed);
                return self.close(start);
            }
        }
        let start = self.open(-1);
        self.bytes.extend_from_slice(&self.raw);
        self.close(start);
    }

    /// The whole message of so many rows, sealed: its head and the columns. Empty again after it.
    pub(crate) fn finish(&mut self, rows: usize, sealer: &mut Sealer) -> [Vec<u8>; 2] {
        let mut builder = FlatBufferBuilder::with_capacity(256 + 40 * self.nodes.len());
        let nodes = builder.create_vector(&self.nodes);
        let buffers = builder.create_vector(&self.buffers);
        let compression = {
            let mut compression = BodyCompressionBuilder::new(&mut builder);
            compression.add_method(BodyCompressionMethod::BUFFER);
            compression.add_codec(CompressionType::ZSTD);
            compression.finish()
        };
        let batch = {
            let mut batch = RecordBatchBuilder::new(&mut builder);
            batch.add_length(rows as i64);
            batch.add_nodes(nodes);
            batch.add_buffers(buffers);
            batch.add_compression(compression);
            batch.finish().as_union_value()
        };
        let mut message = MessageBuilder::new(&mut builder);
        message.add_version(MetadataVersion::V5);
        message.add_header_type(MessageHeader::RecordBatch);
        message.add_bodyLength(self.bytes.len() as i64);
        message.add_header(batch);
        let root = message.finish();
        builder.finish(root, None);
        let metadata = builder.finished_data();
        // Marker, length of the metadata with its padding, metadata (Arrow's encapsulated message format).
        let padded = metadata.len().next_multiple_of(ALIGNMENT);
        let mut head = Vec::with_capacity(8 + padded);
        head.extend_from_slice(&[0xff; 4]);
        head.extend_from_slice(&(padded as u32).to_le_bytes());
        head.extend_from_slice(metadata);
        head.resize(8 + padded, 0);
        sealer.seal(&mut head, &self.bytes, MessageHeader::RecordBatch, rows as u64);
        self.nodes.clear();
        self.buffers.clear();
        let capacity = self.bytes.len();
        [
            head,
            std::mem::replace(&mut self.bytes, Vec::with_capacity(capacity)),
        ]
    }
}

/// Lends this thread's body: it is empty, and has to be again.
pub(crate) fn with<T>(work: impl FnOnce(&mut Body) -> Result<T, ArrowError>) -> Result<T, ArrowError> {
    thread_local! {
        static BODY: RefCell<Option<Body>> = const { RefCell::new(None) };
    }
    let out_of_memory = |error: io::Error| ArrowError::IoError(error.to_string(), error);
    // A thread at its end makes one for this once.
    let mut body = BODY
        .try_with(RefCell::take)
        .unwrap_or_default()
        .map_or_else(Body::new, Ok)
        .map_err(out_of_memory)?;
    let done = work(&mut body);
    if done.is_ok() {
        let _ = BODY.try_with(|place| place.replace(Some(body)));
    }
    done
}
