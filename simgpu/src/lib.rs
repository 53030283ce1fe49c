//! A stand-in for the CUDA driver, cuBLAS, CUPTI, NCCL and NVML on machines with no GPU.
//!
//! One shared library answers to all of their names with their C interfaces. Arithmetic is real: kernels are computed
//! on the CPU and collectives move bytes between processes. Time on the device is modelled (`device::model`); host
//! time is real. It knows nothing of the programs that use it: they are ordinary CUDA programs and CUPTI clients.
//!
//! Controls, by environment: see `config`.

mod clock;
mod config;
mod cublas;
mod cupti;
mod device;
mod driver;
mod kernels;
mod nccl;
mod nvml;
mod truth;

/// The file names under which programs open what this library stands in for.
pub const LIBRARY_NAMES: &[&str] = &[
    "libcuda.so",
    "libcuda.so.1",
    "libcublas.so",
    "libcublas.so.12",
    "libcublas.so.13",
    "libcupti.so",
    "libcupti.so.12",
    "libcupti.so.13",
    "libnccl.so",
    "libnccl.so.2",
    "libnvidia-ml.so",
    "libnvidia-ml.so.1",
];
