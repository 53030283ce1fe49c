//! Writing Protocol Buffers by field number.
//!
//! What is exported in this format is a handful of messages, millions of times each. Generated code builds a tree of objects
//! for every message and then walks it twice; this appends to one buffer, with the lengths of nested messages filled in
//! afterwards. Field numbers are those of the format's `.proto` files and stand, named, with the exporters.
//!
//! The encoding is described at <https://protobuf.dev/programming-guides/encoding/>.

use std::io::{self, Write};

/// The numbers that say how a field's value is written.
const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const LENGTH: u32 = 2;

/// The longest number of variable length, in bytes.
const VARINT_BYTES: usize = 10;

/// Messages, field after field, in a buffer that is written out and used again.
#[derive(Clone, Debug, Default)]
pub struct ProtoBuffer {
    bytes: Vec<u8>,
}

impl ProtoBuffer {
    /// An empty buffer with room for so many bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
        }
    }

    /// What was written since the buffer was last emptied.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bytes that is.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets what was written; the memory stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Gives everything to `out` and empties the buffer.
    ///
    /// # Errors
    /// When `out` refuses.
    pub fn write_to(&mut self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    /// A field of type `uint32`, `uint64`, `bool` or an enumeration.
    #[inline]
    pub fn uint(&mut self, field: u32, value: u64) {
        let tag = field << 3 | VARINT;
        if tag < 0x80 && value < 0x80 {
            // One look at the room for both.
            self.bytes.extend_from_slice(&[tag as u8, value as u8]);
        } else {
            self.tag(field, VARINT);
            self.varint(value);
        }
    }

    /// A field of type `int32` or `int64`: a negative number takes ten bytes.
    #[inline]
    pub fn int(&mut self, field: u32, value: i64) {
        self.uint(field, value.cast_unsigned());
    }

    /// A field of type `fixed64`.
    #[inline]
    pub fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED_64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// A field of type `double`.
    #[inline]
    pub fn double(&mut self, field: u32, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    /// A field of type `bytes`.
    #[inline]
    pub fn blob(&mut self, field: u32, value: &[u8]) {
        self.length(field, value.len());
        self.bytes.extend_from_slice(value);
    }

    /// A field of type `string`.
    #[inline]
    pub fn text(&mut self, field: u32, value: &str) {
        self.blob(field, value.as_bytes());
    }

    /// A repeated field of a type that [`Self::uint`] writes, packed. Nothing at all where there are no values.
    pub fn packed(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        let begin = self.bytes.len();
        let mut any = false;
        self.message(field, |list| {
            for value in values {
                list.varint(value);
                any = true;
            }
        });
        if !any {
            self.bytes.truncate(begin);
        }
    }

    /// A field that is a message, with the fields that `write` writes. Readers refuse messages of 2 GiB and more.
    #[inline]
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        self.tag(field, LENGTH);
        // Most messages are short enough for a length of one byte.
        self.bytes.push(0);
        let begin = self.bytes.len();
        write(self);
        let length = self.bytes.len() - begin;
        if length < 0x80 {
            self.bytes[begin - 1] = length as u8;
        } else {
            self.make_room_for_length(begin, length);
        }
    }

    /// The begin of a field of type `bytes`, `string` or message whose `length` bytes the caller writes himself.
    #[inline]
    pub fn length(&mut self, field: u32, length: usize) {
        self.tag(field, LENGTH);
        self.varint(length as u64);
    }

    /// Appends fields that were written before, by this or another buffer.
    #[inline]
    pub fn fields(&mut self, written: &[u8]) {
        self.bytes.extend_from_slice(written);
    }

    #[inline]
    fn tag(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    #[inline]
    fn varint(&mut self, value: u64) {
        if value < 0x80 {
            self.bytes.push(value as u8);
        } else {
            let (encoded, length) = encode_varint(value);
            // As many bytes as it can be, which is one store, and then as many as it is.
            let end = self.bytes.len() + length;
            self.bytes.extend_from_slice(&encoded);
            self.bytes.truncate(end);
        }
    }

    /// Moves the message that begins at `begin`, behind one byte for its length, to where its length fits before it.
    #[cold]
    fn make_room_for_length(&mut self, begin: usize, length: usize) {
        let (encoded, size) = encode_varint(length as u64);
        self.bytes.extend_from_slice(&encoded[1..size]);
        self.bytes.copy_within(begin..begin + length, begin + size - 1);
        self.bytes[begin - 1..begin - 1 + size].copy_from_slice(&encoded[..size]);
    }
}

/// Seven bits a byte, the lowest first; the top bit says that more follow.
#[inline]
fn encode_varint(value: u64) -> ([u8; VARINT_BYTES], usize) {
    const MORE: u64 = 0x8080_8080_8080_8080;
    let bits = 64 - (value | 1).leading_zeros();
    let length = (bits as usize).div_ceil(7);
    // Eight groups of seven bits are moved apart at once: by four bits in each half, by two in each quarter, by one in each
    // eighth.
    let low = value & 0x00ff_ffff_ffff_ffff;
    let halves = (low & 0x00ff_ffff_f000_0000) << 4 | low & 0x0fff_ffff;
    let quarters = (halves & 0x0fff_c000_0fff_c000) << 2 | halves & 0x0000_3fff_0000_3fff;
    let eighths = (quarters & 0x3f80_3f80_3f80_3f80) << 1 | quarters & 0x007f_007f_007f_007f;
    let followed = (length - 1).min(8) as u32;
    let more = MORE.checked_shr(64 - 8 * followed).unwrap_or(0);
    let mut encoded = [0; VARINT_BYTES];
    encoded[..8].copy_from_slice(&(eighths | more).to_le_bytes());
    encoded[8] = (value >> 56) as u8 & 0x7f | u8::from(length > 9) << 7;
    encoded[9] = (value >> 63) as u8;
    (encoded, length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    enum Field {
        Uint(u32, u64),
        Int(u32, i64),
        Fixed(u32, u64),
        Blob(u32, Vec<u8>),
        Message(u32, Vec<Field>),
    }

    impl Field {
        fn write(&self, buffer: &mut ProtoBuffer) {
            match self {
                Self::Uint(field, value) => buffer.uint(*field, *value),
                Self::Int(field, value) => buffer.int(*field, *value),
                Self::Fixed(field, value) => buffer.fixed64(*field, *value),
                Self::Blob(field, value) => buffer.blob(*field, value),
                Self::Message(field, fields) => buffer.message(*field, |inner| {
                    for field in fields {
                        field.write(inner);
                    }
                }),
            }
        }

        /// Reads back what `self` describes, by the encoding's rules alone, and tells what was found.
        fn read(&self, bytes: &mut &[u8]) -> Self {
            let tag = read_varint(bytes);
            let (field, kind) = ((tag >> 3) as u32, tag & 7);
            let mut take = |length: usize| {
                let (taken, rest) = bytes.split_at(length);
                *bytes = rest;
                taken
            };
            match (self, kind) {
                (Self::Fixed(..), 1) => Self::Fixed(field, u64::from_le_bytes(take(8).try_into().unwrap())),
                (Self::Uint(..), 0) => Self::Uint(field, read_varint(bytes)),
                (Self::Int(..), 0) => Self::Int(field, read_varint(bytes) as i64),
                (Self::Blob(..), 2) => {
                    let length = read_varint(bytes) as usize;
                    let (taken, rest) = bytes.split_at(length);
                    *bytes = rest;
                    Self::Blob(field, taken.to_vec())
                }
                (Self::Message(_, fields), 2) => {
                    let length = read_varint(bytes) as usize;
                    let (mut inside, rest) = bytes.split_at(length);
                    *bytes = rest;
                    let found = fields.iter().map(|field| field.read(&mut inside)).collect();
                    assert!(inside.is_empty());
                    Self::Message(field, found)
                }
                (wanted, kind) => panic!("{wanted:?} was written as kind {kind}"),
            }
        }
    }

    fn read_varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
        }
        unreachable!()
    }

    fn written(write: impl FnOnce(&mut ProtoBuffer)) -> Vec<u8> {
        let mut buffer = ProtoBuffer::default();
        write(&mut buffer);
        buffer.bytes().to_vec()
    }

    #[test]
    fn the_documentations_own_examples() {
        // Of protobuf.dev's page on the encoding.
        assert_eq!(written(|b| b.uint(1, 150)), [0x08, 0x96, 0x01]);
        assert_eq!(written(|b| b.text(2, "testing")), b"\x12\x07testing");
        assert_eq!(
            written(|b| b.message(3, |inner| inner.uint(1, 150))),
            [0x1a, 0x03, 0x08, 0x96, 0x01]
        );
        assert_eq!(
            written(|b| b.packed(6, [3, 270, 86942])),
            [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]
        );
        assert_eq!(
            written(|b| b.int(1, -2)),
            [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]
        );
        assert_eq!(
            written(|b| b.double(1, 25.4)),
            [0x09, 0x66, 0x66, 0x66, 0x66, 0x66, 0x66, 0x39, 0x40]
        );
    }

    #[test]
    fn an_empty_list_is_nothing_and_an_empty_message_is_one() {
        assert_eq!(written(|b| b.packed(1, [])), [0u8; 0]);
        assert_eq!(written(|b| b.packed(1, [0])), [0x0a, 1, 0]);
        assert_eq!(written(|b| b.message(1, |_| {})), [0x0a, 0]);
    }

    #[test]
    fn lengths_of_every_size_fit() {
        for length in [0, 1, 127, 128, 16383, 16384, 2_097_151, 2_097_152] {
            let body = vec![7; length];
            let bytes = written(|b| b.message(1, |inner| inner.fields(&body)));
            let expected = written(|b| b.blob(1, &body));
            assert_eq!(bytes, expected, "{length}");
        }
    }

    #[test]
    fn numbers_of_every_length_are_read_back() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let (encoded, length) = encode_varint(value);
                let mut rest = &encoded[..length];
                assert_eq!(read_varint(&mut rest), value);
                assert!(rest.is_empty());
                assert_eq!(length, (64 - (value | 1).leading_zeros() as usize).div_ceil(7));
            }
        }
    }

    #[test]
    fn a_buffer_is_used_again() {
        let mut buffer = ProtoBuffer::with_capacity(16);
        let mut out = Vec::new();
        for value in 0..3 {
            buffer.uint(1, value);
            assert_eq!((buffer.len(), buffer.is_empty()), (2, false));
            buffer.write_to(&mut out).unwrap();
            assert!(buffer.is_empty());
        }
        assert_eq!(out, [8, 0, 8, 1, 8, 2]);
        buffer.uint(1, 1);
        buffer.clear();
        assert!(buffer.bytes().is_empty());
    }

    fn fields() -> impl Strategy<Value = Vec<Field>> {
        let number = 1u32..(1 << 29);
        let leaf = prop_oneof![
            (number.clone(), any::<u64>()).prop_map(|(f, v)| Field::Uint(f, v)),
            (number.clone(), any::<i64>()).prop_map(|(f, v)| Field::Int(f, v)),
            (number.clone(), any::<u64>()).prop_map(|(f, v)| Field::Fixed(f, v)),
            (number.clone(), prop::collection::vec(any::<u8>(), 0..300)).prop_map(|(f, v)| Field::Blob(f, v)),
        ];
        let tree = leaf.prop_recursive(5, 64, 8, move |inner| {
            (number.clone(), prop::collection::vec(inner, 0..8)).prop_map(|(f, v)| Field::Message(f, v))
        });
        prop::collection::vec(tree, 0..8)
    }

    proptest! {
        #[test]
        fn whatever_is_written_is_read(fields in fields()) {
            let bytes = written(|buffer| fields.iter().for_each(|field| field.write(buffer)));
            let mut rest = bytes.as_slice();
            for field in &fields {
                prop_assert_eq!(field, &field.read(&mut rest));
            }
            prop_assert!(rest.is_empty());
        }
    }
}
