//! What every table of a recording can do, and the macro that makes one from its list of columns.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::body::Body;
use crate::column::{Dictionary, Raw};
use crate::names::{Interner, NameId};
use crate::time::DurationNs;

/// The key of a file's schema metadata under which the table's name stands.
pub const NAME_KEY: &str = "gputrace.table";

/// The dictionaries of one file, one a column.
pub type Dictionaries = Vec<Dictionary>;

/// Columns of equal length, one vector each: a table in memory, for writing as for analysis.
pub trait Table: Default {
    /// The table's name; its file is `NAME.arrows` in the process's folder.
    const NAME: &'static str;
    /// One row.
    type Row;

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
    /// Takes all rows out as an Arrow batch, leaving the table empty with the same capacity.
    ///
    /// # Errors
    /// When Arrow refuses the batch (columns of unequal length).
    fn take_batch(
        &mut self,
        dictionaries: &mut Dictionaries,
        names: &Interner,
    ) -> Result<RecordBatch, arrow_schema::ArrowError>;
    /// Writes all rows into a batch's body and leaves the table empty with the same capacity.
    fn write_rows(&mut self, dictionaries: &mut Dictionaries, names: &Interner, body: &mut Body);
    /// Appends the rows of a batch. Columns are found by name: an absent one gets its absent value, an unknown
    /// one is left alone and named in the result.
    ///
    /// # Errors
    /// When a column has another type than ours; the text names column and type. Nothing is appended then.
    fn append_batch(&mut self, batch: &RecordBatch, names: &mut Interner) -> Result<Vec<String>, String>;
    /// Puts a batch's values in place of those of the column at `place` of the schema; the other columns stay as they are.
    /// `false` where the values are damaged.
    fn fill(&mut self, place: usize, raw: &Raw<'_>) -> bool;
    /// Gives all names their numbers in another interner: `numbers` by old number.
    fn renumber(&mut self, numbers: &[NameId]);
    /// Moves all points in time by `by`.
    fn shift(&mut self, by: DurationNs);
    /// All columns, each a `Vec`.
    fn columns(&self) -> Vec<&(dyn std::any::Any + Send + Sync)>;
    /// The same, to change them.
    fn columns_mut(&mut self) -> Vec<&mut dyn std::any::Any>;
    /// Appends the rows of another table, whose names have the same numbers; `once`: but for those that are here already.
    fn append(&mut self, other: Self, once: bool);
    /// Makes room for so many more rows.
    fn reserve(&mut self, rows: usize);
    /// Gives back memory that no row uses.
    fn shrink(&mut self);
    /// Copies of these rows, in this order: a table of its own, whose names have the same numbers.
    ///
    /// # Panics
    /// When there is no such row.
    fn pick(&self, rows: &[u32]) -> Self;
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
        $field:ident: $Row:ident / $Columns:ident {
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
                type Row = $Row;

                fn schema() -> SchemaRef {
                    static SCHEMA: OnceLock<SchemaRef> = OnceLock::new();
                    SCHEMA.get_or_init(|| {
                        let fields = vec![
                            $( Field::new(stringify!($column), <$type as Value>::data_type(), <$type as Value>::NULLABLE), )*
                        ];
                        // A file that was renamed is known by this.
                        let named = [($crate::table::NAME_KEY.to_owned(), Self::NAME.to_owned())];
                        Arc::new(Schema::new(fields).with_metadata(named.into()))
                    }).clone()
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

                fn take_batch(
                    &mut self,
                    dictionaries: &mut Dictionaries,
                    names: &Interner,
                ) -> Result<RecordBatch, ArrowError> {
                    dictionaries.resize_with(Self::schema().fields().len(), Default::default);
                    let mut dictionary = dictionaries.iter_mut();
                    let mut arrays = Vec::new();
                    $( if let Some(dictionary) = dictionary.next() {
                        let capacity = self.$column.capacity();
                        let column = std::mem::replace(&mut self.$column, Vec::with_capacity(capacity));
                        arrays.push(<$type as Value>::encode(column, dictionary, names));
                    } )*
                    RecordBatch::try_new(Self::schema(), arrays)
                }

                fn write_rows(&mut self, dictionaries: &mut Dictionaries, names: &Interner, body: &mut Body) {
                    dictionaries.resize_with(Self::schema().fields().len(), Default::default);
                    let mut dictionary = dictionaries.iter_mut();
                    $( if let Some(dictionary) = dictionary.next() {
                        let packing = |width| Packing::of(stringify!($column), width);
                        <$type as Value>::write(&self.$column, dictionary, names, packing, body);
                        self.$column.clear();
                    } )*
                }

                fn append_batch(&mut self, batch: &RecordBatch, names: &mut Interner) -> Result<Vec<String>, String> {
                    let rows = self.len();
                    let decoded: Result<(), String> = (|| {
                        $( match batch.column_by_name(stringify!($column)) {
                            Some(array) => <$type as Value>::decode(array.as_ref(), names, &mut self.$column)
                                .map_err(|found| format!("column {} has type {}", stringify!($column), found.0))?,
                            None => self.$column.resize(rows + batch.num_rows(), <$type as Value>::absent()),
                        } )*
                        Ok(())
                    })();
                    if decoded.is_err() {
                        $( self.$column.truncate(rows); )*
                    }
                    decoded?;
                    const KNOWN: &[&str] = &[$( stringify!($column), )*];
                    Ok(batch.schema_ref().fields().iter().map(|field| field.name().clone())
                        .filter(|name| !KNOWN.contains(&name.as_str())).collect())
                }

                fn fill(&mut self, place: usize, raw: &Raw<'_>) -> bool {
                    let mut places = 0usize..;
                    $( if places.next() == Some(place) {
                        return <$type as Value>::fill(raw, &mut self.$column);
                    } )*
                    false
                }

                fn renumber(&mut self, numbers: &[NameId]) {
                    $( if <$type as Value>::NAMED {
                        for value in &mut self.$column {
                            value.renumber(numbers);
                        }
                    } )*
                }

                fn shift(&mut self, by: DurationNs) {
                    $( if let Some(times) = (&mut self.$column as &mut dyn Any).downcast_mut::<Vec<TimeNs>>() {
                        for time in times {
                            *time = *time + by;
                        }
                    } else if let Some(times) = (&mut self.$column as &mut dyn Any).downcast_mut::<Vec<Option<TimeNs>>>() {
                        for time in times.iter_mut().flatten() {
                            *time = *time + by;
                        }
                    } )*
                }

                fn columns(&self) -> Vec<&(dyn Any + Send + Sync)> {
                    vec![$( &self.$column as &(dyn Any + Send + Sync), )*]
                }

                fn columns_mut(&mut self) -> Vec<&mut dyn Any> {
                    vec![$( &mut self.$column as &mut dyn Any, )*]
                }

                fn append(&mut self, other: Self, once: bool) {
                    if once {
                        // They are repeated in their order, in front: only what follows is compared with all.
                        let repeated = (0..self.len().min(other.len()))
                            .take_while(|&row| self.row(row) == other.row(row))
                            .count();
                        let are_all = repeated == self.len();
                        for row in repeated..other.len() {
                            let row = other.row(row);
                            if are_all || !(0..self.len()).any(|known| self.row(known) == row) {
                                self.push(row);
                            }
                        }
                    } else {
                        $( self.$column.extend(other.$column); )*
                    }
                }

                fn reserve(&mut self, rows: usize) {
                    $( self.$column.reserve_exact(rows); )*
                }

                fn shrink(&mut self) {
                    $( self.$column.shrink_to_fit(); )*
                }

                fn pick(&self, rows: &[u32]) -> Self {
                    Self {
                        $( $column: rows.iter().map(|&row| self.$column[row as usize].clone()).collect(), )*
                    }
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

        impl Tables {
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

            /// Calls `visit` with every table's name and columns.
            pub fn each_columns(&mut self, visit: &mut dyn FnMut(&'static str, Vec<&mut dyn Any>)) {
                $( visit(stringify!($field), self.$field.columns_mut()); )*
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
                $( self.$field.append(later.$field, $crate::writer::STANDING_TABLES.contains(&stringify!($field))); )*
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
            /// Writers into `folder`; a file appears with its table's first batch.
            #[must_use]
            pub fn new(folder: &Path) -> Self {
                Self { $( $field: TableWriter::new(folder), )* }
            }

            /// Calls `visit` with every table's writer.
            pub fn each(&mut self, visit: &mut dyn FnMut(&mut dyn AnyTableWriter)) {
                $( visit(&mut self.$field); )*
            }
        }
    };
}
pub(crate) use tables;
