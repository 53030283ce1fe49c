//! Columns of tables by name, whatever their types: how what no other format has a word for is written as JSON, and read
//! back.

use gputrace_trace::column::Column;
use gputrace_trace::{DurationNs, Interner, NameId, Table, TimeNs};

use crate::json;

/// A value in JSON, as a reader found it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    /// A number or a word.
    Scalar(&'a [u8]),
    /// A string whose escapes are undone.
    Text(&'a str),
}

/// One value of a column.
trait Cell: Sized {
    /// What a row holds of which nothing is said.
    fn absent() -> Self;
    fn is_absent(&self) -> bool;
    fn write(&self, out: &mut Vec<u8>, names: &Interner, base_ns: i64);
    fn read(found: Found<'_>, names: &mut Interner) -> Option<Self>;
}

fn number<T: std::str::FromStr>(found: Found<'_>) -> Option<T> {
    match found {
        Found::Scalar(bytes) => std::str::from_utf8(bytes).ok()?.parse().ok(),
        Found::Text(text) => text.parse().ok(),
    }
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Cell for $type {
            fn absent() -> Self {
                0
            }

            fn is_absent(&self) -> bool {
                *self == 0
            }

            fn write(&self, out: &mut Vec<u8>, _: &Interner, _: i64) {
                json::push_integer(out, (*self).into());
            }

            fn read(found: Found<'_>, _: &mut Interner) -> Option<Self> {
                number(found)
            }
        }
    )*};
}
integers! { u8, u16, u32, u64, i32, i64 }

impl Cell for f64 {
    fn absent() -> Self {
        0.0
    }

    fn is_absent(&self) -> bool {
        self.to_bits() == 0
    }

    fn write(&self, out: &mut Vec<u8>, _: &Interner, _: i64) {
        json::push_float_or_text(out, *self);
    }

    fn read(found: Found<'_>, _: &mut Interner) -> Option<Self> {
        number(found)
    }
}

impl Cell for TimeNs {
    fn absent() -> Self {
        Self(0)
    }

    // Relative to a base, 0 is a moment like others.
    fn is_absent(&self) -> bool {
        false
    }

    fn write(&self, out: &mut Vec<u8>, _: &Interner, base_ns: i64) {
        json::push_integer(out, i128::from(self.0) - i128::from(base_ns));
    }

    fn read(found: Found<'_>, _: &mut Interner) -> Option<Self> {
        // Beyond 73 years a number is no time.
        number(found)
            .filter(|ns| (-(1 << 61)..1 << 61).contains(ns))
            .map(Self)
    }
}

impl Cell for DurationNs {
    fn absent() -> Self {
        Self(0)
    }

    fn is_absent(&self) -> bool {
        self.0 == 0
    }

    fn write(&self, out: &mut Vec<u8>, _: &Interner, _: i64) {
        json::push_integer(out, self.0.into());
    }

    fn read(found: Found<'_>, _: &mut Interner) -> Option<Self> {
        number(found).map(Self)
    }
}

impl Cell for NameId {
    fn absent() -> Self {
        Self::default()
    }

    // Number 0 is some name, and none that is always there.
    fn is_absent(&self) -> bool {
        false
    }

    fn write(&self, out: &mut Vec<u8>, names: &Interner, _: i64) {
        json::push_string(out, names.get(*self));
    }

    fn read(found: Found<'_>, names: &mut Interner) -> Option<Self> {
        match found {
            Found::Text(text) => Some(names.intern(text)),
            Found::Scalar(_) => None,
        }
    }
}

impl<T: Cell> Cell for Option<T> {
    fn absent() -> Self {
        None
    }

    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn write(&self, out: &mut Vec<u8>, names: &Interner, base_ns: i64) {
        match self {
            Some(value) => value.write(out, names, base_ns),
            None => out.extend_from_slice(b"null"),
        }
    }

    fn read(found: Found<'_>, names: &mut Interner) -> Option<Self> {
        if matches!(found, Found::Scalar(b"null")) {
            return Some(None);
        }
        T::read(found, names).map(Some)
    }
}

