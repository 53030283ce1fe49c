//! The one table of kinds of records: who asks for each, where its rows go, and how it is read. How long records are is asked of
//! the running CUPTI ([`crate::records::RecordSizes`]); those of user-defined records are as long as their struct (`fields`).
//!
//! A new kind is a number in `records/kind.rs`, its struct in `records/`, the function in `decode/rows.rs` that makes its row,
//! and its row here. Without the last it does not compile.

use std::mem::offset_of;

use gputrace_trace::Table;
use gputrace_trace::options::{CollectorOptions, Kind};
use gputrace_trace::tables;

use crate::decode::rows::{self, Decode};
use crate::records::{self, kind};
use crate::user_defined::fields::{self, KindFields};

/// All that is known of a kind of record.
pub struct RecordKind {
    /// `CUpti_ActivityKind`.
    pub kind: u32,
    /// What its records tell of, as notes say it: "... are not recorded".
    pub(crate) what: &'static str,
    /// When CUPTI is asked for it.
    pub(crate) asked: Asked,
    /// The recording's table that its rows go to, under whose name those are counted that are dropped or left out; `None` where
    /// they go into the process's header.
    pub(crate) table: Option<&'static str>,
    /// Makes its row.
    pub(crate) decode: Decode,
    /// What a record says of its time, for windows.
    pub(crate) moment: Moment,
    /// Where in a record addresses of texts stand: offsets of members of 8 bytes.
    pub(crate) texts: &'static [usize],
    /// Memory that comes with a record and is its reader's to free.
    pub(crate) owned: Option<Owned>,
    /// The fields that are asked for as one of several subscribers; `None` where the kind can't be recorded so.
    pub fields: Option<KindFields>,
}

/// When CUPTI is asked for a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Always. Each record comes once only, so it is never switched off.
    Always,
    /// Where this is to be recorded (`--kinds`).
    For(Kind),
    /// The same, if graphs are recorded as wholes.
    ForWholeGraphs(Kind),
    /// The same, from this version of CUPTI on (`cuptiGetVersion`): older ones refuse, and deliver it unasked with another kind
    /// of that word.
    ForSince(Kind, u32),
    /// Never: it comes only when another profiler asks for it.
    Never,
}

impl Asked {
    /// The word of `--kinds` that asks for it.
    pub(crate) fn by(self) -> Option<Kind> {
        match self {
            Self::For(kind) | Self::ForWholeGraphs(kind) | Self::ForSince(kind, _) => Some(kind),
            Self::Always | Self::Never => None,
        }
    }
}

/// What a record says of its time: offsets of the members that do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A kernel, copy or memset: its start on the device (0 without times), and its launch's correlation id.
    Operation { start: usize, correlation: usize },
    /// A call of the driver or the runtime.
    Call { start: usize, correlation: usize },
    /// Something on the host that belongs where it began.
    Began { start: usize },
    /// Something without a time of its own that is joined to a call.
    Joined { correlation: usize },
    /// None: it is kept always.
    Always,
}

/// Memory of `malloc` that is the client's to free.
#[derive(Clone, Copy)]
pub(crate) struct Owned {
    /// The offset of its address.
    pub(crate) address: usize,
    /// Frees it. Its safety is that of [`discard`].
    free: unsafe fn(&[u8]),
}

/// A [`Moment`] of a struct's members.
macro_rules! moment {
    ($Moment:ident $Record:ident { $($name:ident: $member:ident),* }) => {
        Moment::$Moment { $( $name: offset_of!(records::$Record, $member) ),* }
    };
}

/// From this version (CUDA 12.9) recordings of events are a kind to ask for. Before, "this activity cannot be directly enabled or
/// disabled" (cupti_activity.h, 12.8): it comes with synchronisations.
const EVENTS_APART_SINCE: u32 = 27;

/// The kinds, in the order in which they are switched on.
pub static KINDS: [RecordKind; kind::ALL.len()] = TABLE;

