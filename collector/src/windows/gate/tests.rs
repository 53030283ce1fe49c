use super::*;
use crate::host_events::testing;
use crate::records::kind;

/// Far more than anything else in this process takes or gives back meanwhile.
const BLOCK_BYTES: usize = 256 << 20;

/// Bytes of large blocks that malloc has given out.
fn large_blocks() -> usize {
    // SAFETY: only reads malloc's counts.
    unsafe { libc::mallinfo2() }.hblkhd
}

#[test]
fn memory_that_belongs_to_a_record_goes_with_it() {
    // A gate reads the process's options, which are other tests', too.
    let _turn = testing::turn();
    // SAFETY: a block of so many bytes, which nobody reads or writes.
    let data = unsafe { libc::malloc(BLOCK_BYTES) } as u64;
    assert_ne!(data, 0);
    let taken = large_blocks();
    // CUpti_ActivityOverhead3: kind, overhead kind (the command buffer was full), ..., data.
    let mut record = [0u8; 56];
    record[..4].copy_from_slice(&kind::OVERHEAD.to_le_bytes());
    record[4..8].copy_from_slice(&(6u32 << 16).to_le_bytes());
    let place = std::mem::offset_of!(records::Overhead, data);
    record[place..place + 8].copy_from_slice(&data.to_le_bytes());
    let sizes = RecordSizes::ask(|record_kind| (record_kind == kind::OVERHEAD).then_some(56));
    let options = Box::leak(Box::new(CollectorOptions::default()));
    let mut gate = Gate::new(options, sizes, &[kind::OVERHEAD]);
    // SAFETY: the record's data is memory of malloc that nobody else frees.
    assert_eq!(unsafe { gate.leave_out(&mut record) }, 0);
    assert!(large_blocks() + BLOCK_BYTES / 2 < taken);
}

/// How many of two recordings of events are kept: one that was made while the recorder's switch was off, and a later one.
/// `tells_of_calls`: there are records of the calls that made them.
fn kept(words: &[&str], tells_of_calls: bool) -> usize {
    let sizes = |record_kind| match record_kind {
        kind::CUDA_EVENT => Some(56),
        kind::DRIVER => Some(40),
        _ => None,
    };
    let options = Box::leak(Box::new(CollectorOptions {
        kinds: Some(words.iter().map(|word| (*word).to_owned()).collect()),
        ..CollectorOptions::default()
    }));
    let mut gate = Gate::new(options, RecordSizes::ask(sizes), &[]);
    let begin = now();
    let at = |seconds: i64| TimeNs(begin.0 + seconds * 1_000_000_000);
    gate.machine.apply(at(1), Event::Switch(false));
    gate.machine.apply(at(3), Event::Switch(true));
    let mut buffer = Vec::new();
    for (correlation, seconds) in [(7u32, 2), (8, 4)] {
        if tells_of_calls {
            let mut call = [0u8; 40];
            let (start, id) = (
                std::mem::offset_of!(records::ApiCall, start),
                std::mem::offset_of!(records::ApiCall, correlation),
            );
            call[..4].copy_from_slice(&kind::DRIVER.to_le_bytes());
            call[start..start + 8].copy_from_slice(&at(seconds).0.to_le_bytes());
            call[id..id + 4].copy_from_slice(&correlation.to_le_bytes());
            buffer.extend(call);
        }
        let mut recorded = [0u8; 56];
        let id = std::mem::offset_of!(records::EventRecord, correlation);
        recorded[..4].copy_from_slice(&kind::CUDA_EVENT.to_le_bytes());
        recorded[id..id + 4].copy_from_slice(&correlation.to_le_bytes());
        buffer.extend(recorded);
    }
    gate.learn_launches(&buffer, u32::MAX);
    // SAFETY: no record of these kinds has memory or addresses.
    let kept = unsafe { gate.leave_out(&mut buffer) };
    let mut recordings = 0;
    walk::walk(&buffer[..kept], &gate.sizes, |record_kind, _| {
        recordings += usize::from(record_kind == kind::CUDA_EVENT);
    });
    recordings
}

#[test]
fn recordings_of_events_are_of_the_window_of_their_call() {
    let _turn = testing::turn();
    assert_eq!(kept(&["synchronizations", "calls"], true), 1);
    // Where calls are recorded, one whose call is not there was made outside of all windows.
    assert_eq!(kept(&["synchronizations", "calls"], false), 0);
    assert_eq!(kept(&["synchronizations"], false), 2);
}

/// Steps of a loop of ten kernels, of which the host launches each 1,000 ns before it runs, and the gate that records steps 5 to 7.
struct Loop {
    gate: Gate,
    begin: i64,
}

