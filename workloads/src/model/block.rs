//! A block of the transformer, pre-norm: h = x + attention(norm(x)), y = h + feed-forward(norm(h)).
//!
//! Tensor parallelism divides heads, and columns of the feed-forward part's hidden layer, over the ranks: queries, keys
//! and values and the first layer by columns, the projection and the second layer by rows. One sum over the ranks
//! completes each half in forward, and one the gradient by each layer norm's output in backward.

use std::ops::Range;

use super::attention::{self, Attention};
use super::dense::Dense;
use super::edges::Edges;
use super::{Arena, DEVIATION, Gradients, Layout, Pass, Split, Start, Tensor, TensorParallel, Unit};
use crate::error::Error;
use crate::gpu::DataType;

/// Columns of the feed-forward part's hidden layer, in widths.
const EXPANSION: usize = 4;

// The block's tensors, in order. The bias of each matrix follows it.
const NORM1_GAMMA: usize = 0;
const NORM1_BETA: usize = 1;
const QKV: usize = 2;
const PROJECTION: usize = 4;
const NORM2_GAMMA: usize = 6;
const NORM2_BETA: usize = 7;
const EXPAND: usize = 8;
const CONTRACT: usize = 10;

/// A block's tensors, one of `blocks`. What adds to the residual begins smaller the more blocks there are, as in GPT-2,
/// so that the sum does not grow with depth.
pub(super) fn tensors(width: usize, blocks: usize) -> Vec<Tensor> {
    let residual = Start::Normal(DEVIATION / (2.0 * blocks as f32).sqrt());
    let hidden = EXPANSION * width;
    let (zero, one) = (Start::Constant(0.0), Start::Constant(1.0));
    let (qkv, columns) = (Split::Columns { groups: 3 }, Split::Columns { groups: 1 });
    let tensor = |name, [rows, columns]: [usize; 2], start, split| Tensor {
        name,
        rows,
        columns,
        start,
        split,
        // Whole tensors are those outside the sharded parts, where a rank has its rows only.
        partial_in_sequence_parallel: split == Split::Whole,
    };
    vec![
        tensor("norm1_gamma", [1, width], one, Split::Whole),
        tensor("norm1_beta", [1, width], zero, Split::Whole),
        tensor("qkv", [width, 3 * width], Start::Normal(DEVIATION), qkv),
        tensor("qkv_bias", [1, 3 * width], zero, qkv),
        tensor("projection", [width, width], residual, Split::Rows),
        tensor("projection_bias", [1, width], zero, Split::Whole),
        tensor("norm2_gamma", [1, width], one, Split::Whole),
        tensor("norm2_beta", [1, width], zero, Split::Whole),
        tensor("expand", [width, hidden], Start::Normal(DEVIATION), columns),
        tensor("expand_bias", [1, hidden], zero, columns),
        tensor("contract", [hidden, width], residual, Split::Rows),
        tensor("contract_bias", [1, width], zero, Split::Whole),
    ]
}

/// The block on one rank.
pub(crate) struct Block {
    width: usize,
    attention: Attention,
    qkv: Dense,
    projection: Dense,
    expand: Dense,
    contract: Dense,
    edges: Edges,
    layout: Layout,
}

/// A layer norm's output with what its backward pass needs.
struct Norm {
    mean: u64,
    deviation: u64,
    /// All rows where the sharded part behind it needs all.
    output: u64,
}

/// What forward keeps.
struct Saved {
    norm1: Norm,
    attention: attention::Kept,
    /// What the heads found, all rows.
    mixed: u64,
    /// The residual stream between the halves.
    middle: u64,
    norm2: Norm,
    /// The hidden layer before and behind GELU.
    hidden: u64,
    active: u64,
}

/// Memory for the length of a pass.
struct Scratch {
    attention: attention::Scratch,
    /// Queries, keys and values row by row, or their gradients.
    qkv: u64,
    /// One rank's rows, and all rows where they are divided.
    own: u64,
    all: u64,
    /// Gradients only: by the hidden layer, by what the heads found, and by a norm's output.
    hidden: u64,
    mixed: u64,
    normal: u64,
}

