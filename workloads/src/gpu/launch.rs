//! Launching the kernels of workloads/kernels on a stream, one method each.
//!
//! Addresses are of device memory; all arrays are row-major. What a kernel computes is said in its CUDA source.

use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};

use super::modules::{Plain, Typed};
use super::{DataType, Gpu};
use crate::error::Error;

/// Threads of a block.
const BLOCK: usize = 256;
/// Blocks of the largest grid: kernels stride over what is left.
const MOST_BLOCKS: usize = 2048;

/// A stream of a GPU, to launch kernels and matrix products on.
#[derive(Clone, Copy)]
pub(crate) struct Queue<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) stream: &'a CudaStream,
}

/// A kernel's argument.
#[derive(Clone, Copy)]
enum Argument {
    Address(u64),
    Int(i32),
    Float(f32),
}

use Argument::{Address, Float};

/// A number of elements as kernels take it. They count in `int` and step beyond the last element by a grid at most.
fn int(count: usize) -> Result<Argument, Error> {
    i32::try_from(count)
        .ok()
        .filter(|&count| count <= i32::MAX - (BLOCK * MOST_BLOCKS) as i32)
        .map(Argument::Int)
        .ok_or_else(|| {
            Error::new(format!(
                "an array of {count} elements is too large for one kernel"
            ))
        })
}

/// Blocks for so many elements, a thread each.
fn per_element(count: usize) -> usize {
    count.div_ceil(BLOCK)
}

/// Blocks for sums of so many columns, each block 32 of them.
fn per_column(columns: usize) -> usize {
    columns.div_ceil(32)
}

