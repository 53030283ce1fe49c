//! Tables in a fifth of their memory, any row of which can still be read: for recordings that stay open.
//!
//! Most columns hold one value throughout, or few, or values near those around them. Each is kept as what is smallest: the
//! value once, codes of one or two bytes, or two or four bytes above the least value of each 256 rows. Nothing is lost.

use std::cell::RefCell;
use std::marker::PhantomData;

use crate::column::Column;
use crate::names::NameId;
use crate::parallel;
use crate::table::Table;
use crate::tables::{TABLE_NAMES, Tables, each_table};
use crate::time::{DurationNs, TimeNs};

/// Rows that share a least value.
const BLOCK: usize = 256;
/// Codes of one byte.
const FEW: usize = 1 << 8;
/// Codes of two bytes.
const MANY: usize = 1 << 16;

/// A value as 64 bits in an order of its own, and whether it is there.
trait Pack: Copy + 'static {
    fn key(self) -> Option<u64>;
    fn of(key: Option<u64>) -> Self;
}

/// Keeps the order: the least number has the least key.
const SIGN: u64 = 1 << 63;

macro_rules! pack {
    ($($value:ty, |$v:ident| $key:expr, |$k:ident| $from:expr;)*) => {$(
        impl Pack for $value {
            #[inline]
            fn key(self) -> Option<u64> {
                let $v = self;
                Some($key)
            }
            #[inline]
            fn of(key: Option<u64>) -> Self {
                let $k = key.unwrap_or_default();
                $from
            }
        }
        impl Pack for Option<$value> {
            #[inline]
            fn key(self) -> Option<u64> {
                self.and_then(Pack::key)
            }
            #[inline]
            fn of(key: Option<u64>) -> Self {
                key.map(|key| <$value as Pack>::of(Some(key)))
            }
        }
    )*};
}

pack! {
    u8, |v| v.into(), |k| k as u8;
    u16, |v| v.into(), |k| k as u16;
    u32, |v| v.into(), |k| k as u32;
    u64, |v| v, |k| k;
    i32, |v| i64::from(v).cast_unsigned() ^ SIGN, |k| (k ^ SIGN).cast_signed() as i32;
    i64, |v| v.cast_unsigned() ^ SIGN, |k| (k ^ SIGN).cast_signed();
    f64, |v| v.to_bits(), |k| f64::from_bits(k);
    TimeNs, |v| v.0.cast_unsigned() ^ SIGN, |k| TimeNs((k ^ SIGN).cast_signed());
    DurationNs, |v| v.0.cast_unsigned() ^ SIGN, |k| DurationNs((k ^ SIGN).cast_signed());
    NameId, |v| v.number().into(), |k| NameId::new(k as u32);
}

/// How the values of a column lie in memory.
#[derive(Clone, Debug)]
enum Form {
    Same(u64),
    Codes8(Vec<u8>, Vec<u64>),
    Codes16(Vec<u16>, Vec<u64>),
    Near16(Vec<u64>, Vec<u16>),
    Near32(Vec<u64>, Vec<u32>),
    Wide(Vec<u64>),
}

/// Which values are there.
#[derive(Clone, Debug)]
enum Nulls {
    None,
    All,
    /// A bit for each row that is null.
    Some(Vec<u64>),
}

/// A packed column.
#[derive(Clone, Debug)]
pub struct PackedColumn {
    rows: usize,
    form: Form,
    nulls: Nulls,
}

/// The codes of some keys, while there are no more than `most` different ones.
fn codes(keys: &[u64], most: usize) -> Option<(Vec<u16>, Vec<u64>)> {
    /// No key has this code yet.
    const FREE: u32 = u32::MAX;
    let bits = (most * 2).ilog2();
    // By hash, and where that is taken by the next free place: half of them stay free.
    let mut slots = vec![FREE; 1 << bits];
    let mut values: Vec<u64> = Vec::new();
    let mut codes = Vec::with_capacity(keys.len());
    let mut last: Option<(u64, u16)> = None;
    for &key in keys {
        if let Some((known, code)) = last
            && known == key
        {
            codes.push(code);
            continue;
        }
        let mut slot = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - bits)) as usize;
        let code = loop {
            match slots[slot] {
                FREE if values.len() == most => return None,
                FREE => {
                    let code = u16::try_from(values.len()).ok()?;
                    slots[slot] = code.into();
                    values.push(key);
                    break code;
                }
                code if values[code as usize] == key => break code as u16,
                _ => slot = (slot + 1) & (slots.len() - 1),
            }
        };
        last = Some((key, code));
        codes.push(code);
    }
    Some((codes, values))
}

