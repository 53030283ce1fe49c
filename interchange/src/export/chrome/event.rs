//! Events of `traceEvents`, written straight as text: no tree of values, no floating-point times, no formatting machinery in
//! the way of millions.

use std::io::{self, Write};

use crate::json;

/// So much is put together before it is handed on.
const BLOCK: usize = 1 << 18;

/// Where an event is shown, as text: `,"pid":1,"tid":2,"ts":`.
#[derive(Clone, Debug)]
pub struct Place {
    pub pid: u64,
    pub tid: u64,
    text: Box<[u8]>,
}

impl Place {
    pub fn new(pid: u64, tid: u64) -> Self {
        let text = format!(",\"pid\":{pid},\"tid\":{tid},\"ts\":").into_bytes();
        Self {
            pid,
            tid,
            text: text.into(),
        }
    }
}

/// Writes events, separated by commas, with times relative to a base.
pub struct EventWriter<'a> {
    out: &'a mut dyn Write,
    base_ns: i64,
    first: bool,
    pub(super) line: Vec<u8>,
}

/// `text` as a JSON string with its quotes.
pub fn json_string(text: &str) -> Box<[u8]> {
    let mut out = Vec::with_capacity(text.len() + 2);
    json::push_string(&mut out, text);
    out.into()
}

impl<'a> EventWriter<'a> {
    pub fn new(out: &'a mut dyn Write, base_ns: i64) -> Self {
        Self {
            out,
            base_ns,
            first: true,
            line: Vec::with_capacity(BLOCK + 4096),
        }
    }

    /// What times are relative to.
    pub fn base_ns(&self) -> i64 {
        self.base_ns
    }

    fn begin(&mut self, head: &str) {
        if !self.first {
            self.line.push(b',');
        }
        self.first = false;
        self.line.push(b'\n');
        self.line.extend_from_slice(head.as_bytes());
    }

    fn time(&mut self, time_ns: i64) {
        json::push_microseconds(&mut self.line, time_ns.saturating_sub(self.base_ns));
    }

    /// Begins a slice, up to its `args`. `head` is its beginning up to the name's colon; `name` is a JSON string.
    #[inline]
    pub fn slice(&mut self, head: &str, name: &[u8], place: &Place, (start_ns, end_ns): (i64, i64)) {
        self.begin(head);
        self.line.extend_from_slice(name);
        self.line.extend_from_slice(&place.text);
        self.time(start_ns);
        self.line.extend_from_slice(b",\"dur\":");
        json::push_microseconds(&mut self.line, end_ns.saturating_sub(start_ns));
        self.line.extend_from_slice(b",\"args\":{");
    }

    /// Begins anything else, up to its `args`.
    pub fn moment(&mut self, head: &str, name: &[u8], place: &Place, time_ns: i64) {
        self.begin(head);
        self.line.extend_from_slice(name);
        self.line.extend_from_slice(&place.text);
        self.time(time_ns);
        self.line.extend_from_slice(b",\"args\":{");
    }

    /// Ends an event with its `args`.
    #[inline]
    pub fn end(&mut self) -> io::Result<()> {
        self.line.extend_from_slice(b"}}");
        if self.line.len() >= BLOCK {
            self.hand_on()?;
        }
        Ok(())
    }

    fn hand_on(&mut self) -> io::Result<()> {
        self.out.write_all(&self.line)?;
        self.line.clear();
        Ok(())
    }

    /// Ends the list: nothing but closing brackets after it, since one consumer cuts the file at its last bracket.
    pub fn finish(mut self) -> io::Result<()> {
        self.line.extend_from_slice(b"\n]}\n");
        self.hand_on()?;
        self.out.flush()
    }

    /// A sample of a counter (`ph` C). `name` is a JSON string.
    pub fn counter(&mut self, name: &[u8], place: &Place, time_ns: i64, value: f64) -> io::Result<()> {
        self.moment(
            "{\"ph\":\"C\",\"cat\":\"counter\",\"name\":",
            name,
            place,
            time_ns,
        );
        self.float("value", value);
        self.end()
    }

