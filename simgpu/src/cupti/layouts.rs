//! Which kinds of records and which functions each version of CUPTI has, and how long its records are.
//!
//! Sizes are those of cupti_activity.h of 12.0 to 13.5, asked of NVIDIA's own libraries where these answer without a
//! driver. A later version of a record only appends to the earlier one.

use std::ffi::CStr;

/// CUpti_ActivityKind values.
pub(in crate::cupti) mod kind {
    pub(in crate::cupti) const MEMCPY: u32 = 1;
    pub(in crate::cupti) const MEMSET: u32 = 2;
    pub(in crate::cupti) const KERNEL: u32 = 3;
    pub(in crate::cupti) const DRIVER: u32 = 4;
    pub(in crate::cupti) const RUNTIME: u32 = 5;
    pub(in crate::cupti) const DEVICE: u32 = 8;
    pub(in crate::cupti) const CONTEXT: u32 = 9;
    pub(in crate::cupti) const CONCURRENT_KERNEL: u32 = 10;
    pub(in crate::cupti) const OVERHEAD: u32 = 17;
    pub(in crate::cupti) const MEMCPY2: u32 = 22;
    pub(in crate::cupti) const MODULE: u32 = 27;
    pub(in crate::cupti) const CUDA_EVENT: u32 = 36;
    pub(in crate::cupti) const STREAM: u32 = 37;
    pub(in crate::cupti) const SYNCHRONIZATION: u32 = 38;
    pub(in crate::cupti) const EXTERNAL_CORRELATION: u32 = 39;
    pub(in crate::cupti) const MEMORY2: u32 = 49;
    pub(in crate::cupti) const MEMORY_POOL: u32 = 50;
    pub(in crate::cupti) const GRAPH_TRACE: u32 = 51;
    pub(in crate::cupti) const JIT: u32 = 52;
    /// In no header: the fault `unknown-kinds`.
    pub(in crate::cupti) const UNKNOWN: u32 = 77;
}

/// The bytes of a record of the kind that no header names.
pub(super) const UNKNOWN_BYTES: usize = 72;

/// A kind's sizes in bytes: since which version (major * 100 + minor) it has which.
const SIZES: &[(u32, &[(u32, usize)])] = &[
    (kind::MEMCPY, &[(1200, 88), (1208, 96), (1304, 112)]),
    (kind::MEMSET, &[(1200, 88), (1304, 104)]),
    (kind::KERNEL, KERNELS),
    (kind::CONCURRENT_KERNEL, KERNELS),
    (kind::DRIVER, &[(1200, 40)]),
    (kind::RUNTIME, &[(1200, 40)]),
    (kind::DEVICE, &[(1200, 176), (1202, 184), (1302, 192)]),
    (kind::CONTEXT, &[(1200, 16), (1204, 24), (1205, 32), (1301, 40)]),
    (kind::OVERHEAD, &[(1200, 40), (1203, 48), (1204, 56)]),
    (kind::MEMCPY2, &[(1200, 96)]),
    (kind::MODULE, &[(1200, 24)]),
    (kind::CUDA_EVENT, &[(1200, 24), (1208, 56), (1305, 80)]),
    (kind::STREAM, &[(1200, 24)]),
    (kind::SYNCHRONIZATION, &[(1200, 40), (1208, 56)]),
    (kind::EXTERNAL_CORRELATION, &[(1200, 24)]),
    (kind::MEMORY2, &[(1200, 120), (1206, 128)]),
    (kind::MEMORY_POOL, &[(1200, 72), (1300, 80)]),
    (kind::GRAPH_TRACE, &[(1200, 48), (1203, 56)]),
    (kind::JIT, &[(1200, 64), (1204, 72)]),
];
const KERNELS: &[(u32, usize)] = &[(1200, 208), (1300, 216), (1301, 224), (1303, 232), (1304, 248)];

/// A record's size in bytes in a version; `None` for a kind that it does not have.
pub(super) fn size_of(record_kind: u32, cupti: u32) -> Option<usize> {
    let (_, sizes) = SIZES.iter().find(|(known, _)| *known == record_kind)?;
    let (_, bytes) = sizes.iter().rfind(|(since, _)| *since <= cupti)?;
    Some(*bytes)
}

/// The number that cuptiGetVersion of a version gives (that of the released library, which is not always the header's).
pub(super) fn version_number(cupti: u32) -> u32 {
    match cupti {
        ..1202 => 18,
        1202 => 20,
        1203 => 21,
        1204 => 22,
        1205 => 23,
        1206 => 24,
        1207..=1208 => 26,
        1209..=1299 => 28,
        1300 => 130_001,
        1301 => 130_101,
        1302 => 130_202,
        1303 => 130_301,
        1304 => 130_401,
        _ => 130_500,
    }
}

/// A client that gives no buffer crashes a CUPTI whose cuptiGetVersion is below this (12.9).
pub(super) const MAY_REFUSE_SINCE: u32 = 27;
/// The first version (12.9) in which recordings of events are a kind to ask for: before, asking is refused, and they come with
/// synchronisations.
pub(super) const EVENTS_APART_SINCE: u32 = 1209;
/// The first version with buffers of threads (`CUPTI_ACTIVITY_ATTR_PER_THREAD_ACTIVITY_BUFFER`).
pub(super) const PER_THREAD_SINCE: u32 = 1203;

