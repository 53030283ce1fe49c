//! Where a unit's parameters are: in its flat vector on this rank, and in the flat vector of the whole, unsharded
//! network, which is the same for every way to train and so what checkpoints hold.

use std::ops::Range;

/// How a tensor's elements begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Start {
    /// Evenly between minus and plus this.
    Uniform(f32),
    /// Normally distributed about 0 with this standard deviation.
    Normal(f32),
    /// All the same.
    Constant(f32),
}

/// How tensor parallelism divides a tensor over its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// Every rank has all of it.
    Whole,
    /// Each rank has its rows.
    Rows,
    /// Each rank has its columns of each of so many equally wide groups of columns.
    Columns { groups: usize },
}

/// One parameter tensor of a unit, row-major, unsharded.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    pub(crate) name: &'static str,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) start: Start,
    pub(crate) split: Split,
    /// With sequence parallelism each rank's gradient is of its own rows of the batch: it must be summed over ranks.
    pub(crate) partial_in_sequence_parallel: bool,
}

/// A share of something divided over ranks: `rank` of `ranks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
}

impl Shard {
    /// All of it.
    pub(crate) const WHOLE: Self = Self { rank: 0, ranks: 1 };

    /// This rank's range of `count` things, which the ranks divide evenly.
    pub(crate) fn range(self, count: usize) -> Range<usize> {
        let share = count / self.ranks;
        self.rank * share..(self.rank + 1) * share
    }
}

/// So many elements in a row, in the unit's unsharded vector and in this rank's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) whole: usize,
    pub(crate) local: usize,
    pub(crate) count: usize,
}

/// One tensor's place in the unit's vector on this rank.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) elements: Range<usize>,
    /// Whether each rank of tensor parallelism has a part; else all have the same.
    pub(crate) divided: bool,
    pub(crate) partial_in_sequence_parallel: bool,
}

/// A unit's parameters on this rank.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// In the order of the unit's tensors, without gaps.
    pub(crate) places: Vec<Place>,
    pub(crate) pieces: Vec<Piece>,
    /// Elements of the unit on this rank, and of the unsharded unit.
    pub(crate) elements: usize,
    pub(crate) whole_elements: usize,
}

impl Layout {
    /// The layout of these tensors on one of the ranks of tensor parallelism. Divided sizes must divide evenly.
    pub(crate) fn new(tensors: &[Tensor], shard: Shard) -> Self {
        let mut layout = Self {
            places: Vec::new(),
            pieces: Vec::new(),
            elements: 0,
            whole_elements: 0,
        };
        for tensor in tensors {
            let start = layout.elements;
            layout.add_pieces(tensor, shard);
            layout.whole_elements += tensor.rows * tensor.columns;
            layout.places.push(Place {
                name: tensor.name,
                elements: start..layout.elements,
                divided: shard.ranks > 1 && tensor.split != Split::Whole,
                partial_in_sequence_parallel: tensor.partial_in_sequence_parallel,
            });
        }
        layout
    }

    fn add_pieces(&mut self, tensor: &Tensor, shard: Shard) {
        let base = self.whole_elements;
        match tensor.split {
            Split::Whole => self.add_piece(base, tensor.rows * tensor.columns),
            Split::Rows => {
                let rows = shard.range(tensor.rows);
                self.add_piece(base + rows.start * tensor.columns, rows.len() * tensor.columns);
            }
            Split::Columns { groups } => {
                let group = tensor.columns / groups;
                let columns = shard.range(group);
                for row in 0..tensor.rows {
                    for first in (0..tensor.columns).step_by(group.max(1)) {
                        self.add_piece(base + row * tensor.columns + first + columns.start, columns.len());
                    }
                }
            }
        }
    }

    fn add_piece(&mut self, whole: usize, count: usize) {
        // Neighbours of one tensor are one piece; pieces of different tensors stay apart.
        if let Some(last) = self.pieces.last_mut()
            && last.whole + last.count == whole
            && whole > self.whole_elements
        {
            last.count += count;
        } else {
            self.pieces.push(Piece {
                whole,
                local: self.elements,
                count,
            });
        }
        self.elements += count;
    }

    /// Address of tensor `index` in a vector of elements of `bytes` bytes that begins at `base`.
    pub(crate) fn address(&self, base: u64, index: usize, bytes: usize) -> u64 {
        base + (self.places[index].elements.start * bytes) as u64
    }

    /// The pieces of tensors that are divided, or of all.
    pub(crate) fn pieces_to_save(&self, saves_undivided: bool) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().filter(move |piece| {
            saves_undivided
                || self
                    .places
                    .iter()
                    .any(|place| place.divided && place.elements.contains(&piece.local))
        })
    }

    /// This rank's elements out of the unsharded unit's.
    pub(crate) fn take(&self, whole: &[f32]) -> Vec<f32> {
        let mut local = Vec::with_capacity(self.elements);
        for piece in &self.pieces {
            local.extend_from_slice(&whole[piece.whole..piece.whole + piece.count]);
        }
        local
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(rows: usize, columns: usize, split: Split) -> Tensor {
        Tensor {
            name: "w",
            rows,
            columns,
            start: Start::Constant(0.0),
            split,
            partial_in_sequence_parallel: false,
        }
    }

    #[test]
    fn columns_of_groups_are_taken_from_each_group() {
        // Two rows of two groups of four columns; rank 1 of 2 has the last two columns of each group.
        let layout = Layout::new(
            &[tensor(2, 8, Split::Columns { groups: 2 })],
            Shard { rank: 1, ranks: 2 },
        );
        let whole: Vec<f32> = (0..16u8).map(f32::from).collect();
        assert_eq!(layout.take(&whole), [2.0, 3.0, 6.0, 7.0, 10.0, 11.0, 14.0, 15.0]);
    }

    #[test]
    fn the_ranks_shards_are_the_whole_exactly_once() {
        let tensors = [
            tensor(4, 6, Split::Columns { groups: 1 }),
            tensor(1, 12, Split::Columns { groups: 3 }),
            tensor(6, 5, Split::Rows),
        ];
        let whole_elements = 24 + 12 + 30;
        for ranks in [1, 2] {
            let mut seen = vec![0; whole_elements];
            for rank in 0..ranks {
                let layout = Layout::new(&tensors, Shard { rank, ranks });
                assert_eq!(layout.whole_elements, whole_elements);
                assert_eq!(layout.elements, whole_elements / ranks);
                for piece in &layout.pieces {
                    for times in &mut seen[piece.whole..piece.whole + piece.count] {
                        *times += 1;
                    }
                }
            }
            assert!(seen.iter().all(|&count| count == 1));
        }
    }

    #[test]
    fn a_tensor_of_neighbours_is_one_piece() {
        let tensors = [tensor(3, 4, Split::Whole), tensor(4, 4, Split::Rows)];
        let layout = Layout::new(&tensors, Shard { rank: 1, ranks: 2 });
        assert_eq!(layout.pieces.len(), 2);
        assert_eq!(layout.places[1].elements, 12..20);
        assert_eq!(layout.address(1000, 1, 4), 1048);
        assert_eq!(
            layout
                .places
                .iter()
                .map(|place| place.divided)
                .collect::<Vec<_>>(),
            [false, true]
        );
    }
}
