//! Bytes that have passed over the devices' links, as counters that only grow.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{CompletedOp, OpKind};
use crate::config::{Topology, config};

/// What joins a device to the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    NvLink = 0,
    Pcie = 1,
}

/// Devices that a process can see.
const DEVICES: usize = 64;

/// By device and link: bytes sent and received.
static COUNTERS: [[[AtomicU64; 2]; 2]; DEVICES] =
    [const { [const { [const { AtomicU64::new(0) }; 2] }; 2] }; DEVICES];

/// Counts bytes that a device has sent and received.
pub(crate) fn add(device: u32, link: Link, sent: u64, received: u64) {
    if let Some(links) = COUNTERS.get(device as usize) {
        links[link as usize][0].fetch_add(sent, Ordering::Relaxed);
        links[link as usize][1].fetch_add(received, Ordering::Relaxed);
    }
}

/// Bytes sent and received so far.
pub(crate) fn of(device: u32, link: Link) -> [u64; 2] {
    let none = [0, 0];
    COUNTERS.get(device as usize).map_or(none, |links| {
        [0, 1].map(|way: usize| links[link as usize][way].load(Ordering::Relaxed))
    })
}

/// The link that a device's collectives go over.
pub(crate) fn of_collectives() -> Link {
    match config().topology {
        Topology::Hgx | Topology::TwoNodes => Link::NvLink,
        Topology::Pcie => Link::Pcie,
    }
}

/// Counts what an operation has moved between its device and the host; copies between devices are counted by their way.
pub(super) fn count(op: &CompletedOp) {
    match &op.kind {
        OpKind::Copy {
            copy_kind: 1, bytes, ..
        } => add(op.device, Link::Pcie, 0, *bytes),
        OpKind::Copy {
            copy_kind: 2, bytes, ..
        } => add(op.device, Link::Pcie, *bytes, 0),
        _ => {}
    }
}