macro_rules! columns {
    ($($variant:ident($type:ty)),* $(,)?) => {
        /// A column to read from.
        #[derive(Clone, Copy)]
        pub(crate) enum Cells<'a> {
            $($variant(&'a [$type]),)*
        }

        impl<'a> Cells<'a> {
            fn of(column: &'a dyn Column) -> Option<Self> {
                $(if let Some(column) = column.downcast_ref::<Vec<$type>>() {
                    return Some(Self::$variant(column));
                })*
                None
            }

            /// Whether the row says nothing.
            pub(crate) fn is_absent(&self, row: usize) -> bool {
                match self {
                    $(Self::$variant(column) => column[row].is_absent(),)*
                }
            }

            /// Appends the row's value as JSON, points in time relative to `base_ns`.
            pub(crate) fn write(&self, row: usize, out: &mut Vec<u8>, names: &Interner, base_ns: i64) {
                match self {
                    $(Self::$variant(column) => column[row].write(out, names, base_ns),)*
                }
            }

            fn says_nothing(&self) -> bool {
                match self {
                    $(Self::$variant(column) => column.iter().all(Cell::is_absent),)*
                }
            }
        }

        fn push_absent(column: &mut dyn Column) {
            $(if let Some(column) = column.downcast_mut::<Vec<$type>>() {
                column.push(<$type>::absent());
                return;
            })*
        }

        fn set_last(column: &mut dyn Column, found: Found<'_>, names: &mut Interner) -> bool {
            $(if let Some(column) = column.downcast_mut::<Vec<$type>>() {
                let Some(last) = column.last_mut() else { return false };
                let value = <$type>::read(found, names);
                let is_good = value.is_some();
                if let Some(value) = value {
                    *last = value;
                }
                return is_good;
            })*
            false
        }
    };
}
columns! {
    Time(TimeNs), MaybeTime(Option<TimeNs>), Duration(DurationNs), MaybeDuration(Option<DurationNs>),
    Name(NameId), MaybeName(Option<NameId>), U8(u8), MaybeU8(Option<u8>), U16(u16), U32(u32), MaybeU32(Option<u32>),
    U64(u64), MaybeU64(Option<u64>), I32(i32), MaybeI32(Option<i32>), I64(i64), F64(f64), MaybeF64(Option<f64>),
}

/// A column with its name.
#[derive(Clone)]
pub(crate) struct Named<'a> {
    /// `"name":`, as it stands in JSON.
    pub(crate) key: Vec<u8>,
    pub(crate) cells: Cells<'a>,
}

/// The columns of `table` that say anything in any row, but for those called as in `without`.
pub(crate) fn columns<'a, T: Table>(table: &'a T, without: &[&str]) -> Vec<Named<'a>> {
    let schema = T::schema();
    let names = schema.fields().iter().map(|field| field.name());
    names
        .zip(table.columns())
        .filter(|(name, _)| !without.contains(&name.as_str()))
        .filter_map(|(name, column)| {
            let cells = Cells::of(column)?;
            let key = format!("\"{name}\":").into_bytes();
            (!cells.says_nothing()).then_some(Named { key, cells })
        })
        .collect()
}

/// Appends the members of row `row`, those that say something, with commas between them; points in time relative to
/// `base_ns`.
pub(crate) fn write_members(
    columns: &[Named<'_>],
    row: usize,
    out: &mut Vec<u8>,
    names: &Interner,
    base_ns: i64,
) {
    let mut first = true;
    for column in columns.iter().filter(|column| !column.cells.is_absent(row)) {
        if !first {
            out.push(b',');
        }
        first = false;
        out.extend_from_slice(&column.key);
        column.cells.write(row, out, names, base_ns);
    }
}

/// Appends a row of which nothing is said yet.
pub(crate) fn push_row<T: Table>(table: &mut T) {
    table.columns_mut().into_iter().for_each(push_absent);
}

/// Says of the last row what stands under the name of a column; whether there is one that can hold it.
pub(crate) fn set<T: Table>(table: &mut T, name: &[u8], found: Found<'_>, names: &mut Interner) -> bool {
    let schema = T::schema();
    let place = schema
        .fields()
        .iter()
        .position(|field| field.name().as_bytes() == name);
    place.is_some_and(|place| {
        table
            .columns_mut()
            .into_iter()
            .nth(place)
            .is_some_and(|column| set_last(column, found, names))
    })
}

#[cfg(test)]
mod tests {
    use gputrace_trace::tables::{Marker, Markers, Tables};

    use super::*;

    #[test]
    fn every_column_of_every_table_can_be_written() {
        let mut tables = Tables::default();
        tables.each_columns(&mut |table, _, columns| {
            for (place, column) in columns.into_iter().enumerate() {
                assert!(Cells::of(column).is_some(), "{table}: column {place}");
                push_absent(column);
            }
        });
        assert!(tables.row_counts().iter().all(|(_, rows)| *rows == 1));
    }

    #[test]
    fn rows_come_back() {
        let mut names = Interner::default();
        let row = Marker {
            start_ns: TimeNs(-5),
            duration_ns: None,
            name: names.intern("a \"b\""),
            domain: names.intern(""),
            color: Some(0),
            payload: Some(f64::NEG_INFINITY),
            payload_integer: Some(u64::MAX),
            depth: 7,
            ..Marker::default()
        };
        let mut table = Markers::default();
        table.push(row.clone());
        let mut out = Vec::new();
        write_members(&columns(&table, &["kind"]), 0, &mut out, &names, 10);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            r#""start_ns":-15,"name":"a \"b\"","domain":"","depth":7,"color":0,"payload":"-inf","payload_integer":18446744073709551615"#
        );
        let mut read = Markers::default();
        push_row(&mut read);
        for (key, found) in [
            ("start_ns", Found::Scalar(b"-5")),
            ("name", Found::Text("a \"b\"")),
            ("domain", Found::Text("")),
            ("depth", Found::Scalar(b"7")),
            ("color", Found::Scalar(b"0")),
            ("payload", Found::Text("-inf")),
            ("payload_integer", Found::Scalar(b"18446744073709551615")),
        ] {
            assert!(set(&mut read, key.as_bytes(), found, &mut names), "{key}");
        }
        assert_eq!(read.row(0), row);
        assert!(!set(&mut read, b"no such", Found::Scalar(b"1"), &mut names));
        assert!(!set(&mut read, b"depth", Found::Scalar(b"70000"), &mut names));
    }
}
