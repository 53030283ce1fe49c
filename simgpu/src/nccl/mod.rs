//! NCCL: ranks are processes (or threads) that meet through the unique id and really exchange their data.
//!
//! Order and fusion follow NCCL (enqueue.cc): operations of a group and communicator are one kernel on the group's
//! first stream, collectives before sends and receives, and the operations of one communicator run one after the
//! other. Times follow NCCL's own tuning model (`model`), with bandwidths divided by the scale.
//!
//! The way of a message: `mesh` (one communicator's ranks) gives it to `link` (one connection between two processes,
//! shared by all communicators), whose thread on the other side puts it into the rank's `inbox`, where its kernel waits.
//! Large data on one machine is not sent: the reader copies it out of the other process's memory.

mod api;
mod api_operations;
mod bootstrap;
mod collective;
mod communicator;
mod errors;
mod group;
mod inbox;
mod link;
mod mesh;
mod model;
mod network;
mod nvtx;
mod operation;
mod plan;
mod point_to_point;
mod profiler;
mod profiler_abi;
mod reduce;
mod timing;

use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// Locks; what a thread that panicked left behind is still whole, since every change here is one statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
