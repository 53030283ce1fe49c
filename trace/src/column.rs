//! How a column of a table becomes an Arrow array and back.
//!
//! Plain values go into primitive arrays, `Option`s into nullable ones, names into dictionary arrays whose
//! dictionary grows over the stream (Arrow's delta dictionaries), so that a kernel's name is written once a file.

use std::any::Any;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Int32Array, PrimitiveArray, StringArray};
use arrow_buffer::ScalarBuffer;
use arrow_schema::DataType;

use crate::body::{Body, Packing};
use crate::names::{Interner, NameId};
use crate::time::{DurationNs, TimeNs};

/// The dictionary of one name column of one file: which strings were written so far, in order.
#[derive(Default)]
pub struct Dictionary {
    /// By [`NameId`]: the string's place in this file's dictionary, -1 when it has none yet.
    places: Vec<i32>,
    strings: Vec<String>,
    written: Option<ArrayRef>,
    /// The places of a column's rows while it is written.
    rows: Vec<i32>,
}

impl Dictionary {
    /// How many strings it holds.
    pub(crate) fn len(&self) -> usize {
        self.strings.len()
    }

    #[inline]
    fn place(&mut self, id: NameId, names: &Interner) -> i32 {
        match self.places.get(id.number() as usize) {
            Some(&place) if place >= 0 => place,
            _ => self.new_place(id, names),
        }
    }

    fn new_place(&mut self, id: NameId, names: &Interner) -> i32 {
        let index = id.number() as usize;
        if index >= self.places.len() {
            self.places.resize(names.len().max(index + 1), -1);
        }
        if self.places[index] < 0 {
            self.places[index] = i32::try_from(self.strings.len()).unwrap_or(i32::MAX);
            self.strings.push(names.get(id).to_owned());
            self.written = None;
        }
        self.places[index]
    }

    fn values(&mut self) -> ArrayRef {
        let strings = &self.strings;
        self.written
            .get_or_insert_with(|| Arc::new(StringArray::from_iter_values(strings)))
            .clone()
    }
}

/// What is wrong with a column that was read; the text says which type was found.
#[derive(Debug)]
pub struct WrongType(pub String);

/// A column of a batch as its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    /// The values, little-endian, without gaps; of a column of names places in its dictionary.
    pub values: &'a [u8],
    /// A bit for each row that has a value, where not all have one.
    pub validity: Option<&'a [u8]>,
    /// The names of a dictionary's places.
    pub numbers: &'a [NameId],
}

impl Raw<'_> {
    #[inline]
    fn is_there(&self, row: usize) -> bool {
        self.validity
            .is_none_or(|bits| bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1))
    }

    /// The name at each row, with 0 for null; `false` where one is not in the dictionary.
    fn names<T>(&self, column: &mut Vec<T>, each: impl Fn(Option<NameId>) -> T) -> bool {
        let mut all_known = true;
        let places = self.values.as_chunks().0.iter().enumerate();
        column.extend(places.map(|(row, bytes)| {
            let place = i32::from_le_bytes(*bytes) as usize;
            let known = self.numbers.get(place).copied();
            let is_there = self.is_there(row);
            all_known &= known.is_some() || !is_there;
            each(known.filter(|_| is_there))
        }));
        all_known
    }
}

/// A value that a column can hold.
pub trait Value: Sized + Clone + PartialEq + Send + Sync + 'static {
    /// Whether the column may hold nulls.
    const NULLABLE: bool;
    /// Whether the values are names.
    const NAMED: bool = false;
    /// The Arrow type of the column.
    fn data_type() -> DataType;
    /// What a row holds where the file has no such column (a file of an older version).
    fn absent() -> Self;
    /// Gives a name its number in another interner: `numbers` by old number. Other values stay.
    fn renumber(&mut self, _numbers: &[NameId]) {}
    /// The column as an Arrow array.
    fn encode(column: Vec<Self>, dictionary: &mut Dictionary, names: &Interner) -> ArrayRef;
    /// Writes the column called `name` into a batch's body, as an Arrow array of [`Self::data_type`] lies there.
    fn write(column: &[Self], name: &str, dictionary: &mut Dictionary, names: &Interner, body: &mut Body);
    /// Appends an Arrow array to the column.
    ///
    /// # Errors
    /// When the array is of another type.
    fn decode(array: &dyn Array, names: &mut Interner, column: &mut Vec<Self>) -> Result<(), WrongType>;
    /// Puts the values of a batch in place of those of the column; `false` where they are damaged.
    fn fill(raw: &Raw<'_>, column: &mut Vec<Self>) -> bool;
}

