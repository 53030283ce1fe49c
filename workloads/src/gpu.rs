//! One rank's GPU: context, kernels and cuBLAS, with thin calls that name what they do.

use std::sync::Arc;

use cudarc::cublas::{result as cublas, sys as cublas_sys};
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{
    CudaContext, CudaEvent, CudaFunction, CudaSlice, CudaStream, DevicePtr, LaunchConfig, PushKernelArg,
};
use cudarc::nvrtc::Ptx;

use crate::comm;
use crate::error::Error;

/// The kernels of kernels/mlp.cu, compiled by kernels/build.sh.
const MLP_PTX: &str = include_str!("../kernels/mlp.ptx");

/// A matrix operand as cuBLAS takes it: column-major address and leading dimension, transposed or not.
pub(crate) struct Operand {
    pub(crate) address: u64,
    pub(crate) leading: usize,
    pub(crate) transposed: bool,
}

/// The kernels by name.
pub(crate) struct Kernels {
    pub(crate) add_bias: CudaFunction,
    pub(crate) add_bias_relu: CudaFunction,
    pub(crate) relu_backward: CudaFunction,
    pub(crate) mse_loss: CudaFunction,
    pub(crate) bias_gradient: CudaFunction,
    pub(crate) sgd_step: CudaFunction,
}

/// One GPU with the stream that computes.
pub(crate) struct Gpu {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) compute: Arc<CudaStream>,
    pub(crate) kernels: Kernels,
    pub(crate) name: String,
    cublas: cublas_sys::cublasHandle_t,
}

impl Gpu {
    /// Opens device `local_rank`, modulo how many there are.
    pub(crate) fn open(local_rank: u32) -> Result<Self, Error> {
        if !comm::can_load("libcuda.so.1") && !comm::can_load("libcuda.so") {
            return Err(Error::new(
                "no GPU can be used here: libcuda.so.1 (NVIDIA's driver) was not found",
            ));
        }
        let count = CudaContext::device_count().or_else(|_| {
            cudarc::driver::result::init()?;
            CudaContext::device_count()
        })?;
        if count <= 0 {
            return Err(Error::new("no GPU can be used here: the driver knows none"));
        }
        let context = CudaContext::new((local_rank % count.cast_unsigned()) as usize)?;
        // SAFETY: streams are ordered by events of our own, where they meet.
        unsafe { context.disable_event_tracking() };
        let module = context.load_module(Ptx::from_src(MLP_PTX))?;
        let kernel = |name: &str| module.load_function(name);
        let kernels = Kernels {
            add_bias: kernel("add_bias")?,
            add_bias_relu: kernel("add_bias_relu")?,
            relu_backward: kernel("relu_backward")?,
            mse_loss: kernel("mse_loss")?,
            bias_gradient: kernel("bias_gradient")?,
            sgd_step: kernel("sgd_step")?,
        };
        let compute = context.new_stream()?;
        let cublas = cublas::create_handle()?;
        // SAFETY: the handle was just made, and the stream lives as long as this struct.
        unsafe { cublas::set_stream(cublas, compute.cu_stream().cast())? };
        let name = context.name()?;
        Ok(Self {
            context,
            compute,
            kernels,
            name,
            cublas,
        })
    }

    /// Zeroed device memory for so many f32.
    pub(crate) fn zeros(&self, count: usize) -> Result<CudaSlice<f32>, Error> {
        Ok(self.compute.alloc_zeros(count)?)
    }

    /// An event that other streams and the host can wait for.
    pub(crate) fn event(&self) -> Result<CudaEvent, Error> {
        Ok(self
            .context
            .new_event(Some(CUevent_flags::CU_EVENT_DISABLE_TIMING))?)
    }

    /// `c = a * b` (column-major, m x k times k x n), or `c += a * b`.
    pub(crate) fn gemm(
        &self,
        [m, n, k]: [usize; 3],
        a: &Operand,
        b: &Operand,
        c: u64,
        leading_c: usize,
    ) -> Result<(), Error> {
        let operation = |operand: &Operand| {
            if operand.transposed {
                cublas_sys::cublasOperation_t::CUBLAS_OP_T
            } else {
                cublas_sys::cublasOperation_t::CUBLAS_OP_N
            }
        };
        let (one, zero) = (1.0f32, 0.0f32);
        // SAFETY: the addresses are of device memory with room for the matrices; scalars are on the host.
        unsafe {
            cublas::sgemm(
                self.cublas,
                operation(a),
                operation(b),
                m as i32,
                n as i32,
                k as i32,
                &raw const one,
                a.address as *const f32,
                a.leading as i32,
                b.address as *const f32,
                b.leading as i32,
                &raw const zero,
                c as *mut f32,
                leading_c as i32,
            )?;
        }
        Ok(())
    }

