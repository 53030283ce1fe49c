//! CUPTI's rules for several subscribers and user-defined records (13.3 and later) on the stand-in.

use crate::client;
use crate::stand_in;

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use cudarc::cupti::sys::{
    self, CUpti_ActivityApiFieldIds as Api, CUpti_ActivityAttribute as Attribute, CUpti_ActivityConfig,
    CUpti_ActivityFieldSelection, CUpti_ActivityKernelFieldIds as Kernel, CUpti_ActivityKind as Kind,
    CUpti_BufferCallbackCompleteInfo, CUpti_BufferCallbackRequestInfo, CUpti_CallbackDomain as Domain,
    CUpti_CallbackId, CUpti_ExternalCorrelationKind as External, CUpti_SubscriberHandle,
    CUpti_SubscriberParams, CUptiResult,
};

use client::{BUFFER_BYTES, Record, SUCCESS, called, lock, requested};
use stand_in::{on_the_stand_in, open, scale};

const SEVERAL: &[(&str, &str)] = &[("SIMGPU_DRIVER", "610")];
const REFUSED: CUptiResult = CUptiResult::CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
const KERNEL: Kind = Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
const DRIVER: Kind = Kind::CUPTI_ACTIVITY_KIND_DRIVER;
const EXTERNAL: Kind = Kind::CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;

/// Offset and size of a kind's fields.
type Places = BTreeMap<i32, (usize, usize)>;

/// What a subscriber got: its records, and the places of fields by kind.
struct Got {
    handle: AtomicUsize,
    records: Mutex<Vec<Record>>,
    places: Mutex<BTreeMap<u32, Places>>,
}

static GOT: [Got; 2] = [const {
    Got {
        handle: AtomicUsize::new(0),
        records: Mutex::new(Vec::new()),
        places: Mutex::new(BTreeMap::new()),
    }
}; 2];

unsafe extern "C" fn wanted(
    buffer: *mut *mut u8,
    size: *mut usize,
    most: *mut usize,
    info: *mut CUpti_BufferCallbackRequestInfo,
) {
    // SAFETY: CUPTI's arguments, valid for the call.
    unsafe {
        assert_eq!((*info).structSize, size_of::<CUpti_BufferCallbackRequestInfo>());
        requested(buffer, size, most);
    }
}

unsafe extern "C" fn filled<const NUMBER: usize>(
    buffer: *mut u8,
    size: usize,
    valid: usize,
    info: *mut CUpti_BufferCallbackCompleteInfo,
) {
    assert!(size == BUFFER_BYTES && valid <= size);
    let got = &GOT[NUMBER];
    // SAFETY: CUPTI's arguments, valid for the call; layouts are a table by kind.
    unsafe {
        let info = &*info;
        let mut places = lock(&got.places);
        for kind in 0..info.numRecordLayouts {
            let Some(layout) = (*info.ppRecordLayouts.add(kind)).as_ref() else {
                continue;
            };
            let entries = std::slice::from_raw_parts(layout.pEntries, layout.numFields);
            let fields = entries
                .iter()
                .map(|entry| (entry.fieldId, (entry.offset, entry.size)));
            places.insert(kind as u32, fields.collect());
        }
    }
    let subscriber = got.handle.load(Ordering::Relaxed) as CUpti_SubscriberHandle;
    let (mut starts, mut record) = (Vec::new(), null_mut());
    // SAFETY: a completed buffer; only addresses are taken.
    while unsafe { sys::cuptiActivityGetNextRecord_v2(subscriber, buffer, valid, &raw mut record) } == SUCCESS
    {
        starts.push(record as usize - buffer as usize);
    }
    let ends: Vec<usize> = starts.iter().copied().skip(1).chain([valid]).collect();
    for (start, end) in starts.iter().zip(ends) {
        // SAFETY: within the buffer.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.add(*start), end - start) };
        lock(&got.records).push(Record(bytes.to_vec()));
    }
}

/// Subscribes; `several` as `allowMultipleSubscribers`.
fn subscribe(several: bool) -> Result<CUpti_SubscriberHandle, (CUptiResult, String)> {
    let mut old = [0u8; 64];
    let mut params = CUpti_SubscriberParams {
        structSize: size_of::<CUpti_SubscriberParams>(),
        subscriberName: c"a client".as_ptr(),
        oldSubscriberName: old.as_mut_ptr().cast(),
        oldSubscriberSize: old.len(),
        allowMultipleSubscribers: u8::from(several),
        padding: [0; 7],
    };
    let mut handle = null_mut();
    // SAFETY: valid places, and a function that lives on.
    let result =
        unsafe { sys::cuptiSubscribe_v2(&raw mut handle, Some(called), null_mut(), &raw mut params) };
    let old: String = old
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|byte| char::from(*byte))
        .collect();
    if result == SUCCESS {
        Ok(handle)
    } else {
        Err((result, old))
    }
}

