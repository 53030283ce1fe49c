//! NCCL: ranks are processes (or threads) that meet through the unique id and really exchange their data.
//!
//! Order and fusion follow NCCL (enqueue.cc): operations of a group and communicator are one kernel on the group's
//! first stream, and the operations of one communicator run one after the other. Times follow NCCL's own tuning
//! model (`model`), with bandwidths divided by the scale.

mod api;
mod bootstrap;
mod collective;
mod group;
mod model;
mod profiler;
mod profiler_abi;
mod reduce;

pub use model::times;

/// ncclResult_t values.
mod result {
    pub(super) const SUCCESS: i32 = 0;
    pub(super) const UNHANDLED_CUDA_ERROR: i32 = 1;
    pub(super) const SYSTEM_ERROR: i32 = 2;
    pub(super) const INTERNAL_ERROR: i32 = 3;
    pub(super) const INVALID_ARGUMENT: i32 = 4;
    pub(super) const INVALID_USAGE: i32 = 5;
    pub(super) const REMOTE_ERROR: i32 = 6;
}
