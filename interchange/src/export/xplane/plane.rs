//! Writing one plane of an XSpace as a stream.
//!
//! A message says its length before its content, and a plane may be gigabytes. So its events are made twice: once to add up
//! lengths, and once to be written.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::schema::{self, Stat};
use crate::export::ExportSummary;
use crate::export::protobuf::ProtoBuffer;

/// The bytes of a plane so far.
pub(super) type Length = u64;

/// Names of events by number, from 1, each once.
#[derive(Default)]
pub(super) struct EventNames {
    numbers: FxHashMap<String, u64>,
    names: Vec<String>,
}

impl EventNames {
    pub(super) fn number(&mut self, name: &str) -> u64 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        // XProf writes JSON of names without escaping all that has to be.
        self.names.push(name.replace(char::is_control, " "));
        let number = self.names.len() as u64;
        self.numbers.insert(name.to_owned(), number);
        number
    }
}

/// One event while it is made.
pub(super) struct Event {
    buffer: ProtoBuffer,
    base_ns: i64,
}

impl Event {
    /// Begins an event: times are absolute.
    pub(super) fn begin(&mut self, name: u64, start_ns: i64, end_ns: i64) {
        let ps = |ns: i64| ns.max(0).saturating_mul(1000);
        self.buffer.clear();
        self.buffer.uint(schema::EVENT_METADATA_ID, name);
        self.buffer
            .int(schema::EVENT_OFFSET_PS, ps(start_ns.saturating_sub(self.base_ns)));
        self.buffer
            .int(schema::EVENT_DURATION_PS, ps(end_ns.saturating_sub(start_ns)));
    }

    pub(super) fn int(&mut self, stat: Stat, value: i64) {
        stat_of(&mut self.buffer, schema::EVENT_STATS, stat, |m| {
            m.int(schema::STAT_INT64, value);
        });
    }

    pub(super) fn uint(&mut self, stat: Stat, value: u64) {
        stat_of(&mut self.buffer, schema::EVENT_STATS, stat, |m| {
            m.uint(schema::STAT_UINT64, value);
        });
    }

    pub(super) fn number(&mut self, stat: Stat, value: f64) {
        stat_of(&mut self.buffer, schema::EVENT_STATS, stat, |m| {
            m.double(schema::STAT_DOUBLE, value);
        });
    }

    pub(super) fn text(&mut self, stat: Stat, value: &str) {
        stat_of(&mut self.buffer, schema::EVENT_STATS, stat, |m| {
            m.text(schema::STAT_TEXT, value);
        });
    }
}

fn stat_of(buffer: &mut ProtoBuffer, field: u32, stat: Stat, value: impl FnOnce(&mut ProtoBuffer)) {
    buffer.message(field, |message| {
        message.uint(schema::STAT_METADATA_ID, stat as u64 + 1);
        value(message);
    });
}

/// What a plane says of itself.
pub(super) enum About {
    Int(Stat, i64),
    Text(Stat, String),
}

/// A line of a plane.
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) name: String,
}

/// A plane, whose events can be gone through again and again, in the same order.
pub(super) trait Plane {
    fn number(&self) -> u64;
    fn name(&self) -> String;
    fn about(&self) -> Vec<About>;
    fn base_ns(&self) -> i64;
    fn lines(&self) -> &[Line];
    /// Makes the events of a line and gives each to `take`.
    fn events(
        &mut self,
        line: usize,
        names: &mut EventNames,
        event: &mut Event,
        take: &mut dyn FnMut(&Event) -> io::Result<()>,
    ) -> io::Result<()>;
    /// Counts what was written.
    fn count(&self, summary: &mut ExportSummary);
}

/// Writes a plane of a space. Gives its bytes.
pub(super) fn write(
    plane: &mut dyn Plane,
    out: &mut dyn Write,
    summary: &mut ExportSummary,
) -> io::Result<Length> {
    let mut names = EventNames::default();
    let mut event = Event {
        buffer: ProtoBuffer::default(),
        base_ns: plane.base_ns(),
    };
    let mut frames = Vec::with_capacity(plane.lines().len());
    let mut length = 0;
    for number in 0..plane.lines().len() {
        let mut of_events: Length = 0;
        plane.events(number, &mut names, &mut event, &mut |event| {
            of_events += field_length(event.buffer.len());
            Ok(())
        })?;
        let line = &plane.lines()[number];
        let mut head = ProtoBuffer::default();
        head.uint(schema::LINE_ID, line.number);
        head.text(schema::LINE_NAME, &line.name);
        head.int(schema::LINE_TIMESTAMP_NS, 0);
        let content = head.len() as u64 + of_events;
        length += field_length(usize::try_from(content).unwrap_or(usize::MAX));
        frames.push((head, content));
    }
    let mut head = ProtoBuffer::default();
    head.uint(schema::PLANE_ID, plane.number());
    head.text(schema::PLANE_NAME, &plane.name());
    let mut tail = ProtoBuffer::default();
    for (number, name) in (1u64..).zip(&names.names) {
        metadata(&mut tail, schema::PLANE_EVENT_METADATA, number, name);
    }
    for (number, name) in (1u64..).zip(Stat::NAMES) {
        metadata(&mut tail, schema::PLANE_STAT_METADATA, number, name);
    }
    for about in plane.about() {
        match about {
            About::Int(stat, value) => stat_of(&mut tail, schema::PLANE_STATS, stat, |m| {
                m.int(schema::STAT_INT64, value);
            }),
            About::Text(stat, value) => stat_of(&mut tail, schema::PLANE_STATS, stat, |m| {
                m.text(schema::STAT_TEXT, &value);
            }),
        }
    }
    length += (head.len() + tail.len()) as u64;
    let mut frame = ProtoBuffer::default();
    let begin = |length: u64| usize::try_from(length).map_err(|_| io::Error::other("a plane of 4 GiB"));
    frame.length(schema::SPACE_PLANES, begin(length)?);
    let all = frame.len() as u64 + length;
    frame.write_to(out)?;
    head.write_to(out)?;
    for (number, (mut head, content)) in frames.into_iter().enumerate() {
        frame.length(schema::PLANE_LINES, begin(content)?);
        frame.write_to(out)?;
        head.write_to(out)?;
        plane.events(number, &mut names, &mut event, &mut |event| {
            frame.length(schema::LINE_EVENTS, event.buffer.len());
            frame.write_to(out)?;
            out.write_all(event.buffer.bytes())
        })?;
    }
    tail.write_to(out)?;
    plane.count(summary);
    Ok(all)
}

/// The bytes of a field with a content of so many. Its number is below 16.
fn field_length(content: usize) -> u64 {
    let bits = (usize::BITS - content.leading_zeros()).max(1);
    1 + u64::from(bits.div_ceil(7)) + content as u64
}

fn metadata(buffer: &mut ProtoBuffer, field: u32, number: u64, name: &str) {
    buffer.message(field, |entry| {
        entry.uint(schema::ENTRY_KEY, number);
        entry.message(schema::ENTRY_VALUE, |value| {
            value.uint(schema::METADATA_ID, number);
            value.text(schema::METADATA_NAME, name);
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_what_is_written() {
        for content in [0usize, 1, 127, 128, 300, 16_383, 16_384] {
            let mut buffer = ProtoBuffer::default();
            buffer.blob(1, &vec![0; content]);
            assert_eq!(field_length(content), buffer.len() as u64, "{content}");
        }
    }
}
