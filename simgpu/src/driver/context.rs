//! Initialisation, devices' primary contexts, and the context that is current on a thread.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::{Mutex, Once, PoisonError};

use super::entry::{driver_functions, put};
use super::{error, next_handle};
use crate::config::config;
use crate::device::{Stream, register_stream};
use crate::{cupti, nvml, truth};

/// A context as its users see it.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    pub(crate) handle: u64,
    /// CUPTI's context id.
    pub(crate) id: u32,
    pub(crate) device: u32,
    /// Handle of its default stream in the stream books.
    pub(crate) default_stream: u64,
}

struct Books {
    initialised: bool,
    primary: BTreeMap<u32, (Context, u32)>,
}

static BOOKS: Mutex<Books> = Mutex::new(Books {
    initialised: false,
    primary: BTreeMap::new(),
});

thread_local! {
    /// The current context's handle, 0 for none. Nothing destroys it, so that calls in handlers of the program's end and
    /// of a thread's find it still.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
    /// What was current before, by cuCtxPushCurrent, innermost last.
    static BELOW: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Makes a context current over the one before.
fn push_current(handle: u64) {
    let before = CURRENT.replace(handle);
    if before != 0 {
        // At the thread's end there is nothing to go back to any more.
        _ = BELOW.try_with(|below| below.borrow_mut().push(before));
    }
}

/// Takes the current context off; `None` if there is none.
fn pop_current() -> Option<u64> {
    let below = || BELOW.try_with(|below| below.borrow_mut().pop()).ok().flatten();
    match CURRENT.get() {
        0 => None,
        _ => Some(CURRENT.replace(below().unwrap_or(0))),
    }
}

fn books() -> std::sync::MutexGuard<'static, Books> {
    BOOKS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check_device(device: c_int) -> Result<u32, u32> {
    if !books().initialised {
        return Err(error::NOT_INITIALIZED);
    }
    u32::try_from(device)
        .ok()
        .filter(|device| *device < config().devices)
        .ok_or(error::INVALID_DEVICE)
}

/// The context that is current on this thread.
pub(crate) fn current_context() -> Result<Context, u32> {
    let handle = CURRENT.get();
    let books = books();
    if !books.initialised {
        return Err(error::NOT_INITIALIZED);
    }
    books
        .primary
        .values()
        .map(|(context, _)| *context)
        .find(|context| context.handle == handle)
        .ok_or(error::INVALID_CONTEXT)
}

/// The context of a handle.
pub(crate) fn context_from_handle(handle: u64) -> Result<Context, u32> {
    let books = books();
    books
        .primary
        .values()
        .map(|(context, _)| *context)
        .find(|context| context.handle == handle)
        .ok_or(error::INVALID_CONTEXT)
}

/// The context of CUPTI's id.
pub(crate) fn context_of_id(id: u32) -> Result<Context, u32> {
    let books = books();
    books
        .primary
        .values()
        .map(|(context, _)| *context)
        .find(|context| context.id == id)
        .ok_or(error::INVALID_CONTEXT)
}

/// The primary context of a device, if it was made.
pub(super) fn context_of_device(device: u32) -> Result<Context, u32> {
    let books = books();
    let context = books.primary.get(&device).map(|(context, _)| *context);
    context.ok_or(error::INVALID_CONTEXT)
}

/// Whether this process has a context on a device.
pub(crate) fn has_context(device: u32) -> bool {
    books().primary.get(&device).is_some_and(|(_, uses)| *uses > 0)
}

/// The default stream's handle of a context, by CUPTI's id.
pub(super) fn default_stream_of(context: u32) -> Option<u64> {
    let books = books();
    let mut contexts = books.primary.values().map(|(context, _)| context);
    contexts
        .find(|known| known.id == context)
        .map(|known| known.default_stream)
}

/// The handle of a context by CUPTI's id; 0 if there is none.
pub(super) fn handle_of(context: u32) -> u64 {
    let books = books();
    let mut contexts = books.primary.values().map(|(context, _)| context);
    contexts
        .find(|known| known.id == context)
        .map_or(0, |known| known.handle)
}

/// The device's primary context, made at its first use.
fn retain_primary(device: u32) -> Result<Context, u32> {
    let mut books = books();
    if let Some((context, uses)) = books.primary.get_mut(&device) {
        *uses += 1;
        return Ok(*context);
    }
    let context = Context {
        handle: next_handle(),
        id: device + 1,
        device,
        default_stream: next_handle(),
    };
    let stream = cupti::next_stream_id();
    let worker = Stream::start(stream, context.id, device, true, 0)?;
    books.primary.insert(device, (context, 1));
    drop(books);
    register_stream(context.default_stream, worker);
    cupti::context_created(&context, stream);
    cupti::stream_created(&context, context.default_stream, stream, 0, 3);
    Ok(context)
}

/// Runs `body` with a device's primary context current on this thread, as a library does that is called for a device.
pub(crate) fn with_device<T>(device: u32, body: impl FnOnce() -> T) -> Result<T, u32> {
    struct Pushed;
    impl Drop for Pushed {
        fn drop(&mut self) {
            pop_current();
        }
    }
    let device = check_device(device.cast_signed())?;
    let known = books().primary.get(&device).map(|(context, _)| *context);
    let context = known.map_or_else(|| retain_primary(device), Ok)?;
    push_current(context.handle);
    let _pushed = Pushed;
    Ok(body())
}

/// Loads the tool that CUDA_INJECTION64_PATH names and calls its `InitializeInjection`, as the driver does in cuInit.
fn inject() {
    let Some(path) = std::env::var_os("CUDA_INJECTION64_PATH").filter(|path| !path.is_empty()) else {
        return;
    };
    let Ok(path) = CString::new(path.into_encoded_bytes()) else {
        return;
    };
    // SAFETY: the user names the library to be loaded into this process; that is the variable's whole purpose.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        return;
    }
    // SAFETY: `library` is an open handle.
    let symbol = unsafe { libc::dlsym(library, c"InitializeInjection".as_ptr()) };
    if symbol.is_null() {
        return;
    }
    // SAFETY: the CUDA driver calls this function as `int InitializeInjection(void)`.
    let initialise: extern "C" fn() -> c_int =
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(symbol) };
    initialise();
}

