//! One event of `traceEvents`, written straight as text: no tree of values, no floating-point times.

use std::io::{self, Write};

use super::exact_duration;

/// Writes events, separated by commas, with times relative to a base.
pub struct EventWriter<'a> {
    out: &'a mut dyn Write,
    base_ns: i64,
    first: bool,
    exact_ends: bool,
    line: Vec<u8>,
}

/// Where an event is shown.
#[derive(Clone, Copy)]
pub struct Place {
    pub pid: u64,
    pub tid: u64,
}

/// `text` as a JSON string with its quotes. Control characters become spaces: escaped or not, some consumers refuse them.
pub fn json_string(text: &str) -> String {
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    serde_json::Value::String(clean).to_string()
}

/// Nanoseconds as microseconds with three decimals, from integers alone.
fn push_microseconds(line: &mut Vec<u8>, ns: i64) {
    let ns = ns.max(0);
    push(line, format_args!("{}.{:03}", ns / 1000, ns % 1000));
}

fn push(line: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a vector cannot fail.
    drop(line.write_fmt(text));
}

/// The members of an event's `args`.
pub struct Args<'a> {
    line: &'a mut Vec<u8>,
    first: bool,
}

impl Args<'_> {
    /// A member whose value is JSON already, or a number.
    pub fn raw(&mut self, key: &str, value: impl std::fmt::Display) {
        let comma = if self.first { "" } else { "," };
        self.first = false;
        push(self.line, format_args!("{comma}\"{key}\":{value}"));
    }

    /// A text.
    pub fn text(&mut self, key: &str, value: &str) {
        self.raw(key, json_string(value));
    }

    /// A number that may be absent.
    pub fn maybe<T: std::fmt::Display>(&mut self, key: &str, value: Option<T>) {
        if let Some(value) = value {
            self.raw(key, value);
        }
    }
}

impl<'a> EventWriter<'a> {
    pub fn new(out: &'a mut dyn Write, base_ns: i64) -> Self {
        Self {
            out,
            base_ns,
            first: true,
            exact_ends: false,
            line: Vec::with_capacity(1024),
        }
    }

    /// From now on durations are such that start and duration, added as doubles, are the end to the last bit.
    pub fn with_exact_ends(mut self) -> Self {
        self.exact_ends = true;
        self
    }

    /// What times are relative to.
    pub fn base_ns(&self) -> i64 {
        self.base_ns
    }

    fn begin(&mut self) {
        self.line.clear();
        let separator: &[u8] = if self.first { b"\n" } else { b",\n" };
        self.line.extend_from_slice(separator);
        self.first = false;
    }

    fn time(&mut self, key: &str, time_ns: i64) {
        push(&mut self.line, format_args!(",\"{key}\":"));
        let relative = time_ns.saturating_sub(self.base_ns);
        push_microseconds(&mut self.line, relative);
    }

    fn finish(&mut self, args: impl FnOnce(&mut Args<'_>)) -> io::Result<()> {
        self.line.extend_from_slice(b",\"args\":{");
        args(&mut Args {
            line: &mut self.line,
            first: true,
        });
        self.line.extend_from_slice(b"}}");
        self.out.write_all(&self.line)
    }

    /// A slice (`ph` X). `name` is a JSON string.
    pub fn slice(
        &mut self,
        category: &str,
        name: &str,
        place: Place,
        (start_ns, end_ns): (i64, i64),
        args: impl FnOnce(&mut Args<'_>),
    ) -> io::Result<()> {
        self.begin();
        let Place { pid, tid } = place;
        push(
            &mut self.line,
            format_args!("{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":{name},\"pid\":{pid},\"tid\":{tid}"),
        );
        self.time("ts", start_ns);
        self.line.extend_from_slice(b",\"dur\":");
        let relative = |time_ns: i64| time_ns.saturating_sub(self.base_ns).max(0);
        let exact = match self.exact_ends {
            true => exact_duration(relative(start_ns), relative(end_ns)),
            false => None,
        };
        match exact {
            Some(duration) => push(&mut self.line, format_args!("{duration}")),
            None => push_microseconds(&mut self.line, end_ns.saturating_sub(start_ns)),
        }
        self.finish(args)
    }

    /// A moment on a thread (`ph` i). `name` is a JSON string.
    pub fn instant(
        &mut self,
        category: &str,
        name: &str,
        place: Place,
        time_ns: i64,
        args: impl FnOnce(&mut Args<'_>),
    ) -> io::Result<()> {
        self.begin();
        let Place { pid, tid } = place;
        push(
            &mut self.line,
            format_args!(
                "{{\"ph\":\"i\",\"s\":\"t\",\"cat\":\"{category}\",\"name\":{name},\"pid\":{pid},\"tid\":{tid}"
            ),
        );
        self.time("ts", time_ns);
        self.finish(args)
    }

    /// A sample of a counter (`ph` C). `name` is a JSON string.
    pub fn counter(&mut self, name: &str, place: Place, time_ns: i64, value: f64) -> io::Result<()> {
        self.begin();
        let Place { pid, tid } = place;
        push(
            &mut self.line,
            format_args!("{{\"ph\":\"C\",\"cat\":\"counter\",\"name\":{name},\"pid\":{pid},\"tid\":{tid}"),
        );
        self.time("ts", time_ns);
        self.finish(|args| args.raw("value", value))
    }

    /// The arrow from a launch to the operation it launched. Both stamps are their slices' starts.
    pub fn flow(&mut self, id: u64, from: (Place, i64), to: (Place, i64)) -> io::Result<()> {
        for (phase, bind, (place, time_ns)) in [("s", "", from), ("f", ",\"bp\":\"e\"", to)] {
            self.begin();
            let Place { pid, tid } = place;
            push(
                &mut self.line,
                format_args!(
                    "{{\"ph\":\"{phase}\"{bind},\"id\":{id},\"cat\":\"ac2g\",\"name\":\"ac2g\",\"pid\":{pid},\"tid\":{tid}"
                ),
            );
            self.time("ts", time_ns);
            self.line.push(b'}');
            self.out.write_all(&self.line)?;
        }
        Ok(())
    }

    /// Metadata (`ph` M): `what` is `process_name`, `thread_sort_index`, ...; `value` is JSON.
    pub fn metadata(&mut self, what: &str, place: Place, value: &str) -> io::Result<()> {
        self.metadata_with(what, place, value, |_| {})
    }

    fn metadata_with(
        &mut self,
        what: &str,
        place: Place,
        value: &str,
        more: impl FnOnce(&mut Args<'_>),
    ) -> io::Result<()> {
        let key = match what {
            "process_name" | "thread_name" => "name",
            "process_labels" => "labels",
            _ => "sort_index",
        };
        self.begin();
        let Place { pid, tid } = place;
        push(
            &mut self.line,
            format_args!("{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{pid},\"tid\":{tid},\"ts\":0.000"),
        );
        self.finish(|args| {
            args.raw(key, value);
            more(args);
        })
    }
}