impl Block {
    pub(super) fn new(
        [width, heads, context]: [usize; 3],
        blocks: usize,
        parallel: Option<TensorParallel>,
    ) -> Self {
        let edges = Edges::new(parallel);
        let ranks = edges.shard().ranks;
        let layout = Layout::new(&tensors(width, blocks), edges.shard());
        let attention = Attention {
            context,
            heads: heads / ranks,
            head_width: width / heads,
        };
        let dense = |inputs, outputs| Dense { inputs, outputs };
        let hidden = EXPANSION * width / ranks;
        Self {
            width,
            attention,
            qkv: dense(width, 3 * attention.width()),
            projection: dense(attention.width(), width),
            expand: dense(width, hidden),
            contract: dense(hidden, width),
            edges,
            layout,
        }
    }

    fn saved(&self, arena: &mut Arena, rows: usize, data_type: DataType) -> Saved {
        let (own, bytes) = (self.edges.own_rows(rows).len(), data_type.bytes());
        let norm = |arena: &mut Arena| Norm {
            mean: arena.take(own * size_of::<f32>()),
            deviation: arena.take(own * size_of::<f32>()),
            output: arena.take(rows * self.width * bytes),
        };
        Saved {
            norm1: norm(arena),
            attention: self.attention.kept(arena, rows, data_type),
            mixed: arena.take(rows * self.attention.width() * bytes),
            middle: arena.take(own * self.width * bytes),
            norm2: norm(arena),
            hidden: arena.take(rows * self.expand.outputs * bytes),
            active: arena.take(rows * self.expand.outputs * bytes),
        }
    }

    fn scratch(&self, arena: &mut Arena, rows: usize, data_type: DataType, backward: bool) -> Scratch {
        let (own, bytes) = (self.edges.own_rows(rows).len(), data_type.bytes());
        let backward_rows = if backward { rows } else { 0 };
        Scratch {
            attention: self.attention.scratch(arena, rows, data_type, backward),
            qkv: arena.take(rows * self.qkv.outputs * bytes),
            own: arena.take(own * self.width * bytes),
            all: arena.take(self.edges.gathered(rows, self.width) * bytes),
            hidden: arena.take(backward_rows * self.expand.outputs * bytes),
            mixed: arena.take(backward_rows * self.attention.width() * bytes),
            normal: arena.take(backward_rows * self.width * bytes),
        }
    }

    /// Where a parameter is, or its gradient.
    fn place(&self, base: u64, index: usize, data_type: DataType) -> u64 {
        self.layout.address(base, index, data_type.bytes())
    }

    /// Normalizes this rank's rows of `input`, and gathers the result, all rows, in `norm`.
    fn norm_forward(
        &self,
        pass: &Pass<'_>,
        input: u64,
        [gamma, beta]: [usize; 2],
        norm: &Norm,
        scratch: &Scratch,
    ) -> Result<(), Error> {
        let ty = pass.data_type;
        let own = if self.edges.sequence().is_some() {
            scratch.own
        } else {
            norm.output
        };
        pass.gpu.work().layer_norm(
            ty,
            own,
            norm.mean,
            norm.deviation,
            input,
            self.place(pass.parameters, gamma, ty),
            self.place(pass.parameters, beta, ty),
            self.edges.own_rows(pass.rows).len(),
            self.width,
        )?;
        self.edges.gather(pass, [own, norm.output], self.width)?;
        Ok(())
    }

    /// `to = residual + sum over ranks of input * weights + bias`, this rank's rows.
    fn join_residual(
        &self,
        pass: &Pass<'_>,
        (dense, weights): (Dense, usize),
        [input, residual, to]: [u64; 3],
        scratch: &Scratch,
    ) -> Result<(), Error> {
        let (ty, queue) = (pass.data_type, pass.gpu.work());
        let place = |index| self.place(pass.parameters, index, ty);
        let rows = self.edges.own_rows(pass.rows).len();
        self.edges.sum(pass, [to, scratch.all], self.width, |product| {
            dense.forward(pass, pass.rows, [input, place(weights), product])
        })?;
        queue.add_bias(ty, to, place(weights + 1), rows, self.width, false)?;
        queue.add(ty, to, residual, rows * self.width)
    }
}