/// A column of a table, whatever its values.
pub trait Column: Any + Send + Sync {
    /// How many rows.
    fn len(&self) -> usize;
    /// Whether there is no row.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Takes all values out as an Arrow array, leaving the column empty with the same capacity.
    fn take(&mut self, dictionary: &mut Dictionary, names: &Interner) -> ArrayRef;
    /// Writes all values into a batch's body as the column `name`, and leaves this one empty with the same capacity.
    fn write(&mut self, name: &str, dictionary: &mut Dictionary, names: &Interner, body: &mut Body);
    /// Appends an Arrow array.
    ///
    /// # Errors
    /// When it is of another type.
    fn append_array(&mut self, array: &dyn Array, names: &mut Interner) -> Result<(), WrongType>;
    /// Appends so many rows of a file that has no such column.
    fn push_absent(&mut self, rows: usize);
    /// Puts a batch's values in place of those that are here; `false` where they are damaged.
    fn fill(&mut self, raw: &Raw<'_>) -> bool;
    /// Gives all names their numbers in another interner: `numbers` by old number.
    fn renumber(&mut self, numbers: &[NameId]);
    /// Moves all points in time by `by`.
    fn shift(&mut self, by: DurationNs);
    /// Takes the values of another column of this type; none of another.
    fn append(&mut self, other: &mut dyn Column);
    /// Appends copies of these rows of another column of this type; none of another.
    ///
    /// # Panics
    /// When there is no such row.
    fn push_rows(&mut self, from: &dyn Column, rows: &[u32]);
    /// Copies of these rows as an Arrow array.
    ///
    /// # Panics
    /// When there is no such row.
    fn pick(&self, rows: &[u32], dictionary: &mut Dictionary, names: &Interner) -> ArrayRef;
    /// Whether a row holds what one of another column does.
    ///
    /// # Panics
    /// When there is no such row.
    fn is_same(&self, row: usize, other: &dyn Column, other_row: usize) -> bool;
    /// Makes room for so many more rows.
    fn reserve(&mut self, rows: usize);
    /// Keeps only so many rows.
    fn truncate(&mut self, rows: usize);
    /// Gives back memory that no row uses.
    fn shrink(&mut self);
    /// Bytes in memory.
    fn bytes(&self) -> usize;
}

impl dyn Column {
    /// The values, if they are of this type.
    #[must_use]
    pub fn downcast_ref<T: Any>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }

    /// The same, to change them.
    pub fn downcast_mut<T: Any>(&mut self) -> Option<&mut T> {
        (self as &mut dyn Any).downcast_mut()
    }
}

