//! Calls of the driver and the runtime: which are recorded, and which are parts of another.
//!
//! A call of the runtime makes calls of the driver, and CUPTI delivers both. The inner ones say nothing that the outer
//! one does not, so they are folded into it: left out, and counted. A call of the driver that no call of the runtime
//! encloses (Triton and cudarc make such) is a row of its own.

use std::collections::HashMap;

use gputrace_trace::NameId;
use gputrace_trace::tables;
use gputrace_trace::writer::ProcessWriter;

use super::times::{Times, untimed};
use crate::records::{self, kind};

/// What names of recorded calls begin with, behind "cu" or "cuda": what launches, copies, waits, allocates, loads code, or
/// makes and ends contexts. Versions and variants are suffixes. Calls that only ask or set are not recorded.
const WANTED: &[&str] = &[
    "Launch",
    "GraphLaunch",
    "GraphInstantiate",
    "GraphUpload",
    "GraphExecUpdate",
    "StreamBeginCapture",
    "StreamEndCapture",
    "Memcpy",
    "Memset",
    "MemPrefetch",
    "MemDiscard",
    "CtxSynchronize",
    "DeviceSynchronize",
    "ThreadSynchronize",
    "StreamSynchronize",
    "EventSynchronize",
    "EventRecord",
    "StreamWait",
    "StreamWriteValue",
    "StreamBatchMemOp",
    "Malloc",
    "Free",
    "MemAlloc",
    "MemFree",
    "HostAlloc",
    "HostRegister",
    "HostUnregister",
    "MemHostAlloc",
    "MemHostRegister",
    "MemHostUnregister",
    "MemCreate",
    "MemRelease",
    "MemMap",
    "MemUnmap",
    "MemAddress",
    "MemSetAccess",
    "MemPoolCreate",
    "MemPoolDestroy",
    "MemPoolTrim",
    "ModuleLoad",
    "ModuleUnload",
    "ModuleGetFunction",
    "LibraryLoad",
    "LibraryUnload",
    "LibraryGetKernel",
    "LinkAdd",
    "LinkComplete",
    "ProfilerStart",
    "ProfilerStop",
    "Init",
    "CtxCreate",
    "CtxDestroy",
    "CtxEnablePeerAccess",
    "DeviceEnablePeerAccess",
    "DevicePrimaryCtxRetain",
    "DevicePrimaryCtxRelease",
    "DevicePrimaryCtxReset",
    "DeviceReset",
    "IpcOpen",
    "StreamCreate",
    "StreamDestroy",
];

/// Those of them that put work on a device, whose records carry the call's correlation id.
const WORK: &[&str] = &["Launch", "GraphLaunch", "Memcpy", "Memset", "MemPrefetch"];

/// A call of our own (see `crate::rivals`): its records tell that CUPTI's buffers come to us, and are no rows.
pub(crate) const PROBE: &str = "cuDriverGetVersion";

/// Callback ids are asked for up to here; CUPTI 13.5 has 850 of the driver and 560 of the runtime.
const MOST_CALLBACKS: u32 = 8192;
/// So many ids in a row without a name are the end.
const GAP: u32 = 256;

/// A call's name without what all names begin with: "cuda", "cu", and "__" of those that compiled code calls.
fn bare(name: &str) -> &str {
    let name = name.trim_start_matches('_');
    ["cuda", "cu64", "cu"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name)
}

/// Whether a call of this name is recorded.
#[must_use]
pub fn is_wanted(name: &str) -> bool {
    let name = bare(name);
    WANTED.iter().any(|wanted| name.starts_with(wanted))
}

/// Whether a call of this name puts work on a device.
pub(crate) fn is_work(name: &str) -> bool {
    let name = bare(name);
    WORK.iter().any(|work| name.starts_with(work))
}

/// The calls to record of an API (`CUpti_ActivityKind`: driver or runtime), and [`PROBE`], as callback ids, by the names that the running
/// CUPTI has for them. Empty where it gives none.
#[must_use]
pub fn wanted_callbacks(api: u32, name_of: impl Fn(u32, u32) -> Option<String>) -> Vec<u32> {
    callbacks(api, name_of, |name| is_wanted(name) || name == PROBE)
}

/// The calls of an API that put work on a device, likewise.
pub(crate) fn work_callbacks(api: u32, name_of: impl Fn(u32, u32) -> Option<String>) -> Vec<u32> {
    callbacks(api, name_of, is_work)
}

fn callbacks(
    api: u32,
    name_of: impl Fn(u32, u32) -> Option<String>,
    is_meant: impl Fn(&str) -> bool,
) -> Vec<u32> {
    let mut meant = Vec::new();
    let mut unnamed = 0;
    for callback in 1..MOST_CALLBACKS {
        match name_of(api, callback) {
            Some(name) => {
                unnamed = 0;
                if is_meant(&name) {
                    meant.push(callback);
                }
            }
            None => unnamed += 1,
        }
        if unnamed == GAP {
            break;
        }
    }
    meant
}

