//! NVTX ranges and marks, and calls of MPI, which older versions write as NVTX ranges and newer ones as tables. Ranges by which
//! PyTorch tells of operators and modules become those.

use std::cmp::Reverse;

use gputrace_trace::pytorch::{self, Range};
use gputrace_trace::tables::{Marker, Markers, Operator, PythonFrame, Tables};
use gputrace_trace::{DurationNs, Interner, NameId, Table, TimeNs};
use rustc_hash::FxHashMap;

use super::losses::Wrong;
use super::rows::{Import, Wanted, maybe, thread_of};

/// Kinds of our markers.
const PUSH_POP: u8 = 0;
const START_END: u8 = 1;
const MARK: u8 = 2;
/// `NvtxThread` of `ENUM_NSYS_EVENT_TYPE`: a thread's name.
const THREAD_NAME: i64 = 39;
/// `NvtxDomainCreate`: a domain's name.
const DOMAIN_CREATE: i64 = 75;

const NVTX: Wanted = Wanted {
    table: "NVTX_EVENTS",
    needed: &["start", "eventType", "globalTid"],
    optional: &[
        "end",
        "textId",
        "domainId",
        "category",
        "color",
        // Not integers: the text and, of one row at most one, the payloads.
        "text",
        "uint64Value",
        "int64Value",
        "doubleValue",
        "uint32Value",
        "int32Value",
        "floatValue",
    ],
    affects: "NVTX ranges and marks",
};
const TEXT: usize = 8;
/// The payloads' columns, in the order of `nvtxPayloadType_t` from 1 on; and three of its values.
const PAYLOADS: std::ops::Range<usize> = 9..15;
const UINT64: u8 = 1;
const DOUBLE: u8 = 3;
const FLOAT: u8 = 6;

const MPI_NEEDED: &[&str] = &["start", "end", "globalTid"];
const MPI_AFFECTS: &str = "MPI calls: what the host waited for";

const fn mpi(table: &'static str) -> Wanted {
    Wanted {
        table,
        needed: MPI_NEEDED,
        optional: &["textId"],
        affects: MPI_AFFECTS,
    }
}

const MPI: [Wanted; 4] = [
    mpi("MPI_COLLECTIVES_EVENTS"),
    mpi("MPI_P2P_EVENTS"),
    mpi("MPI_START_WAIT_EVENTS"),
    mpi("MPI_OTHER_EVENTS"),
];

/// What an NVTX row is to us.
enum Event {
    Range(u8),
    Mark,
    /// A begin or an end that found no other.
    HalfRange,
    Other,
}

/// `ENUM_NSYS_EVENT_TYPE`: the rows of NVTX, and of text files in its format.
fn event(kind: i64) -> Event {
    match kind {
        59 | 70 => Event::Range(PUSH_POP),
        60 | 71 => Event::Range(START_END),
        34 | 65 => Event::Mark,
        35..=38 | 66..=69 => Event::HalfRange,
        _ => Event::Other,
    }
}

/// Reads all ranges and marks of processes that used CUDA.
pub(super) fn read(import: &mut Import<'_>) {
    let mut elsewhere = nvtx(import);
    for wanted in &MPI {
        elsewhere += mpi_calls(import, wanted);
    }
    if elsewhere > 0 {
        import.notes.push(format!(
            "{elsewhere} NVTX and MPI rows of processes that used no CUDA are left out"
        ));
    }
    for found in import.processes.list_mut() {
        set_depths(&mut found.tables.markers);
    }
}

/// Names of domains by process and number, and of threads. They are read first: a domain is often named after its first
/// range.
fn domains(import: &mut Import<'_>) -> FxHashMap<(i64, i64), NameId> {
    let mut domains = FxHashMap::default();
    let database = import.database;
    let columns = ["eventType", "globalTid", "domainId", "textId", "text"];
    let kinds = [THREAD_NAME, DOMAIN_CREATE];
    // Where the table ends early is found, and said, when its ranges are read.
    drop(database.each_with(NVTX.table, &columns, &kinds, |cells| {
        let (Ok(kind), Ok(Some(global))) = (cells.integer(0), cells.integer(1)) else {
            return;
        };
        let by_id = cells.integer(3).ok().flatten();
        let by_id = by_id.and_then(|id| import.strings.text(id, &mut import.names));
        let text = cells.text(4).ok().flatten();
        let Some(name) = text.map(|text| import.names.intern(&text)).or(by_id) else {
            return;
        };
        if kind == Some(THREAD_NAME) {
            import.thread_names.push((global, name));
        } else if let Ok(Some(domain)) = cells.integer(2) {
            domains.insert((global >> 24, domain), name);
        }
    }));
    domains
}

