//! What is asked of NCCL.

use gputrace_trace::options::Kind;

use super::abi;
use crate::config::{self, Taker};

/// Whether what happens within operations is recorded.
pub(crate) fn records_details() -> bool {
    let options = config::options();
    options.records(Kind::Proxy) || options.records(Kind::Channels) || config::taker() == Taker::Daemon
}

/// The events that are asked of NCCL.
pub(super) fn mask(version: u32) -> u64 {
    // Who is in which communicator, and so the rank, is told in any case.
    if !config::is_wanted() {
        return 0;
    }
    let options = config::options();
    let mut mask = 0;
    if options.records(Kind::Collectives) {
        mask |= abi::COLL | abi::P2P | abi::KERNEL_LAUNCH;
        if version >= 6 {
            mask |= abi::CE_COLL;
        }
    }
    if options.records(Kind::Proxy) {
        mask |= abi::PROXY_OP | abi::PROXY_STEP;
    }
    if config::taker() == Taker::Daemon {
        // When operations run, where nobody asks CUPTI.
        mask |= abi::KERNEL_CHANNEL;
    }
    if options.records(Kind::Channels) {
        mask |= abi::KERNEL_CHANNEL;
        if version >= 7 {
            mask |= abi::KERNEL_PHASE;
        }
    }
    if version < 5 {
        // Version 4 knows kinds up to bit 7.
        mask &= 0xff;
    }
    mask
}