impl<T: Value> Column for Vec<T> {
    fn len(&self) -> usize {
        self.len()
    }
    fn take(&mut self, dictionary: &mut Dictionary, names: &Interner) -> ArrayRef {
        let empty = Self::with_capacity(self.capacity());
        T::encode(std::mem::replace(self, empty), dictionary, names)
    }
    fn write(&mut self, name: &str, dictionary: &mut Dictionary, names: &Interner, body: &mut Body) {
        T::write(self, name, dictionary, names, body);
        self.clear();
    }
    fn append_array(&mut self, array: &dyn Array, names: &mut Interner) -> Result<(), WrongType> {
        T::decode(array, names, self)
    }
    fn push_absent(&mut self, rows: usize) {
        self.resize(self.len() + rows, T::absent());
    }
    fn fill(&mut self, raw: &Raw<'_>) -> bool {
        T::fill(raw, self)
    }
    fn renumber(&mut self, numbers: &[NameId]) {
        if T::NAMED {
            for value in self {
                value.renumber(numbers);
            }
        }
    }
    fn shift(&mut self, by: DurationNs) {
        let column: &mut dyn Column = self;
        if let Some(times) = column.downcast_mut::<Vec<TimeNs>>() {
            for time in times {
                *time = *time + by;
            }
        } else if let Some(times) = column.downcast_mut::<Vec<Option<TimeNs>>>() {
            for time in times.iter_mut().flatten() {
                *time = *time + by;
            }
        }
    }
    fn append(&mut self, other: &mut dyn Column) {
        if let Some(other) = other.downcast_mut::<Self>() {
            self.append(other);
        }
    }
    fn push_rows(&mut self, from: &dyn Column, rows: &[u32]) {
        if let Some(from) = from.downcast_ref::<Self>() {
            self.extend(rows.iter().map(|&row| from[row as usize].clone()));
        }
    }
    fn pick(&self, rows: &[u32], dictionary: &mut Dictionary, names: &Interner) -> ArrayRef {
        let picked = rows.iter().map(|&row| self[row as usize].clone());
        T::encode(picked.collect(), dictionary, names)
    }
    fn is_same(&self, row: usize, other: &dyn Column, other_row: usize) -> bool {
        let other = other.downcast_ref::<Self>();
        other.is_some_and(|other| self[row] == other[other_row])
    }
    fn reserve(&mut self, rows: usize) {
        self.reserve_exact(rows);
    }
    fn truncate(&mut self, rows: usize) {
        self.truncate(rows);
    }
    fn shrink(&mut self) {
        self.shrink_to_fit();
    }
    fn bytes(&self) -> usize {
        self.capacity() * size_of::<T>()
    }
}

/// A number as the word that holds its bits.
trait Bits: Copy {
    fn bits(self) -> u64;
}

macro_rules! bits {
    ($($number:ty as $unsigned:ty),*) => {$(
        impl Bits for $number {
            #[inline]
            fn bits(self) -> u64 {
                u64::from(self as $unsigned)
            }
        }
    )*};
}
bits! { u8 as u8, u16 as u16, u32 as u32, u64 as u64, i32 as u32, i64 as u64 }

impl Bits for f64 {
    #[inline]
    fn bits(self) -> u64 {
        self.to_bits()
    }
}

/// Writes a nullable column: its validity and its numbers, with 0 for null.
fn write_nullable<const WIDTH: usize, T: Copy>(
    column: &[Option<T>],
    bits: impl Fn(T) -> u64 + Copy,
    packing: Packing,
    body: &mut Body,
) {
    let nulls = column.iter().filter(|value| value.is_none()).count();
    body.column(column.len(), nulls);
    // Most nullable columns are null throughout (no graph, no peer): that is cheap to say.
    if nulls == column.len() {
        body.same(0, 1, nulls.div_ceil(8));
        return body.same(0, WIDTH, nulls);
    }
    if nulls == 0 {
        body.nothing();
    } else {
        body.validity(column.iter().map(Option::is_some));
    }
    body.numbers::<WIDTH>(column.iter().map(|value| value.map_or(0, bits)), packing);
}