/// The backward pass of one block: what all its parts need.
struct Backward<'a, 'b> {
    block: &'a Block,
    pass: &'a Pass<'b>,
    gradients: &'a Gradients,
    saved: Saved,
    scratch: Scratch,
    ready: &'a mut dyn FnMut(Range<usize>) -> Result<(), Error>,
}

impl Backward<'_, '_> {
    fn gradient(&self, index: usize) -> u64 {
        let ty = self.pass.data_type;
        self.block.place(self.gradients.parameters, index, ty)
    }

    fn is_ready(&mut self, tensors: Range<usize>) -> Result<(), Error> {
        let places = &self.block.layout.places;
        (self.ready)(places[tensors.start].elements.start..places[tensors.end - 1].elements.end)
    }

    /// Behind a layer divided by rows: given the gradient by the half's output, this rank's rows, computes that of the
    /// bias, of the weights, and by the layer's input, at `to`.
    fn leave(&mut self, (dense, weights): (Dense, usize), [delta, input, to]: [u64; 3]) -> Result<(), Error> {
        let (block, pass) = (self.block, self.pass);
        let own = block.edges.own_rows(pass.rows).len();
        let bias = self.gradient(weights + 1);
        pass.gpu
            .work()
            .bias_gradient(pass.data_type, bias, delta, own, block.width)?;
        self.is_ready(weights + 1..weights + 2)?;
        let delta = block.edges.gather(pass, [delta, self.scratch.all], block.width)?;
        dense.weights_gradient(pass, pass.rows, [input, delta, self.gradient(weights)])?;
        self.is_ready(weights..weights + 1)?;
        let weights = block.place(pass.parameters, weights, pass.data_type);
        dense.input_gradient(pass, pass.rows, [delta, weights, to])
    }

    /// Before a layer divided by columns: given the gradient by the layer's output, all rows, computes that of the
    /// bias, of the weights, and by the norm's output, this rank's rows, which `scratch.normal` has then.
    fn enter(&mut self, (dense, weights): (Dense, usize), [delta, input]: [u64; 2]) -> Result<(), Error> {
        let (block, pass) = (self.block, self.pass);
        let bias = self.gradient(weights + 1);
        pass.gpu
            .work()
            .bias_gradient(pass.data_type, bias, delta, pass.rows, dense.outputs)?;
        self.is_ready(weights + 1..weights + 2)?;
        dense.weights_gradient(pass, pass.rows, [input, delta, self.gradient(weights)])?;
        self.is_ready(weights..weights + 1)?;
        let weights = block.place(pass.parameters, weights, pass.data_type);
        let to = [self.scratch.normal, self.scratch.all];
        block.edges.sum(pass, to, block.width, |product| {
            dense.input_gradient(pass, pass.rows, [delta, weights, product])
        })
    }

    /// Given the gradient by a norm's output in `scratch.normal`: its parameters' gradients, and `to = residual + the
    /// gradient by its input`, if anybody wants that. `to` may be `residual`.
    fn norm(&mut self, first: bool, input: u64, residual: u64, to: Option<u64>) -> Result<(), Error> {
        let (block, pass, ty) = (self.block, self.pass, self.pass.data_type);
        let (rows, queue) = (block.edges.own_rows(pass.rows).len(), pass.gpu.work());
        let (norm, gamma, beta) = if first {
            (&self.saved.norm1, NORM1_GAMMA, NORM1_BETA)
        } else {
            (&self.saved.norm2, NORM2_GAMMA, NORM2_BETA)
        };
        let (mean, deviation) = (norm.mean, norm.deviation);
        let delta = self.scratch.normal;
        queue.layer_norm_gradients(
            ty,
            self.gradient(gamma),
            self.gradient(beta),
            delta,
            input,
            mean,
            deviation,
            rows,
            block.width,
        )?;
        self.is_ready(gamma..beta + 1)?;
        let Some(to) = to else {
            return Ok(());
        };
        // The kernel overwrites: where its result is to join what is there, it goes beside it first.
        let (place, other) = if to == residual {
            (self.scratch.own, self.scratch.own)
        } else {
            (to, residual)
        };
        let gamma = block.place(pass.parameters, gamma, ty);
        queue.layer_norm_backward(ty, place, delta, input, mean, deviation, gamma, rows, block.width)?;
        queue.add(ty, to, other, rows * block.width)
    }

