//! Events that differ from an earlier one in numbers only.
//!
//! A job does the same in each of its steps, so most events of a trace are the bytes of an earlier one with other times and
//! other ids between them. Such an event is read by comparing it with that one, from number to number. Which one it may be
//! like is guessed from what came after the same events before. A guess is checked to the last byte: a wrong one costs a
//! comparison, and the event is read as any other.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use gputrace_trace::{DurationNs, TimeNs};
use rustc_hash::{FxHashMap, FxHasher};

use super::after::After;
use super::converter::Converter;
use super::event::Event;
use super::number::{integer, leading_digits, leading_microseconds};
use super::repeated_row::{Before, Meaning, Numbers, Row};
use super::scan::{Cursor, Go, Raw, members};

/// Bytes as they stand in each such event, and the number behind them.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Where the bytes end in [`Repeats::texts`]; they begin where those before end.
    end: usize,
    meaning: Meaning,
}

/// An event without its numbers.
#[derive(Clone, Debug)]
struct Outline {
    /// All of its bytes in [`Repeats::texts`].
    text: Range<usize>,
    pieces: Range<usize>,
    row: Row,
    /// The host process of an event that tells of one.
    pid: Option<u32>,
}

/// The outlines of a file's events.
#[derive(Debug)]
pub(crate) struct Repeats {
    texts: Vec<u8>,
    pieces: Vec<Piece>,
    /// The first stands for every event that has none.
    outlines: Vec<Outline>,
    /// By a hash of the bytes and meanings.
    by_text: FxHashMap<u64, u16>,
    /// What came after events like the last.
    after_long: After<LONG>,
    after_short: After<SHORT>,
    /// How much is left of the patience with events that are like none: a file that does not repeat itself is read without.
    patience: u32,
}

/// Of a file's outlines all bytes and all pieces.
const MOST_BYTES: usize = 4 << 20;
const MOST_PIECES: usize = 1 << 18;
/// Longer events are as likely as any to come only once, and cost more to keep.
const LONGEST: usize = 8 << 10;
/// So many events say what comes next ...
const LONG: usize = 12;
/// ... and where it was not that, the last of them.
const SHORT: usize = 3;
/// Events like none that are tried beyond a quarter of all.
const PATIENCE: u32 = 100_000;

impl Default for Repeats {
    fn default() -> Self {
        let none = Outline {
            text: 0..0,
            pieces: 0..0,
            row: Row::Arrow,
            pid: None,
        };
        Self {
            texts: Vec::new(),
            pieces: Vec::new(),
            outlines: vec![none],
            by_text: FxHashMap::default(),
            after_long: After::new(),
            after_short: After::new(),
            patience: PATIENCE,
        }
    }
}

/// How many bytes a number has, at most: signs, points and exponents among them.
#[inline]
fn number_length(bytes: &[u8]) -> usize {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E');
    bytes
        .iter()
        .position(|byte| !is_part(byte))
        .unwrap_or(bytes.len())
}

/// A number of 32 bits that `bytes` begin with, and its length.
#[inline]
fn small(bytes: &[u8]) -> Option<(u32, usize)> {
    let (value, length) = leading_digits(bytes);
    let value = u32::try_from(value).ok()?;
    (length > 0).then_some((value, length))
}

/// Where in an event its numbers stand, and what they are; `None` where it is not to be kept.
fn numbers_of(text: &[u8], row: &Row, name: &[u8]) -> Option<Vec<(Range<usize>, Meaning)>> {
    let mut found = Vec::new();
    // A part of `text`: where it is.
    let place = |part: &[u8]| {
        let start = part.as_ptr().addr() - text.as_ptr().addr();
        start..start + part.len()
    };
    let is_good = |meaning: Meaning, bytes: &[u8]| match meaning {
        Meaning::Unread => !bytes.is_empty() && number_length(bytes) == bytes.len(),
        Meaning::Start | Meaning::Duration => {
            leading_microseconds(bytes).is_some_and(|(_, length)| length == bytes.len())
        }
        _ => small(bytes).is_some_and(|(_, length)| length == bytes.len()),
    };
    let is_arrow = *row == Row::Arrow;
    let mut take = |meaning: Meaning, bytes: &[u8]| {
        if is_good(meaning, bytes) {
            found.push((place(bytes), meaning));
        }
    };
    members(&mut Cursor::new(text), |key, value| {
        match (key, value) {
            (b"args", Raw::Nested(object)) if !is_arrow => {
                // What stands behind a spoilt member was not read, and is not looked at here.
                let _ = members(&mut Cursor::new(object), |key, value| {
                    if let (Raw::Scalar(bytes), Some(meaning)) = (value, row.meaning(key, name)) {
                        take(meaning, bytes);
                    }
                    Go::On
                });
            }
            (_, Raw::Scalar(bytes)) if is_arrow => take(Meaning::Unread, bytes),
            (b"ts", Raw::Scalar(bytes)) => take(Meaning::Start, bytes),
            (b"dur", Raw::Scalar(bytes)) => take(Meaning::Duration, bytes),
            (b"ph" | b"cat" | b"name" | b"pid" | b"tid" | b"args", _) => {}
            (_, Raw::Scalar(bytes)) => take(Meaning::Unread, bytes),
            _ => {}
        }
        Go::On
    })
    .ok()?;
    Some(found)
}

