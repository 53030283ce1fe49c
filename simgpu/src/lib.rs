//! A stand-in for the CUDA driver, cuBLAS, CUPTI, NCCL and NVML on machines with no GPU.
//!
//! One shared library answers to all of their names with their C interfaces. Arithmetic is real: kernels are computed
//! on the CPU and collectives move bytes between processes. Time on the device is modelled (`device::model`); host
//! time is real. It knows nothing of the programs that use it: they are ordinary CUDA programs and CUPTI clients.
//!
//! Programs find it by links of the names that they load: `libcuda.so.1`, `libcublas.so.12`, `libcupti.so.13`,
//! `libnccl.so.2`, `libnvidia-ml.so.1`, ... to one file, which so is loaded once. Controls, by environment: see `config`.

mod clock;
mod config;
mod cublas;
mod cupti;
mod device;
mod driver;
mod edge;
mod kernels;
mod nccl;
mod nvml;
mod truth;

pub use config::check as check_settings;
pub use nccl::times;