macro_rules! primitive_values {
    ($($value:ty, $arrow:ident, $native:ty, $data_type:ident, |$v:ident| $into:expr, |$n:ident| $from:expr;)*) => {$(
        impl Value for $value {
            const NULLABLE: bool = false;
            fn data_type() -> DataType {
                DataType::$data_type
            }
            fn absent() -> Self {
                Self::default()
            }
            fn encode(column: Vec<Self>, _: &mut Dictionary, _: &Interner) -> ArrayRef {
                let native: Vec<$native> = column.into_iter().map(|$v| $into).collect();
                Arc::new(PrimitiveArray::<arrow_array::types::$arrow>::new(ScalarBuffer::from(native), None))
            }
            fn write(
                column: &[Self],
                name: &str,
                _: &mut Dictionary,
                _: &Interner,
                body: &mut Body,
            ) {
                body.column(column.len(), 0);
                body.nothing();
                let values = column.iter().map(|&$v| Bits::bits($into));
                body.numbers::<{ size_of::<$native>() }>(values, Packing::of(name, size_of::<$native>()));
            }
            fn decode(array: &dyn Array, _: &mut Interner, column: &mut Vec<Self>) -> Result<(), WrongType> {
                let array = downcast::<PrimitiveArray<arrow_array::types::$arrow>>(array)?;
                column.extend(array.values().iter().map(|&$n| $from));
                Ok(())
            }
            fn fill(raw: &Raw<'_>, column: &mut Vec<Self>) -> bool {
                column.clear();
                column.extend(raw.values.as_chunks().0.iter().map(|bytes| {
                    let $n = <$native>::from_le_bytes(*bytes);
                    $from
                }));
                true
            }
        }
        impl Value for Option<$value> {
            const NULLABLE: bool = true;
            fn data_type() -> DataType {
                DataType::$data_type
            }
            fn absent() -> Self {
                None
            }
            fn encode(column: Vec<Self>, _: &mut Dictionary, _: &Interner) -> ArrayRef {
                // Most nullable columns are null throughout (no graph, no peer): that is cheap to see.
                if column.iter().all(Option::is_none) {
                    return Arc::new(PrimitiveArray::<arrow_array::types::$arrow>::new_null(column.len()));
                }
                Arc::new(PrimitiveArray::<arrow_array::types::$arrow>::from_iter(
                    column.into_iter().map(|value| value.map(|$v| $into)),
                ))
            }
            fn write(
                column: &[Self],
                name: &str,
                _: &mut Dictionary,
                _: &Interner,
                body: &mut Body,
            ) {
                const WIDTH: usize = size_of::<$native>();
                write_nullable::<WIDTH, $value>(column, |$v| Bits::bits($into), Packing::of(name, WIDTH), body);
            }
            fn decode(array: &dyn Array, _: &mut Interner, column: &mut Vec<Self>) -> Result<(), WrongType> {
                let array = downcast::<PrimitiveArray<arrow_array::types::$arrow>>(array)?;
                column.extend(array.iter().map(|value| value.map(|$n| $from)));
                Ok(())
            }
            fn fill(raw: &Raw<'_>, column: &mut Vec<Self>) -> bool {
                column.clear();
                let values = raw.values.as_chunks().0.iter().enumerate();
                column.extend(values.map(|(row, bytes)| {
                    let $n = <$native>::from_le_bytes(*bytes);
                    raw.is_there(row).then_some($from)
                }));
                true
            }
        }
    )*};
}

primitive_values! {
    u8, UInt8Type, u8, UInt8, |v| v, |n| n;
    u16, UInt16Type, u16, UInt16, |v| v, |n| n;
    u32, UInt32Type, u32, UInt32, |v| v, |n| n;
    u64, UInt64Type, u64, UInt64, |v| v, |n| n;
    i32, Int32Type, i32, Int32, |v| v, |n| n;
    i64, Int64Type, i64, Int64, |v| v, |n| n;
    f64, Float64Type, f64, Float64, |v| v, |n| n;
    TimeNs, Int64Type, i64, Int64, |v| v.0, |n| TimeNs(n);
    DurationNs, Int64Type, i64, Int64, |v| v.0, |n| DurationNs(n);
}

fn downcast<T: 'static>(array: &dyn Array) -> Result<&T, WrongType> {
    array
        .as_any()
        .downcast_ref()
        .ok_or_else(|| WrongType(array.data_type().to_string()))
}

fn name_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