    /// `y += bias`, then ReLU where asked.
    pub(crate) fn add_bias(
        &self,
        y: u64,
        bias: u64,
        rows: usize,
        columns: usize,
        relu: bool,
    ) -> Result<(), Error> {
        let kernel = if relu {
            &self.kernels.add_bias_relu
        } else {
            &self.kernels.add_bias
        };
        let (rows_argument, columns_argument) = (rows as i32, columns as i32);
        let mut launch = self.compute.launch_builder(kernel);
        launch
            .arg(&y)
            .arg(&bias)
            .arg(&rows_argument)
            .arg(&columns_argument);
        // SAFETY: arguments and their order are the kernel's, and the arrays hold rows x columns and columns f32.
        unsafe { launch.launch(config(rows * columns))? };
        Ok(())
    }

    /// Zeroes the gradient where the activation was cut off.
    pub(crate) fn relu_backward(&self, gradient: u64, activation: u64, count: usize) -> Result<(), Error> {
        let count_argument = count as i32;
        let mut launch = self.compute.launch_builder(&self.kernels.relu_backward);
        launch.arg(&gradient).arg(&activation).arg(&count_argument);
        // SAFETY: arguments as the kernel declares them; both arrays hold `count` f32.
        unsafe { launch.launch(config(count))? };
        Ok(())
    }

    /// Adds the scaled squared error to `*loss` and writes its gradient.
    pub(crate) fn mse_loss(
        &self,
        loss: u64,
        gradient: u64,
        prediction: u64,
        target: u64,
        count: usize,
    ) -> Result<(), Error> {
        let (count_argument, factor) = (count as i32, 1.0 / count as f32);
        let mut launch = self.compute.launch_builder(&self.kernels.mse_loss);
        launch
            .arg(&loss)
            .arg(&gradient)
            .arg(&prediction)
            .arg(&target)
            .arg(&count_argument)
            .arg(&factor);
        // SAFETY: arguments as the kernel declares them; the arrays hold `count` f32 and `loss` one.
        unsafe { launch.launch(config(count))? };
        Ok(())
    }

    /// The bias's gradient: column sums.
    pub(crate) fn bias_gradient(
        &self,
        result: u64,
        gradient: u64,
        rows: usize,
        columns: usize,
    ) -> Result<(), Error> {
        let (rows_argument, columns_argument) = (rows as i32, columns as i32);
        let mut launch = self.compute.launch_builder(&self.kernels.bias_gradient);
        launch
            .arg(&result)
            .arg(&gradient)
            .arg(&rows_argument)
            .arg(&columns_argument);
        // SAFETY: arguments as the kernel declares them; the arrays hold columns and rows x columns f32.
        unsafe { launch.launch(config(columns))? };
        Ok(())
    }

    /// `parameters -= rate * gradients`.
    pub(crate) fn sgd_step(
        &self,
        parameters: u64,
        gradients: u64,
        rate: f32,
        count: usize,
    ) -> Result<(), Error> {
        let count_argument = count as i32;
        let mut launch = self.compute.launch_builder(&self.kernels.sgd_step);
        launch
            .arg(&parameters)
            .arg(&gradients)
            .arg(&rate)
            .arg(&count_argument);
        // SAFETY: arguments as the kernel declares them; both arrays hold `count` f32.
        unsafe { launch.launch(config(count))? };
        Ok(())
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: made by `open`, destroyed once. A failure at the end of a run changes nothing.
        let _ = unsafe { cublas::destroy_handle(self.cublas) };
    }
}

fn config(count: usize) -> LaunchConfig {
    let blocks = count.div_ceil(256).clamp(1, 1024) as u32;
    LaunchConfig {
        grid_dim: (blocks, 1, 1),
        block_dim: (256, 1, 1),
        shared_mem_bytes: 0,
    }
}

/// The device address of an array.
pub(crate) fn address(slice: &CudaSlice<f32>) -> u64 {
    slice.device_ptr(slice.stream()).0
}

/// The address of element `index` of an array that begins at `base`.
pub(crate) fn element(base: u64, index: usize) -> u64 {
    base + (index * size_of::<f32>()) as u64
}
