//! The critical path on the timeline: which row each of its pieces lies on.

use gputrace_analyzer::graph::{PathTable, Piece};

use super::source::Table;
use super::{Timeline, tile};

const MAGIC: u32 = 0x4854_4150;
const VERSION: u32 = 1;
/// No row, or no slice.
const NONE: u32 = u32::MAX;

impl Timeline {
    /// Pieces of the path, `total` in all, as they go over the wire: after the head (magic, version, total, how many these are)
    /// their starts and ends as doubles, their places among the path's parts, and row and place of the slice that they lie on.
    /// What the host does between calls lies on its thread, on no slice of its own.
    #[must_use]
    pub fn path(&self, pieces: &[Piece], total: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + pieces.len() * 28);
        let total = u32::try_from(total).unwrap_or(u32::MAX);
        tile::header(&mut bytes, MAGIC, VERSION, total, pieces.len());
        for of in [|piece: &Piece| piece.start_ns, |piece: &Piece| piece.end_ns] {
            for piece in pieces {
                let relative = of(piece).saturating_sub(self.origin_ns());
                bytes.extend_from_slice(&(relative as f64).to_le_bytes());
            }
        }
        let places: Vec<(u32, u32)> = pieces.iter().map(|piece| self.row_of_piece(piece)).collect();
        tile::words(&mut bytes, pieces.iter().map(|piece| piece.part));
        tile::words(&mut bytes, places.iter().map(|(row, _)| *row));
        tile::words(&mut bytes, places.iter().map(|(_, index)| *index));
        bytes
    }

    fn row_of_piece(&self, piece: &Piece) -> (u32, u32) {
        let Some((table, row)) = piece.row else {
            return (NONE, NONE);
        };
        let table = match table {
            PathTable::Kernels => Table::Kernel,
            PathTable::Copies => Table::Copy,
            PathTable::Memsets => Table::Memset,
            PathTable::GraphLaunches => Table::GraphLaunch,
            PathTable::ApiCalls => Table::Call,
        };
        let Some((row, index)) = self.find_place(piece.process, table, row as usize) else {
            return (NONE, NONE);
        };
        let index = u32::try_from(index).unwrap_or(NONE);
        (row, if piece.what == "host" { NONE } else { index })
    }
}
