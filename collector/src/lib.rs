//! The recorder injected into the training process: CUPTI, NCCL profiler plugin, NVTX
