//! What is in the file.

use serde::{Deserialize, Serialize};

use super::State;

/// What the header's first member says.
pub(super) const FORMAT: &str = "workload checkpoint";
/// The version that is written and read.
pub(super) const VERSION: u32 = 1;
/// How every checkpoint begins, whole or cut.
pub(super) const BEGINNING: &[u8] = br#"{"format":"workload checkpoint","#;
/// Headers are never longer: a shape is a line.
pub(super) const MOST_HEADER_BYTES: usize = 64 * 1024;
/// Elements that are converted and passed on at a time: 4 MiB.
pub(super) const CHUNK: usize = 1 << 20;

/// The file's first line, but for its end: the checksum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) format: String,
    pub(super) version: u32,
    pub(super) step: u64,
    pub(super) taken: u64,
    pub(super) seed: u64,
    pub(super) shape: String,
    pub(super) scale: f32,
    pub(super) good_steps: u64,
    /// Elements of each vector.
    pub(super) parameters: u64,
    /// Vectors behind the parameters.
    pub(super) moments: u32,
}

impl Header {
    /// The header for a state.
    pub(super) fn of(state: &State) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            step: state.step,
            taken: state.taken,
            seed: state.seed,
            shape: state.shape.clone(),
            scale: state.scale,
            good_steps: state.good_steps,
            parameters: state.parameters.len() as u64,
            moments: state.moments.len() as u32,
        }
    }

    /// Bytes of the vectors; `None` where no file has so many.
    pub(super) fn data_bytes(&self) -> Option<u64> {
        (u64::from(self.moments) + 1)
            .checked_mul(self.parameters)?
            .checked_mul(size_of::<f32>() as u64)
    }

    /// The state, with vectors that are yet to be filled.
    pub(super) fn empty_state(&self) -> State {
        State {
            step: self.step,
            taken: self.taken,
            shape: self.shape.clone(),
            seed: self.seed,
            scale: self.scale,
            good_steps: self.good_steps,
            parameters: Vec::new(),
            moments: vec![Vec::new(); self.moments as usize],
        }
    }
}

/// A checksum over words of 32 bits.
///
/// Each word changes the state by a bijection (xor, multiplication by an odd number, xor with its own upper bits): a
/// change within one word always changes the sum, more of them all but once in 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checksum(u64);

impl Checksum {
    /// Of nothing.
    pub(super) fn new() -> Self {
        Self(0x243f_6a88_85a3_08d3)
    }

    fn word(&mut self, word: u32) {
        let mixed = (self.0 ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    /// Goes on with a text, a word for each byte.
    pub(super) fn text(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.word(u32::from(byte)));
    }

    /// Goes on with values, a word each.
    pub(super) fn values(&mut self, values: &[f32]) {
        values.iter().for_each(|value| self.word(value.to_bits()));
    }

    /// In 16 hexadecimal digits.
    pub(super) fn digits(self) -> String {
        format!("{:016x}", self.0)
    }
}

/// The line that a header and its checksum make, in two parts: what the checksum is over, and the rest.
pub(super) fn split_line(line: &[u8]) -> Option<(&[u8], &str)> {
    let (covered, digits) = line.strip_suffix(b"\"}")?.split_last_chunk::<16>()?;
    let digits = std::str::from_utf8(digits).ok()?;
    covered.ends_with(CHECKSUM_MEMBER).then_some((covered, digits))
}

/// How the checksum's member begins, at the end of the line.
pub(super) const CHECKSUM_MEMBER: &[u8] = br#","checksum":""#;

/// Values as bytes in the file's order.
pub(super) fn to_bytes(values: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(values));
    for value in values {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// Values from bytes in the file's order; a rest that is no value is left out.
pub(super) fn from_bytes(bytes: &[u8]) -> impl ExactSizeIterator<Item = f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|value| f32::from_le_bytes(*value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_begin_as_cut_ones_are_known_by() {
        let header = Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            step: 1,
            taken: 1,
            seed: u64::MAX,
            shape: "layers [2, 3]".to_owned(),
            scale: 65536.0,
            good_steps: 0,
            parameters: 9,
            moments: 2,
        };
        let text = serde_json::to_vec(&header).expect("writes");
        assert!(text.starts_with(BEGINNING));
        assert_eq!(serde_json::from_slice::<Header>(&text).expect("reads"), header);
        assert_eq!(header.data_bytes(), Some(3 * 9 * 4));
        let huge = Header {
            parameters: u64::MAX / 4,
            ..header
        };
        assert_eq!(huge.data_bytes(), None);
    }

    #[test]
    fn a_change_of_one_bit_changes_the_checksum() {
        let values: Vec<f32> = (0..100u8).map(f32::from).collect();
        let sum = |values: &[f32]| {
            let mut sum = Checksum::new();
            sum.text(b"header");
            sum.values(values);
            sum
        };
        for (index, bit) in [(0, 0), (0, 31), (57, 13), (99, 31)] {
            let mut changed = values.clone();
            changed[index] = f32::from_bits(values[index].to_bits() ^ (1 << bit));
            assert_ne!(sum(&changed), sum(&values), "bit {bit} of {index}");
        }
        let mut swapped = values.clone();
        swapped.swap(3, 4);
        assert_ne!(sum(&swapped), sum(&values));
        assert_ne!(sum(&values[..99]), sum(&values));
    }

    #[test]
    fn values_come_back_bit_for_bit() {
        let values = [0.0, -0.0, 1.5, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE / 3.0];
        let back: Vec<f32> = from_bytes(&to_bytes(&values)).collect();
        assert_eq!(
            values.map(f32::to_bits).as_slice(),
            back.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        );
    }
}
