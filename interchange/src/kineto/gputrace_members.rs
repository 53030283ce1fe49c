//! What our own export says beyond Kineto's words, taken back: `gputrace` in events' `args`, in events called so, and
//! beside `traceEvents` (docs/formats.md describes it). With it a recording comes back as it was.

use gputrace_trace::alignment::Alignment;
use gputrace_trace::json_file::Versioned;

use gputrace_trace::manifest::{Manifest, ProcessHeader};
use gputrace_trace::tables::{Counter, Tables};
use gputrace_trace::{Interner, Loss, NameId, Table, TimeNs};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;

use super::converter::Converter;
use super::event::Event;
use super::gputrace_process::OwnProcess;
use super::number::{float, integer, microseconds_to_ns};
use super::scan::{Cursor, Go, Raw, members};
use super::text::{Names, decode};
use crate::cells::{self, Found};

/// What stands beside `traceEvents`: what is true of the whole recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnRecording {
    pub(crate) manifest: Manifest,
    pub(crate) losses: Vec<Loss>,
    pub(crate) notes: Vec<String>,
    pub(crate) unaligned: Option<String>,
    pub(crate) clocks: Option<Alignment>,
}

impl OwnRecording {
    /// `None` for what is no export of this version or later.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        value.get("export")?.as_u64().filter(|version| *version == 2)?;
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(ToOwned::to_owned);
        let list = |key: &str| value.get(key).and_then(Value::as_array).into_iter().flatten();
        Some(Self {
            manifest: Manifest::from_value(value.get("manifest")?.clone()).ok()?,
            losses: list("losses")
                .filter_map(|loss| {
                    Some(Loss {
                        what: text(loss, "what")?,
                        count: loss.get("count").and_then(Value::as_u64),
                        affects: text(loss, "affects")?,
                    })
                })
                .collect(),
            notes: list("notes")
                .filter_map(|note| note.as_str().map(ToOwned::to_owned))
                .collect(),
            unaligned: text(value, "unaligned"),
            clocks: value
                .get("clocks")
                .and_then(|clocks| Option::deserialize(clocks).ok()?),
        })
    }
}

/// Takes in an event called "gputrace": of its process the header, or rows of a table.
#[cold]
pub(crate) fn describe(converter: &mut Converter, event: &Event<'_>) {
    let Some(args) = event.args else { return };
    let mut table = None;
    let mut rows = None;
    let _ = members(&mut Cursor::new(args), |key, value| {
        match (key, value) {
            (b"table", Raw::Text(text)) => table = Some(text.bytes),
            (b"rows", Raw::Nested(list)) => rows = Some(list),
            _ => {}
        }
        Go::On
    });
    if let (Some(table), Some(rows)) = (table, rows) {
        elements(rows, |row| {
            restore(&mut converter.tables, table, None, row, &mut converter.names);
        });
        return;
    }
    let Ok(value) = serde_json::from_slice::<Value>(args) else {
        return;
    };
    let Some(header) = value.get("header") else { return };
    let pairs = |of: &str| -> Vec<(String, String)> {
        let list = value.get("names").and_then(|names| names.get(of)?.as_array());
        let text = |value: &Value, place: usize| Some(value.get(place)?.as_str()?.to_owned());
        list.into_iter()
            .flatten()
            .filter_map(|pair| Some((text(pair, 0)?, text(pair, 1)?)))
            .collect()
    };
    converter.own = Some(Box::new(OwnProcess {
        header: ProcessHeader::from_value(header.clone()).unwrap_or_default(),
        folder: value
            .get("folder")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        devices: FxHashMap::default(),
        kernels: pairs("kernels"),
        calls: pairs("calls"),
    }));
}

/// Calls `visit` with the objects of an array.
fn elements<'a>(array: &'a [u8], mut visit: impl FnMut(&'a [u8])) {
    let mut cursor = Cursor::new(array);
    if cursor.expect(b'[').is_err() {
        return;
    }
    while let Ok(token) = cursor.token() {
        match token {
            b']' => return,
            b',' => cursor.advance(),
            _ => match cursor.value() {
                Ok(Raw::Nested(object)) => visit(object),
                Ok(_) => {}
                Err(_) => return,
            },
        }
    }
}

/// The member `gputrace` of an event's `args`.
fn ours(args: Option<&[u8]>) -> Option<&[u8]> {
    const KEY: &[u8] = b"\"gputrace\":{";
    let args = args?;
    // It comes last, and most events have none.
    let at = memchr::memmem::rfind(args, KEY)? + KEY.len() - 1;
    match Cursor::new(&args[at..]).value() {
        Ok(Raw::Nested(object)) => Some(object),
        _ => None,
    }
}

