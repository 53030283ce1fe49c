//! Operations as they were enqueued on a rank.

use std::ffi::CStr;

use super::model::Function;
use super::reduce;

/// The number of a reduction that multiplies first (ncclRedOpCreatePreMulSum), in messages between ranks: handles of
/// such reductions differ between ranks, and so may the factors.
pub(super) const SCALED_SUM: i32 = 5;

/// A collective. Addresses are of device memory that was checked when it was enqueued.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) function: Function,
    pub(super) send: u64,
    pub(super) receive: u64,
    /// The caller's count.
    pub(super) count: usize,
    pub(super) datatype: i32,
    pub(super) element_bytes: usize,
    pub(super) reduction: i32,
    /// With SCALED_SUM: this rank's factor, as bytes of the data type, or where they are in device memory.
    pub(super) factor: Factor,
    pub(super) root: u32,
    /// The number among operations of this function on this communicator.
    pub(super) sequence: u64,
}

/// A reduction's factor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Factor {
    Known([u8; 8]),
    InMemory(u64),
}

impl Operation {
    /// Bytes of the caller's count.
    pub(super) fn bytes(&self) -> usize {
        self.count * self.element_bytes
    }

    /// Bytes as NCCL's model counts them.
    pub(super) fn model_bytes(&self, ranks: u32) -> u64 {
        let bytes = self.bytes() as u64;
        match self.function {
            Function::AllGather | Function::ReduceScatter => bytes * u64::from(ranks),
            _ => bytes,
        }
    }

    /// Bytes of the send and the receive buffer; `None` if they are more than there can be.
    pub(super) fn buffer_bytes(&self, ranks: u32) -> Option<(usize, usize)> {
        let bytes = self.count.checked_mul(self.element_bytes)?;
        let all = bytes.checked_mul(ranks as usize)?;
        Some(match self.function {
            Function::AllGather => (bytes, all),
            Function::ReduceScatter => (all, bytes),
            _ => (bytes, bytes),
        })
    }
}

/// A send or a receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) sends: bool,
    pub(super) peer: u32,
    pub(super) address: u64,
    pub(super) count: usize,
    pub(super) datatype: i32,
    pub(super) bytes: usize,
}

impl Transfer {
    /// NCCL's name.
    pub(super) fn name(&self) -> &'static CStr {
        if self.sends { c"Send" } else { c"Recv" }
    }

    /// NCCL's name of the data type.
    pub(super) fn datatype_name(&self) -> &'static CStr {
        reduce::datatype(self.datatype).map_or(c"", |(_, name, _)| name)
    }
}