extern "C" fn at_exit() {
    // A panic here would cross into libc; there is nobody left to tell.
    drop(std::panic::catch_unwind(truth::close));
}

driver_functions! {
    /// cuInit: reads the controls, then loads the injected tool, once.
    fn cuInit = CUPTI_DRIVER_TRACE_CBID_cuInit(flags: c_uint) |_| {
        if flags != 0 {
            return Err(error::INVALID_VALUE);
        }
        if let Some(wrong) = &config().wrong {
            eprintln!("simgpu: {wrong}");
            return Err(error::INVALID_VALUE);
        }
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: registers a function that lives as long as this library, which is never unloaded.
            unsafe { libc::atexit(at_exit) };
            books().initialised = true;
            cupti::hide_newer();
            inject();
            for device in 0..config().devices {
                cupti::device_known(device);
            }
            cupti::initialised();
            nvml::publish_for_others();
        });
        Ok(())
    }

    /// cuDevicePrimaryCtxRetain.
    fn cuDevicePrimaryCtxRetain = CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRetain(context: *mut u64, device: c_int) |_| {
        put(context, retain_primary(check_device(device)?)?.handle)
    }

    /// cuDevicePrimaryCtxRelease_v2. The context stays: its memory and streams die with the process.
    fn cuDevicePrimaryCtxRelease_v2 = CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRelease_v2(device: c_int) |_| {
        let device = check_device(device)?;
        let last = match books().primary.get_mut(&device) {
            Some((context, uses)) if *uses > 0 => {
                *uses -= 1;
                (*uses == 0).then_some(*context)
            }
            _ => return Err(error::INVALID_CONTEXT),
        };
        if let Some(context) = last {
            cupti::context_ending(&context);
        }
        Ok(())
    }

    /// cuDevicePrimaryCtxGetState.
    fn cuDevicePrimaryCtxGetState = CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) |_| {
        let device = check_device(device)?;
        put(flags, 0)?;
        put(active, c_int::from(books().primary.get(&device).is_some_and(|(_, uses)| *uses > 0)))
    }

    /// cuCtxGetCurrent.
    fn cuCtxGetCurrent = CUPTI_DRIVER_TRACE_CBID_cuCtxGetCurrent(context: *mut u64) |_| {
        put(context, CURRENT.get())
    }

    /// cuCtxSetCurrent.
    fn cuCtxSetCurrent = CUPTI_DRIVER_TRACE_CBID_cuCtxSetCurrent(context: u64) |_| {
        if context != 0 && !books().primary.values().any(|(known, _)| known.handle == context) {
            return Err(error::INVALID_CONTEXT);
        }
        if context != 0 {
            CURRENT.set(context);
        } else {
            pop_current();
        }
        Ok(())
    }

    /// cuCtxPushCurrent_v2.
    fn cuCtxPushCurrent_v2 = CUPTI_DRIVER_TRACE_CBID_cuCtxPushCurrent_v2(context: u64) |_| {
        if !books().primary.values().any(|(known, _)| known.handle == context) {
            return Err(error::INVALID_CONTEXT);
        }
        push_current(context);
        Ok(())
    }

    /// cuCtxPopCurrent_v2.
    fn cuCtxPopCurrent_v2 = CUPTI_DRIVER_TRACE_CBID_cuCtxPopCurrent_v2(context: *mut u64) |_| {
        let popped = pop_current().ok_or(error::INVALID_CONTEXT)?;
        if context.is_null() { Ok(()) } else { put(context, popped) }
    }

    /// cuCtxGetDevice.
    fn cuCtxGetDevice = CUPTI_DRIVER_TRACE_CBID_cuCtxGetDevice(device: *mut c_int) |_| {
        put(device, current_context()?.device.cast_signed())
    }

    /// cuCtxSynchronize: waits for all streams of the context.
    fn cuCtxSynchronize = CUPTI_DRIVER_TRACE_CBID_cuCtxSynchronize() |call| {
        let context = current_context()?;
        let start_ns = crate::clock::now_ns();
        for (_, stream) in crate::device::all_streams() {
            if stream.context == context.id {
                stream.synchronize();
            }
        }
        crate::device::pool::synchronised(context.device);
        cupti::synchronized(&cupti::Wait {
            what: 4,
            context: context.id,
            stream: u32::MAX,
            event: u32::MAX,
            recording: 0,
            correlation: call.correlation,
            start_ns,
        });
        cupti::context_synchronized(context.handle);
        Ok(())
    }
}
