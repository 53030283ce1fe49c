//! zstd frames of columns of numbers, made without searching.
//!
//! Columns of times, sizes and ids are most of a recording, and what zstd finds in them by hashing every place is known
//! beforehand: a value shares its high bytes with the one before it. Here a frame says exactly that, one sequence a value
//! ("so many low bytes anew, the rest as in the value before"), with the codes of all sequences of a block told once
//! (RFC 8878: Symbol_Compression_Modes RLE), so that a sequence takes no bits at all. It costs a few instructions a value
//! where zstd's fastest level costs a hundred and fifty, and every zstd decoder reads it.

/// Frame_Header: magic number, one segment, the content's size in four bytes (RFC 8878, 3.1.1).
const HEADER: [u8; 5] = [0x28, 0xb5, 0x2f, 0xfd, 0xa0];
/// Block types.
const RAW: u32 = 0;
const RLE: u32 = 1;
const COMPRESSED: u32 = 2;
/// A block gives at most 128 KiB; sequences are counted in 15 bits here.
const MOST_BLOCK_BYTES: usize = 128 << 10;
const MOST_SEQUENCES: usize = 8192;
/// All three codes of the sequences are told once for the block.
const CODES_TOLD_ONCE: u8 = 0b01_01_01_00;
/// Shortest match.
const LEAST_MATCH: usize = 3;
/// What a value costs that does not fit: a raw block of its own, and a header for the block that follows.
const ODD_BYTES: usize = 24;
/// So many values have their number of low bytes chosen together.
const STRETCH: usize = 4096;

/// A frame under construction. Whether a block is the last is only known when the next one comes.
struct Frame<'a> {
    out: &'a mut Vec<u8>,
    last_header: usize,
    /// Whether the offset of one value back is known to the decoder yet.
    has_offset: bool,
}

impl<'a> Frame<'a> {
    fn begin(content_bytes: usize, out: &'a mut Vec<u8>) -> Self {
        out.extend_from_slice(&HEADER);
        out.extend_from_slice(&u32::try_from(content_bytes).unwrap_or(u32::MAX).to_le_bytes());
        Self {
            last_header: out.len(),
            out,
            has_offset: false,
        }
    }

    /// Block_Header: last, type, size; the size of a compressed block is filled in later.
    fn block(&mut self, kind: u32, size: usize) {
        self.last_header = self.out.len();
        let header = kind << 1 | (size as u32) << 3;
        self.out.extend_from_slice(&header.to_le_bytes()[..3]);
    }

    fn raw(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(MOST_BLOCK_BYTES) {
            self.block(RAW, part.len());
            self.out.extend_from_slice(part);
        }
    }

    fn compressed(&mut self, body: impl FnOnce(&mut Vec<u8>)) {
        self.block(COMPRESSED, 0);
        let start = self.out.len();
        body(self.out);
        let size = self.out.len() - start;
        let header = COMPRESSED << 1 | (size as u32) << 3;
        self.out[start - 3..start].copy_from_slice(&header.to_le_bytes()[..3]);
    }

    /// A block of sequences that are alike: `low` bytes anew, `width - low` as one value back.
    fn alike(&mut self, values: usize, width: usize, low: usize, literals: impl FnOnce(&mut Vec<u8>)) {
        let (offset_code, bits) = if self.has_offset {
            // The offset used last: no bits.
            (0, 1)
        } else {
            // Offset_Value is the offset and 3 more.
            let value = width as u8 + 3;
            let code = value.ilog2() as u8;
            (code, 1 << code | (value - (1 << code)))
        };
        self.has_offset = true;
        self.compressed(|out| {
            literals_header(values * low, out);
            literals(out);
            sequences_header(values, out);
            out.extend_from_slice(&[low as u8, offset_code, (width - low - LEAST_MATCH) as u8, bits]);
        });
    }

    fn end(self) {
        self.out[self.last_header] |= 1;
    }
}

/// Literals_Section_Header of raw literals, whose size takes 20 bits.
fn literals_header(size: usize, out: &mut Vec<u8>) {
    let header = (size as u32) << 4 | 0b11 << 2;
    out.extend_from_slice(&header.to_le_bytes()[..3]);
}

/// Number_of_Sequences and the modes.
fn sequences_header(sequences: usize, out: &mut Vec<u8>) {
    if sequences < 128 {
        out.push(sequences as u8);
    } else {
        out.extend_from_slice(&[(sequences >> 8) as u8 + 128, sequences as u8]);
    }
    out.push(CODES_TOLD_ONCE);
}

/// From so many bytes on [`constant`] is worth it, and possible.
pub(crate) const LEAST_CONSTANT_BYTES: usize = 64;