/// Subscribes as number `NUMBER`, with buffers, and user-defined records or not.
fn client<const NUMBER: usize>(user_defined: bool) -> CUpti_SubscriberHandle {
    let handle = subscribe(true).expect("a subscription");
    GOT[NUMBER].handle.store(handle as usize, Ordering::Relaxed);
    // SAFETY: functions that live on, and values that are valid for the calls.
    unsafe {
        if user_defined {
            set(handle, Attribute::CUPTI_ACTIVITY_ATTR_USER_DEFINED_RECORDS, 1u8);
        }
        let result = sys::cuptiActivityRegisterCallbacks_v2(handle, Some(wanted), Some(filled::<NUMBER>));
        assert_eq!(result, SUCCESS);
    }
    handle
}

/// # Safety
/// The attribute's value is a `T`.
unsafe fn set<T>(handle: CUpti_SubscriberHandle, attribute: Attribute, mut value: T) {
    let mut size = size_of::<T>();
    // SAFETY: the caller's promise.
    let result = unsafe {
        sys::cuptiActivitySetAttribute_v2(handle, attribute, &raw mut size, (&raw mut value).cast())
    };
    assert_eq!(result, SUCCESS);
}

fn enable(handle: CUpti_SubscriberHandle, kind: Kind, fields: &[i32]) -> CUptiResult {
    let mut ids = fields.to_vec();
    let mut config = CUpti_ActivityConfig {
        structSize: size_of::<CUpti_ActivityConfig>(),
        fieldSelection: CUpti_ActivityFieldSelection {
            structSize: size_of::<CUpti_ActivityFieldSelection>(),
            numFields: ids.len(),
            pFieldIds: ids.as_mut_ptr(),
        },
        pKindOptions: null_mut(),
    };
    let config = if fields.is_empty() {
        null_mut()
    } else {
        &raw mut config
    };
    // SAFETY: null, or a configuration that is valid for the call.
    unsafe { sys::cuptiActivityEnable_v2(handle, kind, config) }
}

fn launch(count: usize) {
    let (context, stream) = open();
    let mut values = stream.clone_htod(&vec![1.0f32; 1 << 12]).expect("memory");
    for _ in 0..count {
        scale(&context, &stream, &mut values, &mut 1.0);
    }
    stream.synchronize().expect("ends");
    client::flush(1);
}

fn records<const NUMBER: usize>(kind: Kind) -> Vec<Record> {
    let records = lock(&GOT[NUMBER].records);
    records.iter().filter(|record| record.is(kind)).cloned().collect()
}

/// A field's value in the records of a kind.
fn values<const NUMBER: usize>(kind: Kind, field: i32) -> Vec<u64> {
    let (offset, size) = lock(&GOT[NUMBER].places)[&(kind as u32)][&field];
    let value = |record: &Record| {
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(&record.0[offset..offset + size]);
        u64::from_le_bytes(bytes)
    };
    records::<NUMBER>(kind).iter().map(value).collect()
}

#[test]
fn each_subscriber_gets_its_own_copy_of_what_it_asked_for() {
    on_the_stand_in(
        "each_subscriber_gets_its_own_copy_of_what_it_asked_for",
        SEVERAL,
        || {
            let (chosen, whole) = (client::<0>(true), client::<1>(false));
            let fields = [
                Kernel::KERNEL_FIELD_KIND as i32,
                Kernel::KERNEL_FIELD_NAME as i32,
                Kernel::KERNEL_FIELD_REGISTERS_PER_THREAD as i32,
                Kernel::KERNEL_FIELD_CORRELATION_ID as i32,
                Kernel::KERNEL_FIELD_START as i32,
                Kernel::KERNEL_FIELD_END as i32,
                Kernel::KERNEL_FIELD_GRID_X as i32,
            ];
            assert_eq!(enable(chosen, KERNEL, &fields), SUCCESS);
            assert_eq!(enable(whole, KERNEL, &[]), SUCCESS);
            assert_eq!(enable(whole, DRIVER, &[]), SUCCESS);
            launch(5);
            let predefined = records::<1>(KERNEL);
            assert_eq!(predefined.len(), 5);
            assert!(predefined.iter().all(|record| record.0.len() == 248));
            // The same kernels, field by field; 4 + 8 + 2 + 8 + 8 + 8 + 4 bytes and what aligns them.
            assert!(records::<0>(KERNEL).iter().all(|record| record.0.len() == 56));
            let same = |field: Kernel, old: &dyn Fn(&Record) -> u64| {
                let expected: Vec<u64> = predefined.iter().map(old).collect();
                assert_eq!(values::<0>(KERNEL, field as i32), expected, "{field:?}");
            };
            same(Kernel::KERNEL_FIELD_NAME, &|record| record.u64(104));
            same(Kernel::KERNEL_FIELD_REGISTERS_PER_THREAD, &|record| {
                u64::from(record.u32(4) >> 16)
            });
            same(Kernel::KERNEL_FIELD_CORRELATION_ID, &|record| {
                u64::from(record.u32(92))
            });
            same(Kernel::KERNEL_FIELD_START, &|record| record.u64(16));
            same(Kernel::KERNEL_FIELD_END, &|record| record.u64(24));
            same(Kernel::KERNEL_FIELD_GRID_X, &|record| u64::from(record.u32(52)));
            assert!(records::<0>(DRIVER).is_empty() && records::<1>(DRIVER).len() >= 5);
            // One leaves, the other goes on.
            // SAFETY: a handle of cuptiSubscribe_v2.
            assert_eq!(unsafe { sys::cuptiUnsubscribe(whole) }, SUCCESS);
            launch(2);
            assert_eq!((records::<0>(KERNEL).len(), records::<1>(KERNEL).len()), (7, 5));
            // SAFETY: as above.
            let mut now = 0;
            // SAFETY: a handle and a valid place; the older function does not work beside user-defined records.
            unsafe {
                assert_eq!(sys::cuptiGetTimestamp_v2(chosen, &raw mut now), SUCCESS);
                assert_eq!(
                    sys::cuptiGetTimestamp(&raw mut now),
                    CUptiResult::CUPTI_ERROR_NOT_COMPATIBLE
                );
            }
        },
    );
}

