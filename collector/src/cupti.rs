//! The running libcupti: found, asked for its functions one by one, and switched on.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;

use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::options::{CollectorOptions, GraphLevel, Kind};

use crate::decode::{PROBE, RecordSizes, wanted_callbacks};
use crate::discovery::{self, Surroundings};
use crate::records::{RECORDED_KINDS, kind};
use crate::second::{self, Attempt, Second};
use crate::{buffers, callbacks, session};

/// CUptiResult values that mean something here.
const SUCCESS: u32 = 0;
const NOT_COMPATIBLE: u32 = 14;
const MULTIPLE_SUBSCRIBERS: u32 = 39;
/// CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER.
const ATTRIBUTE_ZEROED: u32 = 5;
/// CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM.
const THREAD_ID_SYSTEM: u32 = 1;
/// From this version (CUDA 12.9) CUPTI survives a refused buffer.
const MAY_REFUSE_SINCE: u32 = 27;
/// From this version (CUDA 13.4) a subscriber among several can say of which calls it wants records.
const CHOSEN_CALLS_SINCE: u32 = 130_401;

/// A symbol of an open library.
fn symbol(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: `handle` is open.
    let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!symbol.is_null()).then_some(symbol)
}

macro_rules! functions {
    ($($member:ident: $name:literal => $signature:ty;)*) => {
        /// CUPTI's functions, as far as the library has them. Results are CUptiResult as integers.
        #[derive(Clone, Copy)]
        struct Functions {
            $($member: Option<$signature>,)*
        }

        impl Functions {
            const NONE: Self = Self { $($member: None,)* };

            fn load(handle: *mut c_void) -> Self {
                // SAFETY: the signatures are those of cupti_activity.h, cupti_callbacks.h and cupti_result.h (12.0 to
                // 13.5), with enums as the 32-bit integers that they are.
                unsafe {
                    Self {
                        $($member: symbol(handle, $name)
                            .map(|symbol| std::mem::transmute::<*mut c_void, $signature>(symbol)),)*
                    }
                }
            }
        }
    };
}

functions! {
    get_version: c"cuptiGetVersion" => unsafe extern "C" fn(*mut u32) -> u32;
    subscribe: c"cuptiSubscribe" => unsafe extern "C" fn(
    *mut usize,
    unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void),
    *mut c_void,
) -> u32;
    register: c"cuptiActivityRegisterCallbacks" => unsafe extern "C" fn(
    unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize),
    unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize),
) -> u32;
    enable: c"cuptiActivityEnable" => unsafe extern "C" fn(u32) -> u32;
    disable: c"cuptiActivityDisable" => unsafe extern "C" fn(u32) -> u32;
    enable_callback: c"cuptiEnableCallback" => unsafe extern "C" fn(u32, usize, u32, u32) -> u32;
    flush_all: c"cuptiActivityFlushAll" => unsafe extern "C" fn(u32) -> u32;
    next_record: c"cuptiActivityGetNextRecord" => unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32;
    dropped: c"cuptiActivityGetNumDroppedRecords" => unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32;
    graph_node_id: c"cuptiGetGraphNodeId" => unsafe extern "C" fn(usize, *mut u64) -> u32;
    enable_driver_call: c"cuptiActivityEnableDriverApi" => unsafe extern "C" fn(u32, u8) -> u32;
    enable_runtime_call: c"cuptiActivityEnableRuntimeApi" => unsafe extern "C" fn(u32, u8) -> u32;
    set_attribute: c"cuptiActivitySetAttribute" => unsafe extern "C" fn(u32, *mut usize, *mut c_void) -> u32;
    set_thread_id_type: c"cuptiSetThreadIdType" => unsafe extern "C" fn(u32) -> u32;
    callback_name: c"cuptiGetCallbackName" => unsafe extern "C" fn(u32, u32, *mut *const c_char) -> u32;
    result_string: c"cuptiGetResultString" => unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
    push_id: c"cuptiActivityPushExternalCorrelationId" => unsafe extern "C" fn(u32, u64) -> u32;
    pop_id: c"cuptiActivityPopExternalCorrelationId" => unsafe extern "C" fn(u32, *mut u64) -> u32;
    stream_id: c"cuptiGetStreamIdEx" => unsafe extern "C" fn(usize, usize, u8, *mut u32) -> u32;
    context_id: c"cuptiGetContextId" => unsafe extern "C" fn(usize, *mut u32) -> u32;
}

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