impl Repeats {
    /// Bytes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.texts.capacity()
            + self.pieces.capacity() * size_of::<Piece>()
            + self.outlines.capacity() * size_of::<Outline>()
            + self.by_text.capacity() * 2 * size_of::<u64>()
            + self.after_long.bytes()
            + self.after_short.bytes()
    }

    /// Whether events are compared at all.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.patience > 0
    }

    /// Takes in the event that `bytes` begin with, if it is like the one that is guessed; its length.
    #[inline]
    pub(crate) fn take(&mut self, bytes: &[u8], converter: &mut Converter) -> Option<usize> {
        let likely = self.after_long.next();
        let other = self.after_short.next();
        let (number, (length, numbers)) =
            self.read(likely, bytes).map(|read| (likely, read)).or_else(|| {
                let read = (other != likely).then(|| self.read(other, bytes))?;
                Some((other, read?))
            })?;
        let outline = &self.outlines[usize::from(number)];
        if let Some(pid) = outline.pid {
            converter.of_host(pid);
            if matches!(outline.row, Row::Call(_)) {
                converter.called_by(Some(pid));
            }
        }
        outline.row.push_with(&numbers, converter);
        self.patience = (self.patience + 1).min(PATIENCE);
        self.came(number);
        Some(length)
    }

    /// Remembers what an event was like.
    #[inline]
    fn came(&mut self, number: u16) {
        self.after_long.came(number);
        self.after_short.came(number);
    }

    /// The length and the numbers of the event that `bytes` begin with, if it has this outline.
    #[inline]
    fn read(&self, number: u16, bytes: &[u8]) -> Option<(usize, Numbers)> {
        if number == 0 {
            return None;
        }
        let outline = &self.outlines[usize::from(number)];
        let mut numbers = outline.row.numbers();
        let mut rest = bytes;
        let mut from = outline.text.start;
        for piece in &self.pieces[outline.pieces.clone()] {
            rest = rest.strip_prefix(&self.texts[from..piece.end])?;
            from = piece.end;
            let length = match piece.meaning {
                Meaning::Unread => Some(number_length(rest)).filter(|length| *length > 0)?,
                Meaning::Start => {
                    let (value, length) = leading_microseconds(rest)?;
                    numbers.start_ns = TimeNs(value);
                    length
                }
                Meaning::Duration => {
                    let (value, length) = leading_microseconds(rest)?;
                    numbers.duration_ns = DurationNs(value);
                    length
                }
                Meaning::Correlation => {
                    let (value, length) = small(rest)?;
                    numbers.correlation = value;
                    length
                }
                Meaning::Number => {
                    let (value, length) = small(rest)?;
                    numbers.number = Some(value);
                    length
                }
                Meaning::Sequence => {
                    let (value, length) = small(rest)?;
                    numbers.sequence = Some(value);
                    length
                }
            };
            rest = &rest[length..];
        }
        rest = rest.strip_prefix(&self.texts[from..outline.text.end])?;
        Some((bytes.len() - rest.len(), numbers))
    }

    /// Keeps the outline of an event that a converter has just taken in.
    #[cold]
    pub(crate) fn learn(&mut self, event: &Event<'_>, text: &[u8], before: &Before, converter: &Converter) {
        let number = self.outline(event, text, before, converter).unwrap_or(0);
        self.came(number);
        // A quarter of all events may be new ones.
        self.patience = self.patience.saturating_sub(3);
        if self.patience == 0 {
            *self = Self {
                patience: 0,
                ..Self::default()
            };
        }
    }

    /// The number of an event's outline, which may be a new one.
    fn outline(
        &mut self,
        event: &Event<'_>,
        text: &[u8],
        before: &Before,
        converter: &Converter,
    ) -> Option<u16> {
        // What is counted must be counted of each, and no row was made of what is wrong.
        if before.trouble_since(converter) || text.len() > LONGEST {
            return None;
        }
        let row = match event.phase {
            b's' | b't' | b'f' => Row::Arrow,
            b'X' => Row::since(before, converter)?,
            _ => return None,
        };
        let name = event.name.map_or(b"".as_slice(), |name| name.bytes);
        let numbers = numbers_of(text, &row, name)?;
        let mut hasher = FxHasher::default();
        let mut from = 0;
        for (place, meaning) in &numbers {
            text[from..place.start].hash(&mut hasher);
            meaning.hash(&mut hasher);
            from = place.end;
        }
        text[from..].hash(&mut hasher);
        let hash = hasher.finish();
        if let Some(&known) = self.by_text.get(&hash) {
            return self.is_outline_of(known, text, &row).then_some(known);
        }
        if self.texts.len() + text.len() > MOST_BYTES || self.pieces.len() + numbers.len() > MOST_PIECES {
            return None;
        }
        let new = u16::try_from(self.outlines.len()).ok()?;
        let pid = integer(event.pid).and_then(|pid| u32::try_from(pid).ok());
        let (texts, pieces) = (self.texts.len(), self.pieces.len());
        let mut from = 0;
        for (place, meaning) in numbers {
            self.texts.extend_from_slice(&text[from..place.start]);
            from = place.end;
            let end = self.texts.len();
            self.pieces.push(Piece { end, meaning });
        }
        self.texts.extend_from_slice(&text[from..]);
        self.outlines.push(Outline {
            text: texts..self.texts.len(),
            pieces: pieces..self.pieces.len(),
            pid: pid.filter(|_| row.is_of_host()),
            row: row.clone(),
        });
        // What it says of the very event that it was made of is what was read of that.
        if !self.is_outline_of(new, text, &row) {
            self.outlines.pop();
            self.texts.truncate(texts);
            self.pieces.truncate(pieces);
            return None;
        }
        self.by_text.insert(hash, new);
        Some(new)
    }

    fn is_outline_of(&self, number: u16, text: &[u8], row: &Row) -> bool {
        self.read(number, text).is_some_and(|(length, numbers)| {
            length == text.len() && self.outlines[usize::from(number)].row.with(&numbers) == *row
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use gputrace_trace::Table;
    use gputrace_trace::tables::Tables;
    use proptest::prelude::*;

    use super::super::owners::Owners;
    use super::super::reader;
    use super::super::scan::Cursor;
    use super::*;
    use crate::limits::Memory;

    /// What a file with these events is read as; how many of them were read by comparing.
    fn read(events: &[String]) -> (Tables, [u64; 4]) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        std::fs::write(&path, format!("[{}]", events.join(",\n"))).unwrap();
        let mut file = reader::read(&path, &AtomicU64::new(0), &Memory::default()).unwrap();
        let converter = file.owners.first();
        (std::mem::take(&mut converter.tables), counted(converter))
    }

    fn counted(converter: &Converter) -> [u64; 4] {
        let counts = &converter.counts;
        let of_hosts = converter.host_pids.values().sum();
        [
            counts.events,
            counts.device_operations,
            of_hosts,
            converter.trouble(),
        ]
    }

    /// The same without comparing.
    fn read_each(events: &[String]) -> (Tables, [u64; 4]) {
        let mut converter = Converter::default();
        for event in events {
            converter.event(&Event::read(&mut Cursor::new(event.as_bytes())).unwrap());
        }
        let counted = counted(&converter);
        (converter.tables, counted)
    }

    /// How many of the events are read by comparing.
    fn compared(events: &[String]) -> usize {
        let mut owners = Owners::default();
        let mut compared = 0;
        for text in events {
            if owners.repeated(text.as_bytes()).is_some() {
                compared += 1;
            } else {
                owners.event(
                    &Event::read(&mut Cursor::new(text.as_bytes())).unwrap(),
                    text.as_bytes(),
                );
            }
        }
        compared
    }

    fn step(number: u64) -> Vec<String> {
        let (at, id) = (1_000_000 + number * 1000, number * 10);
        vec![
            format!(
                r#"{{"ph":"X","cat":"user_annotation","name":"forward","pid":7,"tid":8,"ts":{at}.5,"dur":90}}"#
            ),
            format!(
                r#"{{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":7,"tid":8,"ts":{at}.625,"dur":80.25,"args":{{"External id":{id},"Ev Idx":{id},"Sequence number":{number},"Input Dims":[[2,3],[3,4]],"Input type":["float","float"]}}}}"#
            ),
            format!(
                r#"{{"ph":"X","cat":"python_function","name":"nn.Module: Linear_3","pid":7,"tid":8,"ts":{at},"dur":9,"args":{{"Python parent id":{id},"Python id":{number}}}}}"#
            ),
            format!(
                r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":7,"tid":8,"ts":{at},"dur":5,"args":{{"External id":{id},"cbid":211,"correlation":{number}}}}}"#
            ),
            format!(r#"{{"ph":"s","id":{number},"pid":7,"tid":8,"ts":{at},"cat":"ac2g","name":"ac2g"}}"#),
            format!(
                r#"{{"ph":"X","cat":"kernel","name":"sgemm<\u0034>","pid":0,"tid":7,"ts":{at},"dur":33,"args":{{"External id":{id},"queued":0,"device":0,"context":1,"stream":7,"correlation":{number},"registers per thread":16,"shared memory":0,"blocks per SM":{number}.0125,"grid":[1,2,3],"block":[128,1,1]}}}}"#
            ),
            format!(
                r#"{{"ph":"f","id":{number},"pid":0,"tid":7,"ts":{at},"cat":"ac2g","name":"ac2g","bp":"e"}}"#
            ),
            format!(
                r#"{{"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD (Pageable -> Device)","pid":0,"tid":7,"ts":{at},"dur":1,"args":{{"device":0,"context":1,"stream":7,"correlation":{number},"bytes":24,"memory bandwidth (GB/s)":{number}.5}}}}"#
            ),
        ]
    }

    #[test]
    fn steps_that_repeat_themselves_are_read_by_comparing() {
        let events: Vec<String> = (0..100).flat_map(step).collect();
        let (tables, counts) = read_each(&events);
        assert_eq!(read(&events), (tables.clone(), counts));
        assert_eq!((tables.operators.len(), tables.kernels.len()), (100, 100));
        assert_eq!(tables.operators.number[..3], [Some(0), Some(10), Some(20)]);
        assert_eq!(tables.operators.start_ns[2], TimeNs(1_002_000_625));
        assert_eq!(tables.kernels.correlation[..3], [0, 1, 2]);
        assert_eq!(counts, [800, 200, 400, 0]);
        // All but the first few steps.
        assert!(compared(&events) > 8 * 90, "{}", compared(&events));
    }

    #[test]
    fn a_file_that_never_repeats_itself_is_read_without_comparing() {
        let event = |number: u64| {
            format!(
                r#"{{"ph":"X","cat":"cpu_op","name":"op{number}","pid":7,"tid":8,"ts":{number},"dur":1}}"#
            )
        };
        let mut owners = Owners::default();
        for number in 0..u64::from(PATIENCE) {
            assert_eq!(owners.repeated(event(number).as_bytes()), None);
            let text = event(number);
            owners.event(
                &Event::read(&mut Cursor::new(text.as_bytes())).unwrap(),
                text.as_bytes(),
            );
        }
        assert_eq!(owners.first().tables.operators.len(), PATIENCE as usize);
        assert!(!owners.repeats_are_on());
    }

    proptest! {
        /// Members come and go, stand twice, are no numbers or too great: comparing changes nothing.
        #[test]
        fn what_is_read_by_comparing_is_what_is_read_one_by_one(
            edits in proptest::collection::vec((0usize..160, 0usize..400, prop::sample::select(vec![
                "", "7", "-7", "1e3", "0.5", "7.0", "12345678901", "NaN", "\"7\"", "null", "[7]", "4294967295", "4294967296", " 7 ", "007",
                "99999999999999999999", "1.2345", "\"ts\":3,", "\"correlation\":9,", "\"pid\":9,", "\"External id\":1,", "\\u0041", "}", "{", "\"",
            ]), any::<bool>()), 0..60),
        ) {
            let mut events: Vec<String> = (0..20).flat_map(step).collect();
            for (event, at, text, whole) in edits {
                let event = &mut events[event];
                // A number becomes something else, or something comes in anywhere.
                let from = (at % event.len()..event.len()).find(|at| event.as_bytes()[*at].is_ascii_digit()).filter(|_| whole);
                let mut edited = event.clone();
                match from {
                    Some(from) => {
                        let length = number_length(&event.as_bytes()[from..]);
                        edited.replace_range(from..from + length, text);
                    }
                    None => edited.insert_str(at % event.len(), text),
                }
                let bytes = edited.as_bytes();
                let mut cursor = Cursor::new(bytes);
                if Event::read(&mut cursor).is_ok() && cursor.at() == bytes.len() {
                    *event = edited;
                }
            }
            prop_assert_eq!(read(&events), read_each(&events));
        }
    }
}
