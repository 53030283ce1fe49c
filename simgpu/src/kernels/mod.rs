//! CPU functions for kernels, by name, each with the time that the modelled device takes for it.
//!
//! A kernel is prepared at its launch (arguments read, memory checked) and computed when its turn comes. Those with
//! variants for f32, bf16 and f16 are one generic function each; the name's end says which.

mod arguments;
mod element;
mod elementwise;
mod gemm;
mod integers;
mod losses;
mod optimizer;
mod rows;
mod sequences;

pub(crate) use arguments::{Arguments, Array};
use element::Element;
pub(crate) use gemm::{Matrix, Values, product};

use crate::device::model::kernel_ns;

/// Registers a thread that kernels claim.
pub(crate) const REGISTERS: u16 = 32;
/// The share of peak FLOP/s that kernels reach outside matrix products.
const EFFICIENCY: f64 = 0.3;

/// Computes the kernel and gives its modelled time in nanoseconds.
pub(crate) type Prepared = Box<dyn FnOnce() -> i64 + Send>;

/// Reads and checks a launch's arguments.
pub(crate) type Prepare = fn(&Arguments) -> Result<Prepared, u32>;

/// One kernel that can be computed.
#[derive(Clone, Copy)]
pub(crate) struct CpuKernel {
    pub(crate) prepare: Prepare,
}

/// Time of a kernel that moves so many bytes and computes so much.
fn time_ns(bytes: usize, flops: usize) -> i64 {
    kernel_ns(flops as f64, bytes as f64, EFFICIENCY)
}

/// Lists all kernels, by the file that has their functions: `typed` ones have variants by element type.
macro_rules! kernels {
    (typed { $($file:ident: $($name:ident),*;)* } plain { $($plain_file:ident: $($plain:ident),*;)* }) => {
        /// The CPU function of a kernel's name.
        pub(crate) fn find(name: &str) -> Option<CpuKernel> {
            let prepare: Prepare = match name {
                $($(
                    stringify!($name) => $file::$name::<f32>,
                    concat!(stringify!($name), "_bf16") => $file::$name::<half::bf16>,
                    concat!(stringify!($name), "_f16") => $file::$name::<half::f16>,
                )*)*
                $($( stringify!($plain) => $plain_file::$plain, )*)*
                _ => return None,
            };
            Some(CpuKernel { prepare })
        }
    };
}

kernels! {
    typed {
        elementwise: add_bias, add_bias_relu, relu_backward, add, gelu, gelu_backward, scale_accumulate;
        losses: mse_loss, cross_entropy;
        rows: bias_gradient, layer_norm, layer_norm_backward, layer_norm_gradients;
        sequences: embedding_forward, embedding_backward, causal_softmax, causal_softmax_backward, permute_heads;
    }
    plain {
        elementwise: scale, axpy, copy_f32, cast_f32_to_bf16, cast_bf16_to_f32, cast_f32_to_f16, cast_f16_to_f32;
        integers: add_i32;
        optimizer: sgd_step, adam_step, sum_of_squares;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_name_and_type() {
        for name in [
            "add",
            "add_bf16",
            "add_f16",
            "sgd_step",
            "add_i32",
            "cast_f32_to_f16",
        ] {
            assert!(find(name).is_some(), "{name}");
        }
        for name in ["", "add_f64", "sgd_step_bf16", "_bf16"] {
            assert!(find(name).is_none(), "{name}");
        }
    }
}
