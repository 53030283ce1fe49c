//! NCCL's events as delivered, for `GPUTRACE_DUMP`: one line of JSON a call of the plugin. The only callbacks that write a
//! file, and only when asked.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::offset_of;

use gputrace_trace::now;
use serde_json::{Map, Value, json};

use super::abi::{self, EVENT_OFFSET};
use super::context::Context;
use crate::dump;
use crate::host_events::thread_id;
use crate::signals;

/// Bytes of a descriptor, by the interface's version (ncclProfilerEventDescr_v4_t to _v7_t).
fn descriptor_bytes(version: u32) -> usize {
    match version {
        ..5 => 104,
        5 | 6 => 112,
        _ => 136,
    }
}

/// Where an event of a kind holds the address of a text.
fn texts(kind: u64, version: u32) -> Vec<usize> {
    let mut places = match kind {
        abi::COLL_API => vec![
            offset_of!(abi::CollApi, function),
            offset_of!(abi::CollApi, datatype),
        ],
        abi::P2P_API => vec![
            offset_of!(abi::P2pApi, function),
            offset_of!(abi::P2pApi, datatype),
        ],
        abi::COLL => vec![
            offset_of!(abi::Coll, function),
            offset_of!(abi::Coll, datatype),
            offset_of!(abi::Coll, algorithm),
            offset_of!(abi::Coll, protocol),
        ],
        abi::P2P => vec![offset_of!(abi::P2p, function), offset_of!(abi::P2p, datatype)],
        abi::CE_COLL => vec![
            offset_of!(abi::CeColl, function),
            offset_of!(abi::CeColl, datatype),
            offset_of!(abi::CeColl, sync_strategy),
        ],
        abi::KERNEL_PHASE => vec![offset_of!(abi::KernelPhase, name)],
        _ => Vec::new(),
    };
    if kind == abi::COLL && version >= 7 {
        places.push(offset_of!(abi::Coll, kernel_variant));
    }
    places
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write(call: &str, members: Value) {
    let mut line = json!({"call": call, "time_ns": now().0, "thread": thread_id()});
    if let (Some(line), Value::Object(members)) = (line.as_object_mut(), members) {
        line.extend(members);
    }
    signals::uncancelled(|| signals::quietly(|| dump::nccl_event(&line)));
}

/// A communicator was made.
pub(super) fn init(version: u32, communicator: u64, counts: [c_int; 3]) {
    if dump::folder().is_some() {
        let [nodes, ranks, rank] = counts;
        let communicator = format!("{communicator:016x}");
        write(
            "init",
            json!({"version": version, "communicator": communicator, "nodes": nodes, "ranks": ranks, "rank": rank}),
        );
    }
}

/// An event began; `handle` is what NCCL was given for it.
///
/// # Safety
/// `descriptor` is a descriptor of the context's version, of that kind.
pub(super) unsafe fn start(context: &Context, kind: u64, descriptor: *const c_void, handle: usize) {
    if dump::folder().is_none() {
        return;
    }
    let length = descriptor_bytes(context.version);
    // SAFETY: by the caller's promise so many bytes are there.
    let bytes = unsafe { std::slice::from_raw_parts(descriptor.cast::<u8>(), length) };
    let mut said = Map::new();
    for place in texts(kind, context.version) {
        let offset = EVENT_OFFSET + place;
        let address = bytes
            .get(offset..offset + 8)
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, usize::from_le_bytes);
        if address != 0 {
            // SAFETY: NCCL's names are zero-terminated texts.
            let text = unsafe { CStr::from_ptr(address as *const c_char) };
            said.insert(offset.to_string(), json!(text.to_string_lossy()));
        }
    }
    write(
        "start",
        json!({
            "version": context.version,
            "communicator": format!("{:016x}", context.communicator),
            "handle": handle,
            "descriptor": hexadecimal(bytes),
            "texts": said,
        }),
    );
}

/// An event ended.
pub(super) fn stop(handle: *mut c_void) {
    if dump::folder().is_some() {
        write("stop", json!({"handle": handle as usize}));
    }
}

/// An event came to a state; `value` is the union of its arguments (8 bytes), where there are any.
pub(super) fn state(handle: *mut c_void, state: c_int, value: Option<u64>) {
    if dump::folder().is_some() {
        write(
            "state",
            json!({"handle": handle as usize, "state": state, "value": value}),
        );
    }
}
