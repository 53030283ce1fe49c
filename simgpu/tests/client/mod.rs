//! An ordinary client of CUPTI: it takes buffers of records apart, and notes what it is called back with.

#![allow(dead_code)] // Each test program uses a part of it.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cudarc::cupti::sys::{
    self, CUpti_ActivityKind as Kind, CUpti_CallbackData, CUpti_CallbackDomain as Domain, CUptiResult,
};

pub const SUCCESS: CUptiResult = CUptiResult::CUPTI_SUCCESS;
pub const BUFFER_BYTES: usize = 64 << 10;

/// Everything that was delivered.
pub static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());
pub static BUFFERS: AtomicUsize = AtomicUsize::new(0);
pub static REQUESTED: AtomicUsize = AtomicUsize::new(0);
/// Everything that was called back.
pub static CALLS: Mutex<Vec<Called>> = Mutex::new(Vec::new());

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A record's bytes.
#[derive(Clone)]
pub struct Record(pub Vec<u8>);

impl Record {
    pub fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.0[offset..offset + 4].try_into().expect("four bytes"))
    }

    pub fn u64(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.0[offset..offset + 8].try_into().expect("eight bytes"))
    }

    pub fn kind(&self) -> u32 {
        self.u32(0)
    }

    pub fn is(&self, kind: Kind) -> bool {
        self.kind() == kind as u32
    }
}

/// A callback as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    pub domain: u32,
    pub id: u32,
    /// Of calls: enter 0, exit 1, name, symbol, correlation, what was kept between the two, context, result at the exit.
    pub site: u32,
    pub name: String,
    pub symbol: String,
    pub correlation: u32,
    pub kept: u64,
    pub context: u32,
    pub result: Option<u32>,
}

pub unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    REQUESTED.fetch_add(1, Ordering::Relaxed);
    let memory = Box::leak(vec![0u64; BUFFER_BYTES / 8].into_boxed_slice());
    // SAFETY: CUPTI's places for the answer.
    unsafe {
        *buffer = memory.as_mut_ptr().cast();
        *size = BUFFER_BYTES;
        *most = 0;
    }
}

/// Takes a buffer apart into records.
pub fn walk(buffer: *mut u8, valid: usize) -> Vec<Record> {
    let mut starts = Vec::new();
    let mut record = null_mut();
    let end = loop {
        // SAFETY: a completed buffer; only addresses are taken.
        let result = unsafe { sys::cuptiActivityGetNextRecord(buffer, valid, &raw mut record) };
        if result != SUCCESS {
            break result;
        }
        starts.push(record as usize - buffer as usize);
    };
    assert_eq!(end, CUptiResult::CUPTI_ERROR_MAX_LIMIT_REACHED);
    let ends = starts.iter().copied().skip(1).chain([valid]);
    let ends: Vec<usize> = ends.collect();
    let parts = starts.iter().zip(ends);
    parts
        .map(|(start, end)| {
            // SAFETY: within the buffer.
            Record(unsafe { std::slice::from_raw_parts(buffer.add(*start), end - start) }.to_vec())
        })
        .collect()
}

pub unsafe extern "C" fn completed(
    _: cudarc::driver::sys::CUcontext,
    _: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    BUFFERS.fetch_add(1, Ordering::Relaxed);
    let records = walk(buffer, valid);
    lock(&RECORDS).extend(records);
}

pub unsafe extern "C" fn called(_: *mut c_void, domain: Domain, id: u32, data: *const c_void) {
    let mut call = Called {
        domain: domain as u32,
        id,
        site: 0,
        name: String::new(),
        symbol: String::new(),
        correlation: 0,
        kept: 0,
        context: 0,
        result: None,
    };
    if domain == Domain::CUPTI_CB_DOMAIN_DRIVER_API {
        // SAFETY: the data of this domain, valid for the call.
        unsafe {
            let data = &*data.cast::<CUpti_CallbackData>();
            call.site = data.callbackSite as u32;
            call.name = CStr::from_ptr(data.functionName).to_string_lossy().into_owned();
            if !data.symbolName.is_null() {
                call.symbol = CStr::from_ptr(data.symbolName).to_string_lossy().into_owned();
            }
            call.correlation = data.correlationId;
            call.context = data.contextUid;
            if call.site == 0 {
                *data.correlationData = u64::from(data.correlationId) * 3;
            } else {
                call.kept = *data.correlationData;
                call.result = Some(*data.functionReturnValue.cast::<u32>());
            }
        }
    }
    lock(&CALLS).push(call);
}

/// Subscribes with `called`.
pub fn subscribe() -> sys::CUpti_SubscriberHandle {
    let mut subscriber = null_mut();
    // SAFETY: a place for the handle, and a function that lives on.
    let result = unsafe { sys::cuptiSubscribe(&raw mut subscriber, Some(called), null_mut()) };
    assert_eq!(result, SUCCESS);
    subscriber
}

/// Registers the buffers and enables kinds.
pub fn enable(kinds: &[Kind]) {
    // SAFETY: functions that live on, and plain values.
    unsafe {
        assert_eq!(
            sys::cuptiActivityRegisterCallbacks(Some(requested), Some(completed)),
            SUCCESS
        );
        for kind in kinds {
            assert_eq!(sys::cuptiActivityEnable(*kind), SUCCESS, "{kind:?}");
        }
    }
}

/// A flush: 0 plain, 1 forced.
pub fn flush(flag: u32) {
    // SAFETY: a plain value.
    assert_eq!(unsafe { sys::cuptiActivityFlushAll(flag) }, SUCCESS);
}

/// Waits until something has come true.
pub fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The delivered records of a kind.
pub fn records(kind: Kind) -> Vec<Record> {
    lock(&RECORDS)
        .iter()
        .filter(|record| record.is(kind))
        .cloned()
        .collect()
}