const TABLE: [RecordKind; kind::ALL.len()] = [
    RecordKind {
        kind: kind::DEVICE,
        what: "devices",
        asked: Asked::Always,
        table: None,
        decode: rows::device,
        moment: Moment::Always,
        texts: &[offset_of!(records::Device, name)],
        owned: None,
        fields: Some(fields::DEVICE),
    },
    RecordKind {
        kind: kind::CONTEXT,
        what: "contexts",
        asked: Asked::Always,
        table: Some(tables::Contexts::NAME),
        decode: rows::context,
        moment: Moment::Always,
        texts: &[],
        owned: None,
        fields: Some(fields::CONTEXT),
    },
    RecordKind {
        kind: kind::STREAM,
        what: "streams",
        asked: Asked::Always,
        table: Some(tables::Streams::NAME),
        decode: rows::stream,
        moment: Moment::Always,
        texts: &[],
        owned: None,
        fields: Some(fields::STREAM),
    },
    RecordKind {
        kind: kind::CONCURRENT_KERNEL,
        what: "kernels",
        asked: Asked::For(Kind::Kernels),
        table: Some(tables::Kernels::NAME),
        decode: rows::kernel,
        moment: moment!(Operation Kernel { start: start, correlation: correlation }),
        texts: &[offset_of!(records::Kernel, name)],
        owned: None,
        fields: Some(fields::KERNEL),
    },
    RecordKind {
        kind: kind::KERNEL,
        what: "kernels one at a time",
        asked: Asked::Never,
        table: Some(tables::Kernels::NAME),
        decode: rows::kernel,
        moment: moment!(Operation Kernel { start: start, correlation: correlation }),
        texts: &[offset_of!(records::Kernel, name)],
        owned: None,
        fields: None,
    },
    RecordKind {
        kind: kind::MEMCPY,
        what: "copies",
        asked: Asked::For(Kind::Copies),
        table: Some(tables::Copies::NAME),
        decode: rows::copy,
        moment: moment!(Operation Memcpy { start: start, correlation: correlation }),
        texts: &[],
        owned: None,
        fields: Some(fields::MEMCPY),
    },
    RecordKind {
        kind: kind::MEMCPY2,
        what: "peer copies",
        asked: Asked::For(Kind::Copies),
        table: Some(tables::Copies::NAME),
        decode: rows::peer_copy,
        moment: moment!(Operation PeerCopy { start: start, correlation: correlation }),
        texts: &[],
        owned: None,
        fields: Some(fields::PEER_COPY),
    },
    RecordKind {
        kind: kind::MEMSET,
        what: "memsets",
        asked: Asked::For(Kind::Memsets),
        table: Some(tables::Memsets::NAME),
        decode: rows::memset,
        moment: moment!(Operation Memset { start: start, correlation: correlation }),
        texts: &[],
        owned: None,
        fields: Some(fields::MEMSET),
    },
    RecordKind {
        kind: kind::SYNCHRONIZATION,
        what: "synchronisations",
        asked: Asked::For(Kind::Synchronizations),
        table: Some(tables::Synchronizations::NAME),
        decode: rows::synchronization,
        moment: moment!(Began Synchronization { start: start }),
        texts: &[],
        owned: None,
        fields: Some(fields::SYNCHRONIZATION),
    },
    RecordKind {
        kind: kind::CUDA_EVENT,
        what: "recordings of events",
        asked: Asked::ForSince(Kind::Synchronizations, EVENTS_APART_SINCE),
        table: Some(tables::EventRecords::NAME),
        decode: rows::event_record,
        moment: moment!(Joined EventRecord { correlation: correlation }),
        texts: &[],
        owned: None,
        fields: Some(fields::EVENT_RECORD),
    },
    RecordKind {
        kind: kind::OVERHEAD,
        what: "CUPTI's overhead",
        asked: Asked::For(Kind::Overheads),
        table: Some(tables::Overheads::NAME),
        decode: rows::overhead,
        moment: moment!(Began Overhead { start: start }),
        texts: &[],
        owned: Some(Owned {
            address: offset_of!(records::Overhead, data),
            free: rows::free_overhead,
        }),
        fields: Some(fields::OVERHEAD),
    },
    RecordKind {
        kind: kind::EXTERNAL_CORRELATION,
        what: "the join of collectives to kernels",
        asked: Asked::For(Kind::Collectives),
        table: Some(tables::ExternalCorrelations::NAME),
        decode: rows::external_correlation,
        moment: moment!(Joined ExternalCorrelation { correlation: correlation }),
        texts: &[],
        owned: None,
        fields: Some(fields::EXTERNAL_CORRELATION),
    },
    RecordKind {
        kind: kind::GRAPH_TRACE,
        what: "launches of graphs",
        asked: Asked::ForWholeGraphs(Kind::Kernels),
        table: Some(tables::GraphLaunches::NAME),
        decode: rows::graph_launch,
        moment: moment!(Operation GraphTrace { start: start, correlation: correlation }),
        texts: &[],
        owned: None,
        fields: Some(fields::GRAPH_TRACE),
    },
    RecordKind {
        kind: kind::MODULE,
        what: "modules",
        asked: Asked::For(Kind::Modules),
        table: Some(tables::Modules::NAME),
        decode: rows::module,
        moment: Moment::Always,
        texts: &[],
        owned: None,
        // It has no fields to choose from.
        fields: None,
    },
    RecordKind {
        kind: kind::JIT,
        what: "compilations",
        asked: Asked::For(Kind::Modules),
        table: Some(tables::Compilations::NAME),
        decode: rows::compilation,
        moment: moment!(Began Jit { start: start }),
        texts: &[offset_of!(records::Jit, cache_path)],
        owned: None,
        fields: Some(fields::JIT),
    },
    RecordKind {
        kind: kind::MEMORY2,
        what: "allocations",
        asked: Asked::For(Kind::Memory),
        table: Some(tables::MemoryEvents::NAME),
        decode: rows::memory,
        moment: moment!(Began Memory { start: time }),
        texts: &[
            offset_of!(records::Memory, name),
            offset_of!(records::Memory, source),
        ],
        owned: None,
        fields: Some(fields::MEMORY),
    },
    RecordKind {
        kind: kind::MEMORY_POOL,
        what: "memory pools",
        asked: Asked::For(Kind::Memory),
        table: Some(tables::MemoryPoolEvents::NAME),
        decode: rows::memory_pool,
        moment: moment!(Began MemoryPool { start: time }),
        texts: &[],
        owned: None,
        fields: Some(fields::MEMORY_POOL),
    },
    RecordKind {
        kind: kind::DRIVER,
        what: "driver calls",
        asked: Asked::For(Kind::Calls),
        table: Some(tables::ApiCalls::NAME),
        decode: rows::call,
        moment: moment!(Call ApiCall { start: start, correlation: correlation }),
        texts: &[],
        owned: None,
        fields: Some(fields::API_CALL),
    },
    RecordKind {
        kind: kind::RUNTIME,
        what: "runtime calls",
        asked: Asked::For(Kind::Calls),
        table: Some(tables::ApiCalls::NAME),
        decode: rows::call,
        moment: moment!(Call ApiCall { start: start, correlation: correlation }),
        texts: &[],
        owned: None,
        fields: Some(fields::API_CALL),
    },
];