/// Takes an event in that Kineto has no words for, or not enough. Whether it did.
pub(crate) fn take(converter: &mut Converter, event: &Event<'_>) -> bool {
    match event.phase {
        b'C' => counter(converter, event),
        b'X' | b'i' => {
            let Some(object) = ours(event.args) else {
                return false;
            };
            let mut table = None;
            let _ = members(&mut Cursor::new(object), |key, value| match (key, value) {
                (b"table", Raw::Text(text)) => {
                    table = Some(text.bytes);
                    Go::Enough
                }
                _ => Go::On,
            });
            match table {
                Some(table) => row(converter, event, table, object),
                None => more(converter, event, object),
            }
            true
        }
        _ => false,
    }
}

/// A row of a table that Kineto has no events for.
fn row(converter: &mut Converter, event: &Event<'_>, table: &[u8], object: &[u8]) {
    let Ok(time_ns) = microseconds_to_ns(event.ts.unwrap_or_default()) else {
        converter.counts.no_time += 1;
        return;
    };
    let duration_ns = event.dur.and_then(|text| microseconds_to_ns(text).ok());
    // These say themselves whether they have a start.
    let when = (table != b"untimed_operations").then_some((time_ns, duration_ns));
    let tables = &mut converter.tables;
    if restore(tables, table, when, object, &mut converter.names) && table == b"collectives" {
        // Its kernel is found through the plan.
        if let Some(kernel) = tables.collectives.kernel.last_mut() {
            *kernel = None;
        }
    }
}

/// What an event of Kineto's says beyond its words.
fn more(converter: &mut Converter, event: &Event<'_>, object: &[u8]) {
    let kernels = converter.tables.kernels.len() as u64;
    macro_rules! grown {
        ($($name:ident),*) => {
            let before = [$(converter.tables.$name.len()),*];
            converter.usual(event);
            let mut place = 0;
            $(
                if converter.tables.$name.len() > before[place] {
                    fill(&mut converter.tables.$name, object, &mut converter.names);
                }
                place += 1;
            )*
            let _ = place;
        };
    }
    grown!(
        kernels,
        copies,
        memsets,
        api_calls,
        synchronizations,
        overheads,
        markers,
        operators,
        python_frames
    );
    // What the sum of the two is stands in Kineto's member.
    let table = &mut converter.tables.kernels;
    if table.len() as u64 > kernels {
        let last = table.len() - 1;
        table.static_shared_bytes[last] =
            table.static_shared_bytes[last].wrapping_sub(table.dynamic_shared_bytes[last]);
        let _ = members(&mut Cursor::new(object), |key, value| {
            if let (b"collectives", Raw::Nested(list)) = (key, value) {
                elements(list, |row| {
                    let collectives = &mut converter.tables.collectives;
                    cells::push_row(collectives);
                    fill(collectives, row, &mut converter.names);
                    let place = collectives.len() - 1;
                    let table = &converter.tables.kernels;
                    collectives.start_ns[place] = table.start_ns[last];
                    collectives.duration_ns[place] = table.duration_ns[last];
                    collectives.kernel[place] = Some(last as u64);
                });
            }
            Go::On
        });
    }
}

/// Start or moment, and duration.
type When = (i64, Option<i64>);

/// Says when the last row is. What its members say comes after, and counts.
fn set_times<T: Table>(table: &mut T, (time_ns, duration_ns): When, names: &mut Interner) {
    let mut set = |column: &[u8], ns: i64| {
        let text = ns.to_string();
        cells::set(table, column, Found::Scalar(text.as_bytes()), names);
    };
    set(b"start_ns", time_ns);
    set(b"time_ns", time_ns);
    if let Some(duration_ns) = duration_ns {
        set(b"duration_ns", duration_ns);
    }
}

/// Appends a row of a table; whether there is a table of that name.
fn restore(tables: &mut Tables, table: &[u8], when: Option<When>, object: &[u8], names: &mut Names) -> bool {
    macro_rules! by_name {
        ($($name:ident),* $(,)?) => {
            match table {
                $(name if name == stringify!($name).as_bytes() => {
                    cells::push_row(&mut tables.$name);
                    if let Some(when) = when {
                        set_times(&mut tables.$name, when, &mut names.interner);
                    }
                    fill(&mut tables.$name, object, names);
                    true
                })*
                _ => false,
            }
        };
    }
    by_name!(
        graph_nodes,
        graph_launches,
        untimed_operations,
        collectives,
        nccl_channels,
        nccl_proxy,
        communicators,
        event_records,
        modules,
        compilations,
        markers,
        payload_fields,
        object_names,
        memory,
        memory_pools,
        counters,
        external_correlations,
        stack_frames,
        launch_stacks,
        contexts,
        streams,
        clocks,
        windows,
        losses,
    )
}

