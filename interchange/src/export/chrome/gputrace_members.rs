//! What Kineto has no words for: the member `gputrace` of events' `args`, and the events called so, with which a recording
//! comes back whole (docs/formats.md).

use std::io;

use gputrace_trace::{Interner, NameId, Table};

use super::event::{EventWriter, Place};
use super::operator_args;
use crate::cells::{self, Named};
use crate::export::layout::Layout;
use crate::json;

/// So many rows of a table without events are one event.
const ROWS_AN_EVENT: usize = 1000;

/// The columns of each table that an event's own members leave out; of the tables that Kineto has no events for, all.
pub struct Columns<'r> {
    pub kernels: Vec<Named<'r>>,
    pub copies: Vec<Named<'r>>,
    pub memsets: Vec<Named<'r>>,
    pub api_calls: Vec<Named<'r>>,
    pub synchronizations: Vec<Named<'r>>,
    pub overheads: Vec<Named<'r>>,
    pub markers: Vec<Named<'r>>,
    pub operators: Vec<Named<'r>>,
    /// The same, of operators of the backward pass whose forward operator's thread is not known.
    pub backward_operators: Vec<Named<'r>>,
    /// The same, of operators whose arguments Kineto could not have written.
    pub odd_operators: Vec<Named<'r>>,
    pub python_frames: Vec<Named<'r>>,
    pub collectives: Vec<Named<'r>>,
    pub windows: Vec<Named<'r>>,
    pub compilations: Vec<Named<'r>>,
    pub nccl_proxy: Vec<Named<'r>>,
    pub nccl_channels: Vec<Named<'r>>,
    pub graph_launches: Vec<Named<'r>>,
    pub untimed_operations: Vec<Named<'r>>,
    pub memory: Vec<Named<'r>>,
    pub memory_pools: Vec<Named<'r>>,
    pub counters: Vec<Named<'r>>,
    pub marks: Vec<Named<'r>>,
}

/// Members that say when: `ts` and `dur` do.
const TIMES: [&str; 3] = ["start_ns", "duration_ns", "time_ns"];

fn all<'r, T: Table>(table: &'r T) -> Vec<Named<'r>> {
    cells::columns(table, &TIMES)
}

fn but<'r, T: Table>(table: &'r T, said: &[&str]) -> Vec<Named<'r>> {
    let without: Vec<&str> = TIMES.iter().chain(said).copied().collect();
    cells::columns(table, &without)
}

impl<'r> Columns<'r> {
    pub fn new(layout: &Layout<'r>) -> Self {
        let tables = &layout.process.tables;
        let of_gpu = [
            "device",
            "context",
            "stream",
            "correlation",
            "graph",
            "graph_node",
        ];
        let on_gpu =
            |said: &[&'static str]| -> Vec<&'static str> { of_gpu.iter().chain(said).copied().collect() };
        Self {
            kernels: but(
                &tables.kernels,
                &on_gpu(&[
                    "name",
                    "grid_x",
                    "grid_y",
                    "grid_z",
                    "block_x",
                    "block_y",
                    "block_z",
                    "registers",
                    "static_shared_bytes",
                ]),
            ),
            copies: but(
                &tables.copies,
                &on_gpu(&[
                    "bytes",
                    "copy_kind",
                    "source_kind",
                    "destination_kind",
                    "source_device",
                    "destination_device",
                ]),
            ),
            memsets: but(&tables.memsets, &on_gpu(&["bytes", "memory_kind"])),
            api_calls: but(
                &tables.api_calls,
                &["name", "kind", "callback", "thread", "correlation"],
            ),
            synchronizations: but(
                &tables.synchronizations,
                &["kind", "context", "stream", "event", "correlation"],
            ),
            overheads: but(&tables.overheads, &["kind"]),
            markers: but(&tables.markers, &["name", "thread"]),
            operators: but(
                &tables.operators,
                &[&["name", "thread"], operator_args::COLUMNS].concat(),
            ),
            backward_operators: {
                let mut said = [&["name", "thread"], operator_args::COLUMNS].concat();
                said.retain(|column| *column != "forward_thread");
                but(&tables.operators, &said)
            },
            odd_operators: but(&tables.operators, &["name", "thread"]),
            python_frames: but(&tables.python_frames, &["name", "thread"]),
            collectives: but(&tables.collectives, &["kernel"]),
            windows: all(&tables.windows),
            compilations: all(&tables.compilations),
            nccl_proxy: all(&tables.nccl_proxy),
            nccl_channels: all(&tables.nccl_channels),
            graph_launches: all(&tables.graph_launches),
            // Its start may be absent, so it is no stamp like others.
            untimed_operations: cells::columns(&tables.untimed_operations, &[]),
            memory: all(&tables.memory),
            memory_pools: all(&tables.memory_pools),
            counters: all(&tables.counters),
            marks: all(&tables.markers),
        }
    }
}

/// What of a row its event can't show: a start before the base of all times (relative to that), a negative duration, the
/// thread of what is shown in another row than that thread's first, kinds without a name.
#[derive(Clone, Debug, Default)]
pub struct Odd {
    members: Vec<(&'static str, i128)>,
    /// The name, where others are written alike.
    pub name: Option<NameId>,
}

impl Odd {
    pub fn say(&mut self, key: &'static str, value: impl Into<i128>) {
        self.members.push((key, value.into()));
    }

    #[inline]
    pub fn say_if(&mut self, odd: bool, key: &'static str, value: impl Into<i128>) {
        if odd {
            self.say(key, value);
        }
    }