/// Gives the name of a callback id: (kind, id) to text.
pub type CallbackName = Box<dyn Fn(u32, u32) -> Option<String> + Send>;

/// What is known of a callback id.
#[derive(Clone, Copy, Default)]
enum Known {
    #[default]
    Nothing,
    LeftOut,
    Recorded {
        name: NameId,
        is_work: bool,
    },
}

/// A driver call that the next runtime call of its thread may turn out to enclose.
struct Waiting {
    row: tables::ApiCall,
    is_work: bool,
}

/// What is known of a thread.
struct Thread {
    waiting: Vec<Waiting>,
    /// The runtime call that came last: start, end, correlation id.
    runtime: (i64, i64, u32),
}

/// Driver calls of one thread that wait at most: no runtime call makes more of those that are recorded.
const MOST_WAITING: usize = 32;
/// Threads that are remembered.
const MOST_THREADS: usize = 4096;

/// The calls' part of a decoder.
pub(super) struct Calls {
    name_of: CallbackName,
    /// By callback id: of the driver, of the runtime.
    known: [Vec<Known>; 2],
    threads: Vec<Thread>,
    places: HashMap<u32, usize>,
    /// The thread of the last call, and its place.
    last: (u32, usize),
    /// Whether any thread has calls waiting.
    any_waiting: bool,
    folded: u64,
}

impl Calls {
    pub(super) fn new(name_of: CallbackName) -> Self {
        Self {
            name_of,
            known: [Vec::new(), Vec::new()],
            threads: Vec::new(),
            places: HashMap::new(),
            last: (0, usize::MAX),
            any_waiting: false,
            folded: 0,
        }
    }

    /// The name of a call by CUPTI.
    pub(super) fn name(&self, kind: u32, callback: u32) -> Option<String> {
        (self.name_of)(kind, callback)
    }

    #[inline]
    fn known(&mut self, record: &records::ApiCall, writer: &mut ProcessWriter) -> Known {
        let api = usize::from(record.kind == kind::RUNTIME);
        match self.known[api].get(record.callback as usize) {
            Some(&known) if !matches!(known, Known::Nothing) => known,
            _ => self.learn(record, writer),
        }
    }

    #[cold]
    fn learn(&mut self, record: &records::ApiCall, writer: &mut ProcessWriter) -> Known {
        let known = match (self.name_of)(record.kind, record.callback) {
            Some(name) if !is_wanted(&name) => Known::LeftOut,
            Some(name) => Known::Recorded {
                name: writer.names.intern(&name),
                is_work: is_work(&name),
            },
            None => {
                let api = if record.kind == kind::DRIVER {
                    "driver"
                } else {
                    "runtime"
                };
                let name = writer.names.intern(&format!("{api}:{}", record.callback));
                Known::Recorded { name, is_work: true }
            }
        };
        // An id beyond all reason is looked up each time.
        if record.callback < MOST_CALLBACKS {
            let place = record.callback as usize;
            let api = &mut self.known[usize::from(record.kind == kind::RUNTIME)];
            if api.len() <= place {
                api.resize(place + 1, Known::Nothing);
            }
            api[place] = known;
        }
        known
    }

    #[inline]
    fn thread(&mut self, thread: u32) -> &mut Thread {
        if self.last.0 != thread || self.last.1 >= self.threads.len() {
            let next = self.threads.len();
            let place = *self.places.entry(thread).or_insert(next);
            if place == next {
                self.threads.push(Thread {
                    waiting: Vec::new(),
                    runtime: (0, -1, 0),
                });
            }
            self.last = (thread, place);
        }
        &mut self.threads[self.last.1]
    }

    /// Takes a call in. Rows may wait for the calls that follow until [`Self::settle`].
    ///
    /// Gives its times, unless it is one that is not recorded.
    pub(super) fn take(&mut self, record: &records::ApiCall, writer: &mut ProcessWriter) -> Option<Times> {
        let Known::Recorded { name, is_work } = self.known(record, writer) else {
            return None;
        };
        let times = Times::of(record.start, record.end);
        let Times::Whole(start_ns, duration_ns) = times else {
            untimed(
                tables::UntimedOperation {
                    kind: record.kind,
                    name: Some(name),
                    thread: Some(record.thread),
                    correlation: record.correlation,
                    ..tables::UntimedOperation::default()
                },
                times,
                writer,
            );
            return Some(times);
        };
        let row = tables::ApiCall {
            start_ns,
            duration_ns,
            name,
            kind: record.kind as u8,
            callback: record.callback,
            thread: record.thread,
            correlation: record.correlation,
            result: record.result,
        };
        let (start, end) = (record.start.cast_signed(), record.end.cast_signed());
        let thread = self.thread(record.thread);
        if record.kind == kind::RUNTIME {
            // Inner calls end first, so they have come before; those that this one does not enclose, none will.
            thread.runtime = (start, end, record.correlation);
            let mut folded = 0;
            for inner in thread.waiting.drain(..) {
                if is_part(&inner.row, inner.is_work, thread.runtime) {
                    folded += 1;
                } else {
                    writer.tables.api_calls.push(inner.row);
                }
            }
            self.folded += folded;
            writer.tables.api_calls.push(row);
        } else if is_part(&row, is_work, thread.runtime) {
            // Should the outer one have come first.
            self.folded += 1;
        } else {
            if thread.waiting.len() >= MOST_WAITING {
                for outer in thread.waiting.drain(..) {
                    writer.tables.api_calls.push(outer.row);
                }
            }
            thread.waiting.push(Waiting { row, is_work });
            self.any_waiting = true;
        }
        Some(times)
    }