impl Form {
    fn new(keys: &[u64]) -> Self {
        let Some(first) = keys.first().copied() else {
            return Self::Same(0);
        };
        if keys.iter().all(|key| *key == first) {
            return Self::Same(first);
        }
        if let Some((codes, values)) = codes(keys, FEW) {
            return Self::Codes8(codes.into_iter().map(|code| code as u8).collect(), values);
        }
        let extremes = |block: &[u64]| {
            block.iter().fold((u64::MAX, 0), |(least, most), key| {
                (least.min(*key), most.max(*key))
            })
        };
        let blocks: Vec<(u64, u64)> = keys.chunks(BLOCK).map(extremes).collect();
        let spread = blocks.iter().map(|(least, most)| most - least).max().unwrap_or(0);
        let bases = || -> Vec<u64> { blocks.iter().map(|(least, _)| *least).collect() };
        let above = |row: usize| keys[row] - blocks[row / BLOCK].0;
        if spread <= u16::MAX.into() {
            return Self::Near16(bases(), (0..keys.len()).map(|row| above(row) as u16).collect());
        }
        // A dictionary has to be worth its values.
        if keys.len() >= MANY
            && let Some((codes, values)) = codes(keys, MANY)
        {
            return Self::Codes16(codes, values);
        }
        if spread <= u32::MAX.into() {
            return Self::Near32(bases(), (0..keys.len()).map(|row| above(row) as u32).collect());
        }
        Self::Wide(keys.to_vec())
    }

    #[inline]
    fn get(&self, row: usize) -> u64 {
        match self {
            Self::Same(key) => *key,
            Self::Codes8(codes, values) => values[codes[row] as usize],
            Self::Codes16(codes, values) => values[codes[row] as usize],
            Self::Near16(bases, above) => bases[row / BLOCK] + u64::from(above[row]),
            Self::Near32(bases, above) => bases[row / BLOCK] + u64::from(above[row]),
            Self::Wide(keys) => keys[row],
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Same(_) => 0,
            Self::Codes8(codes, values) => codes.capacity() + values.capacity() * 8,
            Self::Codes16(codes, values) => codes.capacity() * 2 + values.capacity() * 8,
            Self::Near16(bases, above) => bases.capacity() * 8 + above.capacity() * 2,
            Self::Near32(bases, above) => bases.capacity() * 8 + above.capacity() * 4,
            Self::Wide(keys) => keys.capacity() * 8,
        }
    }
}

impl PackedColumn {
    fn new<T: Pack>(column: &[T]) -> Self {
        thread_local! {
            /// Columns' keys, in memory that each thread uses again: touching new memory costs more than packing.
            static KEYS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
        }
        KEYS.with_borrow_mut(|keys| Self::with(column, keys))
    }

    /// Packs a column, with memory for its keys.
    fn with<T: Pack>(column: &[T], keys: &mut Vec<u64>) -> Self {
        let mut nulls = Vec::new();
        let mut count = 0;
        // A null has the value before it, which costs nothing.
        let mut last = 0;
        keys.clear();
        keys.extend(column.iter().enumerate().map(|(row, value)| match value.key() {
            Some(key) => {
                last = key;
                key
            }
            None => {
                if nulls.is_empty() {
                    nulls = vec![0; column.len().div_ceil(64)];
                }
                nulls[row / 64] |= 1u64 << (row % 64);
                count += 1;
                last
            }
        }));
        Self {
            rows: column.len(),
            form: Form::new(keys),
            nulls: match count {
                0 => Nulls::None,
                count if count == column.len() => Nulls::All,
                _ => Nulls::Some(nulls),
            },
        }
    }

    /// The value of a row as 64 bits, where it has one: a number that is not negative as it is.
    #[inline]
    #[must_use]
    pub fn key(&self, row: usize) -> Option<u64> {
        let is_null = match &self.nulls {
            Nulls::None => false,
            Nulls::All => true,
            Nulls::Some(bits) => bits[row / 64] >> (row % 64) & 1 == 1,
        };
        (!is_null).then(|| self.form.get(row))
    }

    fn bytes(&self) -> usize {
        let nulls = match &self.nulls {
            Nulls::Some(bits) => bits.capacity() * 8,
            Nulls::None | Nulls::All => 0,
        };
        self.form.bytes() + nulls
    }

    /// A column of numbers without nulls, as 32 bits of each.
    #[inline]
    #[must_use]
    pub fn word(&self, row: usize) -> u32 {
        self.form.get(row) as u32
    }