/// Match_Length_Code of a length, with how many bits more and what is in them (RFC 8878, 3.1.1.3.2.1.1).
fn match_code(length: usize) -> (u8, u32, u32) {
    const LONGER: [(usize, u32); 21] = [
        (35, 1),
        (37, 1),
        (39, 1),
        (41, 1),
        (43, 2),
        (47, 2),
        (51, 3),
        (59, 3),
        (67, 4),
        (83, 4),
        (99, 5),
        (131, 7),
        (259, 8),
        (515, 9),
        (1027, 10),
        (2051, 11),
        (4099, 12),
        (8195, 13),
        (16387, 14),
        (32771, 15),
        (65539, 16),
    ];
    if length < 35 {
        return ((length - LEAST_MATCH) as u8, 0, 0);
    }
    let place = LONGER.partition_point(|(least, _)| *least <= length) - 1;
    let (least, bits) = LONGER[place];
    (32 + place as u8, bits, (length - least) as u32)
}

/// A frame of one value (of 1, 2, 4 or 8 bytes), so many times: at least [`LEAST_CONSTANT_BYTES`] in all, since no block may be
/// longer than the content.
pub(crate) fn constant(value: &[u8], times: usize, out: &mut Vec<u8>) {
    let bytes = value.len() * times;
    let mut frame = Frame::begin(bytes, out);
    if value.iter().all(|byte| *byte == value[0]) {
        let mut left = bytes;
        while left > 0 {
            let part = left.min(MOST_BLOCK_BYTES);
            frame.block(RLE, part);
            frame.out.push(value[0]);
            left -= part;
        }
    } else {
        frame.raw(value);
        let mut left = bytes - value.len();
        while left > 0 {
            // A match of at least three bytes: what is less goes with the one before.
            let mut part = left.min(MOST_BLOCK_BYTES - 8);
            if left - part < LEAST_MATCH + value.len() && left > part {
                part -= 2 * value.len().max(LEAST_MATCH);
            }
            if part < LEAST_MATCH {
                frame.raw(&value[..part]);
            } else {
                // No literal: then "one value back" is told in full each time.
                let (code, bits, more) = match_code(part);
                let offset = value.len() as u32 + 3;
                let offset_code = offset.ilog2();
                let stream = 1u64 << (offset_code + bits)
                    | u64::from(offset - (1 << offset_code)) << bits
                    | u64::from(more);
                let stream_bytes = (offset_code + bits) as usize / 8 + 1;
                frame.compressed(|out| {
                    literals_header(0, out);
                    sequences_header(1, out);
                    out.extend_from_slice(&[0, offset_code as u8, code]);
                    out.extend_from_slice(&stream.to_le_bytes()[..stream_bytes]);
                });
            }
            left -= part;
        }
    }
    frame.end();
}

/// How many low bytes of a value differ from the one before.
#[inline]
fn low_bytes(a: u64, b: u64) -> usize {
    (8 - (a ^ b).leading_zeros() as usize / 8).max(1)
}

/// A frame of values that share high bytes with their neighbours: times, durations, addresses, ids. `width` is 4 or 8 bytes of
/// each. Gives whether it is shorter than `most_bytes`; else nothing is left in `out`.
pub(crate) fn scattered(values: &[u64], width: usize, most_bytes: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let Some((&first, rest)) = values.split_first() else {
        return false;
    };
    // No block may be longer than the content, which a frame that is longer in all might have.
    let most_bytes = most_bytes.min(values.len() * width);
    let mut frame = Frame::begin(values.len() * width, out);
    frame.raw(&first.to_le_bytes()[..width]);
    let mut before = first;
    for stretch in rest.chunks(STRETCH) {
        // Values by the low bytes that they need; 0 stands in for none.
        let mut needs = [0usize; 9];
        let mut last = before;
        for &value in stretch {
            needs[low_bytes(value, last)] += 1;
            last = value;
        }
        // The choice with the fewest bytes: those that need more are odd ones.
        let (mut least, mut low, mut odd) = (usize::MAX, width, stretch.len());
        for (choice, fitting) in needs.iter().enumerate().take(width - LEAST_MATCH + 1).skip(1) {
            odd -= fitting;
            let bytes = (stretch.len() - odd) * choice + odd * (width + ODD_BYTES);
            if bytes < least {
                (least, low) = (bytes, choice);
            }
        }
        if least >= stretch.len() * width || frame.out.len() - start + least > most_bytes {
            out.truncate(start);
            return false;
        }
        let mut left = stretch;
        while !left.is_empty() {
            let mut last = before;
            let fits = left
                .iter()
                .position(|&value| low_bytes(value, std::mem::replace(&mut last, value)) > low)
                .unwrap_or(left.len());
            let (run, others) = left.split_at(fits);
            for part in run.chunks(MOST_SEQUENCES) {
                // The first sequence tells the offset, which the others use again.
                let (told, part) = part.split_at(usize::from(!frame.has_offset));
                for part in [told, part] {
                    if !part.is_empty() {
                        frame.alike(part.len(), width, low, |out| put_low(part, low, out));
                    }
                }
            }
            if let Some(&value) = run.last() {
                before = value;
            }
            // Odd ones that follow each other share a block.
            let odd = others
                .iter()
                .position(|&value| low_bytes(value, std::mem::replace(&mut before, value)) <= low)
                .unwrap_or(others.len());
            if odd > 0 {
                frame.block(RAW, odd * width);
                for value in &others[..odd] {
                    frame.out.extend_from_slice(&value.to_le_bytes()[..width]);
                }
                before = others[odd - 1];
            }
            left = &others[odd..];
        }
    }
    frame.end();
    let fits = out.len() - start <= most_bytes;
    if !fits {
        out.truncate(start);
    }
    fits
}