/// The word that asks for a kind; `None` for what is always recorded.
fn asked_by(activity: u32) -> Option<Kind> {
    match activity {
        kind::CONCURRENT_KERNEL | kind::KERNEL | kind::GRAPH_TRACE => Some(Kind::Kernels),
        kind::MEMCPY | kind::MEMCPY2 => Some(Kind::Copies),
        kind::MEMSET => Some(Kind::Memsets),
        kind::DRIVER | kind::RUNTIME => Some(Kind::Calls),
        kind::SYNCHRONIZATION => Some(Kind::Synchronizations),
        kind::OVERHEAD => Some(Kind::Overheads),
        kind::EXTERNAL_CORRELATION => Some(Kind::Collectives),
        kind::MODULE | kind::JIT => Some(Kind::Modules),
        kind::MEMORY2 | kind::MEMORY_POOL => Some(Kind::Memory),
        _ => None,
    }
}

/// A kind that is to be switched on.
struct WantedKind {
    activity: u32,
    what: &'static str,
    /// Needed, and asked for by nobody.
    is_hidden: bool,
}

/// The kinds that these options need, in the order in which they are switched on.
fn wanted_kinds(options: &CollectorOptions) -> Vec<WantedKind> {
    let mut wanted = Vec::new();
    for (activity, what) in RECORDED_KINDS {
        let by = asked_by(activity);
        let is_hidden = by.is_some_and(|by| !options.records(by));
        // Settled for the process's life: with launches of whole graphs, their nodes are not recorded.
        if activity == kind::GRAPH_TRACE && options.graphs != GraphLevel::Graph {
            continue;
        }
        if !is_hidden || by == Some(Kind::Calls) && needs_calls(options) {
            wanted.push(WantedKind {
                activity,
                what,
                is_hidden,
            });
        }
    }
    wanted
}

/// Whether calls are needed although nobody asked for them: an operation belongs to the window that it was launched in, and
/// the ids that join kernels to collectives come with calls only.
fn needs_calls(options: &CollectorOptions) -> bool {
    let asked = |kind| options.records(kind);
    let operations = asked(Kind::Kernels) || asked(Kind::Copies) || asked(Kind::Memsets);
    operations && (asked(Kind::Collectives) || options.is_partial())
}

fn open(name: &CStr, flags: i32) -> Option<*mut c_void> {
    // SAFETY: loads NVIDIA's CUPTI, which is made to be loaded so; the handle is never closed.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL | flags) };
    (!handle.is_null()).then_some(handle)
}

/// The version of the driver that is loaded (13020 is 13.2), by cuDriverGetVersion, which needs no initialised driver.
fn driver_version() -> Option<i32> {
    let handle = open(c"libcuda.so.1", libc::RTLD_NOLOAD)?;
    let symbol = symbol(handle, c"cuDriverGetVersion")?;
    // SAFETY: the signature is cuda.h's, in every version.
    let get: unsafe extern "C" fn(*mut i32) -> u32 = unsafe { std::mem::transmute(symbol) };
    let mut version = 0;
    // SAFETY: the place is valid for the result.
    (unsafe { get(&raw mut version) } == SUCCESS && version > 0).then_some(version)
}

