//! The way of one thread's events to the writer: a queue of words with one producer and one consumer, without locks.
//!
//! Words lie in a chain of segments. The producer appends whole records to the last one and publishes each with one
//! store; a full segment is followed by a new one as long as the budget that all rings share allows it, else the record
//! is refused. The consumer follows, and gives a segment that it has read back for the producer's next.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::cost;

/// Words of a segment: 16 KiB, some 400 ranges. What an idle thread keeps.
const SEGMENT_WORDS: usize = 2048;
/// The most fields of a record.
pub(crate) const MOST_FIELDS: usize = 24;
/// What a segment weighs beside its words.
const SEGMENT_EXTRA_BYTES: usize = size_of::<Segment>();

/// Memory that many rings share.
pub(crate) struct Budget {
    used: AtomicUsize,
    most: AtomicUsize,
}

impl Budget {
    /// A budget of so many bytes.
    pub(crate) const fn new(most_bytes: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            most: AtomicUsize::new(most_bytes),
        }
    }

    /// From now on it is so many bytes; what is used beyond them is not taken away.
    pub(crate) fn set(&self, most_bytes: usize) {
        self.most.store(most_bytes, Ordering::Relaxed);
    }

    /// Bytes in use.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes` out of it, if they are there.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = used.saturating_add(bytes) <= self.most.load(Ordering::Relaxed);
        if fits {
            cost::memory_taken(bytes);
        } else {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Counts `bytes` that are used in any case.
    pub(crate) fn force(&self, bytes: usize) {
        cost::memory_taken(bytes);
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Puts `bytes` back.
    pub(crate) fn give(&self, bytes: usize) {
        cost::memory_given_back(bytes);
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

struct Segment {
    words: Box<[AtomicU64]>,
    /// Words that the consumer may read.
    written: AtomicUsize,
    next: AtomicPtr<Segment>,
}

impl Segment {
    fn new(words: usize, budget: &Budget) -> Option<NonNull<Self>> {
        if !budget.take(8 * words + SEGMENT_EXTRA_BYTES) {
            return None;
        }
        let segment = Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            written: AtomicUsize::new(0),
            next: AtomicPtr::new(null_mut()),
        };
        NonNull::new(Box::into_raw(Box::new(segment)))
    }

    /// # Safety
    /// `segment` is one of [`Self::new`] with this budget, and nobody uses it any more.
    unsafe fn free(segment: *mut Self, budget: &Budget) {
        // SAFETY: by the caller's promise it is a box of ours.
        let segment = unsafe { Box::from_raw(segment) };
        budget.give(8 * segment.words.len() + SEGMENT_EXTRA_BYTES);
    }
}

/// What both ends see.
pub(crate) struct Shared {
    budget: &'static Budget,
    /// A segment for the producer's next, already read by the consumer.
    spare: AtomicPtr<Segment>,
    closed: AtomicBool,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let spare = *self.spare.get_mut();
        if !spare.is_null() {
            // SAFETY: the last owner is gone, and a spare segment is in no chain.
            unsafe { Segment::free(spare, self.budget) };
        }
    }
}

/// The end that a thread writes to.
pub(crate) struct Producer {
    shared: Arc<Shared>,
    segment: NonNull<Segment>,
    /// The next free word of `segment`.
    at: usize,
}

/// The end that the writer reads.
pub(crate) struct Consumer {
    shared: Arc<Shared>,
    segment: NonNull<Segment>,
    /// The next unread word of `segment`.
    at: usize,
}

// SAFETY: the ends own their places in the chain; what both touch is atomic or handed over with release and acquire.
unsafe impl Send for Producer {}
// SAFETY: as above.
unsafe impl Send for Consumer {}

/// A record as it was pushed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: u8,
    pub(crate) fields: [u64; MOST_FIELDS],
    pub(crate) bytes: Vec<u8>,
}

/// A ring, if the budget has room for one.
pub(crate) fn ring(budget: &'static Budget) -> Option<(Producer, Consumer)> {
    let segment = Segment::new(SEGMENT_WORDS, budget)?;
    let shared = Arc::new(Shared {
        budget,
        spare: AtomicPtr::new(null_mut()),
        closed: AtomicBool::new(false),
    });
    let producer = Producer {
        shared: Arc::clone(&shared),
        segment,
        at: 0,
    };
    let consumer = Consumer {
        shared,
        segment,
        at: 0,
    };
    Some((producer, consumer))
}

