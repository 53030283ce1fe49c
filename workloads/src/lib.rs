//! Training programs on CUDA and NCCL, one for each way to use several GPUs
