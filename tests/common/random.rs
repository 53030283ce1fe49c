//! Random numbers that are the same for the same seed, kind and try.

#![allow(dead_code)] // Each program uses a part of it.

/// `SplitMix64`.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    /// The numbers of one try.
    pub fn of(seed: u64, kind: &str, number: u64) -> Self {
        let mut random = Self(seed);
        for byte in kind.bytes().map(u64::from).chain([number]) {
            random.0 = random.next() ^ byte;
        }
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, and 0 where that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        match bound {
            0 => 0,
            _ => (self.next() % bound as u64) as usize,
        }
    }

    /// At least 0, and less than 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// The same of what is copied.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A random part of so many bytes, of at most `longest`.
    pub fn part(&mut self, bytes: usize, longest: usize) -> std::ops::Range<usize> {
        let start = self.below(bytes);
        let length = self.below(longest.min(bytes - start) + 1);
        start..start + length
    }
}