/// Numbers of kinds are below this.
const MOST_KINDS: usize = 64;

/// The places of kinds in the table, by number; what is no place in it stands for none. There are as many rows as kinds and no
/// two of one kind, so each has one.
static PLACES: [u8; MOST_KINDS] = {
    const NONE: u8 = u8::MAX;
    let mut places = [NONE; MOST_KINDS];
    let mut place = 0;
    while place < TABLE.len() {
        let number = TABLE[place].kind as usize;
        assert!(places[number] == NONE, "a kind has two rows");
        places[number] = place as u8;
        place += 1;
    }
    places
};

/// What is known of a kind; `None` of one that is not known here.
#[must_use]
#[inline]
pub fn of(record_kind: u32) -> Option<&'static RecordKind> {
    let place = PLACES.get(record_kind as usize)?;
    KINDS.get(usize::from(*place))
}

/// Under which table's name records are counted that become no rows.
pub(crate) fn counted_as(record_kind: u32) -> &'static str {
    of(record_kind).and_then(|kind| kind.table).unwrap_or("others")
}

/// Whether the kind is calls of the driver or the runtime.
pub(crate) fn is_calls(record_kind: u32) -> bool {
    of(record_kind).is_some_and(|kind| matches!(kind.moment, Moment::Call { .. }))
}