    /// Makes rows of all that waits, and gives how many calls were folded since the last time.
    pub(super) fn settle(&mut self, writer: &mut ProcessWriter) -> u64 {
        if std::mem::take(&mut self.any_waiting) {
            for thread in &mut self.threads {
                for outer in thread.waiting.drain(..) {
                    writer.tables.api_calls.push(outer.row);
                }
            }
        }
        if self.threads.len() > MOST_THREADS {
            self.threads.clear();
            self.places.clear();
        }
        std::mem::take(&mut self.folded)
    }
}

/// Whether a driver call is a part of a runtime call of its thread (start, end, correlation id). One that puts work on a
/// device under a correlation id of its own is not: the work carries that id.
fn is_part(inner: &tables::ApiCall, is_work: bool, (start, end, correlation): (i64, i64, u32)) -> bool {
    let inner_end = inner.start_ns.0.wrapping_add(inner.duration_ns.0);
    inner.start_ns.0 >= start && inner_end <= end && (!is_work || inner.correlation == correlation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_copies_waits_and_allocations_are_recorded() {
        for name in [
            "cuLaunchKernel",
            "cuLaunchKernelEx_ptsz",
            "cudaLaunchKernel_v7000",
            "__cudaLaunchKernel_ptsz_v13000",
            "cudaLaunchCooperativeKernel_v9000",
            "cuGraphLaunch",
            "cudaGraphInstantiateWithFlags_v11040",
            "cuMemcpyHtoDAsync_v2",
            "cu64MemcpyDtoH",
            "cudaMemcpyAsync_v3020",
            "cudaMemset_v3020",
            "cudaDeviceSynchronize_v3020",
            "cuStreamWaitEvent",
            "cudaEventRecordWithFlags_v11010",
            "cudaMalloc_v3020",
            "cudaFreeAsync_ptsz_v11020",
            "cuMemAllocFromPoolAsync",
            "cuMemHostAlloc_v2",
            "cuLibraryLoadData",
            "cudaProfilerStart_v4000",
        ] {
            assert!(is_wanted(name), "{name}");
        }
    }

    #[test]
    fn queries_are_not_recorded() {
        for name in [
            "cuCtxGetCurrent",
            "cuCtxSetCurrent",
            "cudaGetDevice_v3020",
            "cudaSetDevice_v3020",
            "cudaGetLastError_v3020",
            "cudaEventQuery_v3020",
            "cuStreamQuery",
            "cudaStreamIsCapturing_v10000",
            "cudaStreamGetCaptureInfo_v2_v11030",
            "cudaFuncSetAttribute_v9000",
            "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags_v7000",
            "cuMemGetInfo_v2",
            "cudaMemGetInfo_v3020",
            "cudaEventElapsedTime_v3020",
            "cuGetProcAddress_v2",
            "__cudaPushCallConfiguration_v13000",
            "cuKernelGetFunction",
            "cudaGraphAddMemcpyNode_v10000",
            "cudaHostGetDevicePointer_v3020",
        ] {
            assert!(!is_wanted(name), "{name}");
        }
    }

    #[test]
    fn callbacks_are_found_by_name_across_gaps() {
        let name_of = |api: u32, callback: u32| match (api, callback) {
            (kind::DRIVER, 307) => Some("cuLaunchKernel".to_owned()),
            (kind::DRIVER, 1..=200) => Some("cuCtxGetCurrent".to_owned()),
            (kind::RUNTIME, 211) => Some("cudaLaunchKernel_v7000".to_owned()),
            _ => None,
        };
        assert_eq!(wanted_callbacks(kind::DRIVER, name_of), [307]);
        assert_eq!(wanted_callbacks(kind::RUNTIME, name_of), [211]);
        assert!(wanted_callbacks(kind::DRIVER, |_, _| None).is_empty());
        let name_of = |_, callback| match callback {
            1 => Some("cuMemAlloc_v2".to_owned()),
            2 => Some("cuMemcpyHtoDAsync_v2".to_owned()),
            3 => Some("cuStreamSynchronize".to_owned()),
            _ => None,
        };
        assert_eq!(work_callbacks(kind::DRIVER, name_of), [2]);
    }
}