fn encode_names(keys: Int32Array, dictionary: &mut Dictionary) -> ArrayRef {
    Arc::new(DictionaryArray::<Int32Type>::new(keys, dictionary.values()))
}

/// For each row the number of its name, `None` for null.
fn decode_names(array: &dyn Array, names: &mut Interner) -> Result<Vec<Option<NameId>>, WrongType> {
    let array = downcast::<DictionaryArray<Int32Type>>(array)?;
    let values = downcast::<StringArray>(array.values().as_ref())?;
    // Only the strings that this batch uses are interned, each once.
    let mut known: Vec<Option<NameId>> = vec![None; values.len()];
    let mut rows = Vec::with_capacity(array.len());
    for key in array.keys() {
        rows.push(key.and_then(|key| {
            let place = usize::try_from(key).ok()?;
            let slot = known.get_mut(place)?;
            Some(*slot.get_or_insert_with(|| names.intern(values.value(place))))
        }));
    }
    Ok(rows)
}

impl Value for NameId {
    const NULLABLE: bool = false;
    const NAMED: bool = true;
    #[inline]
    fn renumber(&mut self, numbers: &[NameId]) {
        *self = numbers.get(self.number() as usize).copied().unwrap_or_default();
    }
    fn data_type() -> DataType {
        name_type()
    }
    fn absent() -> Self {
        Self::default()
    }
    fn encode(column: Vec<Self>, dictionary: &mut Dictionary, names: &Interner) -> ArrayRef {
        let keys: Vec<i32> = column.into_iter().map(|id| dictionary.place(id, names)).collect();
        encode_names(Int32Array::new(ScalarBuffer::from(keys), None), dictionary)
    }
    fn write(column: &[Self], name: &str, dictionary: &mut Dictionary, names: &Interner, body: &mut Body) {
        let mut places = std::mem::take(&mut dictionary.rows);
        places.clear();
        places.extend(column.iter().map(|&id| dictionary.place(id, names)));
        body.column(column.len(), 0);
        body.nothing();
        body.numbers::<4>(places.iter().map(|place| place.bits()), Packing::of(name, 4));
        dictionary.rows = places;
    }
    fn decode(array: &dyn Array, names: &mut Interner, column: &mut Vec<Self>) -> Result<(), WrongType> {
        column.extend(
            decode_names(array, names)?
                .into_iter()
                .map(Option::unwrap_or_default),
        );
        Ok(())
    }
    fn fill(raw: &Raw<'_>, column: &mut Vec<Self>) -> bool {
        column.clear();
        raw.names(column, Option::unwrap_or_default)
    }
}

impl Value for Option<NameId> {
    const NULLABLE: bool = true;
    const NAMED: bool = true;
    fn renumber(&mut self, numbers: &[NameId]) {
        if let Some(name) = self {
            name.renumber(numbers);
        }
    }
    fn data_type() -> DataType {
        name_type()
    }
    fn absent() -> Self {
        None
    }
    fn encode(column: Vec<Self>, dictionary: &mut Dictionary, names: &Interner) -> ArrayRef {
        let keys = column
            .into_iter()
            .map(|id| id.map(|id| dictionary.place(id, names)));
        encode_names(keys.collect(), dictionary)
    }
    fn write(column: &[Self], name: &str, dictionary: &mut Dictionary, names: &Interner, body: &mut Body) {
        let places: Vec<Option<i32>> = column
            .iter()
            .map(|id| id.map(|id| dictionary.place(id, names)))
            .collect();
        write_nullable::<4, i32>(&places, Bits::bits, Packing::of(name, 4), body);
    }
    fn decode(array: &dyn Array, names: &mut Interner, column: &mut Vec<Self>) -> Result<(), WrongType> {
        column.extend(decode_names(array, names)?);
        Ok(())
    }
    fn fill(raw: &Raw<'_>, column: &mut Vec<Self>) -> bool {
        column.clear();
        raw.names(column, |name| name)
    }
}