/// Says of the last row what an object's members say.
fn fill<T: Table>(table: &mut T, object: &[u8], names: &mut Names) {
    let _ = members(&mut Cursor::new(object), |key, value| {
        let Names {
            interner, trouble, ..
        } = &mut *names;
        match value {
            Raw::Scalar(bytes) => drop(cells::set(table, key, Found::Scalar(bytes), interner)),
            Raw::Text(text) => {
                let text = decode(text, trouble);
                cells::set(table, key, Found::Text(&text), interner);
            }
            Raw::Nested(_) => {}
        }
        Go::On
    });
}

/// A sample of a counter: its device is that of the "process", what else it is about stands behind its name.
fn counter(converter: &mut Converter, event: &Event<'_>) -> bool {
    let (Some(name), Some(args)) = (event.name, event.args) else {
        return false;
    };
    let mut value = None;
    let _ = members(&mut Cursor::new(args), |key, found| {
        if let (b"value", Raw::Scalar(bytes)) = (key, found) {
            value = float(bytes);
        }
        Go::On
    });
    let Some(value) = value else { return false };
    let Ok(time_ns) = microseconds_to_ns(event.ts.unwrap_or_default()) else {
        converter.counts.no_time += 1;
        return true;
    };
    let text = converter.names.text(name);
    let (text, pid, thread) = about(&text);
    let own = converter.own.as_deref();
    let device = own.and_then(|own| own.devices.get(event.pid).copied());
    converter.tables.counters.push(Counter {
        time_ns: TimeNs(time_ns),
        name: converter.names.interner.intern(text),
        device,
        value,
        pid,
        thread,
    });
    true
}

/// "cpu_cores (process 4711, thread 4712)" in its parts.
fn about(text: &str) -> (&str, Option<u32>, Option<u32>) {
    let parts = || {
        let (name, of) = text.strip_suffix(')')?.rsplit_once(" (process ")?;
        let (pid, thread) = match of.split_once(", thread ") {
            Some((pid, thread)) => (pid, Some(thread.parse().ok()?)),
            None => (of, None),
        };
        Some((name, Some(pid.parse().ok()?), thread))
    };
    parts().unwrap_or((text, None, None))
}

/// Gives kernels and calls the names back that they had before the export.
pub(crate) fn rename(tables: &mut Tables, own: &OwnProcess, names: &mut Interner) {
    for (column, pairs) in [
        (&mut tables.kernels.name, &own.kernels),
        (&mut tables.api_calls.name, &own.calls),
    ] {
        let numbers: FxHashMap<NameId, NameId> = pairs
            .iter()
            .filter_map(|(written, original)| Some((names.find(written)?, names.intern(original))))
            .collect();
        if !numbers.is_empty() {
            for name in column.iter_mut() {
                *name = numbers.get(name).copied().unwrap_or(*name);
            }
        }
    }
}

/// The device that a "process_name" of ours says it is of.
pub(crate) fn device(args: &[u8]) -> Option<u32> {
    let mut device = None;
    let _ = members(&mut Cursor::new(args), |key, value| {
        if let (b"device", Raw::Scalar(bytes)) = (key, value) {
            device = integer(bytes).and_then(|value| u32::try_from(value).ok());
        }
        Go::On
    });
    device
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_say_what_they_are_about() {
        assert_eq!(about("power_watts"), ("power_watts", None, None));
        assert_eq!(
            about("cpu_cores (process 4711, thread 4712)"),
            ("cpu_cores", Some(4711), Some(4712))
        );
        assert_eq!(about("a (b) (process 7)"), ("a (b)", Some(7), None));
        assert_eq!(about("a (process x)"), ("a (process x)", None, None));
    }

    #[test]
    fn ours_is_cut_out() {
        assert_eq!(
            ours(Some(br#"{"a":"x","gputrace":{"b":{"c":1}}}"#)),
            Some(br#"{"b":{"c":1}}"#.as_slice())
        );
        assert_eq!(ours(Some(br#"{"a":"\"gputrace\":{"}"#)), None);
        assert_eq!(ours(Some(br#"{"a":1}"#)), None);
    }
}