    /// Says the thread, where its place has another number.
    #[inline]
    pub fn thread(&mut self, thread: u32, place: &Place) {
        self.say_if(place.tid != u64::from(thread), "thread", thread);
    }

    pub fn write(&self, writer: &mut EventWriter<'_>, names: &Interner) {
        for (key, value) in &self.members {
            writer.signed(key, *value);
        }
        if let Some(name) = self.name {
            writer.text("name", names.get(name));
        }
    }

    #[inline]
    fn is_none(&self) -> bool {
        self.members.is_empty() && self.name.is_none()
    }
}

impl EventWriter<'_> {
    /// Ends an event of Kineto's with what its members leave out.
    #[inline]
    pub fn end_with(
        &mut self,
        columns: &[Named<'_>],
        row: usize,
        odd: &Odd,
        names: &Interner,
    ) -> io::Result<()> {
        if columns.iter().any(|column| !column.cells.is_absent(row)) || !odd.is_none() {
            self.open("gputrace", b'{');
            self.own_members(columns, row, names);
            odd.write(self, names);
            self.line.push(b'}');
        }
        self.end()
    }

    /// Ends an event that Kineto has none like: all of its row.
    pub fn end_as_row(
        &mut self,
        table: &str,
        columns: &[Named<'_>],
        row: usize,
        odd: &Odd,
        names: &Interner,
    ) -> io::Result<()> {
        self.open("gputrace", b'{');
        self.text("table", table);
        self.own_members(columns, row, names);
        odd.write(self, names);
        self.line.push(b'}');
        self.end()
    }

    /// The members of a row, into the object that is open.
    pub fn own_members(&mut self, columns: &[Named<'_>], row: usize, names: &Interner) {
        let base_ns = self.base_ns();
        if self.line.last() == Some(&b'{') {
            cells::write_members(columns, row, &mut self.line, names, base_ns);
            return;
        }
        self.line.push(b',');
        let before = self.line.len();
        cells::write_members(columns, row, &mut self.line, names, base_ns);
        if self.line.len() == before {
            self.line.pop();
        }
    }
}

/// Writes what is true of a process as a whole, and its tables that have no events. It is called by its place in the file
/// and the number of its host "process".
pub fn write_process(
    layout: &Layout<'_>,
    (number, pid): (u64, u64),
    names: &[(&str, &[(String, String)])],
    writer: &mut EventWriter<'_>,
) -> io::Result<()> {
    let process = layout.process;
    writer.metadata("gputrace", pid, 0);
    writer.unsigned("process", number);
    writer.text("folder", &process.folder);
    let header = serde_json::to_string(&process.header).map_err(io::Error::other)?;
    writer.raw("header", &without_controls(&header));
    writer.open("names", b'{');
    for (of, pairs) in names.iter().filter(|(_, pairs)| !pairs.is_empty()) {
        writer.open(of, b'[');
        for (place, (written, original)) in pairs.iter().enumerate() {
            if place > 0 {
                writer.line.push(b',');
            }
            writer.line.push(b'[');
            json::push_string(&mut writer.line, written);
            writer.line.push(b',');
            json::push_string(&mut writer.line, original);
            writer.line.push(b']');
        }
        writer.line.push(b']');
    }
    writer.line.push(b'}');
    writer.end()?;
    let tables = &process.tables;
    macro_rules! write {
        ($($table:ident),* $(,)?) => {
            $(write_table(layout, pid, stringify!($table), &tables.$table, writer)?;)*
        };
    }
    write!(
        communicators,
        contexts,
        streams,
        graph_nodes,
        external_correlations,
        stack_frames,
        launch_stacks,
        event_records,
        object_names,
        payload_fields,
        modules,
        clocks,
        losses,
    );
    Ok(())
}

fn write_table<T: Table>(
    layout: &Layout<'_>,
    pid: u64,
    name: &str,
    table: &T,
    writer: &mut EventWriter<'_>,
) -> io::Result<()> {
    let columns = cells::columns(table, &[]);
    let base_ns = writer.base_ns();
    for first in (0..table.len()).step_by(ROWS_AN_EVENT) {
        writer.metadata("gputrace", pid, 0);
        writer.text("table", name);
        writer.open("rows", b'[');
        for row in first..table.len().min(first + ROWS_AN_EVENT) {
            if row > first {
                writer.line.push(b',');
            }
            writer.line.push(b'{');
            cells::write_members(&columns, row, &mut writer.line, &layout.recording.names, base_ns);
            writer.line.push(b'}');
        }
        writer.line.push(b']');
        writer.end()?;
    }
    Ok(())
}

/// JSON of serde's without escaped control characters, which some consumers refuse: spaces instead.
pub fn without_controls(json: &str) -> Vec<u8> {
    let bytes = json.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escape = if byte == b'\\' {
            bytes.get(at + 1).copied()
        } else {
            None
        };
        match escape {
            Some(b'u') => {
                out.push(b' ');
                at += 6;
            }
            Some(b'n' | b't' | b'r' | b'b' | b'f') => {
                out.push(b' ');
                at += 2;
            }
            Some(other) => {
                out.extend_from_slice(&[b'\\', other]);
                at += 2;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_become_spaces() {
        let text = serde_json::to_string("a\u{1}b\n\"c\\n\"").unwrap();
        let clean = String::from_utf8(without_controls(&text)).unwrap();
        assert_eq!(serde_json::from_str::<String>(&clean).unwrap(), "a b \"c\\n\"");
    }
}
