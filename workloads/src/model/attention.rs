//! Causal attention of some heads over whole sequences, on addresses; it has no parameters.

use super::{Arena, Pass};
use crate::error::Error;
use crate::gpu::{DataType, Matrix};

/// So many heads, each `head_width` wide, over sequences of `context` rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attention {
    pub(super) context: usize,
    pub(super) heads: usize,
    pub(super) head_width: usize,
}

/// What forward keeps for backward.
pub(super) struct Kept {
    /// Queries, keys and values, sorted by head: [3, sequences, heads, context, head width].
    by_head: u64,
    /// [sequences, heads, context, context].
    probabilities: u64,
}

/// Memory for the length of a pass.
pub(super) struct Scratch {
    /// Scores or gradients by the probabilities, as large as them.
    scores: u64,
    /// Outputs, or gradients by them, sorted by head.
    mixed: u64,
    /// Gradients by queries, keys and values, sorted by head (backward only).
    by_head: u64,
}

impl Attention {
    /// Columns that queries have, as keys, values and outputs.
    pub(super) fn width(self) -> usize {
        self.heads * self.head_width
    }

    /// Elements of the probabilities of so many rows.
    fn pairs(self, rows: usize) -> usize {
        rows * self.heads * self.context
    }

    /// Takes memory for what is kept.
    pub(super) fn kept(self, arena: &mut Arena, rows: usize, data_type: DataType) -> Kept {
        Kept {
            by_head: arena.take(3 * rows * self.width() * data_type.bytes()),
            probabilities: arena.take(self.pairs(rows) * data_type.bytes()),
        }
    }

    /// Takes memory for a pass.
    pub(super) fn scratch(
        self,
        arena: &mut Arena,
        rows: usize,
        data_type: DataType,
        backward: bool,
    ) -> Scratch {
        let parts = if backward { 3 } else { 0 };
        Scratch {
            scores: arena.take(self.pairs(rows) * data_type.bytes()),
            mixed: arena.take(rows * self.width() * data_type.bytes()),
            by_head: arena.take(parts * rows * self.width() * data_type.bytes()),
        }
    }

    /// What scores are multiplied by.
    fn scale(self) -> f32 {
        1.0 / (self.head_width as f32).sqrt()
    }

    /// The addresses of queries, keys and values in memory that is sorted by head.
    fn parts(self, by_head: u64, rows: usize, data_type: DataType) -> [u64; 3] {
        let bytes = (rows * self.width() * data_type.bytes()) as u64;
        [0, 1, 2].map(|part| by_head + part * bytes)
    }

    /// `to = a * b` for each head of each sequence. All operands are stored with a row for each of the context's.
    fn product(self, pass: &Pass<'_>, a: Matrix, b: Matrix, to: u64) -> Result<(), Error> {
        let columns = |matrix: Matrix| {
            if matrix.transposed {
                self.context
            } else {
                matrix.leading
            }
        };
        pass.gpu.work().gemm_batched(
            pass.data_type,
            [self.context, columns(b), columns(a)],
            1.0,
            (a, self.context * a.leading),
            (b, self.context * b.leading),
            (to, columns(b), self.context * columns(b)),
            pass.rows / self.context * self.heads,
        )
    }

    /// Queries, keys, values or outputs, as they are or transposed.
    fn narrow(self, address: u64, transposed: bool) -> Matrix {
        Matrix {
            address,
            transposed,
            leading: self.head_width,
        }
    }

    /// Scores or probabilities, as they are or transposed.
    fn square(self, address: u64, transposed: bool) -> Matrix {
        Matrix {
            address,
            transposed,
            leading: self.context,
        }
    }

    fn permute(
        self,
        pass: &Pass<'_>,
        [to, from]: [u64; 2],
        parts: usize,
        inverse: bool,
    ) -> Result<(), Error> {
        pass.gpu.work().permute_heads(
            pass.data_type,
            to,
            from,
            pass.rows / self.context,
            self.context,
            parts,
            self.heads,
            self.head_width,
            inverse,
        )
    }

    /// From queries, keys and values at `input` (each row has all queries, then all keys, then all values) to what each
    /// head's probabilities mix of the values, at `output`. All of the pass's rows.
    pub(super) fn forward(
        self,
        pass: &Pass<'_>,
        [input, output]: [u64; 2],
        kept: &Kept,
        scratch: &Scratch,
    ) -> Result<(), Error> {
        let ty = pass.data_type;
        self.permute(pass, [kept.by_head, input], 3, false)?;
        let [queries, keys, values] = self.parts(kept.by_head, pass.rows, ty);
        let (queries, keys) = (self.narrow(queries, false), self.narrow(keys, true));
        self.product(pass, queries, keys, scratch.scores)?;
        pass.gpu.work().causal_softmax(
            ty,
            kept.probabilities,
            scratch.scores,
            self.scale(),
            pass.rows * self.heads,
            self.context,
        )?;
        let probabilities = self.square(kept.probabilities, false);
        self.product(pass, probabilities, self.narrow(values, false), scratch.mixed)?;
        self.permute(pass, [output, scratch.mixed], 1, true)
    }

    /// From the gradient by the output, at `delta`, to that by queries, keys and values, at `to`.
    pub(super) fn backward(
        self,
        pass: &Pass<'_>,
        [delta, to]: [u64; 2],
        kept: &Kept,
        scratch: &Scratch,
    ) -> Result<(), Error> {
        let ty = pass.data_type;
        let (scores, mixed) = (scratch.scores, scratch.mixed);
        self.permute(pass, [mixed, delta], 1, false)?;
        let [queries, keys, values] = self.parts(kept.by_head, pass.rows, ty);
        let [to_queries, to_keys, to_values] = self.parts(scratch.by_head, pass.rows, ty);
        let probabilities = self.square(kept.probabilities, true);
        self.product(pass, probabilities, self.narrow(mixed, false), to_values)?;
        self.product(pass, self.narrow(mixed, false), self.narrow(values, true), scores)?;
        pass.gpu.work().causal_softmax_backward(
            ty,
            scores,
            kept.probabilities,
            scores,
            self.scale(),
            pass.rows * self.heads,
            self.context,
        )?;
        self.product(
            pass,
            self.square(scores, false),
            self.narrow(keys, false),
            to_queries,
        )?;
        self.product(
            pass,
            self.square(scores, true),
            self.narrow(queries, false),
            to_keys,
        )?;
        self.permute(pass, [to, scratch.by_head], 3, true)
    }
}
