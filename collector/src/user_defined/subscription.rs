//! Subscribing beside others.

use std::ffi::{CStr, c_void};

use super::abi::{
    ActivityConfig, ApiOptions, CallOptions, CallbackFunction, CompleteFunction, FieldSelection,
    RequestFunction, SubscriberParams, attribute,
};
use super::callbacks::{completed, requested};
use super::layout::fields_of;
use super::older;
use crate::records::RecordSizes;

/// CUPTI_SUCCESS.
const SUCCESS: u32 = 0;
/// CUPTI_ERROR_NOT_SUPPORTED: what stands for a kind that has no fields here.
const NOT_SUPPORTED: u32 = 27;
/// CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM.
const THREAD_ID_SYSTEM: u32 = 1;
/// 13.3 update 1: user-defined records are no beta and tell their layouts since 13.3, and before its update several
/// subscribers crash (NVIDIA's release notes).
const SINCE_VERSION: u32 = 130_301;
/// The variable that decides which way is taken: `activity`, `user-defined`, or anything else for what suits.
const VARIABLE: &str = "GPUTRACE_CUPTI_BACKEND";

/// The functions that all of this needs.
#[derive(Clone, Copy)]
struct Functions {
    subscribe: unsafe extern "C" fn(*mut usize, CallbackFunction, *mut c_void, *mut SubscriberParams) -> u32,
    unsubscribe: unsafe extern "C" fn(usize) -> u32,
    set_attribute: unsafe extern "C" fn(usize, u32, *mut usize, *mut c_void) -> u32,
    register: unsafe extern "C" fn(usize, RequestFunction, CompleteFunction) -> u32,
    enable: unsafe extern "C" fn(usize, u32, *mut ActivityConfig) -> u32,
    disable: unsafe extern "C" fn(usize, u32, *mut ActivityConfig) -> u32,
    dropped: unsafe extern "C" fn(usize, *mut c_void, u32, *mut usize) -> u32,
    push_id: unsafe extern "C" fn(usize, u32, u64) -> u32,
    pop_id: unsafe extern "C" fn(usize, u32, *mut u64) -> u32,
}

impl Functions {
    fn load(symbol: &dyn Fn(&CStr) -> Option<*mut c_void>) -> Option<Self> {
        // SAFETY: the signatures are those of cupti_activity.h and cupti_callbacks.h (13.3 to 13.5), with enums as the
        // 32-bit integers that they are.
        unsafe {
            Some(Self {
                subscribe: std::mem::transmute::<*mut c_void, _>(symbol(c"cuptiSubscribe_v2")?),
                unsubscribe: std::mem::transmute::<*mut c_void, _>(symbol(c"cuptiUnsubscribe")?),
                set_attribute: std::mem::transmute::<*mut c_void, _>(symbol(
                    c"cuptiActivitySetAttribute_v2",
                )?),
                register: std::mem::transmute::<*mut c_void, _>(symbol(
                    c"cuptiActivityRegisterCallbacks_v2",
                )?),
                enable: std::mem::transmute::<*mut c_void, _>(symbol(c"cuptiActivityEnable_v2")?),
                disable: std::mem::transmute::<*mut c_void, _>(symbol(c"cuptiActivityDisable_v2")?),
                dropped: std::mem::transmute::<*mut c_void, _>(symbol(
                    c"cuptiActivityGetNumDroppedRecords_v2",
                )?),
                push_id: std::mem::transmute::<*mut c_void, _>(symbol(
                    c"cuptiActivityPushExternalCorrelationId_v2",
                )?),
                pop_id: std::mem::transmute::<*mut c_void, _>(symbol(
                    c"cuptiActivityPopExternalCorrelationId_v2",
                )?),
            })
        }
    }
}

/// A subscription beside others, whose records are user-defined.
#[derive(Clone, Copy)]
pub(crate) struct Second {
    functions: Functions,
    subscriber: usize,
}

/// What came of trying.
pub(crate) enum Attempt {
    Started(Second),
    /// This CUPTI does not have it, or the program would suffer: nothing was tried.
    Unsuitable,
    /// A step failed: which, and CUPTI's result. Everything is as before.
    Failed(&'static str, u32),
}

/// What the user wants: `Some(true)` this way, `Some(false)` the first.
fn wish() -> Option<bool> {
    match std::env::var(VARIABLE).ok()?.as_str() {
        "activity" => Some(false),
        "user-defined" => Some(true),
        _ => None,
    }
}

impl Second {
    /// Subscribes, if that suits, and asks for the first kind; the others are for the caller to enable. `version` is
    /// cuptiGetVersion's number, and `symbol` gives the library's functions.
    pub(crate) fn start(
        version: u32,
        symbol: &dyn Fn(&CStr) -> Option<*mut c_void>,
        callback: CallbackFunction,
        first: u32,
    ) -> Attempt {
        let suits = match wish() {
            Some(wish) => wish,
            None => version >= SINCE_VERSION && older::client().is_none(),
        };
        let Some(functions) = suits.then(|| Functions::load(symbol)).flatten() else {
            return Attempt::Unsuitable;
        };
        let mut params = SubscriberParams {
            struct_bytes: size_of::<SubscriberParams>(),
            name: c"gputrace".as_ptr(),
            old_name: std::ptr::null_mut(),
            old_name_bytes: 0,
            allow_several: 1,
            padding: [0; 7],
        };
        let mut subscriber = 0;
        // SAFETY: the places are valid, and the callback lives as long as this library.
        let result = unsafe {
            (functions.subscribe)(
                &raw mut subscriber,
                callback,
                std::ptr::null_mut(),
                &raw mut params,
            )
        };
        if result != SUCCESS {
            return Attempt::Failed("subscribing beside others", result);
        }
        let second = Self {
            functions,
            subscriber,
        };
        match second.prepare(first) {
            Ok(()) => Attempt::Started(second),
            Err((step, result)) => {
                // Nothing was recorded yet: without the attribute and the subscription CUPTI is as it was.
                second.set(attribute::USER_DEFINED_RECORDS, &mut 0u8);
                // SAFETY: our own subscription.
                unsafe { (functions.unsubscribe)(subscriber) };
                Attempt::Failed(step, result)
            }
        }
    }