/// Returns how many rows were of processes that used no CUDA.
fn nvtx(import: &mut Import<'_>) -> u64 {
    let domains = domains(import);
    let mut elsewhere = 0;
    import.read(&NVTX, |import, cells| {
        let [start, kind, global] = cells.needed()?;
        let [end, text_id, domain, category, color] = cells.optional()?;
        let kind = match event(kind) {
            Event::Range(kind) => kind,
            Event::Mark => MARK,
            Event::HalfRange => return Err(Wrong::Open),
            Event::Other => return Ok(()),
        };
        let Some(place) = import.processes.known(global) else {
            elsewhere += 1;
            return Ok(());
        };
        let (start_ns, duration_ns) = match end {
            _ if kind == MARK => (import.time(start)?, None),
            Some(end) => {
                let (start_ns, duration_ns) = import.span(start, end)?;
                (start_ns, Some(duration_ns))
            }
            None => return Err(Wrong::Open),
        };
        let (mut payload, mut payload_type, mut payload_integer) = (None, None, None);
        for (index, kind) in PAYLOADS.zip(1..) {
            let Some(number) = cells.number(index)? else {
                continue;
            };
            (payload, payload_type) = (Some(number), Some(kind));
            if !matches!(kind, DOUBLE | FLOAT) {
                payload_integer = cells.integer(index)?.map(i64::cast_unsigned);
            }
            if kind == UINT64 {
                payload = payload_integer.map(|integer| integer as f64);
            }
            break;
        }
        let text = cells.text(TEXT)?;
        let is_text_alone = kind == PUSH_POP
            && domain.unwrap_or(0) == 0
            && category.unwrap_or(0) == 0
            && color.is_none()
            && payload.is_none();
        let said = match &text {
            Some(text) if is_text_alone => pytorch::range(text.as_bytes()),
            _ => None,
        };
        if let (Some(said @ (Range::Operator(_) | Range::Module(_))), Some(duration_ns)) =
            (&said, duration_ns)
        {
            let tables = &mut import.processes.list_mut()[place].tables;
            let span = (start_ns, duration_ns, thread_of(global));
            of_pytorch(said, span, tables, &mut import.names);
            return Ok(());
        }
        let name = match &text {
            Some(text) => import.names.intern(said.map_or(text, |said| said.name())),
            None => import.strings.first_of(&[text_id], &mut import.names),
        };
        let domain = match domain {
            None | Some(0) => NameId::default(),
            Some(number) => match domains.get(&(global >> 24, number)) {
                Some(&name) => name,
                None => import.names.intern(&format!("domain {number}")),
            },
        };
        let marker = Marker {
            start_ns,
            duration_ns,
            name,
            domain,
            thread: thread_of(global),
            kind,
            depth: 0,
            category: maybe(category)?,
            // 32 bits; some versions write them signed.
            color: color.map(|color| color as u32),
            payload,
            payload_type,
            payload_integer,
        };
        import.processes.list_mut()[place].tables.markers.push(marker);
        Ok(())
    });
    elsewhere
}

/// An operator or a module. PyTorch registers no texts, so that those that stand in the row are all.
fn of_pytorch(
    said: &Range<'_>,
    (start_ns, duration_ns, thread): (TimeNs, DurationNs, u32),
    tables: &mut Tables,
    names: &mut Interner,
) {
    let Range::Operator(operator) = said else {
        tables.python_frames.push(PythonFrame {
            start_ns,
            duration_ns,
            name: names.intern(said.name()),
            thread,
            number: None,
        });
        return;
    };
    tables.operators.push(Operator {
        start_ns,
        duration_ns,
        name: names.intern(operator.name),
        thread,
        input_dims: operator.input_dims.map(|list| names.intern(list)),
        input_types: operator.input_types.map(|list| names.intern(list)),
        input_values: None,
        sequence: operator.sequence,
        forward_thread: operator.forward_thread,
        number: operator.number,
    });
}

/// MPI calls in tables of their own become ranges of the domain "MPI", as they were in older versions.
fn mpi_calls(import: &mut Import<'_>, wanted: &Wanted) -> u64 {
    let mut elsewhere = 0;
    import.read(wanted, |import, cells| {
        let [start, end, global] = cells.needed()?;
        let [text_id] = cells.optional()?;
        let Some(place) = import.processes.known(global) else {
            elsewhere += 1;
            return Ok(());
        };
        let (start_ns, duration_ns) = import.span(start, end)?;
        let name = import.strings.first_of(&[text_id], &mut import.names);
        let marker = Marker {
            start_ns,
            duration_ns: Some(duration_ns),
            name,
            domain: import.names.intern("MPI"),
            thread: thread_of(global),
            kind: PUSH_POP,
            ..Marker::default()
        };
        import.processes.list_mut()[place].tables.markers.push(marker);
        Ok(())
    });
    elsewhere
}

/// How many push/pop ranges of its thread and domain enclose each range or mark.
fn set_depths(markers: &mut Markers) {
    let end = |markers: &Markers, index: usize| {
        markers.duration_ns[index].map_or(markers.start_ns[index], |length| markers.start_ns[index] + length)
    };
    let mut order: Vec<usize> = (0..markers.len())
        .filter(|&index| markers.kind[index] != START_END)
        .collect();
    // Of two that begin together the longer encloses; of two equal ones, the one that was written later (a range is
    // written when it ends).
    order.sort_by_key(|&index| {
        let place = (
            markers.thread[index],
            markers.domain[index],
            markers.start_ns[index],
        );
        (place, markers.kind[index], Reverse((end(markers, index), index)))
    });
    let mut open = Vec::new();
    let mut lane = None;
    for index in order {
        let this = (markers.thread[index], markers.domain[index]);
        if lane != Some(this) {
            lane = Some(this);
            open.clear();
        }
        let (start, until) = (markers.start_ns[index], end(markers, index));
        // Ranges nest: whatever ended before this one begins, or ends inside of it, does not enclose it.
        while open
            .last()
            .is_some_and(|&last| last < until || (last <= start && until > start))
        {
            open.pop();
        }
        markers.depth[index] = u16::try_from(open.len()).unwrap_or(u16::MAX);
        if markers.kind[index] == PUSH_POP {
            open.push(until);
        }
    }
}
