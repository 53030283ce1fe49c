//! Which devices reach each other's memory.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_uint};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::context::{context_from_handle, current_context};
use super::entry::{driver_functions, put};
use super::error;
use super::queries::known_device;
use crate::config::config;
use crate::device::links::Connection;

/// Enabled accesses: whose context, whose memory (primary contexts only, so devices say it).
static ENABLED: Mutex<BTreeSet<(u32, u32)>> = Mutex::new(BTreeSet::new());

fn enabled() -> MutexGuard<'static, BTreeSet<(u32, u32)>> {
    ENABLED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a device's context may access the plain memory of another device.
pub(super) fn is_enabled(accessing: u32, owner: u32) -> bool {
    enabled().contains(&(accessing, owner))
}

/// Whether one device can be made to access the other's memory.
pub(super) fn can_access(device: u32, peer: u32) -> bool {
    device != peer && Connection::between(config(), device, peer).has_peer_access()
}

/// The current context's device and another context's.
fn pair(peer: u64) -> Result<(u32, u32), u32> {
    let (current, peer) = (current_context()?, context_from_handle(peer)?);
    if current.handle == peer.handle {
        return Err(error::INVALID_CONTEXT);
    }
    Ok((current.device, peer.device))
}

driver_functions! {
    /// cuDeviceCanAccessPeer.
    fn cuDeviceCanAccessPeer = CUPTI_DRIVER_TRACE_CBID_cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) |_| {
        put(can, c_int::from(can_access(known_device(device)?, known_device(peer)?)))
    }

    /// cuDeviceGetP2PAttribute: performance rank, access, atomics (over NVLink), access to arrays.
    fn cuDeviceGetP2PAttribute = CUPTI_DRIVER_TRACE_CBID_cuDeviceGetP2PAttribute(value: *mut c_int, attribute: c_uint, source: c_int, destination: c_int) |_| {
        let (source, destination) = (known_device(source)?, known_device(destination)?);
        if source == destination {
            return Err(error::INVALID_DEVICE);
        }
        let connection = Connection::between(config(), source, destination);
        put(value, match attribute {
            1 => connection.rank(),
            2 | 4 => c_int::from(connection.has_peer_access()),
            3 => c_int::from(connection == Connection::NvSwitch),
            5 => 0,
            _ => return Err(error::INVALID_VALUE),
        })
    }

    /// cuCtxEnablePeerAccess: the current context may access the plain memory of the other's device, one way.
    fn cuCtxEnablePeerAccess = CUPTI_DRIVER_TRACE_CBID_cuCtxEnablePeerAccess(peer: u64, flags: c_uint) |_| {
        let (device, peer) = pair(peer)?;
        if flags != 0 {
            return Err(error::INVALID_VALUE);
        }
        if !can_access(device, peer) {
            return Err(error::PEER_ACCESS_UNSUPPORTED);
        }
        if enabled().insert((device, peer)) { Ok(()) } else { Err(error::PEER_ACCESS_ALREADY_ENABLED) }
    }

    /// cuCtxDisablePeerAccess.
    fn cuCtxDisablePeerAccess = CUPTI_DRIVER_TRACE_CBID_cuCtxDisablePeerAccess(peer: u64) |_| {
        let pair = pair(peer)?;
        if enabled().remove(&pair) { Ok(()) } else { Err(error::PEER_ACCESS_NOT_ENABLED) }
    }
}