/// The functions that not all versions have: the first that does.
pub(super) const FUNCTIONS_SINCE: &[(&CStr, u32)] = &[
    (c"cuptiActivityEnableDeviceGraph", 1203),
    (c"cuptiActivityEnableDriverApi", 1205),
    (c"cuptiActivityEnableRuntimeApi", 1205),
    (c"cuptiActivityEnableAllSyncRecords", 1208),
    (c"cuptiSubscribe_v2", 1300),
    (c"cuptiActivityEnableCudaEventDeviceTimestamps", 1300),
    (c"cuptiActivityEnable_v2", 1302),
    (c"cuptiActivityDisable_v2", 1302),
    (c"cuptiActivityRegisterCallbacks_v2", 1302),
    (c"cuptiActivitySetAttribute_v2", 1302),
    (c"cuptiActivityGetAttribute_v2", 1302),
    (c"cuptiActivityGetStructSize", 1302),
    (c"cuptiActivityGetNextRecord_v2", 1303),
    (c"cuptiGetTimestamp_v2", 1303),
    (c"cuptiActivityGetNumDroppedRecords_v2", 1303),
    (c"cuptiActivityPushExternalCorrelationId_v2", 1303),
    (c"cuptiActivityPopExternalCorrelationId_v2", 1303),
    (c"cuptiActivityEnableDriverApi_v2", 1303),
    (c"cuptiActivityEnableRuntimeApi_v2", 1303),
];

/// What a CUPTI with the fault `missing-symbols` lacks besides: nothing that every profiler needs.
pub(super) const FOR_COMFORT: &[&CStr] = &[
    c"cuptiActivityEnableDriverApi",
    c"cuptiActivityEnableRuntimeApi",
    c"cuptiActivityGetNumDroppedRecords",
    c"cuptiActivityPopExternalCorrelationId",
    c"cuptiActivityPushExternalCorrelationId",
    c"cuptiActivitySetAttribute",
    c"cuptiEnableDomain",
    c"cuptiGetCallbackName",
    c"cuptiGetGraphExecId",
    c"cuptiGetGraphId",
    c"cuptiGetGraphNodeId",
    c"cuptiGetResultString",
    c"cuptiGetTimestamp",
    c"cuptiSetThreadIdType",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_only_grow() {
        for (record_kind, sizes) in SIZES {
            assert!(
                sizes.windows(2).all(|pair| pair[0] < pair[1]) && sizes[0].0 == 1200,
                "kind {record_kind}"
            );
        }
        assert_eq!(size_of(kind::CONCURRENT_KERNEL, 1302), Some(224));
        assert_eq!(size_of(kind::OVERHEAD, 1200), Some(40));
        assert_eq!(size_of(kind::CUDA_EVENT, 1305), Some(80));
        assert_eq!(size_of(60, 1305), None);
    }

    #[test]
    fn the_newest_sizes_are_the_headers() {
        use cudarc::cupti::sys;
        use std::mem::size_of as bytes;
        let newest = [
            (kind::MEMCPY, bytes::<sys::CUpti_ActivityMemcpy7>()),
            (kind::MEMSET, bytes::<sys::CUpti_ActivityMemset5>()),
            (kind::CONCURRENT_KERNEL, bytes::<sys::CUpti_ActivityKernel13>()),
            (kind::DRIVER, bytes::<sys::CUpti_ActivityAPI>()),
            (kind::DEVICE, bytes::<sys::CUpti_ActivityDevice6>()),
            (kind::CONTEXT, bytes::<sys::CUpti_ActivityContext4>()),
            (kind::OVERHEAD, bytes::<sys::CUpti_ActivityOverhead3>()),
            (kind::MEMCPY2, bytes::<sys::CUpti_ActivityMemcpyPtoP4>()),
            (kind::MODULE, bytes::<sys::CUpti_ActivityModule>()),
            (kind::CUDA_EVENT, bytes::<sys::CUpti_ActivityCudaEvent2>()),
            (kind::STREAM, bytes::<sys::CUpti_ActivityStream>()),
            (
                kind::SYNCHRONIZATION,
                bytes::<sys::CUpti_ActivitySynchronization2>(),
            ),
            (
                kind::EXTERNAL_CORRELATION,
                bytes::<sys::CUpti_ActivityExternalCorrelation>(),
            ),
            (kind::MEMORY2, bytes::<sys::CUpti_ActivityMemory4>()),
            (kind::MEMORY_POOL, bytes::<sys::CUpti_ActivityMemoryPool3>()),
            (kind::GRAPH_TRACE, bytes::<sys::CUpti_ActivityGraphTrace2>()),
            (kind::JIT, bytes::<sys::CUpti_ActivityJit2>()),
        ];
        for (record_kind, bytes) in newest {
            assert_eq!(size_of(record_kind, 1304), Some(bytes), "kind {record_kind}");
        }
    }
}
