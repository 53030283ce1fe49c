//! The large tables of a process of a recording that grows: in pieces, which all its timelines share.

use std::sync::Arc;

use gputrace_trace::Table;
use gputrace_trace::packed::PackedTables;
use gputrace_trace::tables::{
    ApiCalls, Collectives, Compilations, Copies, GraphLaunches, Kernel, Kernels, Memsets, Synchronizations,
    Tables,
};
use rustc_hash::FxHashSet;

use super::store::{STORED, Stored, rows_of, unpacked_blocks};

/// A piece of so many rows is packed, and does not change any more.
const PACKED_ROWS: usize = if cfg!(test) { 256 } else { 1 << 16 };

/// The column that joins rows.
const ID: &str = "correlation";

fn ids_of<T: Stored>(tables: &Tables) -> Option<&Vec<u32>> {
    let place = T::schema().index_of(ID).ok()?;
    T::of(tables).columns().get(place)?.downcast_ref()
}

/// Where an id stands.
fn places(ids: impl Iterator<Item = u32>, wanted: u32) -> impl Iterator<Item = usize> {
    let ids = ids.enumerate();
    ids.filter(move |(_, id)| *id == wanted).map(|(row, _)| row)
}

/// By table, the least and the greatest correlation id.
fn ranges(tables: &Tables) -> [(u32, u32); STORED] {
    fn range<T: Stored>(tables: &Tables, ranges: &mut [(u32, u32); STORED]) {
        for id in ids_of::<T>(tables).into_iter().flatten() {
            let (least, most) = ranges[T::PLACE];
            ranges[T::PLACE] = (least.min(*id), most.max(*id));
        }
    }
    let mut ranges = [(u32::MAX, 0); STORED];
    range::<Kernels>(tables, &mut ranges);
    range::<Copies>(tables, &mut ranges);
    range::<Memsets>(tables, &mut ranges);
    range::<GraphLaunches>(tables, &mut ranges);
    range::<ApiCalls>(tables, &mut ranges);
    range::<Synchronizations>(tables, &mut ranges);
    ranges
}

/// Rows as they lie in memory.
#[derive(Clone)]
enum Held {
    Plain(Arc<Tables>),
    Packed(Arc<PackedTables>),
}

/// A part that is so many times as long as the one behind it is left alone; shorter ones are joined.
const LONGER: usize = 4;

/// Rows of a table of which there are not so many that they have to be packed, in parts that all timelines share.
#[derive(Clone, Debug)]
pub(crate) struct Parts<T> {
    /// Each with the number of its first row.
    parts: Vec<(usize, Arc<T>)>,
    rows: usize,
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self {
            parts: Vec::new(),
            rows: 0,
        }
    }
}

impl<T: Table + Clone> Parts<T> {
    pub(crate) fn len(&self) -> usize {
        self.rows
    }

    /// Appends rows.
    pub(crate) fn append(&mut self, table: T) {
        let rows = table.len();
        if rows == 0 {
            return;
        }
        self.parts.push((self.rows, Arc::new(table)));
        self.rows += rows;
        while let [.., (first, before), (_, last)] = self.parts.as_slice()
            && before.len() < LONGER * last.len()
        {
            let first = *first;
            let mut joined = T::clone(before);
            joined.append(T::clone(last), false);
            self.parts.truncate(self.parts.len() - 2);
            self.parts.push((first, Arc::new(joined)));
        }
    }

    pub(crate) fn row(&self, row: usize) -> Option<T::Row> {
        let after = self.parts.partition_point(|(first, _)| *first <= row);
        let (first, part) = self.parts.get(after.checked_sub(1)?)?;
        (row - first < part.len()).then(|| part.row(row - first))
    }

    fn append_to(&self, table: &mut T) {
        for (_, part) in &self.parts {
            table.append(T::clone(part), false);
        }
    }
}

/// Rows of the large tables, in pieces.
#[derive(Clone, Default)]
pub(crate) struct Pieces {
    pub(crate) collectives: Parts<Collectives>,
    pub(crate) compilations: Parts<Compilations>,
    /// The first row of each piece, by table.
    firsts: Vec<[usize; STORED]>,
    held: Vec<Held>,
    rows: [usize; STORED],
    /// Of each piece that is packed, by table: the least and the greatest correlation id.
    ids: Vec<[(u32, u32); STORED]>,
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