impl Queue<'_> {
    fn launch(&self, kernel: &CudaFunction, blocks: usize, arguments: &[Argument]) -> Result<(), Error> {
        let mut launch = self.stream.launch_builder(kernel);
        for argument in arguments {
            match argument {
                Address(address) => launch.arg(address),
                Argument::Int(int) => launch.arg(int),
                Float(float) => launch.arg(float),
            };
        }
        let config = LaunchConfig {
            grid_dim: (blocks.clamp(1, MOST_BLOCKS) as u32, 1, 1),
            block_dim: (BLOCK as u32, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: each method below passes the arguments that its kernel declares, in their order; callers pass
        // addresses of device memory with room for the elements that the kernel's arguments say.
        unsafe { launch.launch(config)? };
        Ok(())
    }

    fn typed(&self, kernel: Typed, ty: DataType, blocks: usize, arguments: &[Argument]) -> Result<(), Error> {
        self.launch(self.gpu.kernels.typed(kernel, ty), blocks, arguments)
    }

    fn plain(&self, kernel: Plain, count: usize, arguments: &[Argument]) -> Result<(), Error> {
        self.launch(self.gpu.kernels.plain(kernel), per_element(count), arguments)
    }

    /// `y[r, c] += bias[c]`, then ReLU where asked.
    pub(crate) fn add_bias(
        &self,
        ty: DataType,
        y: u64,
        bias: u64,
        rows: usize,
        columns: usize,
        relu: bool,
    ) -> Result<(), Error> {
        let kernel = if relu { Typed::AddBiasRelu } else { Typed::AddBias };
        int(rows * columns)?;
        let arguments = [Address(y), Address(bias), int(rows)?, int(columns)?];
        self.typed(kernel, ty, per_element(rows * columns), &arguments)
    }

    /// Zeroes the gradient where the activation was cut off.
    pub(crate) fn relu_backward(
        &self,
        ty: DataType,
        gradient: u64,
        activation: u64,
        count: usize,
    ) -> Result<(), Error> {
        let arguments = [Address(gradient), Address(activation), int(count)?];
        self.typed(Typed::ReluBackward, ty, per_element(count), &arguments)
    }

    /// `y += x`.
    pub(crate) fn add(&self, ty: DataType, y: u64, x: u64, count: usize) -> Result<(), Error> {
        let arguments = [Address(y), Address(x), int(count)?];
        self.typed(Typed::Add, ty, per_element(count), &arguments)
    }

    /// Adds `scale` times the squared error to `*loss` (f32) and writes the gradient by the prediction, times
    /// `gradient_scale`. Targets are f32.
    pub(crate) fn mse_loss(
        &self,
        ty: DataType,
        loss: u64,
        gradient: u64,
        prediction: u64,
        target: u64,
        count: usize,
        scale: f32,
        gradient_scale: f32,
    ) -> Result<(), Error> {
        let arguments = [
            Address(loss),
            Address(gradient),
            Address(prediction),
            Address(target),
            int(count)?,
            Float(scale),
            Float(gradient_scale),
        ];
        self.typed(Typed::MseLoss, ty, per_element(count), &arguments)
    }

    /// Adds `scale` times the negative log likelihood of each row's target (an i32) to `*loss` (f32) and writes the
    /// gradient by the logits, times `gradient_scale`; `gradient` may be `logits`. A target that is no class counts for
    /// nothing.
    pub(crate) fn cross_entropy(
        &self,
        ty: DataType,
        loss: u64,
        gradient: u64,
        logits: u64,
        targets: u64,
        rows: usize,
        classes: usize,
        scale: f32,
        gradient_scale: f32,
    ) -> Result<(), Error> {
        let arguments = [
            Address(loss),
            Address(gradient),
            Address(logits),
            Address(targets),
            int(rows)?,
            int(classes)?,
            Float(scale),
            Float(gradient_scale),
        ];
        self.typed(Typed::CrossEntropy, ty, rows, &arguments)
    }

    /// The bias's gradient: column sums, overwriting.
    pub(crate) fn bias_gradient(
        &self,
        ty: DataType,
        result: u64,
        gradient: u64,
        rows: usize,
        columns: usize,
    ) -> Result<(), Error> {
        let arguments = [Address(result), Address(gradient), int(rows)?, int(columns)?];
        self.typed(Typed::BiasGradient, ty, per_column(columns), &arguments)
    }

    /// `y[r] = table[tokens[r]] + positions[r % context]`; tokens are i32 within the table.
    pub(crate) fn embedding_forward(
        &self,
        ty: DataType,
        y: u64,
        tokens: u64,
        table: u64,
        positions: u64,
        rows: usize,
        context: usize,
        width: usize,
    ) -> Result<(), Error> {
        int(rows * width)?;
        let arguments = [
            Address(y),
            Address(tokens),
            Address(table),
            Address(positions),
            int(rows)?,
            int(context)?,
            int(width)?,
        ];
        self.typed(Typed::EmbeddingForward, ty, per_element(rows * width), &arguments)
    }

    /// The gradients of both of the embedding's tables, overwriting.
    pub(crate) fn embedding_backward(
        &self,
        ty: DataType,
        table_gradient: u64,
        positions_gradient: u64,
        tokens: u64,
        gradient: u64,
        rows: usize,
        context: usize,
        width: usize,
        vocabulary: usize,
    ) -> Result<(), Error> {
        let arguments = [
            Address(table_gradient),
            Address(positions_gradient),
            Address(tokens),
            Address(gradient),
            int(rows)?,
            int(context)?,
            int(width)?,
            int(vocabulary)?,
        ];
        self.typed(Typed::EmbeddingBackward, ty, vocabulary + context, &arguments)
    }

    /// `y = (x - mean) * rstd * gamma + beta` by row; writes each row's mean and 1 / standard deviation (f32).
    pub(crate) fn layer_norm(
        &self,
        ty: DataType,
        y: u64,
        mean: u64,
        rstd: u64,
        x: u64,
        gamma: u64,
        beta: u64,
        rows: usize,
        columns: usize,
    ) -> Result<(), Error> {
        let addresses = [y, mean, rstd, x, gamma, beta].map(Address);
        let [y, mean, rstd, x, gamma, beta] = addresses;
        let arguments = [y, mean, rstd, x, gamma, beta, int(rows)?, int(columns)?];
        self.typed(Typed::LayerNorm, ty, rows, &arguments)
    }

    /// The gradient by a layer norm's input.
    pub(crate) fn layer_norm_backward(
        &self,
        ty: DataType,
        input_gradient: u64,
        gradient: u64,
        x: u64,
        mean: u64,
        rstd: u64,
        gamma: u64,
        rows: usize,
        columns: usize,
    ) -> Result<(), Error> {
        let arguments = [
            Address(input_gradient),
            Address(gradient),
            Address(x),
            Address(mean),
            Address(rstd),
            Address(gamma),
            int(rows)?,
            int(columns)?,
        ];
        self.typed(Typed::LayerNormBackward, ty, rows, &arguments)
    }

    /// The gradients by a layer norm's gamma and beta, overwriting.
    pub(crate) fn layer_norm_gradients(
        &self,
        ty: DataType,
        gamma_gradient: u64,
        beta_gradient: u64,
        gradient: u64,
        x: u64,
        mean: u64,
        rstd: u64,
        rows: usize,
        columns: usize,
    ) -> Result<(), Error> {
        let arguments = [
            Address(gamma_gradient),
            Address(beta_gradient),
            Address(gradient),
            Address(x),
            Address(mean),
            Address(rstd),
            int(rows)?,
            int(columns)?,
        ];
        self.typed(Typed::LayerNormGradients, ty, per_column(columns), &arguments)
    }

    /// `y = gelu(x)`, in its tanh form.
    pub(crate) fn gelu(&self, ty: DataType, y: u64, x: u64, count: usize) -> Result<(), Error> {
        let arguments = [Address(y), Address(x), int(count)?];
        self.typed(Typed::Gelu, ty, per_element(count), &arguments)
    }

    /// `gradient *= gelu'(x)`.
    pub(crate) fn gelu_backward(
        &self,
        ty: DataType,
        gradient: u64,
        x: u64,
        count: usize,
    ) -> Result<(), Error> {
        let arguments = [Address(gradient), Address(x), int(count)?];
        self.typed(Typed::GeluBackward, ty, per_element(count), &arguments)
    }

    /// Softmax of `scale * scores` by row, rows x context, in which row r sees columns 0 to r % context.
    pub(crate) fn causal_softmax(
        &self,
        ty: DataType,
        probabilities: u64,
        scores: u64,
        scale: f32,
        rows: usize,
        context: usize,
    ) -> Result<(), Error> {
        let arguments = [
            Address(probabilities),
            Address(scores),
            Float(scale),
            int(rows)?,
            int(context)?,
        ];
        self.typed(Typed::CausalSoftmax, ty, rows, &arguments)
    }

    /// The gradient by the scores; `scores_gradient` may be `gradient` (that by the probabilities).
    pub(crate) fn causal_softmax_backward(
        &self,
        ty: DataType,
        scores_gradient: u64,
        probabilities: u64,
        gradient: u64,
        scale: f32,
        rows: usize,
        context: usize,
    ) -> Result<(), Error> {
        let arguments = [
            Address(scores_gradient),
            Address(probabilities),
            Address(gradient),
            Float(scale),
            int(rows)?,
            int(context)?,
        ];
        self.typed(Typed::CausalSoftmaxBackward, ty, rows, &arguments)
    }

    /// `[batch, context, parts, heads, head_width]` to `[parts, batch, heads, context, head_width]`, or back.
    pub(crate) fn permute_heads(
        &self,
        ty: DataType,
        output: u64,
        input: u64,
        batch: usize,
        context: usize,
        parts: usize,
        heads: usize,
        head_width: usize,
        inverse: bool,
    ) -> Result<(), Error> {
        let count = batch * context * parts * heads * head_width;
        int(count)?;
        let arguments = [
            Address(output),
            Address(input),
            int(batch)?,
            int(context)?,
            int(parts)?,
            int(heads)?,
            int(head_width)?,
            Argument::Int(i32::from(inverse)),
        ];
        self.typed(Typed::PermuteHeads, ty, per_element(count), &arguments)
    }

    /// `accumulator += scale * gradient` (f32 += type), by atomics. Elements that are not finite add nothing and set
    /// `*overflow` (an i32) to 1.
    pub(crate) fn scale_accumulate(
        &self,
        ty: DataType,
        accumulator: u64,
        gradient: u64,
        scale: f32,
        count: usize,
        overflow: u64,
    ) -> Result<(), Error> {
        let arguments = [
            Address(accumulator),
            Address(gradient),
            Float(scale),
            int(count)?,
            Address(overflow),
        ];
        self.typed(Typed::ScaleAccumulate, ty, per_element(count), &arguments)
    }

    /// `x *= factor`.
    pub(crate) fn scale(&self, x: u64, factor: f32, count: usize) -> Result<(), Error> {
        self.plain(Plain::Scale, count, &[Address(x), Float(factor), int(count)?])
    }

    /// `parameters -= rate * gradients`.
    pub(crate) fn sgd_step(
        &self,
        parameters: u64,
        gradients: u64,
        rate: f32,
        count: usize,
    ) -> Result<(), Error> {
        let arguments = [Address(parameters), Address(gradients), Float(rate), int(count)?];
        self.plain(Plain::SgdStep, count, &arguments)
    }

    /// One step of Adam; the corrections are `1 - beta^step` for both betas.
    pub(crate) fn adam_step(
        &self,
        parameters: u64,
        gradients: u64,
        first_moment: u64,
        second_moment: u64,
        rate: f32,
        beta1: f32,
        beta2: f32,
        epsilon: f32,
        correction1: f32,
        correction2: f32,
        count: usize,
    ) -> Result<(), Error> {
        let arguments = [
            Address(parameters),
            Address(gradients),
            Address(first_moment),
            Address(second_moment),
            Float(rate),
            Float(beta1),
            Float(beta2),
            Float(epsilon),
            Float(correction1),
            Float(correction2),
            int(count)?,
        ];
        self.plain(Plain::AdamStep, count, &arguments)
    }

    /// `*result += sum(x^2)`.
    pub(crate) fn sum_of_squares(&self, result: u64, x: u64, count: usize) -> Result<(), Error> {
        let arguments = [Address(result), Address(x), int(count)?];
        self.plain(Plain::SumOfSquares, count, &arguments)
    }

    /// Converts between f32 and a 16-bit type, rounding to the nearest, ties to even.
    pub(crate) fn cast(
        &self,
        from: DataType,
        to: DataType,
        output: u64,
        input: u64,
        count: usize,
    ) -> Result<(), Error> {
        let kernel = match (from, to) {
            (DataType::F32, DataType::Bf16) => Plain::CastF32ToBf16,
            (DataType::Bf16, DataType::F32) => Plain::CastBf16ToF32,
            (DataType::F32, DataType::F16) => Plain::CastF32ToF16,
            (DataType::F16, DataType::F32) => Plain::CastF16ToF32,
            _ => return Err(Error::new(format!("there is no cast from {from:?} to {to:?}"))),
        };
        self.plain(kernel, count, &[Address(output), Address(input), int(count)?])
    }
}