#[test]
fn selections_have_rules() {
    on_the_stand_in("selections_have_rules", SEVERAL, || {
        let chosen = client::<0>(true);
        let refused = CUptiResult::CUPTI_ERROR_INVALID_PARAMETER;
        let (kind, start, end) = (
            0,
            Kernel::KERNEL_FIELD_START as i32,
            Kernel::KERNEL_FIELD_END as i32,
        );
        assert_eq!(
            enable(chosen, KERNEL, &[start, kind]),
            refused,
            "the kind is not first"
        );
        assert_eq!(enable(chosen, KERNEL, &[kind, 999]), refused, "no such field");
        assert_eq!(enable(chosen, KERNEL, &[]), refused, "no fields at all");
        assert_eq!(enable(chosen, KERNEL, &[kind, start]), SUCCESS);
        assert_eq!(enable(chosen, KERNEL, &[kind, start]), SUCCESS, "the same again");
        let other = enable(chosen, KERNEL, &[kind, end]);
        assert_eq!(
            other,
            CUptiResult::CUPTI_ERROR_NOT_COMPATIBLE,
            "while it is enabled"
        );
        launch(1);
        // SAFETY: a handle; a configuration may be null.
        unsafe {
            assert_eq!(sys::cuptiActivityDisable_v2(chosen, KERNEL, null_mut()), SUCCESS);
        }
        assert_eq!(enable(chosen, KERNEL, &[kind, end]), SUCCESS);
        launch(1);
        assert_eq!(records::<0>(KERNEL).len(), 2);
    });
}

#[test]
fn threads_are_numbered_as_the_subscriber_wants() {
    on_the_stand_in("threads_are_numbered_as_the_subscriber_wants", SEVERAL, || {
        let (system, own) = (client::<0>(true), client::<1>(true));
        // SAFETY: CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM, an enum.
        unsafe { set(system, Attribute::CUPTI_ACTIVITY_ATTR_THREAD_ID_TYPE, 1u32) };
        let thread = Api::API_FIELD_THREAD_ID as i32;
        for handle in [system, own] {
            assert_eq!(enable(handle, DRIVER, &[0, thread]), SUCCESS);
        }
        launch(1);
        // SAFETY: both have no preconditions.
        let (by_system, by_pthread) = unsafe { (libc::gettid() as u64, libc::pthread_self()) };
        assert!(values::<0>(DRIVER, thread).iter().all(|id| *id == by_system));
        assert!(values::<1>(DRIVER, thread).iter().all(|id| *id == by_pthread));
        assert!(!values::<1>(DRIVER, thread).is_empty());
    });
}

