//! What every table of a recording can do, and the macro that makes one from its list of columns.

use std::fmt::Debug;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use crate::body::Body;
use crate::column::{Column, Dictionary, Raw};
use crate::names::{Interner, NameId};
use crate::seal::NAME_KEY;
use crate::time::DurationNs;

/// What the rows of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Operations that a GPU has finished.
    Operations,
    /// Operations that NCCL has enqueued.
    Collectives,
    /// Other things that happened: calls, ranges, samples.
    Events,
    /// What is known besides of things that happened.
    Details,
    /// What stands for the whole of a process: each segment begins with these rows, so that it can be read alone.
    Standing,
    /// What is said of the recording itself.
    Recording,
}

/// How many rows a table gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So few that who follows a recording reads them anew at each look.
    Few,
    /// More with each event: they are followed.
    Many,
    /// The same, and so many that they are packed in memory ([`crate::packed::PackedTables`]).
    Packed,
}

/// What is known of a table besides its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// [`Table::NAME`].
    pub name: &'static str,
    /// What its rows are.
    pub holds: Holds,
    /// How many it gets.
    pub size: Size,
}

/// The dictionaries of one file, one a column.
pub type Dictionaries = Vec<Dictionary>;

/// A column's name, its Arrow type, and whether it may hold nulls.
pub(crate) type Described = (&'static str, fn() -> DataType, bool);

/// The schema of a table.
pub(crate) fn schema_of(table: &str, columns: &[Described]) -> SchemaRef {
    let fields = columns
        .iter()
        .map(|(name, data_type, nullable)| Field::new(*name, data_type(), *nullable));
    // A file that was renamed is known by this.
    let named = [(NAME_KEY.to_owned(), table.to_owned())];
    Arc::new(Schema::new(fields.collect::<Vec<_>>()).with_metadata(named.into()))
}

/// Columns of equal length, one vector each: a table in memory, for writing as for analysis.
pub trait Table: Default {
    /// The table's name; its file is `NAME.arrows` in the process's folder.
    const NAME: &'static str;
    /// What its rows are.
    const HOLDS: Holds;
    /// One row.
    type Row: Debug;

    /// The columns' names and Arrow types.
    fn schema() -> SchemaRef;
    /// How many rows.
    fn len(&self) -> usize;
    /// Whether there is no row.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Appends a row.
    fn push(&mut self, row: Self::Row);
    /// A copy of row `index`.
    ///
    /// # Panics
    /// When there is no such row.
    fn row(&self, index: usize) -> Self::Row;
    /// All columns, each a `Vec`, in the order of the schema.
    fn columns(&self) -> Vec<&dyn Column>;
    /// The same, to change them.
    fn columns_mut(&mut self) -> Vec<&mut dyn Column>;
    /// Takes all rows out as an Arrow batch, leaving the table empty with the same capacity.
    ///
    /// # Errors
    /// When Arrow refuses the batch (columns of unequal length).
    fn take_batch(
        &mut self,
        dictionaries: &mut Dictionaries,
        names: &Interner,
    ) -> Result<RecordBatch, ArrowError> {
        take_batch(Self::schema(), self.columns_mut(), dictionaries, names)
    }
    /// Writes all rows into a batch's body and leaves the table empty with the same capacity.
    fn write_rows(&mut self, dictionaries: &mut Dictionaries, names: &Interner, body: &mut Body) {
        write_rows(&Self::schema(), self.columns_mut(), dictionaries, names, body);
    }
    /// Appends the rows of a batch. Columns are found by name: an absent one gets its absent value, an unknown
    /// one is left alone and named in the result.
    ///
    /// # Errors
    /// When a column has another type than ours; the text names column and type. Nothing is appended then.
    fn append_batch(&mut self, batch: &RecordBatch, names: &mut Interner) -> Result<Vec<String>, String> {
        append_batch(Self::NAME, &Self::schema(), self.columns_mut(), batch, names)
    }
    /// Puts a batch's values in place of those of the column at `place` of the schema; the other columns stay as they are.
    /// `false` where the values are damaged.
    fn fill(&mut self, place: usize, raw: &Raw<'_>) -> bool {
        let column = self.columns_mut().into_iter().nth(place);
        column.is_some_and(|column| column.fill(raw))
    }
    /// Gives all names their numbers in another interner: `numbers` by old number.
    fn renumber(&mut self, numbers: &[NameId]) {
        for column in self.columns_mut() {
            column.renumber(numbers);
        }
    }
    /// Moves all points in time by `by`.
    fn shift(&mut self, by: DurationNs) {
        for column in self.columns_mut() {
            column.shift(by);
        }
    }
    /// Appends the rows of another table, whose names have the same numbers; `once`: but for those that are here already.
    fn append(&mut self, mut other: Self, once: bool) {
        if once {
            append_once(self.columns_mut(), &other.columns());
        } else {
            for (column, more) in self.columns_mut().into_iter().zip(other.columns_mut()) {
                column.append(more);
            }
        }
    }
    /// Makes room for so many more rows.
    fn reserve(&mut self, rows: usize) {
        for column in self.columns_mut() {
            column.reserve(rows);
        }
    }
    /// Gives back memory that no row uses.
    fn shrink(&mut self) {
        for column in self.columns_mut() {
            column.shrink();
        }
    }
    /// Bytes in memory.
    fn bytes(&self) -> usize {
        self.columns().into_iter().map(Column::bytes).sum()
    }
    /// Copies of these rows, in this order: a table of its own, whose names have the same numbers.
    ///
    /// # Panics
    /// When there is no such row.
    fn pick(&self, rows: &[u32]) -> Self {
        let mut picked = Self::default();
        for (column, from) in picked.columns_mut().into_iter().zip(self.columns()) {
            column.push_rows(from, rows);
        }
        picked
    }
}

// What tables do with all of their columns alike. It is compiled once, not once for each table.

fn take_batch(
    schema: SchemaRef,
    columns: Vec<&mut dyn Column>,
    dictionaries: &mut Dictionaries,
    names: &Interner,
) -> Result<RecordBatch, ArrowError> {
    dictionaries.resize_with(columns.len(), Default::default);
    let arrays = columns.into_iter().zip(dictionaries);
    let arrays = arrays.map(|(column, dictionary)| column.take(dictionary, names));
    RecordBatch::try_new(schema, arrays.collect())
}

fn write_rows(
    schema: &SchemaRef,
    columns: Vec<&mut dyn Column>,
    dictionaries: &mut Dictionaries,
    names: &Interner,
    body: &mut Body,
) {
    dictionaries.resize_with(columns.len(), Default::default);
    for ((column, field), dictionary) in columns.into_iter().zip(schema.fields()).zip(dictionaries) {
        column.write(field.name(), dictionary, names, body);
    }
}

fn append_batch(
    table: &str,
    schema: &SchemaRef,
    mut columns: Vec<&mut dyn Column>,
    batch: &RecordBatch,
    names: &mut Interner,
) -> Result<Vec<String>, String> {
    let found = batch.schema_ref();
    if let Some(holds) = found.metadata().get(NAME_KEY)
        && holds != table
    {
        return Err(format!("it holds the table {holds}"));
    }
    let rows = columns.first().map_or(0, |column| column.len());
    for place in 0..columns.len() {
        let name = schema.field(place).name();
        let appended = match batch.column_by_name(name) {
            Some(array) => columns[place].append_array(array.as_ref(), names),
            None => {
                columns[place].push_absent(batch.num_rows());
                Ok(())
            }
        };
        if let Err(found) = appended {
            for column in columns {
                column.truncate(rows);
            }
            return Err(format!("column {name} has type {}", found.0));
        }
    }
    let fields = found.fields().iter().map(|field| field.name());
    let unknown = fields.filter(|name| schema.field_with_name(name).is_err());
    Ok(unknown.cloned().collect())
}

fn append_once(mut columns: Vec<&mut dyn Column>, other: &[&dyn Column]) {
    let len = |column: Option<usize>| column.unwrap_or(0);
    let known = len(columns.first().map(|column| column.len()));
    let rows = len(other.first().map(|column| column.len()));
    let is_same = |columns: &[&mut dyn Column], row: usize, other_row: usize| {
        let mut pairs = columns.iter().zip(other);
        pairs.all(|(column, other)| column.is_same(row, *other, other_row))
    };
    // They are repeated in their order, in front: only what follows is compared with all.
    let repeated = (0..known.min(rows))
        .take_while(|&row| is_same(&columns, row, row))
        .count();
    let are_all = repeated == known;
    let mut now = known;
    for (row, number) in (repeated..rows).zip(repeated as u32..) {
        if are_all || !(0..now).any(|known| is_same(&columns, known, row)) {
            for (column, from) in columns.iter_mut().zip(other) {
                column.push_rows(*from, &[number]);
            }
            now += 1;
        }
    }
}

/// Something that is done with every table, whichever its columns: see [`crate::tables::Tables::visit`].
pub trait TableVisitor {
    /// One table.
    fn table<T: Table>(&mut self, table: &T);
}

/// The same, to change them: see [`crate::tables::Tables::visit_mut`].
pub trait TableVisitorMut {
    /// One table.
    fn table<T: Table>(&mut self, table: &mut T);
}

/// Makes the row struct, the columns struct and the [`Table`] of each table listed, and [`crate::tables::Tables`].
macro_rules! tables {
    ($(
        $(#[$doc:meta])*
        $field:ident: $Row:ident / $Columns:ident, $holds:ident, $size:ident {
            $( $(#[$column_doc:meta])* $column:ident: $type:ty, )*
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, Default, PartialEq)]
            pub struct $Row {
                $( $(#[$column_doc])* pub $column: $type, )*
            }

            #[doc = concat!("The columns of many [`", stringify!($Row), "`] rows.")]
            #[derive(Clone, Debug, Default, PartialEq)]
            pub struct $Columns {
                $( $(#[$column_doc])* pub $column: Vec<$type>, )*
            }

            impl Table for $Columns {
                const NAME: &'static str = stringify!($field);
                const HOLDS: Holds = Holds::$holds;
                type Row = $Row;

                fn schema() -> SchemaRef {
                    static SCHEMA: OnceLock<SchemaRef> = OnceLock::new();
                    const FIELDS: &[$crate::table::Described] = &[
                        $( (stringify!($column), <$type as Value>::data_type, <$type as Value>::NULLABLE), )*
                    ];
                    SCHEMA.get_or_init(|| $crate::table::schema_of(Self::NAME, FIELDS)).clone()
                }

                fn len(&self) -> usize {
                    [$( self.$column.len(), )*][0]
                }

                #[inline]
                fn push(&mut self, row: $Row) {
                    $( self.$column.push(row.$column); )*
                }

                fn row(&self, index: usize) -> $Row {
                    $Row { $( $column: self.$column[index].clone(), )* }
                }

                fn columns(&self) -> Vec<&dyn Column> {
                    vec![$( &self.$column as &dyn Column, )*]
                }

                fn columns_mut(&mut self) -> Vec<&mut dyn Column> {
                    vec![$( &mut self.$column as &mut dyn Column, )*]
                }
            }
        )*

        /// All tables of one process.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Tables {
            $( $(#[$doc])* pub $field: $Columns, )*
        }

        /// The names of all tables, in the order of [`Tables`].
        pub const TABLE_NAMES: &[&str] = &[$( stringify!($field), )*];

        /// What is known of each, in the same order.
        pub const TABLES: &[About] = &[$(
            About { name: stringify!($field), holds: Holds::$holds, size: Size::$size },
        )*];

        impl Tables {
            /// Bytes in memory.
            #[must_use]
            pub fn bytes(&self) -> usize {
                size_of::<Self>() $( + self.$field.bytes() )*
            }

            /// The number of rows of each table, by name, in the order of [`TABLE_NAMES`].
            #[must_use]
            pub fn row_counts(&self) -> Vec<(&'static str, usize)> {
                vec![$( (stringify!($field), self.$field.len()), )*]
            }

            /// Makes room for so many more rows of a table.
            pub fn reserve(&mut self, table: &str, rows: usize) {
                match table {
                    $( stringify!($field) => self.$field.reserve(rows), )*
                    _ => {}
                }
            }

            /// Appends a batch to the table called `table`: see [`Table::append_batch`]. `None` when no table has that name.
            pub fn append_batch(
                &mut self,
                table: &str,
                batch: &RecordBatch,
                names: &mut Interner,
            ) -> Option<Result<Vec<String>, String>> {
                match table {
                    $( stringify!($field) => Some(self.$field.append_batch(batch, names)), )*
                    _ => None,
                }
            }

            /// Gives all names their numbers in another interner: `numbers` by old number.
            pub fn renumber(&mut self, numbers: &[NameId]) {
                $( self.$field.renumber(numbers); )*
            }

            /// Moves all points in time by `by`.
            pub fn shift(&mut self, by: DurationNs) {
                $( self.$field.shift(by); )*
            }

            /// Calls `visit` with every table's name, and its columns' names and columns.
            pub fn each_columns(
                &mut self,
                visit: &mut dyn FnMut(&'static str, &[&'static str], Vec<&mut dyn Column>),
            ) {
                $( visit(
                    stringify!($field),
                    &[$( stringify!($column), )*],
                    self.$field.columns_mut(),
                ); )*
            }

            /// Hands every table to `visitor`, in the order of [`TABLE_NAMES`].
            pub fn visit(&self, visitor: &mut impl $crate::table::TableVisitor) {
                $( visitor.table(&self.$field); )*
            }

            /// The same, to change them.
            pub fn visit_mut(&mut self, visitor: &mut impl $crate::table::TableVisitorMut) {
                $( visitor.table(&mut self.$field); )*
            }

            /// Appends the rows of a later part of the process, whose names have the same numbers; what stands is repeated in
            /// each part, and taken once.
            pub fn append(&mut self, later: Self) {
                $( self.$field.append(later.$field, Holds::$holds == Holds::Standing); )*
            }

            /// Gives back memory that no row uses.
            pub fn shrink(&mut self) {
                $( self.$field.shrink(); )*
            }

            /// Takes a copy of those tables of another that `wanted` names.
            pub(crate) fn copy_tables(&mut self, other: &Self, wanted: impl Fn(&str) -> bool) {
                $( if wanted(stringify!($field)) {
                    self.$field.clone_from(&other.$field);
                } )*
            }
        }

        /// The writers of all tables of one process: one [`TableWriter`] each.
        pub struct TableWriters {
            $( $(#[$doc])* pub $field: TableWriter<$Columns>, )*
        }

        impl TableWriters {
            /// Writers into `folder`; a file appears with its table's first batch. `files`: who makes them; `identity`: whose they are.
            #[must_use]
            pub fn new(files: &Arc<dyn Files>, folder: &Path, identity: Identity) -> Self {
                Self { $( $field: TableWriter::new(files, folder, identity), )* }
            }

            /// Calls `visit` with every table's writer.
            pub fn each(&mut self, visit: &mut dyn FnMut(&mut dyn AnyTableWriter)) {
                $( visit(&mut self.$field); )*
            }
        }
    };
}
pub(crate) use tables;