    /// Rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }
}

/// Calls a macro with every type of a column.
macro_rules! each_type {
    ($call:ident) => {
        $call! {
            u8, u16, u32, u64, i32, i64, f64, TimeNs, DurationNs, NameId, Option<u8>, Option<u16>, Option<u32>, Option<u64>,
            Option<i32>, Option<i64>, Option<f64>, Option<TimeNs>, Option<DurationNs>, Option<NameId>
        }
    };
}

fn pack_column(column: &dyn Column) -> PackedColumn {
    macro_rules! try_each {
        ($($value:ty),*) => {
            $( if let Some(column) = column.downcast_ref::<Vec<$value>>() {
                return PackedColumn::new(column);
            } )*
        };
    }
    each_type!(try_each);
    unreachable!("a column of a type that no table has")
}

/// Appends some rows of a packed column to a column.
fn unpack_column(packed: &PackedColumn, rows: std::ops::Range<usize>, column: &mut dyn Column) {
    macro_rules! try_each {
        ($($value:ty),*) => {
            $( if let Some(column) = column.downcast_mut::<Vec<$value>>() {
                column.extend(rows.map(|row| <$value as Pack>::of(packed.key(row))));
                return;
            } )*
        };
    }
    each_type!(try_each);
    unreachable!("a column of a type that no table has");
}

/// A packed table.
#[derive(Clone, Debug)]
pub struct Packed<T> {
    columns: Vec<PackedColumn>,
    table: PhantomData<fn() -> T>,
}

impl<T: Table> Packed<T> {
    /// All rows of a table.
    #[must_use]
    pub fn new(table: &T) -> Self {
        Self {
            columns: {
                let columns = table.columns();
                parallel::map(columns.len(), |place| pack_column(columns[place]))
            },
            table: PhantomData,
        }
    }

    /// Rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, PackedColumn::len)
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(PackedColumn::bytes).sum()
    }

    /// The column of that name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&PackedColumn> {
        self.columns.get(T::schema().index_of(name).ok()?)
    }

    /// A copy of one row.
    ///
    /// # Panics
    /// When there is no such row.
    #[must_use]
    pub fn row(&self, index: usize) -> T::Row {
        self.rows(index..index + 1).row(0)
    }

    /// A copy of some rows.
    ///
    /// # Panics
    /// When there are no such rows.
    #[must_use]
    pub fn rows(&self, rows: std::ops::Range<usize>) -> T {
        let mut table = T::default();
        table.reserve(rows.len());
        for (packed, column) in self.columns.iter().zip(table.columns_mut()) {
            unpack_column(packed, rows.clone(), column);
        }
        table
    }
}