/// Whether the kind is kernels.
pub(crate) fn is_kernels(record_kind: u32) -> bool {
    of(record_kind).is_some_and(|kind| kind.table == Some(tables::Kernels::NAME))
}

/// Whether calls are needed although nobody asked for them: an operation, or a recording of an event, belongs to the window that
/// its call was made in, and the ids that join kernels to collectives come with calls only.
pub(crate) fn needs_calls(options: &CollectorOptions) -> bool {
    let asked = |kind| options.records(kind);
    let operations = asked(Kind::Kernels) || asked(Kind::Copies) || asked(Kind::Memsets);
    let of_calls = operations || asked(Kind::Synchronizations);
    operations && asked(Kind::Collectives) || of_calls && options.is_partial()
}

/// Frees what belongs to a record of which nothing becomes a row.
///
/// # Safety
/// As [`crate::decode::Decoder::decode`]; once for each record.
pub(crate) unsafe fn discard(record_kind: u32, record: &[u8]) {
    if let Some(owned) = of(record_kind).and_then(|kind| kind.owned) {
        // SAFETY: the caller's promise is handed on.
        unsafe { (owned.free)(record) };
    }
}

#[cfg(test)]
mod tests {
    use gputrace_trace::writer::ProcessWriter;

    use super::*;
    use crate::decode::Decoder;
    use crate::records::RecordSizes;

    #[test]
    fn a_record_of_each_kind_becomes_a_row_of_the_table_that_it_is_counted_under() {
        const BYTES: usize = 256;
        for kind in &KINDS {
            let folder = tempfile::tempdir().expect("a folder");
            let mut writer = ProcessWriter::create(&folder.path().join("process")).expect("a process folder");
            let sizes = RecordSizes::ask(|_| Some(BYTES));
            let mut decoder = Decoder::new(sizes, Box::new(|_, _| Some("cuLaunchKernel".to_owned())));
            let mut record = vec![0; BYTES];
            record[..4].copy_from_slice(&kind.kind.to_le_bytes());
            if let Moment::Operation { start, .. } | Moment::Call { start, .. } | Moment::Began { start } =
                kind.moment
            {
                // The end, where there is one, lies behind the start.
                record[start] = 1;
                if !matches!(kind.kind, kind::MEMORY2 | kind::MEMORY_POOL) {
                    record[start + 8] = 2;
                }
            }
            // SAFETY: addresses in the record are null.
            let decoded = unsafe { decoder.decode(&record, &mut writer) };
            assert_eq!((decoded.records, decoded.unknown), (1, 0), "{}", kind.what);
            let rows = writer.close().expect("the disk takes it");
            let filled: Vec<&str> = rows
                .iter()
                .filter(|(_, rows)| *rows > 0)
                .map(|(table, _)| *table)
                .collect();
            let counted = counted_as(kind.kind);
            match kind.table {
                Some(_) => assert_eq!(filled, [counted], "{}", kind.what),
                None => assert_eq!((filled.len(), decoder.devices().len(), counted), (0, 1, "others")),
            }
        }
        assert_eq!(counted_as(99), "others");
    }

    #[test]
    fn all_but_modules_can_be_recorded_as_one_of_several() {
        for kind in &KINDS {
            let cannot = matches!(kind.kind, kind::MODULE | kind::KERNEL);
            assert_eq!(kind.fields.is_none(), cannot, "{}", kind.what);
        }
    }
}
