//! Callbacks: who subscribed, to what, and calling them (cupti_callbacks.h).

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::delivery::without_flushing;
use super::is_recording;
use crate::driver;

/// CUpti_CallbackDomain values.
pub(super) mod domain {
    pub(in crate::cupti) const DRIVER_API: u32 = 1;
    pub(in crate::cupti) const RUNTIME_API: u32 = 2;
    pub(in crate::cupti) const RESOURCE: u32 = 3;
    pub(in crate::cupti) const SYNCHRONIZE: u32 = 4;
    pub(in crate::cupti) const STATE: u32 = 6;
    pub(in crate::cupti) const COUNT: u32 = 7;
}

/// CUpti_CallbackIdResource values.
pub(crate) mod event {
    pub(crate) const CONTEXT_CREATED: u32 = 1;
    pub(crate) const CONTEXT_DESTROY_STARTING: u32 = 2;
    pub(crate) const STREAM_CREATED: u32 = 3;
    pub(crate) const STREAM_DESTROY_STARTING: u32 = 4;
    pub(crate) const CU_INIT_FINISHED: u32 = 5;
    pub(crate) const MODULE_LOADED: u32 = 6;
    pub(crate) const MODULE_UNLOAD_STARTING: u32 = 7;
    pub(crate) const GRAPH_CREATED: u32 = 9;
    pub(crate) const GRAPH_DESTROY_STARTING: u32 = 10;
    pub(crate) const GRAPHNODE_CREATED: u32 = 13;
    pub(crate) const GRAPHNODE_DEPENDENCY_CREATED: u32 = 15;
    pub(crate) const GRAPHEXEC_CREATE_STARTING: u32 = 17;
    pub(crate) const GRAPHEXEC_CREATED: u32 = 18;
    pub(crate) const GRAPHEXEC_DESTROY_STARTING: u32 = 19;
    pub(crate) const GRAPHNODE_CLONED: u32 = 20;
}

/// CUpti_CallbackIdSync values.
pub(super) mod wait {
    pub(in crate::cupti) const STREAM_SYNCHRONIZED: u32 = 1;
    pub(in crate::cupti) const CONTEXT_SYNCHRONIZED: u32 = 2;
}

/// CUPTI_CBID_STATE_FATAL_ERROR.
const FATAL_ERROR: u32 = 1;

/// CUpti_CallbackFunc.
pub(super) type CallbackFunction = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// CUpti_CallbackData.
#[repr(C)]
struct CallbackData {
    site: u32,
    function_name: *const c_char,
    function_parameters: *const c_void,
    function_return_value: *mut c_void,
    symbol_name: *const c_char,
    context: u64,
    context_id: u32,
    correlation_data: *mut u64,
    correlation: u32,
}

/// CUpti_ResourceData.
#[repr(C)]
struct ResourceData {
    context: u64,
    /// The stream of callbacks that are about one.
    handle: u64,
    descriptor: *const c_void,
}

/// CUpti_ModuleResourceData.
#[repr(C)]
pub(crate) struct ModuleData {
    pub(crate) id: u32,
    pub(crate) bytes: usize,
    pub(crate) image: *const c_char,
}

/// CUpti_GraphData.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct GraphData {
    pub(crate) graph: u64,
    pub(crate) original_graph: u64,
    pub(crate) node: u64,
    pub(crate) original_node: u64,
    /// CUgraphNodeType.
    pub(crate) node_type: u32,
    pub(crate) dependency: u64,
    pub(crate) executable: u64,
}

/// CUpti_SynchronizeData.
#[repr(C)]
struct SynchronizeData {
    context: u64,
    stream: u64,
}

/// CUpti_StateData.
#[repr(C)]
struct StateData {
    result: u32,
    message: *const c_char,
}

/// Callback ids of a domain are below this: the largest domain has some 800.
const IDS: usize = 1024;

