//! A stand-in for the CUDA driver, cuBLAS, CUPTI, NCCL and NVML on machines with no GPU