impl Producer {
    /// Appends a record; gives `false` when there is no room for it. At most [`MOST_FIELDS`] fields.
    #[inline]
    pub(crate) fn push(&mut self, kind: u8, fields: &[u64], bytes: &[u8]) -> bool {
        let need = 1 + fields.len() + bytes.len().div_ceil(8);
        // SAFETY: the consumer frees a segment only once it has a next one, which is ours then.
        let mut segment = unsafe { self.segment.as_ref() };
        if self.at + need > segment.words.len() {
            if !self.extend(need) {
                return false;
            }
            // SAFETY: as above.
            segment = unsafe { self.segment.as_ref() };
        }
        let words = &segment.words[self.at..self.at + need];
        let header = u64::from(kind) | (fields.len() as u64) << 8 | (bytes.len() as u64) << 16;
        words[0].store(header, Ordering::Relaxed);
        for (word, field) in words[1..].iter().zip(fields) {
            word.store(*field, Ordering::Relaxed);
        }
        if !bytes.is_empty() {
            for (word, chunk) in words[1 + fields.len()..].iter().zip(bytes.chunks(8)) {
                let mut filled = [0; 8];
                filled[..chunk.len()].copy_from_slice(chunk);
                word.store(u64::from_le_bytes(filled), Ordering::Relaxed);
            }
        }
        self.at += need;
        segment.written.store(self.at, Ordering::Release);
        true
    }

    /// Goes on in another segment, of at least `need` words.
    #[cold]
    fn extend(&mut self, need: usize) -> bool {
        let spare = if need <= SEGMENT_WORDS {
            NonNull::new(self.shared.spare.swap(null_mut(), Ordering::Acquire))
        } else {
            None
        };
        let Some(next) = spare.or_else(|| Segment::new(need.max(SEGMENT_WORDS), self.shared.budget)) else {
            return false;
        };
        // SAFETY: the last segment of the chain stays until the consumer sees a next one, here.
        unsafe { self.segment.as_ref() }
            .next
            .store(next.as_ptr(), Ordering::Release);
        self.segment = next;
        self.at = 0;
        true
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
    }
}

impl Consumer {
    /// Reads the next record; `false` when there is none (yet).
    pub(crate) fn pop(&mut self, record: &mut Record) -> bool {
        loop {
            // SAFETY: only this end frees segments, once it has left them.
            let segment = unsafe { self.segment.as_ref() };
            if self.at < segment.written.load(Ordering::Acquire) {
                let header = segment.words[self.at].load(Ordering::Relaxed);
                let fields = (header >> 8 & 0xff) as usize;
                let bytes = (header >> 16) as usize;
                record.kind = header as u8;
                record.fields = [0; MOST_FIELDS];
                let words = &segment.words[self.at + 1..];
                for (field, word) in record.fields.iter_mut().zip(&words[..fields]) {
                    *field = word.load(Ordering::Relaxed);
                }
                record.bytes.clear();
                for word in &words[fields..fields + bytes.div_ceil(8)] {
                    record
                        .bytes
                        .extend_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
                }
                record.bytes.truncate(bytes);
                self.at += 1 + fields + bytes.div_ceil(8);
                return true;
            }
            let Some(next) = NonNull::new(segment.next.load(Ordering::Acquire)) else {
                return false;
            };
            // The producer may have written here between the two loads; with a next one it no longer does.
            if self.at == segment.written.load(Ordering::Acquire) {
                let read = std::mem::replace(&mut self.segment, next);
                self.at = 0;
                self.retire(read);
            }
        }
    }

    fn retire(&self, read: NonNull<Segment>) {
        // SAFETY: both ends have left it.
        let segment = unsafe { read.as_ref() };
        segment.written.store(0, Ordering::Relaxed);
        segment.next.store(null_mut(), Ordering::Relaxed);
        let kept = segment.words.len() == SEGMENT_WORDS
            && self
                .shared
                .spare
                .compare_exchange(null_mut(), read.as_ptr(), Ordering::Release, Ordering::Relaxed)
                .is_ok();
        if !kept {
            // SAFETY: as above, and it was made with this budget.
            unsafe { Segment::free(read.as_ptr(), self.shared.budget) };
        }
    }

    /// Whether the thread is gone. What it pushed before may still be unread: ask before reading the last time.
    pub(crate) fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // A producer that still writes keeps its last segment: it may touch it at any time.
        let mut segment = self.segment.as_ptr();
        let closed = self.is_closed();
        loop {
            // SAFETY: segments from here on are this end's to free.
            let next = unsafe { &*segment }.next.load(Ordering::Acquire);
            if !next.is_null() || closed {
                // SAFETY: the producer has left it, for the next one or for ever.
                unsafe { Segment::free(segment, self.shared.budget) };
            }
            if next.is_null() {
                return;
            }
            segment = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn budget(bytes: usize) -> &'static Budget {
        Box::leak(Box::new(Budget::new(bytes)))
    }