impl Loop {
    fn new() -> Self {
        let sizes = |record_kind| match record_kind {
            kind::CONCURRENT_KERNEL => Some(size_of::<records::Kernel>()),
            kind::DRIVER => Some(40),
            _ => None,
        };
        let options = Box::leak(Box::new(CollectorOptions {
            steps: Some((5, 7)),
            ..CollectorOptions::default()
        }));
        let gate = Gate::new(options, RecordSizes::ask(sizes), &[]);
        let begin = now().0;
        Self { gate, begin }
    }

    /// Holds a buffer with the calls or the kernels of some steps.
    fn hold(&mut self, steps: std::ops::Range<u32>, kernels: bool) {
        let mut bytes = Vec::new();
        for number in steps.start * 10..steps.end * 10 {
            let (step, place) = (number / 10, number % 10);
            let launched = self.begin + i64::from(step) * 10_000 + i64::from(place) * 100;
            let put = |record: &mut [u8], at: usize, value: u64, length: usize| {
                record[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
            };
            if kernels {
                use std::mem::offset_of;
                let mut record = [0u8; size_of::<records::Kernel>()];
                let ran = launched + 1000;
                put(&mut record, 0, kind::CONCURRENT_KERNEL.into(), 4);
                put(
                    &mut record,
                    offset_of!(records::Kernel, start),
                    ran.cast_unsigned(),
                    8,
                );
                put(
                    &mut record,
                    offset_of!(records::Kernel, end),
                    (ran + 90).cast_unsigned(),
                    8,
                );
                put(&mut record, offset_of!(records::Kernel, stream), 7, 4);
                put(
                    &mut record,
                    offset_of!(records::Kernel, correlation),
                    (number + 1).into(),
                    4,
                );
                put(
                    &mut record,
                    offset_of!(records::Kernel, name),
                    (place + 1).into(),
                    8,
                );
                bytes.extend(record);
            } else {
                use std::mem::offset_of;
                let mut record = [0u8; 40];
                put(&mut record, 0, kind::DRIVER.into(), 4);
                put(
                    &mut record,
                    offset_of!(records::ApiCall, start),
                    launched.cast_unsigned(),
                    8,
                );
                put(
                    &mut record,
                    offset_of!(records::ApiCall, correlation),
                    (number + 1).into(),
                    4,
                );
                bytes.extend(record);
            }
        }
        self.gate.held_bytes += bytes.capacity();
        self.gate.held.push(Held {
            records: Records::Copy(bytes),
            came: Instant::now(),
            last_id: 0,
            last_moment: i64::MIN,
            is_scanned: false,
        });
    }

    /// How many kernels a flush leaves of what it decides.
    fn kernels(&mut self, all: bool) -> usize {
        let released = self.gate.release(if all { Decide::All } else { Decide::Come });
        let mut kernels = 0;
        for (records, kept) in released {
            walk::walk(&records.bytes()[..kept], &self.gate.sizes, |record_kind, _| {
                kernels += usize::from(kinds::is_kernels(record_kind));
            });
        }
        kernels
    }
}

#[test]
fn kernels_wait_for_the_calls_that_say_when_their_steps_began() {
    let _turn = testing::turn();
    let mut job = Loop::new();
    // The kernels of ten steps have come, the calls of six: where the seventh and the tenth began is not known.
    job.hold(0..10, true);
    job.hold(0..6, false);
    assert_eq!(job.kernels(false), 0);
    job.hold(6..12, false);
    job.hold(10..12, true);
    assert_eq!(job.kernels(false), 30);
    assert_eq!(job.kernels(true), 0);
    assert!(job.gate.held.is_empty() && job.gate.held_bytes == 0);
    // As many where the calls come first, and where all comes at once at the end.
    for all in [false, true] {
        let mut job = Loop::new();
        job.hold(0..12, false);
        job.hold(0..12, true);
        assert_eq!(job.kernels(all), 30);
    }
}

/// CUPTI's thread was held up between the buffer with the kernels and that with their calls, over a flush.
#[test]
fn kernels_wait_for_a_buffer_with_their_calls() {
    let _turn = testing::turn();
    let mut job = Loop::new();
    // The recorder's switch decides, and not steps.
    job.gate.detector = None;
    job.gate
        .machine
        .apply(TimeNs(job.begin - 2), Event::Switch(false));
    job.gate.machine.apply(TimeNs(job.begin - 1), Event::Switch(true));
    job.hold(0..2, true);
    let settled = job.gate.release(Decide::Settled);
    assert!(settled.is_empty() && job.gate.held.len() == 1);
    job.hold(0..2, false);
    assert!(job.gate.release(Decide::Settled).is_empty());
    for held in &mut job.gate.held {
        held.came -= SETTLES_AFTER;
    }
    let released = job.gate.release(Decide::Settled);
    assert_eq!((released.len(), job.gate.held.len()), (2, 0));
}