/// Appends the low bytes of each value.
fn put_low(values: &[u64], low: usize, out: &mut Vec<u8>) {
    // Eight bytes are written and the next value overwrites those that are too many: no loop over bytes.
    out.reserve(values.len() * low + 8);
    let start = out.len();
    out.resize(start + values.len() * low + 8, 0);
    let mut place = start;
    for value in values {
        out[place..place + 8].copy_from_slice(&value.to_le_bytes());
        place += low;
    }
    out.truncate(place);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes_of(values: &[u64], width: usize) -> Vec<u8> {
        values
            .iter()
            .flat_map(|value| value.to_le_bytes()[..width].to_vec())
            .collect()
    }

    /// What zstd's own decoder makes of a frame.
    fn unpacked(frame: &[u8], bytes: usize) -> Vec<u8> {
        zstd::bulk::decompress(frame, bytes).expect("a frame")
    }

    proptest! {
        #[test]
        fn scattered_values_come_back(
            start: u64,
            steps in proptest::collection::vec((0u64..1 << 22, 0u32..64), 1..3000),
            bits in 0u32..64,
            narrow: bool,
        ) {
            let width = if narrow { 4 } else { 8 };
            let mask = u64::MAX >> (64 - 8 * width);
            let mut at = start;
            let values: Vec<u64> = steps
                .iter()
                .map(|&(step, noise)| {
                    // Mostly small steps up, now and then anything.
                    at = if noise == 0 { step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> bits } else { at.wrapping_add(step >> (bits % 22)) };
                    at & mask
                })
                .collect();
            let mut frame = vec![7, 7];
            let raw = bytes_of(&values, width);
            if scattered(&values, width, usize::MAX, &mut frame) {
                prop_assert!(frame.len() - 2 <= raw.len());
                prop_assert_eq!(unpacked(&frame[2..], raw.len()), raw);
            } else {
                prop_assert_eq!(frame, vec![7, 7]);
            }
        }

        #[test]
        fn one_value_many_times_comes_back(value in proptest::sample::select(vec![
            vec![0u8], vec![9], vec![1, 0], vec![3, 3], vec![1, 2, 3, 4], vec![0; 8], vec![1, 2, 3, 4, 5, 6, 7, 8],
        ]), times in 1usize..70_000) {
            let bytes = value.len() * times;
            prop_assume!(bytes >= LEAST_CONSTANT_BYTES);
            let mut frame = Vec::new();
            constant(&value, times, &mut frame);
            prop_assert!(frame.len() < 64 + bytes / 1000);
            let expected: Vec<u8> = value.iter().copied().cycle().take(bytes).collect();
            prop_assert_eq!(unpacked(&frame, bytes), expected);
        }
    }

    #[test]
    fn every_length_of_a_match_is_told() {
        for times in (8..3000).chain([8191, 16_383, 16_384, 16_385, 32_768, 65_539, 131_072, 400_000]) {
            let mut frame = Vec::new();
            constant(&[1, 2, 3, 4, 5, 6, 7, 8], times, &mut frame);
            let expected: Vec<u8> = [1, 2, 3, 4, 5, 6, 7, 8]
                .into_iter()
                .cycle()
                .take(8 * times)
                .collect();
            assert_eq!(unpacked(&frame, 8 * times), expected, "{times}");
        }
    }

    #[test]
    fn times_take_about_three_bytes() {
        // 20 us from one to the next: a byte more once in 16.8 ms.
        let values: Vec<u64> = (0..16_384u64)
            .map(|row| 1_790_000_000_123_456_789 + row * 20_000 + row * row % 7919)
            .collect();
        let mut frame = Vec::new();
        assert!(scattered(&values, 8, usize::MAX, &mut frame));
        let bytes = frame.len() as f64 / values.len() as f64;
        assert!((3.0..3.1).contains(&bytes), "{bytes} bytes a value");
    }

    #[test]
    fn noise_is_left_alone() {
        let mut state = 1u64;
        let values: Vec<u64> = (0..5000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state
            })
            .collect();
        let mut frame = Vec::new();
        assert!(!scattered(&values, 8, usize::MAX, &mut frame) && frame.is_empty());
        assert!(!scattered(&[5], 8, usize::MAX, &mut frame));
        assert!(!scattered(&[], 8, usize::MAX, &mut frame));
    }
}