    /// What to do next with a ring.
    #[derive(Clone, Debug)]
    enum Step {
        Push(u8, Vec<u64>, usize),
        Pop,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let sizes = prop_oneof![4 => Just(0usize), 3 => 1..40usize, 1 => 8_000..40_000usize];
        let push = (
            any::<u8>(),
            prop::collection::vec(any::<u64>(), 0..=MOST_FIELDS),
            sizes,
        );
        let step = prop_oneof![
            3 => push.prop_map(|(kind, fields, bytes)| Step::Push(kind, fields, bytes)),
            2 => Just(Step::Pop),
        ];
        prop::collection::vec(step, 0..600)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_was_taken_comes_out_in_order_and_memory_stays_in_the_budget(
            steps in steps(),
            most in 20_000..200_000usize,
        ) {
            let budget = budget(most);
            let (mut producer, mut consumer) = ring(budget).expect("room for one segment");
            let mut expected = VecDeque::new();
            let mut record = Record::default();
            let mut pop = |expected: &mut VecDeque<(u8, Vec<u64>, Vec<u8>)>| {
                let came = consumer.pop(&mut record);
                let wanted = expected.pop_front();
                prop_assert_eq!(came, wanted.is_some());
                if let Some((kind, fields, bytes)) = wanted {
                    prop_assert_eq!((record.kind, &record.bytes), (kind, &bytes));
                    prop_assert_eq!(&record.fields[..fields.len()], &fields[..]);
                }
                Ok(came)
            };
            for step in steps {
                match step {
                    Step::Push(kind, fields, bytes) => {
                        let bytes: Vec<u8> = (0..bytes).map(|at| (at * 7 + kind as usize) as u8).collect();
                        if producer.push(kind, &fields, &bytes) {
                            expected.push_back((kind, fields, bytes));
                        }
                    }
                    Step::Pop => _ = pop(&mut expected)?,
                }
                prop_assert!(budget.used_bytes() <= most);
            }
            drop(producer);
            while pop(&mut expected)? {}
            prop_assert!(consumer.is_closed());
            drop(consumer);
            prop_assert_eq!(budget.used_bytes(), 0, "all memory is given back");
        }
    }

    #[test]
    fn a_full_ring_refuses_and_takes_again_when_it_was_read() {
        let budget = budget(2 * (8 * SEGMENT_WORDS + SEGMENT_EXTRA_BYTES));
        let (mut producer, mut consumer) = ring(budget).expect("room");
        let mut taken = 0u64;
        while producer.push(1, &[taken, 0, 0], &[]) {
            taken += 1;
        }
        assert_eq!(taken, 2 * SEGMENT_WORDS as u64 / 4);
        let mut record = Record::default();
        for expected in 0..taken {
            assert!(consumer.pop(&mut record));
            assert_eq!(record.fields[0], expected);
        }
        assert!(!consumer.pop(&mut record));
        assert!(producer.push(1, &[taken], &[]) && consumer.pop(&mut record));
        assert_eq!(record.fields[0], taken);
    }

    #[test]
    fn two_threads_pass_a_million_records_in_order() {
        let budget = budget(1 << 20);
        let (mut producer, mut consumer) = ring(budget).expect("room");
        const RECORDS: u64 = 1_000_000;
        let writer = std::thread::spawn(move || {
            let mut refused = 0u64;
            for number in 0..RECORDS {
                while !producer.push(
                    7,
                    &[number, !number],
                    &number.to_le_bytes()[..(number % 9) as usize],
                ) {
                    refused += 1;
                    std::thread::yield_now();
                }
            }
            refused
        });
        let (mut record, mut next) = (Record::default(), 0u64);
        while next < RECORDS {
            if consumer.pop(&mut record) {
                assert_eq!((record.fields[0], record.fields[1]), (next, !next));
                assert_eq!(record.bytes, next.to_le_bytes()[..(next % 9) as usize]);
                next += 1;
            } else {
                std::thread::yield_now();
            }
        }
        writer.join().expect("the producer ends");
        assert!(!consumer.pop(&mut record) && consumer.is_closed());
        drop(consumer);
        assert_eq!(budget.used_bytes(), 0);
    }
}
