//! The row that an event becomes, with other numbers than the event's own.

use gputrace_trace::tables::{ApiCall, Copy, Kernel, Marker, Operator, PythonFrame};
use gputrace_trace::{DurationNs, Table, TimeNs};

use super::args::Args;
use super::converter::Converter;
use super::operator_args::{OperatorArgs, python_id};

/// What a number of an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Meaning {
    Start,
    Duration,
    Correlation,
    /// PyTorch's number of an operator or of a call of a Python function.
    Number,
    Sequence,
    /// Nothing is read of it.
    Unread,
}

/// The row that an event becomes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Row {
    /// None: an arrow.
    Arrow,
    Call(ApiCall),
    Copy(Copy),
    Frame(PythonFrame),
    Kernel(Kernel),
    Operator(Operator),
    Range(Marker),
}

/// The numbers of one event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers {
    pub(super) start_ns: TimeNs,
    pub(super) duration_ns: DurationNs,
    pub(super) correlation: u32,
    pub(super) number: Option<u32>,
    pub(super) sequence: Option<u32>,
}

/// A row of which some columns are an event's own numbers.
trait WithNumbers {
    /// Those numbers, but for the times.
    fn numbers(&self) -> Numbers;
    /// The same row with other numbers.
    fn with(&self, numbers: &Numbers) -> Self;
}

macro_rules! with_numbers {
    ($($Row:ident: $($column:ident)*;)*) => {$(
        impl WithNumbers for $Row {
            #[inline]
            fn numbers(&self) -> Numbers {
                Numbers { $($column: self.$column,)* ..Numbers::default() }
            }
            #[inline]
            fn with(&self, numbers: &Numbers) -> Self {
                Self {
                    start_ns: numbers.start_ns,
                    // Of ranges it is not always known.
                    duration_ns: numbers.duration_ns.into(),
                    $($column: numbers.$column,)*
                    ..self.clone()
                }
            }
        }
    )*};
}
with_numbers! {
    ApiCall: correlation;
    Copy: correlation;
    Kernel: correlation;
    Marker: ;
    Operator: number sequence;
    PythonFrame: number;
}

/// What a converter held before an event.
pub(crate) struct Before {
    rows: [usize; 7],
    trouble: u64,
}

impl Row {
    /// The last row of the table that got one since.
    pub(super) fn since(before: &Before, converter: &Converter) -> Option<Self> {
        let rows = rows(converter);
        let mut grown = (0..rows.len()).filter(|&table| rows[table] != before.rows[table]);
        let (table, None) = (grown.next()?, grown.next()) else {
            return None;
        };
        let (tables, last) = (&converter.tables, rows[table] - 1);
        Some(match table {
            0 => Self::Call(tables.api_calls.row(last)),
            1 => Self::Copy(tables.copies.row(last)),
            2 => Self::Frame(tables.python_frames.row(last)),
            3 => Self::Kernel(tables.kernels.row(last)),
            4 => Self::Operator(tables.operators.row(last)),
            5 => Self::Range(tables.markers.row(last)),
            _ => return None,
        })
    }

    pub(super) fn is_of_host(&self) -> bool {
        matches!(
            self,
            Self::Call(_) | Self::Frame(_) | Self::Operator(_) | Self::Range(_)
        )
    }

    /// The numbers that it has where an event's text does not say others.
    #[inline]
    pub(super) fn numbers(&self) -> Numbers {
        match self {
            Self::Arrow => Numbers::default(),
            Self::Call(row) => row.numbers(),
            Self::Copy(row) => row.numbers(),
            Self::Frame(row) => row.numbers(),
            Self::Kernel(row) => row.numbers(),
            Self::Operator(row) => row.numbers(),
            Self::Range(row) => row.numbers(),
        }
    }

    /// Whether anything is read of a member of `args` that is a number. The readers themselves are asked.
    fn reads(&self, key: &[u8], name: &[u8]) -> bool {
        let object = [b"{\"", key, b"\":1}"].concat();
        match self {
            Self::Operator(_) => OperatorArgs::read(Some(&object), name) != OperatorArgs::default(),
            Self::Frame(_) => python_id(Some(&object)).is_some(),
            Self::Call(_) | Self::Copy(_) | Self::Kernel(_) => Args::read(Some(&object)) != Args::default(),
            Self::Arrow | Self::Range(_) => false,
        }
    }

    /// What a number of `args` is; `None` where it is left as it is.
    pub(super) fn meaning(&self, key: &[u8], name: &[u8]) -> Option<Meaning> {
        match (self, key) {
            (Self::Operator(_), b"External id") | (Self::Frame(_), b"Python id") => Some(Meaning::Number),
            (Self::Operator(_), b"Sequence number") => Some(Meaning::Sequence),
            (Self::Call(_) | Self::Copy(_) | Self::Kernel(_), b"correlation") => Some(Meaning::Correlation),
            _ => (!self.reads(key, name)).then_some(Meaning::Unread),
        }
    }

    /// The row of an event with these numbers.
    pub(super) fn with(&self, numbers: &Numbers) -> Self {
        match self {
            Self::Arrow => Self::Arrow,
            Self::Call(row) => Self::Call(row.with(numbers)),
            Self::Copy(row) => Self::Copy(row.with(numbers)),
            Self::Frame(row) => Self::Frame(row.with(numbers)),
            Self::Kernel(row) => Self::Kernel(row.with(numbers)),
            Self::Operator(row) => Self::Operator(row.with(numbers)),
            Self::Range(row) => Self::Range(row.with(numbers)),
        }
    }

    /// Adds that row to its table.
    #[inline]
    pub(super) fn push_with(&self, numbers: &Numbers, converter: &mut Converter) {
        let tables = &mut converter.tables;
        match self {
            Self::Arrow => {}
            Self::Call(row) => tables.api_calls.push(row.with(numbers)),
            Self::Copy(row) => tables.copies.push(row.with(numbers)),
            Self::Frame(row) => tables.python_frames.push(row.with(numbers)),
            Self::Kernel(row) => tables.kernels.push(row.with(numbers)),
            Self::Operator(row) => tables.operators.push(row.with(numbers)),
            Self::Range(row) => tables.markers.push(row.with(numbers)),
        }
        converter.counts.events += 1;
        converter.counts.device_operations += u64::from(matches!(self, Self::Copy(_) | Self::Kernel(_)));
    }
}

/// How many rows the tables of [`Row`] have, and that of the rows that kernels of collectives have beside theirs.
fn rows(converter: &Converter) -> [usize; 7] {
    let tables = &converter.tables;
    [
        tables.api_calls.len(),
        tables.copies.len(),
        tables.python_frames.len(),
        tables.kernels.len(),
        tables.operators.len(),
        tables.markers.len(),
        tables.collectives.len(),
    ]
}

impl Before {
    pub(crate) fn of(converter: &Converter) -> Self {
        Self {
            rows: rows(converter),
            trouble: converter.trouble(),
        }
    }

    /// Whether anything was counted since because it was not as it should be.
    pub(super) fn trouble_since(&self, converter: &Converter) -> bool {
        converter.trouble() != self.trouble
    }
}
