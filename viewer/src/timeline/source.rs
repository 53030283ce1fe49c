//! Which row of which table a slice is.

/// Which table a slice is a row of. Of two that begin and end together, the later one here is the inner one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Table {
    Operator,
    Marker,
    Enqueue,
    Call,
    Synchronization,
    Overhead,
    Compilation,
    ProxyStep,
    Channel,
    Kernel,
    Copy,
    Memset,
    GraphLaunch,
    Untimed,
    /// A part of a collective: the analysis's number of the collective.
    Collective,
    /// A range on a device: the row of the range.
    Projected,
}

const TABLES: [Table; 16] = [
    Table::Operator,
    Table::Marker,
    Table::Enqueue,
    Table::Call,
    Table::Synchronization,
    Table::Overhead,
    Table::Compilation,
    Table::ProxyStep,
    Table::Channel,
    Table::Kernel,
    Table::Copy,
    Table::Memset,
    Table::GraphLaunch,
    Table::Untimed,
    Table::Collective,
    Table::Projected,
];

/// Bits for the row.
const BITS: u32 = 28;
/// Rows that a table may have here.
pub(crate) const MOST_ROWS: usize = 1 << BITS;

/// A row of a table as a slice's source.
#[inline]
pub(crate) fn source(table: Table, row: u32) -> u32 {
    ((table as u32) << BITS) | (row & (MOST_ROWS as u32 - 1))
}

/// The table and row of a source.
#[inline]
pub(crate) fn table_and_row(source: u32) -> (Table, usize) {
    let table = TABLES.get((source >> BITS) as usize).copied();
    (table.unwrap_or(Table::Untimed), source as usize & (MOST_ROWS - 1))
}