    /// The arrow from a launch to the operation it launched. Both stamps are their slices' starts.
    #[inline]
    pub fn flow(&mut self, id: u64, from: (&Place, i64), to: (&Place, i64)) {
        for (head, (place, time_ns)) in [
            ("{\"ph\":\"s\",\"cat\":\"ac2g\",\"name\":\"ac2g\",\"id\":", from),
            (
                "{\"ph\":\"f\",\"bp\":\"e\",\"cat\":\"ac2g\",\"name\":\"ac2g\",\"id\":",
                to,
            ),
        ] {
            self.begin(head);
            json::push_unsigned(&mut self.line, id);
            self.line.extend_from_slice(&place.text);
            self.time(time_ns);
            self.line.push(b'}');
        }
    }

    /// Metadata (`ph` M): `what` is `process_name`, `thread_sort_index`, ...
    pub fn metadata(&mut self, what: &str, pid: u64, tid: u64) {
        let head = format!(
            "{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{pid},\"tid\":{tid},\"ts\":0.000,\"args\":{{"
        );
        self.begin(&head);
    }

    #[inline]
    fn comma(&mut self) {
        if self.line.last() != Some(&b'{') {
            self.line.push(b',');
        }
    }

    /// The name of a member.
    #[inline]
    pub fn key(&mut self, key: &str) {
        self.comma();
        self.line.push(b'"');
        self.line.extend_from_slice(key.as_bytes());
        self.line.extend_from_slice(b"\":");
    }

    /// Members as they stand in JSON, with commas between them.
    #[inline]
    pub fn members(&mut self, members: &[u8]) {
        if !members.is_empty() {
            self.comma();
            self.line.extend_from_slice(members);
        }
    }

    /// A member that is JSON already.
    pub fn raw(&mut self, key: &str, json: &[u8]) {
        self.key(key);
        self.line.extend_from_slice(json);
    }

    #[inline]
    pub fn unsigned(&mut self, key: &str, value: impl Into<u64>) {
        self.key(key);
        json::push_unsigned(&mut self.line, value.into());
    }

    pub fn signed(&mut self, key: &str, value: impl Into<i128>) {
        self.key(key);
        json::push_integer(&mut self.line, value.into());
    }

    pub fn float(&mut self, key: &str, value: f64) {
        self.key(key);
        json::push_float_or_text(&mut self.line, value);
    }

    pub fn text(&mut self, key: &str, value: &str) {
        self.key(key);
        json::push_string(&mut self.line, value);
    }

    /// A number that may be absent.
    #[inline]
    pub fn maybe(&mut self, key: &str, value: Option<impl Into<u64>>) {
        if let Some(value) = value {
            self.unsigned(key, value);
        }
    }

    /// Begins an object or array that is a member.
    pub fn open(&mut self, key: &str, bracket: u8) {
        self.key(key);
        self.line.push(bracket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_json() {
        let mut out = Vec::new();
        let mut writer = EventWriter::new(&mut out, 1000);
        let (one, other) = (Place::new(7, 8), Place::new(1 << 31, 9));
        writer.slice(
            "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":",
            &json_string("a\"😀\n"),
            &one,
            (2234, 2235),
        );
        writer.unsigned("a", 5u32);
        writer.signed("b", -5);
        writer.float("c", 0.25);
        writer.text("d", "x");
        writer.maybe("e", None::<u32>);
        writer.end().unwrap();
        writer.flow(3, (&one, 2234), (&other, 999));
        writer.counter(&json_string("w"), &other, 3000, 2e20).unwrap();
        writer.finish().unwrap();
        let text = String::from_utf8(out).unwrap();
        let events: serde_json::Value =
            serde_json::from_str(&format!("[{}", text.strip_suffix("}\n").unwrap())).unwrap();
        assert_eq!(
            events[0],
            serde_json::json!({"ph": "X", "cat": "kernel", "name": "a\"😀 ", "pid": 7, "tid": 8, "ts": 1.234, "dur": 0.001,
                "args": {"a": 5, "b": -5, "c": 0.25, "d": "x"}})
        );
        assert_eq!(events[1]["ts"], 1.234);
        assert_eq!((&events[2]["bp"], &events[2]["ts"]), (&"e".into(), &0.0.into()));
        assert_eq!(events[3]["args"]["value"], 2e20);
    }
}