    /// In the order that CUPTI wants: attributes, then the buffers, then kinds.
    fn prepare(&self, first: u32) -> Result<(), (&'static str, u32)> {
        let check = |step, result| {
            if result == SUCCESS {
                Ok(())
            } else {
                Err((step, result))
            }
        };
        check(
            "asking for user-defined records",
            self.set(attribute::USER_DEFINED_RECORDS, &mut 1u8),
        )?;
        // A CUPTI that does not know these zeroes buffers itself, and numbers threads by their pthread ids.
        self.set(attribute::ZEROED, &mut 1u8);
        let mut id_type = THREAD_ID_SYSTEM;
        self.set(attribute::THREAD_ID_TYPE, &mut id_type);
        // SAFETY: both functions live as long as this library and keep CUPTI's contract (see `buffers`).
        let result = unsafe { (self.functions.register)(self.subscriber, requested, completed) };
        check("registering buffers", result)?;
        check("enabling the first kind", self.enable(first, Vec::new()))
    }

    fn set<T>(&self, which: u32, value: &mut T) -> u32 {
        let mut bytes = size_of::<T>();
        // SAFETY: an attribute of this size, valid for the call.
        unsafe {
            (self.functions.set_attribute)(
                self.subscriber,
                which,
                &raw mut bytes,
                std::ptr::from_mut(value).cast(),
            )
        }
    }

    /// The subscriber's handle, for callbacks.
    pub(crate) fn subscriber(&self) -> usize {
        self.subscriber
    }

    /// Asks for a kind's records, of the fields that we need; of a kind of calls, for those of these callback ids, where there
    /// are any. Gives CUPTI's result.
    pub(crate) fn enable(&self, record_kind: u32, mut callbacks: Vec<u32>) -> u32 {
        let Some(kind_fields) = fields_of(record_kind) else {
            return NOT_SUPPORTED;
        };
        let mut ids: Vec<i32> = std::iter::once(0)
            .chain(kind_fields.fields.iter().map(|field| field.id))
            .collect();
        let mut calls = CallOptions {
            struct_bytes: size_of::<CallOptions>(),
            callbacks: callbacks.as_mut_ptr(),
            count: callbacks.len(),
            enable: 1,
        };
        let mut options = ApiOptions {
            struct_bytes: size_of::<ApiOptions>(),
            calls: &raw mut calls,
        };
        let mut config = ActivityConfig {
            struct_bytes: size_of::<ActivityConfig>(),
            fields: FieldSelection {
                struct_bytes: size_of::<FieldSelection>(),
                count: ids.len(),
                ids: ids.as_mut_ptr(),
            },
            options: if callbacks.is_empty() {
                std::ptr::null_mut()
            } else {
                &raw mut options
            },
        };
        // SAFETY: the configuration and what it leads to are valid for the call.
        let result = unsafe { (self.functions.enable)(self.subscriber, record_kind, &raw mut config) };
        if result == SUCCESS || config.options.is_null() {
            return result;
        }
        // All calls, then: what is not wanted is left out later.
        config.options = std::ptr::null_mut();
        // SAFETY: as above.
        unsafe { (self.functions.enable)(self.subscriber, record_kind, &raw mut config) }
    }

    /// Asks for no more records of a kind.
    pub(crate) fn disable(&self, record_kind: u32) {
        // SAFETY: a configuration may be null. What CUPTI refuses to switch off is left out when it comes.
        unsafe { (self.functions.disable)(self.subscriber, record_kind, std::ptr::null_mut()) };
    }

    /// Records that CUPTI had no room for since the last call.
    pub(crate) fn dropped(&self) -> u64 {
        let mut count = 0usize;
        // SAFETY: the place is valid; null and 0 mean all contexts and streams.
        unsafe { (self.functions.dropped)(self.subscriber, std::ptr::null_mut(), 0, &raw mut count) };
        count as u64
    }

    /// From here on this thread's launches carry the id.
    pub(crate) fn push_id(&self, external: u32, id: u64) {
        // SAFETY: plain values.
        unsafe { (self.functions.push_id)(self.subscriber, external, id) };
    }

    /// Ends the innermost id of this thread.
    pub(crate) fn pop_id(&self, external: u32) {
        let mut last = 0;
        // SAFETY: the place is valid for the result.
        unsafe { (self.functions.pop_id)(self.subscriber, external, &raw mut last) };
    }

    /// The sizes of the structs that records are made into.
    pub(crate) fn record_sizes() -> RecordSizes {
        RecordSizes::ask(|record_kind| Some(fields_of(record_kind)?.record_bytes))
    }
}