/// One who subscribed.
pub(super) struct Subscriber {
    pub(super) handle: usize,
    callback: CallbackFunction,
    /// The client's; an address, so that it may cross threads.
    data: usize,
    /// Bits of enabled callback ids, by domain.
    enabled: [[AtomicU64; IDS / 64]; domain::COUNT as usize],
}

static SUBSCRIBERS: RwLock<Vec<Arc<Subscriber>>> = RwLock::new(Vec::new());
/// Whether any callback of anybody is enabled: what a call asks first.
static ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is in a callback: calls from there are not called back.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

impl Subscriber {
    fn word(&self, domain: u32, callback: u32) -> Option<(&AtomicU64, u64)> {
        let words = self.enabled.get(domain as usize)?;
        Some((words.get(callback as usize / 64)?, 1 << (callback % 64)))
    }

    /// Whether a callback is enabled.
    pub(super) fn is_enabled(&self, domain: u32, callback: u32) -> bool {
        self.word(domain, callback)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Enables or disables a callback; `None` if there is none of that id.
    pub(super) fn enable(&self, enable: bool, domain: u32, callback: u32) -> Option<()> {
        let (word, bit) = self.word(domain, callback)?;
        if enable {
            word.fetch_or(bit, Ordering::Relaxed);
            ANY.store(true, Ordering::Release);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
        Some(())
    }

    /// Enables or disables all callbacks of a domain.
    pub(super) fn enable_domain(&self, enable: bool, domain: u32) -> Option<()> {
        let words = self.enabled.get(domain as usize).filter(|_| domain > 0)?;
        for word in words {
            word.store(if enable { u64::MAX } else { 0 }, Ordering::Relaxed);
        }
        if enable {
            ANY.store(true, Ordering::Release);
        }
        Some(())
    }

    fn call(&self, domain: u32, callback: u32, data: *const c_void) {
        INSIDE.set(true);
        // SAFETY: the client's function, with what it subscribed with and the domain's data, valid for the call.
        let call = || unsafe { (self.callback)(self.data as *mut c_void, domain, callback, data) };
        // From callbacks about calls everything may be flushed, from others nothing.
        if matches!(domain, domain::DRIVER_API | domain::RUNTIME_API) {
            call();
        } else {
            without_flushing(call);
        }
        INSIDE.set(false);
    }
}

/// Takes a subscriber in and gives its handle.
pub(super) fn subscribe(callback: CallbackFunction, data: *mut c_void) -> usize {
    // An address, as CUPTI's handles are; its own is kept for as long as the process lives.
    let handle = Box::leak(Box::new(0u64)) as *const u64 as usize;
    let subscriber = Subscriber {
        handle,
        callback,
        data: data as usize,
        enabled: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
    };
    SUBSCRIBERS
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .push(Arc::new(subscriber));
    handle
}

/// How many have subscribed.
pub(super) fn count() -> usize {
    SUBSCRIBERS.read().unwrap_or_else(PoisonError::into_inner).len()
}

/// Ends a subscription; `None` if there is none of that handle.
pub(super) fn unsubscribe(handle: usize) -> Option<()> {
    let mut subscribers = SUBSCRIBERS.write().unwrap_or_else(PoisonError::into_inner);
    let place = subscribers.iter().position(|one| one.handle == handle)?;
    subscribers.remove(place);
    if subscribers.is_empty() {
        ANY.store(false, Ordering::Release);
    }
    Some(())
}

/// The subscriber of a handle.
pub(super) fn subscriber(handle: usize) -> Option<Arc<Subscriber>> {
    let subscribers = SUBSCRIBERS.read().unwrap_or_else(PoisonError::into_inner);
    subscribers.iter().find(|one| one.handle == handle).cloned()
}

/// Those who want a callback; nobody while this thread is in one.
fn wanting(domain: u32, callback: u32) -> Vec<Arc<Subscriber>> {
    if !ANY.load(Ordering::Acquire) || INSIDE.get() || !is_recording() {
        return Vec::new();
    }
    let subscribers = SUBSCRIBERS.read().unwrap_or_else(PoisonError::into_inner);
    subscribers
        .iter()
        .filter(|subscriber| subscriber.is_enabled(domain, callback))
        .cloned()
        .collect()
}

/// A call whose begin was told to somebody, who is told of its end, too.
pub(super) struct Told {
    callback: u32,
    /// With the 64 bits that begin and end share.
    to: Vec<(Arc<Subscriber>, u64)>,
    name: &'static CStr,
    parameters: *const c_void,
    symbol: *const c_char,
}

/// A driver call as it begins.
pub(crate) struct Entering {
    pub(crate) callback: u32,
    pub(crate) name: &'static CStr,
    /// The arguments, as generated_cuda_meta.h lays them out.
    pub(crate) parameters: *const c_void,
    /// The kernel that is launched, where the arguments do not tell.
    pub(crate) symbol: Option<&'static CStr>,
}

/// Tells those who want to know that a driver call begins.
pub(super) fn enter(call: &Entering, correlation: u32) -> Option<Told> {
    let wanting = wanting(domain::DRIVER_API, call.callback);
    if wanting.is_empty() {
        return None;
    }
    let symbol = call
        .symbol
        .or_else(|| driver::launched_symbol(call.callback, call.parameters));
    let mut told = Told {
        callback: call.callback,
        to: wanting.into_iter().map(|one| (one, 0)).collect(),
        name: call.name,
        parameters: call.parameters,
        symbol: symbol.map_or(std::ptr::null(), CStr::as_ptr),
    };
    told.tell(0, std::ptr::null_mut(), correlation);
    Some(told)
}

impl Told {
    /// Tells that the call ends.
    pub(super) fn exit(mut self, mut result: u32, correlation: u32) {
        if is_recording() {
            self.tell(1, (&raw mut result).cast(), correlation);
        }
    }

    fn tell(&mut self, site: u32, result: *mut c_void, correlation: u32) {
        let context = driver::current_context().ok();
        for (subscriber, shared) in &mut self.to {
            let data = CallbackData {
                site,
                function_name: self.name.as_ptr(),
                function_parameters: self.parameters,
                function_return_value: result,
                symbol_name: self.symbol,
                context: context.map_or(0, |context| context.handle),
                context_id: context.map_or(0, |context| context.id),
                correlation_data: &raw mut *shared,
                correlation,
            };
            subscriber.call(domain::DRIVER_API, self.callback, (&raw const data).cast());
        }
    }
}

/// Tells of a resource (`event`): its context's and stream's handles, and what the callback describes it by.
pub(crate) fn resource<T>(callback: u32, context: u64, stream: u64, descriptor: Option<&T>) {
    for subscriber in wanting(domain::RESOURCE, callback) {
        let data = ResourceData {
            context,
            handle: stream,
            descriptor: descriptor.map_or(std::ptr::null(), |data| std::ptr::from_ref(data).cast()),
        };
        subscriber.call(domain::RESOURCE, callback, (&raw const data).cast());
    }
}

/// Tells that a stream or a context was waited for (`wait`).
pub(super) fn synchronized(callback: u32, context: u64, stream: u64) {
    for subscriber in wanting(domain::SYNCHRONIZE, callback) {
        let data = SynchronizeData { context, stream };
        subscriber.call(domain::SYNCHRONIZE, callback, (&raw const data).cast());
    }
}

/// Tells of an error after which there is no CUPTI any more.
pub(super) fn fatal_error() {
    for subscriber in wanting(domain::STATE, FATAL_ERROR) {
        let data = StateData {
            result: super::exports::code::UNKNOWN,
            message: c"simulated fatal error".as_ptr(),
        };
        subscriber.call(domain::STATE, FATAL_ERROR, (&raw const data).cast());
    }
}
