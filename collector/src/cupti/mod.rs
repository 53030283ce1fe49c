//! The running libcupti: found, asked for its functions one by one, and switched on.

mod find;
mod functions;
pub(crate) mod lost;
pub(crate) mod running;
mod start;
mod switch;
mod wanted;

use std::ffi::CStr;

use functions::{Functions, SUCCESS};

use crate::records::kind;
use crate::user_defined::Second;

/// A libcupti that was found.
#[derive(Clone, Copy)]
pub(crate) struct Cupti {
    /// To be had by [`Self::functions`].
    loaded: Functions,
    /// The subscription beside others, if it is that. To be used by [`Self::second`].
    subscribed: Option<Second>,
    /// cuptiGetVersion's number.
    pub(crate) version: u32,
    /// The kinds that are switched on.
    kinds: &'static [u32],
    /// The calls that are switched on one by one, as kind and callback id.
    calls: &'static [(u32, u32)],
    /// Those of them that nobody asked for: they tell what was launched in which window, or by which collective.
    pub(crate) hidden: &'static [u32],
    /// Whether [`PROBE`] makes records.
    is_probed: bool,
    /// Whether this CUPTI refuses to record kernels in two ways at a time, so that it tells whether anybody does.
    tells_of_kernels: bool,
}

impl Cupti {
    /// The functions: none any more once CUPTI has ended itself.
    fn functions(&self) -> &Functions {
        if lost::is_lost() {
            &Functions::NONE
        } else {
            &self.loaded
        }
    }

    /// The subscription beside others: none any more once CUPTI has ended itself.
    fn second(&self) -> Option<&Second> {
        self.subscribed.as_ref().filter(|_| !lost::is_lost())
    }

    /// How it records, as the process's header says it.
    pub(crate) fn backend(&self) -> &'static str {
        if self.is_one_of_several() {
            "user-defined records"
        } else {
            "activity"
        }
    }

    /// Whether others have buffers of their own, so that nobody can take ours.
    pub(crate) fn is_one_of_several(&self) -> bool {
        self.subscribed.is_some()
    }

    fn describe(&self, result: u32) -> String {
        let mut text = std::ptr::null();
        if let Some(result_string) = self.functions().result_string {
            // SAFETY: the place is valid for the result.
            unsafe { result_string(result, &raw mut text) };
        }
        if text.is_null() {
            return format!("error {result}");
        }
        // SAFETY: CUPTI gives static text.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// Asks for the buffers whose records are complete; `forced`: for all there is. Only ever called by one thread at a time.
    pub(crate) fn flush(&self, forced: bool) {
        if let Some(flush_all) = self.functions().flush_all {
            // SAFETY: called on a thread of our own, holding no lock, as CUPTI wants it.
            unsafe { flush_all(u32::from(forced)) };
        }
    }

    /// Records that CUPTI had no room for since the last call.
    pub(crate) fn dropped(&self) -> u64 {
        if let Some(second) = self.second() {
            return second.dropped();
        }
        let mut count = 0usize;
        if let Some(dropped) = self.functions().dropped {
            // SAFETY: the place is valid; null and 0 mean all contexts and streams.
            unsafe { dropped(std::ptr::null_mut(), 0, &raw mut count) };
        }
        count as u64
    }

    /// CUPTI's id of a node of a graph (`CUgraphNode`).
    pub(crate) fn graph_node_id(&self, node: usize) -> Option<u64> {
        let get = self.functions().graph_node_id?;
        let mut id = 0;
        // SAFETY: a node that CUPTI has just told of; the place is valid for the result.
        (unsafe { get(node, &raw mut id) } == SUCCESS).then_some(id)
    }

    /// The name of a call: kind 4 (driver) or 5 (runtime), and its callback id.
    pub(crate) fn callback_name(&self, kind: u32, callback: u32) -> Option<String> {
        // CUPTI_CB_DOMAIN_DRIVER_API and _RUNTIME_API.
        let domain = if kind == kind::DRIVER { 1 } else { 2 };
        let mut name = std::ptr::null();
        // SAFETY: the place is valid for the result.
        let result = unsafe { (self.functions().callback_name?)(domain, callback, &raw mut name) };
        if result != SUCCESS || name.is_null() {
            return None;
        }
        // SAFETY: CUPTI gives static text.
        Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// From here on this thread's launches carry the id.
    pub(crate) fn push_id(&self, kind: u32, id: u64) {
        if let Some(second) = self.second() {
            second.push_id(kind, id);
        } else if let Some(push_id) = self.functions().push_id {
            // SAFETY: plain values.
            unsafe { push_id(kind, id) };
        }
    }

    /// Ends the innermost id of this thread.
    pub(crate) fn pop_id(&self, kind: u32) {
        if let Some(second) = self.second() {
            second.pop_id(kind);
        } else if let Some(pop_id) = self.functions().pop_id {
            let mut last = 0;
            // SAFETY: the place is valid for the result.
            unsafe { pop_id(kind, &raw mut last) };
        }
    }

    /// CUPTI's number of a stream of the current context, by its handle.
    pub(crate) fn stream_id(&self, stream: u64) -> Option<u32> {
        let mut id = 0;
        // SAFETY: the place is valid for the result; a handle that is none is an error code.
        let result =
            unsafe { (self.functions().stream_id?)(0, usize::try_from(stream).ok()?, 0, &raw mut id) };
        (result == SUCCESS).then_some(id)
    }

    /// CUPTI's number of a context, by its handle.
    pub(crate) fn context_id(&self, context: u64) -> Option<u32> {
        let mut id = 0;
        // SAFETY: as above.
        let result = unsafe { (self.functions().context_id?)(usize::try_from(context).ok()?, &raw mut id) };
        (result == SUCCESS).then_some(id)
    }
}
