//! The large tables of a process of a recording that grows: in pieces, which all its timelines share.

use std::sync::{Arc, OnceLock};

use gputrace_trace::packed::PackedTables;
use gputrace_trace::tables::Tables;

use super::store::{STORED, Stored, Words, rows_of};

/// A piece of so many rows is packed, and does not change any more.
const PACKED_ROWS: usize = if cfg!(test) { 256 } else { 1 << 16 };

/// Rows as they lie in memory.
#[derive(Clone)]
enum Held {
    Plain(Arc<Tables>),
    Packed(Arc<PackedTables>),
}

/// Rows of the large tables, in pieces.
#[derive(Clone, Default)]
pub(crate) struct Pieces {
    /// The first row of each piece, by table.
    firsts: Vec<[usize; STORED]>,
    held: Vec<Held>,
    rows: [usize; STORED],
    /// By table: the column that was asked for, of all pieces.
    words: [Arc<OnceLock<Vec<u32>>>; STORED],
}

impl Pieces {
    fn push(&mut self, held: Held, rows: [usize; STORED]) {
        self.firsts.push(self.rows);
        self.held.push(held);
        for (all, rows) in self.rows.iter_mut().zip(rows) {
            *all += rows;
        }
    }

    /// A row of a table.
    pub(crate) fn row<T: Stored>(&self, row: usize) -> Option<T::Row> {
        if row >= self.rows[T::PLACE] {
            return None;
        }
        let after = self.firsts.partition_point(|firsts| firsts[T::PLACE] <= row);
        let place = after.checked_sub(1)?;
        let row = row - self.firsts[place][T::PLACE];
        Some(match &self.held[place] {
            Held::Plain(tables) => T::of(tables).row(row),
            Held::Packed(tables) => T::packed(tables).row(row),
        })
    }

    /// A column of 32-bit numbers, always the same one of a table; put together when it is first asked for.
    pub(crate) fn words<T: Stored>(&self, name: &str) -> &[u32] {
        self.words[T::PLACE].get_or_init(|| {
            let place = T::schema().index_of(name).ok();
            let mut words = Vec::with_capacity(self.rows[T::PLACE]);
            for held in &self.held {
                match held {
                    Held::Plain(tables) => {
                        let columns = T::of(tables).columns();
                        let column = place.and_then(|place| columns.get(place)?.downcast_ref::<Vec<u32>>());
                        words.extend(column.into_iter().flatten());
                    }
                    Held::Packed(tables) => {
                        let column = T::packed(tables).column(name);
                        let column = column.into_iter().map(Words::Packed);
                        words.extend(
                            column.flat_map(|column| (0..column.len()).map(move |row| column.get(row))),
                        );
                    }
                }
            }
            words
        })
    }

    /// Appends all rows to tables.
    pub(crate) fn unpack_into(&self, tables: &mut Tables) {
        for held in &self.held {
            match held {
                Held::Plain(piece) => tables.append(Tables::clone(piece)),
                Held::Packed(packed) => {
                    let mut piece = Tables::default();
                    packed.unpack_into(&mut piece);
                    tables.append(piece);
                }
            }
        }
    }

    /// Bytes of what is packed.
    pub(crate) fn bytes(&self) -> usize {
        let packed = self.held.iter().map(|held| match held {
            Held::Plain(_) => 0,
            Held::Packed(packed) => packed.bytes(),
        });
        packed.sum()
    }
}

/// Puts pieces together as rows come.
#[derive(Default)]
pub(crate) struct Collecting {
    packed: Pieces,
    /// What is not packed yet.
    rest: Tables,
}

impl Collecting {
    /// The number of the next row of each table.
    pub(crate) fn next_rows(&self) -> [usize; STORED] {
        let mut rows = self.packed.rows;
        for (all, rows) in rows.iter_mut().zip(rows_of(&self.rest)) {
            *all += rows;
        }
        rows
    }

    /// Takes in rows, of these tables and of others that are packed with them.
    pub(crate) fn append(&mut self, tables: Tables) {
        self.rest.append(tables);
        let rows: usize = self.rest.row_counts().iter().map(|(_, rows)| rows).sum();
        if rows >= PACKED_ROWS {
            let rest = std::mem::take(&mut self.rest);
            let packed = Arc::new(PackedTables::new(&rest));
            self.packed.push(Held::Packed(packed), rows_of(&rest));
        }
    }

    /// All rows so far.
    pub(crate) fn so_far(&self) -> Pieces {
        let mut pieces = Pieces {
            words: Default::default(),
            ..self.packed.clone()
        };
        pieces.push(Held::Plain(Arc::new(self.rest.clone())), rows_of(&self.rest));
        pieces
    }
}