/// The library: one that is loaded already, then those that [`discovery`] knows, then the loader's own.
///
/// # Errors
/// That there is none for this driver, as a sentence.
fn find() -> Result<*mut c_void, String> {
    let names = || {
        discovery::NAMES
            .into_iter()
            .filter_map(|name| CString::new(name).ok())
    };
    // By name: also where a file goes by several names, of which the process's list of files has another one.
    if let Some(handle) = names().find_map(|name| open(&name, libc::RTLD_NOLOAD)) {
        return Ok(handle);
    }
    let version = driver_version();
    let driver = version.and_then(discovery::generation_of_driver);
    let found = discovery::find(&Surroundings::of_this_process(), driver);
    let by_path = found.usable.into_iter().find_map(|candidate| {
        let path = CString::new(candidate.path.into_os_string().into_encoded_bytes()).ok()?;
        open(&path, 0)
    });
    let by_loader = || {
        discovery::NAMES
            .into_iter()
            .filter(|name| discovery::suits(Path::new(name), driver))
            .find_map(|name| open(&CString::new(name).ok()?, 0))
    };
    by_path.or_else(by_loader).ok_or_else(|| {
        let why = found.too_new.first().map_or_else(
            || "CUPTI was not found".to_owned(),
            |candidate| {
                format!(
                    "{} is newer than the driver (CUDA {}.{}) and does not run on it",
                    candidate.path.display(),
                    version.unwrap_or(0) / 1000,
                    version.unwrap_or(0) % 1000 / 10
                )
            },
        );
        format!(
            "{why}, so no GPU activity is recorded: {}",
            discovery::how_to_get(version)
        )
    })
}

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
        let wanted = wanted_kinds(options);
        let subscriber = match cupti.subscribe_beside_others(handle, &wanted, process) {
            Some(subscriber) => subscriber,
            None => cupti.subscribe_alone()?,
        };
        if let Some(enable_callback) = functions.enable_callback {
            for (domain, id) in callbacks::wanted(options.profiler_calls) {
                // SAFETY: plain values; a CUPTI that does not know a callback refuses it, which costs what it would have told.
                unsafe { enable_callback(1, subscriber, domain, id) };
            }
        }
        if cupti.subscribed.is_none() {
            cupti.register()?;
        }
        let (mut kinds, mut hidden) = (Vec::new(), Vec::new());
        for wanted in wanted {
            let is_calls = matches!(wanted.activity, kind::DRIVER | kind::RUNTIME);
            if is_calls && cupti.enable_calls(wanted.activity, true) {
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
            SUCCESS => Ok(subscriber),
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
        let meets_others = second::older_client().is_some();
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

    /// The functions: none any more once CUPTI has ended itself.
    fn functions(&self) -> &Functions {
        if session::has_lost_cupti() {
            &Functions::NONE
        } else {
            &self.loaded
        }
    }

    /// The subscription beside others: none any more once CUPTI has ended itself.
    fn second(&self) -> Option<&Second> {
        self.subscribed.as_ref().filter(|_| !session::has_lost_cupti())
    }

    /// The kinds that are switched off and on: not those of which each record comes once only.
    fn switched_kinds(&self) -> impl Iterator<Item = u32> {
        let kinds = self.kinds.iter().copied();
        kinds.filter(|activity| asked_by(*activity).is_some())
    }

    /// Asks for a kind's records. Gives CUPTI's result.
    fn enable(&self, activity: u32) -> u32 {
        match (self.second(), self.functions().enable) {
            (Some(second), _) => {
                let calls = self.calls.iter().filter(|(api, _)| *api == activity);
                second.enable(activity, calls.map(|(_, callback)| *callback).collect())
            }
            // SAFETY: a plain value; an unknown kind is an error code.
            (None, Some(enable)) => unsafe { enable(activity) },
            (None, None) => SUCCESS,
        }
    }

    /// Asks for no more records of a kind.
    fn disable(&self, activity: u32) {
        match (self.second(), self.functions().disable) {
            (Some(second), _) => second.disable(activity),
            // SAFETY: a plain value. What CUPTI refuses to switch off is left out when it comes.
            (None, Some(disable)) => drop(unsafe { disable(activity) }),
            (None, None) => {}
        }
    }

    /// How it records, as the process's header says it.
    pub(crate) fn backend(&self) -> &'static str {
        if self.is_one_of_several() {
            "user-defined records"
        } else {
            "activity"
        }
    }

    /// Switches the calls of an API that are recorded on one by one, or [`PROBE`] alone unless `all`, so that the others make no
    /// records. Gives whether that was possible (since CUDA 12.5): else the whole kind is to be switched on, and what is not
    /// wanted left out later.
    fn enable_calls(&mut self, api: u32, all: bool) -> bool {
        let enable = self.enable_call(api);
        if enable.is_none() && !self.chooses_calls() {
            return false;
        }
        let name_of = |api, callback| self.callback_name(api, callback);
        let is_probe = |callback| name_of(api, callback).as_deref() == Some(PROBE);
        let mut enabled = wanted_callbacks(api, name_of);
        enabled.retain(|&callback| {
            (all || is_probe(callback))
                // SAFETY: plain values; a call that CUPTI does not let be chosen is an error code.
                && enable.is_none_or(|enable| unsafe { enable(callback, 1) } == SUCCESS)
        });
        let has_probe = api == kind::DRIVER && enabled.iter().any(|callback| is_probe(*callback));
        let any = !enabled.is_empty();
        let enabled: Vec<(u32, u32)> = enabled.into_iter().map(|callback| (api, callback)).collect();
        self.calls = [self.calls, &enabled].concat().leak();
        // As one of several subscribers they are handed over when the kind is switched on.
        let is_on = enable.is_some() && any;
        self.is_probed |= is_on && has_probe;
        is_on
    }

    /// Whether a kind of calls is switched on with a list of those that are wanted.
    fn chooses_calls(&self) -> bool {
        self.is_one_of_several() && self.version >= CHOSEN_CALLS_SINCE
    }

    /// What switches one call on or off; none as one of several subscribers.
    fn enable_call(&self, api: u32) -> Option<unsafe extern "C" fn(u32, u8) -> u32> {
        if self.is_one_of_several() {
            None
        } else if api == kind::DRIVER {
            self.functions().enable_driver_call
        } else {
            self.functions().enable_runtime_call
        }
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

    /// Asks for the buffers whose records are complete; `forced`: for all there is. Only ever called by one thread at a time.
    pub(crate) fn flush(&self, forced: bool) {
        if let Some(flush_all) = self.functions().flush_all {
            // SAFETY: called on a thread of our own, holding no lock, as CUPTI wants it.
            unsafe { flush_all(u32::from(forced)) };
        }
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

    /// Whether others have buffers of their own, so that nobody can take ours.
    pub(crate) fn is_one_of_several(&self) -> bool {
        self.subscribed.is_some()
    }

    /// Makes a call of which CUPTI has a record, and which does nothing else. Gives whether it was made, and recorded by someone.
    pub(crate) fn call_driver(&self) -> bool {
        self.is_probed && !session::has_lost_cupti() && driver_version().is_some()
    }

    /// Whether anybody in this process has CUPTI record kernels. `true` where this CUPTI does not tell.
    pub(crate) fn are_kernels_recorded(&self) -> bool {
        let (true, Some(enable), Some(disable)) = (
            self.tells_of_kernels,
            self.functions().enable,
            self.functions().disable,
        ) else {
            return true;
        };
        // SAFETY: plain values. Kernels one at a time are possible only as long as nobody records them as they run.
        unsafe {
            let is_free = enable(kind::KERNEL) == SUCCESS;
            if is_free {
                disable(kind::KERNEL);
            }
            !is_free
        }
    }

    /// Registers our buffers again and switches all kinds on again, after another profiler had its own.
    pub(crate) fn take_over(&self) {
        let (Some(register), Some(enable)) = (self.functions().register, self.functions().enable) else {
            return;
        };
        // SAFETY: as in `start`.
        unsafe {
            register(buffers::requested, buffers::completed);
            for activity in self.switched_kinds() {
                enable(activity);
            }
        }
        self.switch_calls(true);
    }

    fn switch_calls(&self, on: bool) {
        for &(api, callback) in self.calls {
            if let Some(enable) = self.enable_call(api) {
                // SAFETY: plain values.
                unsafe { enable(callback, u8::from(on)) };
            }
        }
    }

    /// Switches all kinds off or on, but those of which each record comes once only.
    pub(crate) fn switch(&self, on: bool) {
        if on && !self.are_kernels_recorded() {
            // Another profiler may have come and gone.
            self.take_over();
            return;
        }
        for activity in self.switched_kinds() {
            if on {
                self.enable(activity);
            } else {
                self.disable(activity);
            }
        }
        self.switch_calls(on);
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
}
