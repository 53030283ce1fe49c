//! The kernels of workloads/kernels, loaded from their PTX.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaModule};
use cudarc::nvrtc::Ptx;

use super::DataType;
use crate::error::Error;

/// PTX of kernels/*.cu, made by kernels/build.sh.
const PTX: [&str; 4] = [
    include_str!("../../kernels/mlp.ptx"),
    include_str!("../../kernels/transformer.ptx"),
    include_str!("../../kernels/optimizer.ptx"),
    include_str!("../../kernels/fused.ptx"),
];

/// Lists the kernels: those with a variant for each [`DataType`] and those with one only, each with its PTX.
macro_rules! kernels {
    (
        typed { $( $typed:ident = $typed_name:literal in $typed_ptx:literal, )* }
        plain { $( $plain:ident = $plain_name:literal in $plain_ptx:literal, )* }
    ) => {
        /// A kernel with a variant for each type.
        #[derive(Clone, Copy)]
        pub(super) enum Typed { $( $typed ),* }

        /// A kernel for f32, or for types that are in its name.
        #[derive(Clone, Copy)]
        pub(super) enum Plain { $( $plain ),* }

        const TYPED: &[(&str, usize)] = &[ $( ($typed_name, $typed_ptx) ),* ];
        const PLAIN: &[(&str, usize)] = &[ $( ($plain_name, $plain_ptx) ),* ];
    };
}

kernels! {
    typed {
        AddBias = "add_bias" in 0,
        AddBiasRelu = "add_bias_relu" in 0,
        ReluBackward = "relu_backward" in 0,
        Add = "add" in 0,
        MseLoss = "mse_loss" in 0,
        BiasGradient = "bias_gradient" in 0,
        CrossEntropy = "cross_entropy" in 1,
        EmbeddingForward = "embedding_forward" in 1,
        EmbeddingBackward = "embedding_backward" in 1,
        LayerNorm = "layer_norm" in 1,
        LayerNormBackward = "layer_norm_backward" in 1,
        LayerNormGradients = "layer_norm_gradients" in 1,
        Gelu = "gelu" in 1,
        GeluBackward = "gelu_backward" in 1,
        CausalSoftmax = "causal_softmax" in 1,
        CausalSoftmaxBackward = "causal_softmax_backward" in 1,
        PermuteHeads = "permute_heads" in 1,
        ScaleAccumulate = "scale_accumulate" in 3,
    }
    plain {
        Scale = "scale" in 0,
        SgdStep = "sgd_step" in 2,
        AdamStep = "adam_step" in 2,
        SumOfSquares = "sum_of_squares" in 2,
        CastF32ToBf16 = "cast_f32_to_bf16" in 2,
        CastBf16ToF32 = "cast_bf16_to_f32" in 2,
        CastF32ToF16 = "cast_f32_to_f16" in 2,
        CastF16ToF32 = "cast_f16_to_f32" in 2,
    }
}

/// All kernels, ready to be launched.
///
/// All at once: the driver may wait for the whole device when it loads a kernel at its first use, and a collective that
/// runs meanwhile may wait for a launch that comes after it.
pub(super) struct Kernels {
    typed: Vec<[CudaFunction; 3]>,
    plain: Vec<CudaFunction>,
}

impl Kernels {
    pub(super) fn load(context: &Arc<CudaContext>) -> Result<Self, Error> {
        let modules = PTX
            .iter()
            .map(|&ptx| context.load_module(Ptx::from_src(ptx)))
            .collect::<Result<Vec<Arc<CudaModule>>, _>>()?;
        let mut typed = Vec::with_capacity(TYPED.len());
        for &(name, module) in TYPED {
            let [f32, bf16, f16] =
                DataType::ALL.map(|ty| modules[module].load_function(&format!("{name}{}", ty.suffix())));
            typed.push([f32?, bf16?, f16?]);
        }
        let mut plain = Vec::with_capacity(PLAIN.len());
        for &(name, module) in PLAIN {
            plain.push(modules[module].load_function(name)?);
        }
        Ok(Self { typed, plain })
    }

    pub(super) fn typed(&self, kernel: Typed, ty: DataType) -> &CudaFunction {
        &self.typed[kernel as usize][ty as usize]
    }

    pub(super) fn plain(&self, kernel: Plain) -> &CudaFunction {
        &self.plain[kernel as usize]
    }
}