/// Makes [`PackedTables`] of those tables in the list that are [`crate::table::Size::Packed`].
macro_rules! packed_tables {
    (@of [$($packed:tt)*] $field:ident: $Columns:ident Packed, $($rest:tt)*) => {
        packed_tables! { @of [$($packed)* $field: $Columns,] $($rest)* }
    };
    (@of [$($packed:tt)*] $field:ident: $Columns:ident $size:ident, $($rest:tt)*) => {
        packed_tables! { @of [$($packed)*] $($rest)* }
    };
    (@of [$($field:ident: $Columns:ident,)*]) => {
        /// The tables of a process of which a recording has many rows. What may be asked for as a whole (collectives,
        /// communicators, contexts, names, ...) is not among them.
        #[derive(Clone, Debug)]
        pub struct PackedTables {
            $(
                #[doc = concat!("[`crate::tables::", stringify!($Columns), "`].")]
                pub $field: Packed<crate::tables::$Columns>,
            )*
        }

        impl PackedTables {
            /// Packs the tables of a process.
            #[must_use]
            pub fn new(tables: &Tables) -> Self {
                Self { $( $field: Packed::new(&tables.$field), )* }
            }

            /// What of a process is not packed: its tables without those that are.
            #[must_use]
            pub fn others(tables: &Tables) -> Tables {
                const PACKED: &[&str] = &[$( stringify!($field), )*];
                let mut others = Tables::default();
                others.copy_but(tables, PACKED);
                others
            }

            /// Puts the rows back into the tables that were left.
            pub fn unpack_into(&self, tables: &mut Tables) {
                $( tables.$field = self.$field.rows(0..self.$field.len()); )*
            }

            /// Bytes in memory.
            #[must_use]
            pub fn bytes(&self) -> usize {
                0 $( + self.$field.bytes() )*
            }
        }
    };
    ($(
        $(#[$doc:meta])*
        $field:ident: $Row:ident / $Columns:ident, $holds:ident, $size:ident { $($columns:tt)* }
    )*) => {
        packed_tables! { @of [] $( $field: $Columns $size, )* }
    };
}
each_table!(packed_tables);

impl Tables {
    /// Takes a copy of all tables but some.
    fn copy_but(&mut self, other: &Self, left_out: &[&str]) {
        debug_assert!(left_out.iter().all(|name| TABLE_NAMES.contains(name)));
        self.copy_tables(other, |name| !left_out.contains(&name));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tables::{Kernel, Kernels};

    fn packed<T: Pack + PartialEq + std::fmt::Debug>(column: &[T]) -> PackedColumn {
        let packed = PackedColumn::new(column);
        for (row, value) in column.iter().enumerate() {
            assert_eq!(T::of(packed.key(row)), *value);
        }
        packed
    }

    #[test]
    fn columns_are_kept_as_what_is_smallest() {
        let rows = 100_000;
        assert_eq!(packed(&vec![7u64; rows]).bytes(), 0);
        assert_eq!(packed(&vec![None::<u64>; rows]).bytes(), 0);
        let few: Vec<i32> = (0..rows as i32).map(|row| row * 7919 % 200 - 100).collect();
        assert!(packed(&few).bytes() <= rows + 256 * 8);
        let rising: Vec<u32> = (0..rows as u32).map(|row| row * 3 + row % 7).collect();
        assert!(packed(&rising).bytes() <= rows * 2 + rows / 32 + 8);
        let times: Vec<TimeNs> = (0..rows as i64)
            .map(|row| TimeNs(-5_000_000_000 + row * 1_000_003))
            .collect();
        assert!(packed(&times).bytes() <= rows * 4 + rows / 32 + 8);
        let scattered: Vec<u32> = (0..rows as u32).map(|row| row % 1000 * 4_000_037).collect();
        assert!(packed(&scattered).bytes() <= rows * 2 + 1024 * 8 * 2);
        let wild: Vec<u64> = (1..=rows as u64)
            .map(|row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .collect();
        assert_eq!(packed(&wild).bytes(), rows * 8);
        let some: Vec<Option<u64>> = (0..rows as u64)
            .map(|row| (row % 3 == 0).then_some(row))
            .collect();
        assert!(packed(&some).bytes() <= rows * 2 + rows / 8 + rows / 32 + 16);
        assert!(packed::<u8>(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn every_value_comes_back(
            small in proptest::collection::vec(any::<u8>(), 0..600),
            signed in proptest::collection::vec(proptest::option::of(any::<i64>()), 0..600),
            near in proptest::collection::vec(-70_000i32..70_000, 0..600),
            doubles in proptest::collection::vec(prop_oneof![Just(0.0), Just(-0.0), any::<f64>().prop_filter("equal", |n| !n.is_nan())], 0..600),
        ) {
            packed(&small);
            packed(&signed);
            packed(&near);
            packed(&doubles);
            let names: Vec<Option<NameId>> = near.iter().map(|n| u32::try_from(*n).ok().map(NameId::new)).collect();
            packed(&names);
        }
    }

    #[test]
    fn tables_come_back_whole_and_by_row() {
        let mut tables = Tables::default();
        for row in 0..1000u32 {
            tables.kernels.push(Kernel {
                start_ns: TimeNs(1_700_000_000_000_000_000 + i64::from(row) * 5000),
                duration_ns: DurationNs(i64::from(row % 90) * 100),
                name: NameId::new(row % 5),
                stream: 7 + row % 3,
                correlation: row,
                grid_x: 1 << (row % 9),
                graph_node: (row % 10 == 0).then_some(u64::from(row) << 33),
                ..Kernel::default()
            });
        }
        tables.contexts.push(crate::tables::Context::default());
        let whole = PackedTables::new(&tables);
        let mut others = PackedTables::others(&tables);
        assert_eq!((others.kernels.len(), others.contexts.len()), (0, 1));
        for row in [0, 1, 517, 999] {
            assert_eq!(whole.kernels.row(row), tables.kernels.row(row));
        }
        let correlations = whole.kernels.column("correlation").expect("there is one");
        assert_eq!((correlations.word(517), correlations.len()), (517, 1000));
        assert!(whole.kernels.column("nothing").is_none());
        let middle: Kernels = whole.kernels.rows(300..302);
        assert_eq!(middle.row(1), tables.kernels.row(301));
        whole.unpack_into(&mut others);
        assert_eq!(others, tables);
        assert!(whole.bytes() < 1000 * 20, "{} bytes", whole.bytes());
    }
}