    fn run(mut self) -> Result<(), Error> {
        let (block, pass, ty) = (self.block, self.pass, self.pass.data_type);
        let residual = self.gradients.output;

        let hidden = self.scratch.hidden;
        self.leave((block.contract, CONTRACT), [residual, self.saved.active, hidden])?;
        let count = pass.rows * block.expand.outputs;
        pass.gpu
            .work()
            .gelu_backward(ty, hidden, self.saved.hidden, count)?;
        self.enter((block.expand, EXPAND), [hidden, self.saved.norm2.output])?;
        self.norm(false, self.saved.middle, residual, Some(residual))?;

        let (mixed, qkv) = (self.scratch.mixed, self.scratch.qkv);
        self.leave(
            (block.projection, PROJECTION),
            [residual, self.saved.mixed, mixed],
        )?;
        let (kept, scratch) = (&self.saved.attention, &self.scratch.attention);
        block.attention.backward(pass, [mixed, qkv], kept, scratch)?;
        self.enter((block.qkv, QKV), [qkv, self.saved.norm1.output])?;
        self.norm(true, pass.input, residual, self.gradients.input)
    }
}

impl Unit for Block {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn input_bytes(&self, rows: usize, data_type: DataType) -> usize {
        self.edges.own_rows(rows).len() * self.width * data_type.bytes()
    }

    fn output_bytes(&self, rows: usize, data_type: DataType) -> usize {
        self.input_bytes(rows, data_type)
    }

    fn saved_bytes(&self, rows: usize, data_type: DataType) -> usize {
        let mut arena = Arena::at(0);
        self.saved(&mut arena, rows, data_type);
        arena.taken()
    }

    fn scratch_bytes(&self, rows: usize, data_type: DataType) -> usize {
        // Backward needs what forward needs, and more.
        let mut arena = Arena::at(0);
        self.scratch(&mut arena, rows, data_type, true);
        arena.taken()
    }

    fn forward(&self, pass: &Pass<'_>) -> Result<(), Error> {
        let (ty, queue) = (pass.data_type, pass.gpu.work());
        let place = |index| self.place(pass.parameters, index, ty);
        let saved = self.saved(&mut Arena::at(pass.saved), pass.rows, ty);
        let scratch = self.scratch(&mut Arena::at(pass.scratch), pass.rows, ty, false);

        self.norm_forward(
            pass,
            pass.input,
            [NORM1_GAMMA, NORM1_BETA],
            &saved.norm1,
            &scratch,
        )?;
        self.qkv
            .forward(pass, pass.rows, [saved.norm1.output, place(QKV), scratch.qkv])?;
        queue.add_bias(
            ty,
            scratch.qkv,
            place(QKV + 1),
            pass.rows,
            self.qkv.outputs,
            false,
        )?;
        let heads = [scratch.qkv, saved.mixed];
        self.attention
            .forward(pass, heads, &saved.attention, &scratch.attention)?;
        let places = [saved.mixed, pass.input, saved.middle];
        self.join_residual(pass, (self.projection, PROJECTION), places, &scratch)?;

        self.norm_forward(
            pass,
            saved.middle,
            [NORM2_GAMMA, NORM2_BETA],
            &saved.norm2,
            &scratch,
        )?;
        let columns = self.expand.outputs;
        self.expand
            .forward(pass, pass.rows, [saved.norm2.output, place(EXPAND), saved.hidden])?;
        queue.add_bias(ty, saved.hidden, place(EXPAND + 1), pass.rows, columns, false)?;
        queue.gelu(ty, saved.active, saved.hidden, pass.rows * columns)?;
        let places = [saved.active, saved.middle, pass.output];
        self.join_residual(pass, (self.contract, CONTRACT), places, &scratch)
    }

    fn backward(
        &self,
        pass: &Pass<'_>,
        gradients: &Gradients,
        ready: &mut dyn FnMut(Range<usize>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let ty = pass.data_type;
        let backward = Backward {
            block: self,
            pass,
            gradients,
            saved: self.saved(&mut Arena::at(pass.saved), pass.rows, ty),
            scratch: self.scratch(&mut Arena::at(pass.scratch), pass.rows, ty, true),
            ready,
        };
        backward.run()
    }
}
