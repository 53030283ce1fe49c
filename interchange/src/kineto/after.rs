//! What mostly comes next, where the same things come again and again.

/// What is remembered has so many places.
const PLACES_BITS: u32 = 16;

/// What came after the last time that `N` events were like those before the next.
#[derive(Debug)]
pub(super) struct After<const N: usize> {
    /// By the upper bits of a hash of `N` outlines.
    outlines: Vec<u16>,
    last: [u16; N],
    /// Of `last`, the one that came first.
    oldest: usize,
    hash: u64,
}

impl<const N: usize> After<N> {
    /// Odd, and half of its bits are set: the multiplier of FxHash.
    const SPREAD: u64 = 0xf135_7aea_2e62_a9c5;
    /// It to the power of `N`.
    const OLDEST: u64 = {
        let (mut power, mut times) = (1u64, 0);
        while times < N {
            power = power.wrapping_mul(Self::SPREAD);
            times += 1;
        }
        power
    };

    pub(super) fn new() -> Self {
        Self {
            outlines: vec![0; 1 << PLACES_BITS],
            last: [0; N],
            oldest: 0,
            hash: 0,
        }
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.outlines.capacity() * size_of::<u16>()
    }

    #[inline]
    fn place(&self) -> usize {
        (self.hash.wrapping_mul(Self::SPREAD) >> (u64::BITS - PLACES_BITS)) as usize
    }

    /// The outline of the next event, if all comes as it did.
    #[inline]
    pub(super) fn next(&self) -> u16 {
        self.outlines[self.place()]
    }

    #[inline]
    pub(super) fn came(&mut self, number: u16) {
        let place = self.place();
        self.outlines[place] = number;
        // A polynomial: each number counts one power more with each that follows.
        let over = u64::from(std::mem::replace(&mut self.last[self.oldest], number));
        self.oldest = if self.oldest + 1 < N { self.oldest + 1 } else { 0 };
        self.hash = self
            .hash
            .wrapping_mul(Self::SPREAD)
            .wrapping_add(u64::from(number))
            .wrapping_sub(over.wrapping_mul(Self::OLDEST));
    }
}
