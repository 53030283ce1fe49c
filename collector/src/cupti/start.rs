//! Beginning: subscribing, handing over our buffers, switching on what is wanted.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::options::CollectorOptions;

use super::Cupti;
use super::find::find;
use super::functions::{
    ATTRIBUTE_ZEROED, Functions, MAY_REFUSE_SINCE, MULTIPLE_SUBSCRIBERS, NOT_COMPATIBLE, SUCCESS,
    THREAD_ID_SYSTEM, symbol,
};
use super::wanted::{WantedKind, wanted_kinds};
use crate::kinds;
use crate::records::{RecordSizes, kind};
use crate::user_defined::{self, Attempt, Second};
use crate::{buffers, callbacks};

/// CUPTI's number of us, where we are its one subscriber.
pub(super) static SUBSCRIBER: AtomicUsize = AtomicUsize::new(0);

impl Cupti {
    /// Finds CUPTI and switches its recording on. What could not be switched on is noted.
    ///
    /// # Errors
    /// Why nothing of the GPU can be recorded, as a sentence.
    pub(crate) fn start(options: &CollectorOptions, process: &mut ProcessHeader) -> Result<Self, String> {
        let handle = find()?;
        let functions = Functions::load(handle);
        let mut cupti = Self {
            loaded: functions,
            subscribed: None,
            version: 0,
            kinds: &[],
            calls: &[],
            hidden: &[],
            is_probed: false,
            tells_of_kernels: false,
        };
        if let Some(get_version) = functions.get_version {
            // SAFETY: the place is valid for the result.
            unsafe { get_version(&raw mut cupti.version) };
        }
        if functions.register.is_none() || functions.enable.is_none() || functions.subscribe.is_none() {
            return Err(format!(
                "CUPTI {} is too old, so no GPU activity is recorded: 12.0 or later is needed",
                cupti.version
            ));
        }
        buffers::configure(options.memory_bytes, cupti.version >= MAY_REFUSE_SINCE);
        let wanted = wanted_kinds(options, cupti.version);
        let subscriber = match cupti.subscribe_beside_others(handle, &wanted, process) {
            Some(subscriber) => subscriber,
            None => cupti.subscribe_alone()?,
        };
        cupti.ask_for_callbacks(subscriber, options.profiler_calls);
        if cupti.subscribed.is_none() {
            cupti.register()?;
        }
        let (mut kinds, mut hidden) = (Vec::new(), Vec::new());
        for wanted in wanted {
            if kinds::is_calls(wanted.activity) && cupti.enable_calls(wanted.activity, true) {
                hidden.extend(wanted.is_hidden.then_some(wanted.activity));
                continue;
            }
            let result = cupti.enable(wanted.activity);
            if result == SUCCESS {
                kinds.push(wanted.activity);
                cupti.is_probed |= wanted.activity == kind::DRIVER;
                hidden.extend(wanted.is_hidden.then_some(wanted.activity));
            } else {
                process.notes.push(format!(
                    "{} are not recorded: CUPTI {}: {}",
                    wanted.what,
                    cupti.version,
                    cupti.describe(result)
                ));
            }
        }
        // Without calls another profiler is noticed by this one alone. Its records are no rows, and so none that are left out.
        if !cupti.is_probed
            && !cupti.is_one_of_several()
            && cupti.enable_calls(kind::DRIVER, false)
            && options.is_partial()
        {
            hidden.push(kind::DRIVER);
        }
        cupti.tells_of_kernels =
            kinds.contains(&kind::CONCURRENT_KERNEL) && cupti.refuses_kernels_in_two_ways();
        // Kept for the process's life: callbacks read them at any time.
        cupti.kinds = kinds.leak();
        cupti.hidden = hidden.leak();
        Ok(cupti)
    }

    fn ask_for_callbacks(&self, subscriber: usize, profiler_calls: bool) {
        if let Some(enable_callback) = self.functions().enable_callback {
            for (domain, id) in callbacks::wanted(profiler_calls) {
                // SAFETY: plain values; a CUPTI that does not know a callback refuses it, which costs what it would have told.
                unsafe { enable_callback(1, subscriber, domain, id) };
            }
        }
    }

    /// Ends the subscription, so that another profiler can have it: nothing as one of several, who are in nobody's way. Gives whether it
    /// has ended.
    pub(super) fn unsubscribe(&self) -> bool {
        let Some(unsubscribe) = self.functions().unsubscribe.filter(|_| !self.is_one_of_several()) else {
            return false;
        };
        // SAFETY: the number that CUPTI gave; on our own thread, in no callback.
        unsafe { unsubscribe(SUBSCRIBER.load(Ordering::Relaxed)) == SUCCESS }
    }

    /// Subscribes after [`Self::unsubscribe`], and switches the same on.
    ///
    /// # Errors
    /// When another profiler has it now.
    pub(super) fn subscribe_again(&self) -> Result<(), String> {
        let subscriber = self.subscribe_alone()?;
        self.ask_for_callbacks(subscriber, false);
        self.register()?;
        for activity in self.kinds {
            self.enable(*activity);
        }
        self.switch_calls(true);
        Ok(())
    }

