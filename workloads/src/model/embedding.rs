//! The embedding: each token's row of a table, plus the row of its position.

use std::ops::Range;

use super::edges::Edges;
use super::{DEVIATION, Gradients, Layout, Pass, Split, Start, Tensor, TensorParallel, Unit};
use crate::error::Error;
use crate::gpu::{DataType, clear};

const TABLE: usize = 0;
const POSITIONS: usize = 1;

/// The table of tokens and that of positions. Every rank of tensor parallelism has them whole.
pub(super) fn tensors(vocabulary: usize, context: usize, width: usize) -> Vec<Tensor> {
    let table = |name, rows| Tensor {
        name,
        rows,
        columns: width,
        start: Start::Normal(DEVIATION),
        split: Split::Whole,
        partial_in_sequence_parallel: true,
    };
    vec![table("tokens", vocabulary), table("positions", context)]
}

/// The embedding on one rank. Its input are the tokens (i32) of all rows, also where rows are divided.
pub(crate) struct Embedding {
    vocabulary: usize,
    context: usize,
    width: usize,
    edges: Edges,
    layout: Layout,
}

impl Embedding {
    pub(super) fn new([vocabulary, context, width]: [usize; 3], parallel: Option<TensorParallel>) -> Self {
        let edges = Edges::new(parallel);
        let layout = Layout::new(&tensors(vocabulary, context, width), edges.shard());
        Self {
            vocabulary,
            context,
            width,
            edges,
            layout,
        }
    }

    /// Which positions this rank's rows have, over and over: all of them, or a part of one sequence.
    fn positions(&self, rows: usize) -> Range<usize> {
        positions(self.context, &self.edges.own_rows(rows))
    }

    /// Bytes before element (`row`, 0) of a table.
    fn offset(&self, row: usize, data_type: DataType) -> u64 {
        (row * self.width * data_type.bytes()) as u64
    }

    /// The tokens of this rank's rows.
    fn own_tokens(&self, pass: &Pass<'_>) -> u64 {
        pass.input + (self.edges.own_rows(pass.rows).start * size_of::<i32>()) as u64
    }
}

/// The positions of these rows of sequences that are `context` long: a run of rows that is a part of one sequence, or
/// begins one.
fn positions(context: usize, rows: &Range<usize>) -> Range<usize> {
    let first = rows.start % context;
    first..(first + rows.len()).min(context)
}

impl Unit for Embedding {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn input_bytes(&self, rows: usize, _: DataType) -> usize {
        rows * size_of::<i32>()
    }

    fn output_bytes(&self, rows: usize, data_type: DataType) -> usize {
        self.edges.own_rows(rows).len() * self.width * data_type.bytes()
    }

    fn saved_bytes(&self, _: usize, _: DataType) -> usize {
        0
    }

    fn scratch_bytes(&self, _: usize, _: DataType) -> usize {
        0
    }

    fn forward(&self, pass: &Pass<'_>) -> Result<(), Error> {
        let ty = pass.data_type;
        let place = |index| self.layout.address(pass.parameters, index, ty.bytes());
        let positions = self.positions(pass.rows);
        pass.gpu.work().embedding_forward(
            ty,
            pass.output,
            self.own_tokens(pass),
            place(TABLE),
            place(POSITIONS) + self.offset(positions.start, ty),
            self.edges.own_rows(pass.rows).len(),
            positions.len(),
            self.width,
        )
    }

    /// Tokens have no gradient: nothing is written to `gradients.input`.
    fn backward(
        &self,
        pass: &Pass<'_>,
        gradients: &Gradients,
        ready: &mut dyn FnMut(Range<usize>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (ty, queue) = (pass.data_type, pass.gpu.work());
        let place = |index| self.layout.address(gradients.parameters, index, ty.bytes());
        let positions = self.positions(pass.rows);
        if positions.len() < self.context {
            // The kernel writes the positions that it is told of; the others are other ranks'.
            let bytes = self.context * self.width * ty.bytes();
            clear(&pass.gpu.compute, place(POSITIONS), bytes)?;
        }
        queue.embedding_backward(
            ty,
            place(TABLE),
            place(POSITIONS) + self.offset(positions.start, ty),
            self.own_tokens(pass),
            gradients.output,
            self.edges.own_rows(pass.rows).len(),
            positions.len(),
            self.width,
            self.vocabulary,
        )?;
        ready(0..self.layout.elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_whole_sequences_or_a_part_of_one() {
        // Three ranks with two sequences each; four ranks with half a sequence each.
        for rank in 0..3 {
            assert_eq!(positions(8, &(rank * 16..(rank + 1) * 16)), 0..8);
        }
        assert_eq!(positions(8, &(0..4)), 0..4);
        assert_eq!(positions(8, &(4..8)), 4..8);
        assert_eq!(positions(8, &(8..12)), 0..4);
        assert_eq!(positions(8, &(12..16)), 4..8);
    }
}
