//! What our own export says of a process.

use gputrace_trace::manifest::{HOST_ROLE, ProcessHeader};
use rustc_hash::FxHashMap;

/// What is true of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnProcess {
    pub(crate) header: ProcessHeader,
    pub(crate) folder: String,
    /// By the text of a "process" of the file, the device that it stands for.
    pub(super) devices: FxHashMap<Vec<u8>, u32>,
    /// Names as the file has them, and as they were: of kernels, of calls.
    pub(super) kernels: Vec<(String, String)>,
    pub(super) calls: Vec<(String, String)>,
}

impl OwnProcess {
    pub(crate) fn is_host(&self) -> bool {
        self.header.role == HOST_ROLE
    }

    /// Notes that the "process" `pid` is a device's.
    pub(crate) fn add_device(&mut self, pid: &[u8], device: u32) {
        self.devices.insert(pid.to_vec(), device);
    }
}