    /// Subscribes beside others with user-defined records, if CUPTI and the driver can and the program does not mind; says
    /// why not where that was tried.
    fn subscribe_beside_others(
        &mut self,
        handle: *mut c_void,
        wanted: &[WantedKind],
        process: &mut ProcessHeader,
    ) -> Option<usize> {
        let symbol = |name: &CStr| symbol(handle, name);
        let first = wanted.first()?.activity;
        match Second::start(self.version, &symbol, callbacks::called, first) {
            Attempt::Started(second) => {
                self.subscribed = Some(second);
                Some(second.subscriber())
            }
            Attempt::Unsuitable => None,
            Attempt::Failed(step, result) => {
                let why = format!("{step}: {}", self.describe(result));
                // With drivers before r610 there is one subscriber, which is nothing to be told of.
                if result != MULTIPLE_SUBSCRIBERS {
                    process.notes.push(format!(
                        "CUPTI records for one profiler at a time, since the other way failed at {why}"
                    ));
                }
                process.cupti_backend_why = Some(why);
                None
            }
        }
    }

    /// Subscribes as the one subscriber of the process.
    fn subscribe_alone(&self) -> Result<usize, String> {
        let mut subscriber = 0;
        let subscribe = self
            .functions()
            .subscribe
            .ok_or("CUPTI cannot be subscribed to")?;
        // SAFETY: the place is valid, and the callback lives as long as this library.
        match unsafe { subscribe(&raw mut subscriber, callbacks::called, std::ptr::null_mut()) } {
            SUCCESS => {
                SUBSCRIBER.store(subscriber, Ordering::Relaxed);
                Ok(subscriber)
            }
            MULTIPLE_SUBSCRIBERS => Err("another tool (Nsight, a debugger, another profiler) holds CUPTI in this process, so no GPU activity is recorded: run without it".to_owned()),
            result => Err(format!(
                "CUPTI refused to start ({}), so no GPU activity is recorded",
                self.describe(result)
            )),
        }
    }

    /// Settles how records come, and gives CUPTI our buffers.
    fn register(&self) -> Result<(), String> {
        // Another profiler's buffers are not zeroed, and CUPTI would believe that they are.
        let meets_others = user_defined::older_client().is_some();
        if let Some(set_attribute) = self.functions().set_attribute.filter(|_| !meets_others) {
            let (mut size, mut zeroed) = (1usize, 1u8);
            // SAFETY: an attribute of one byte. A CUPTI that does not know it zeroes buffers itself, which costs time only.
            unsafe { set_attribute(ATTRIBUTE_ZEROED, &raw mut size, (&raw mut zeroed).cast()) };
        }
        if let Some(set_thread_id_type) = self.functions().set_thread_id_type {
            // SAFETY: a plain value. On failure threads go by their pthread id, which is still one number a thread.
            unsafe { set_thread_id_type(THREAD_ID_SYSTEM) };
        }
        let register = self.functions().register.ok_or("CUPTI takes no buffers")?;
        // SAFETY: both functions live as long as this library and keep CUPTI's contract (see `buffers`).
        let result = unsafe { register(buffers::requested, buffers::completed) };
        if result != SUCCESS {
            return Err(format!(
                "CUPTI refused our buffers ({}), so no GPU activity is recorded",
                self.describe(result)
            ));
        }
        Ok(())
    }

    /// Asks the library how long its records are: on a buffer that names the kind at every eighth byte, the step from
    /// the first record to the second is the size.
    pub(crate) fn record_sizes(&self) -> RecordSizes {
        const PROBE_BYTES: usize = 4096;
        if self.is_one_of_several() {
            return Second::record_sizes();
        }
        RecordSizes::ask(|kind| {
            let next_record = self.functions().next_record?;
            let mut probe = vec![u64::from(kind); PROBE_BYTES / 8];
            let base = probe.as_mut_ptr().cast::<u8>();
            let mut record = std::ptr::null_mut();
            // SAFETY: the buffer is as long as it is said to be; CUPTI only reads kinds in it.
            let stepped = unsafe {
                next_record(base, PROBE_BYTES, &raw mut record) == SUCCESS
                    && next_record(base, PROBE_BYTES, &raw mut record) == SUCCESS
            };
            stepped
                .then(|| (record as usize).wrapping_sub(base as usize))
                .filter(|size| (8..PROBE_BYTES).contains(size))
        })
    }

    /// Whether this CUPTI refuses to record kernels one at a time while they are recorded as they run.
    fn refuses_kernels_in_two_ways(&self) -> bool {
        let (None, Some(enable), Some(disable)) =
            (self.second(), self.functions().enable, self.functions().disable)
        else {
            return false;
        };
        // SAFETY: plain values, before the first context: what is refused changes nothing, and what is not is undone.
        unsafe {
            let result = enable(kind::KERNEL);
            if result == SUCCESS {
                disable(kind::KERNEL);
                enable(kind::CONCURRENT_KERNEL);
            }
            result == NOT_COMPATIBLE
        }
    }
}