#[test]
fn ids_of_the_outside_are_each_subscriber_s_own() {
    on_the_stand_in("ids_of_the_outside_are_each_subscriber_s_own", SEVERAL, || {
        let (first, second) = (client::<0>(false), client::<1>(false));
        for handle in [first, second] {
            assert_eq!(enable(handle, KERNEL, &[]), SUCCESS);
            assert_eq!(enable(handle, EXTERNAL, &[]), SUCCESS);
        }
        let kind = External::CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2;
        let mut last = 0;
        // SAFETY: handles, plain values and a valid place.
        unsafe {
            assert_eq!(
                sys::cuptiActivityPushExternalCorrelationId_v2(first, kind, 11),
                SUCCESS
            );
            assert_eq!(
                sys::cuptiActivityPopExternalCorrelationId_v2(second, kind, &raw mut last),
                CUptiResult::CUPTI_ERROR_QUEUE_EMPTY
            );
        }
        launch(1);
        let ids = |records: Vec<Record>| {
            let mut ids: Vec<u64> = records.iter().map(|record| record.u64(8)).collect();
            ids.dedup();
            ids
        };
        assert_eq!(ids(records::<0>(EXTERNAL)), [11]);
        assert_eq!(ids(records::<1>(EXTERNAL)), [0_u64; 0]);
        // SAFETY: as above.
        unsafe {
            assert_eq!(
                sys::cuptiActivityPopExternalCorrelationId_v2(first, kind, &raw mut last),
                SUCCESS
            );
        }
        assert_eq!(last, 11);
    });
}

#[test]
fn the_older_functions_and_the_newer_do_not_go_together() {
    on_the_stand_in(
        "the_older_functions_and_the_newer_do_not_go_together",
        SEVERAL,
        || {
            let handle = subscribe(true).expect("a subscription");
            let mut older = null_mut();
            // SAFETY: valid places, functions that live on, plain values.
            unsafe {
                assert_eq!(
                    sys::cuptiSubscribe(&raw mut older, Some(called), null_mut()),
                    REFUSED
                );
                assert_eq!(
                    sys::cuptiActivityRegisterCallbacks(Some(requested), Some(client::completed)),
                    REFUSED
                );
                assert_eq!(sys::cuptiActivityEnable(KERNEL), REFUSED);
                assert_eq!(sys::cuptiUnsubscribe(handle), SUCCESS);
                assert_eq!(
                    sys::cuptiSubscribe(&raw mut older, Some(called), null_mut()),
                    SUCCESS
                );
            }
            assert_eq!(
                subscribe(true).map(|_| ()).map_err(|(code, _)| code),
                Err(REFUSED)
            );
        },
    );
}

#[test]
fn the_first_subscriber_decides_whether_there_are_others() {
    on_the_stand_in(
        "the_first_subscriber_decides_whether_there_are_others",
        SEVERAL,
        || {
            subscribe(false).expect("a subscription");
            let (code, old) = subscribe(true).expect_err("only one");
            assert_eq!((code, old.as_str()), (REFUSED, "CUPTI for a client"));
            assert_eq!(subscribe(false).map_err(|(code, _)| code), Err(REFUSED));
        },
    );
}

#[test]
fn an_older_driver_has_one_subscriber() {
    on_the_stand_in("an_older_driver_has_one_subscriber", &[], || {
        assert_eq!(subscribe(true).map_err(|(code, _)| code), Err(REFUSED));
        // Alone it may subscribe, and have user-defined records.
        let handle = subscribe(false).expect("a subscription");
        // SAFETY: the attribute is a byte.
        unsafe { set(handle, Attribute::CUPTI_ACTIVITY_ATTR_USER_DEFINED_RECORDS, 1u8) };
    });
}

#[test]
fn subscribers_of_the_newer_way_are_called_back_too() {
    on_the_stand_in(
        "subscribers_of_the_newer_way_are_called_back_too",
        SEVERAL,
        || {
            static COUNTS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
            unsafe extern "C" fn count(data: *mut c_void, _: Domain, _: CUpti_CallbackId, _: *const c_void) {
                COUNTS[data as usize].fetch_add(1, Ordering::Relaxed);
            }
            let id = sys::CUpti_driver_api_trace_cbid_enum::CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel as u32;
            for number in 0..2usize {
                let mut params = CUpti_SubscriberParams {
                    structSize: size_of::<CUpti_SubscriberParams>(),
                    subscriberName: null(),
                    oldSubscriberName: null_mut(),
                    oldSubscriberSize: 0,
                    allowMultipleSubscribers: 1,
                    padding: [0; 7],
                };
                let mut handle = null_mut();
                // SAFETY: valid places, a function that lives on, and its number for data.
                unsafe {
                    let data = number as *mut c_void;
                    assert_eq!(
                        sys::cuptiSubscribe_v2(&raw mut handle, Some(count), data, &raw mut params),
                        SUCCESS
                    );
                    let domain = Domain::CUPTI_CB_DOMAIN_DRIVER_API;
                    assert_eq!(sys::cuptiEnableCallback(1, handle, domain, id), SUCCESS);
                }
            }
            let (context, stream) = open();
            let mut values = stream.clone_htod(&vec![1.0f32; 1 << 12]).expect("memory");
            scale(&context, &stream, &mut values, &mut 1.0);
            stream.synchronize().expect("ends");
            assert_eq!(
                COUNTS.each_ref().map(|count| count.load(Ordering::Relaxed)),
                [2, 2]
            );
        },
    );
}