    /// The rows of a table with this correlation id, in their order: only pieces whose ids are around it are looked at, so that
    /// it costs the same however many there are. 0 joins nothing.
    pub(crate) fn rows_with<T: Stored>(&self, id: u32) -> Vec<usize> {
        let mut found = Vec::new();
        if id == 0 {
            return found;
        }
        for (place, held) in self.held.iter().enumerate() {
            let first = self.firsts[place][T::PLACE];
            match held {
                Held::Plain(tables) => {
                    let ids = ids_of::<T>(tables).into_iter().flatten();
                    found.extend(places(ids.copied(), id).map(|row| first + row));
                }
                Held::Packed(tables) => {
                    let (least, most) = self.ids[place][T::PLACE];
                    let column = T::packed(tables).column(ID);
                    if let Some(column) = column.filter(|_| least <= id && id <= most) {
                        let ids = (0..column.len()).map(|row| column.word(row));
                        found.extend(places(ids, id).map(|row| first + row));
                    }
                }
            }
        }
        found
    }

    /// Shows all rows of a table, block by block.
    pub(crate) fn blocks<T: Stored>(&self, mut see: impl FnMut(&T)) {
        for held in &self.held {
            match held {
                Held::Plain(tables) => see(T::of(tables)),
                Held::Packed(tables) => unpacked_blocks(T::packed(tables), &mut see),
            }
        }
    }

    /// Appends all rows to tables.
    pub(crate) fn unpack_into(&self, tables: &mut Tables) {
        self.collectives.append_to(&mut tables.collectives);
        self.compilations.append_to(&mut tables.compilations);
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
    /// The rows of the tables that are not packed, so far.
    pub(crate) fn collectives(&self) -> usize {
        self.packed.collectives.len()
    }

    /// The same.
    pub(crate) fn compilations(&self) -> usize {
        self.packed.compilations.len()
    }

    /// The kernels for which `wanted` says so of their launches, or of their rows and nodes of graphs where these are
    /// `by_row`: their rows and what they are. What has ids far from those of `launches` is not looked at.
    pub(crate) fn kernels(
        &self,
        launches: &FxHashSet<u32>,
        by_row: bool,
        wanted: impl Fn(u32, u32, Option<u64>) -> bool,
    ) -> Vec<(u32, Kernel)> {
        let range = (launches.iter().min().copied()).zip(launches.iter().max().copied());
        let overlaps =
            |(least, most): (u32, u32)| range.is_some_and(|(from, to)| from <= most && least <= to);
        let mut found = Vec::new();
        for (place, held) in self.packed.held.iter().enumerate() {
            if !by_row && !overlaps(self.packed.ids[place][Kernels::PLACE]) {
                continue;
            }
            let Held::Packed(packed) = held else { continue };
            let first = self.packed.firsts[place][Kernels::PLACE];
            let (ids, nodes) = (packed.kernels.column(ID), packed.kernels.column("graph_node"));
            for row in 0..packed.kernels.len() {
                let number = u32::try_from(first + row).unwrap_or(u32::MAX);
                let id = ids.map_or(0, |ids| ids.word(row));
                let node = || nodes.filter(|_| by_row).and_then(|nodes| nodes.key(row));
                if wanted(number, id, node()) {
                    found.push((number, packed.kernels.row(row)));
                }
            }
        }
        let (kernels, first) = (&self.rest.kernels, self.packed.rows[Kernels::PLACE]);
        for row in 0..kernels.len() {
            let number = u32::try_from(first + row).unwrap_or(u32::MAX);
            if wanted(number, kernels.correlation[row], kernels.graph_node[row]) {
                found.push((number, kernels.row(row)));
            }
        }
        found
    }

    /// The number of the next row of each table.
    pub(crate) fn next_rows(&self) -> [usize; STORED] {
        let mut rows = self.packed.rows;
        for (all, rows) in rows.iter_mut().zip(rows_of(&self.rest)) {
            *all += rows;
        }
        rows
    }

    /// Takes in rows, of these tables and of others that are packed with them.
    pub(crate) fn append(&mut self, mut tables: Tables) {
        let whole = &mut self.packed;
        whole.collectives.append(std::mem::take(&mut tables.collectives));
        whole
            .compilations
            .append(std::mem::take(&mut tables.compilations));
        self.rest.append(tables);
        let rows: usize = self.rest.row_counts().iter().map(|(_, rows)| rows).sum();
        if rows >= PACKED_ROWS {
            let rest = std::mem::take(&mut self.rest);
            let packed = Arc::new(PackedTables::new(&rest));
            self.packed.ids.push(ranges(&rest));
            self.packed.push(Held::Packed(packed), rows_of(&rest));
        }
    }

    /// All rows so far.
    pub(crate) fn so_far(&self) -> Pieces {
        let mut pieces = self.packed.clone();
        pieces.push(Held::Plain(Arc::new(self.rest.clone())), rows_of(&self.rest));
        pieces
    }
}
