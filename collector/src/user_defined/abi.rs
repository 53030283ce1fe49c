//! The C structs of CUPTI's functions of a subscriber (cupti_activity.h and cupti_callbacks.h, 13.3 to 13.5).

use std::ffi::{c_char, c_void};

/// `CUpti_SubscriberParams`.
#[repr(C)]
#[allow(missing_docs)] // The members are CUPTI's own.
pub struct SubscriberParams {
    pub struct_bytes: usize,
    pub name: *const c_char,
    pub old_name: *mut c_char,
    pub old_name_bytes: usize,
    pub allow_several: u8,
    pub padding: [u8; 7],
}

/// `CUpti_ActivityFieldSelection`: the first id is the kind's own, 0.
#[repr(C)]
#[allow(missing_docs)]
pub struct FieldSelection {
    pub struct_bytes: usize,
    pub count: usize,
    pub ids: *mut i32,
}

/// `CUpti_ActivityConfig`; its last member came with 13.4.
#[repr(C)]
#[allow(missing_docs)]
pub struct ActivityConfig {
    pub struct_bytes: usize,
    pub fields: FieldSelection,
    pub options: *mut ApiOptions,
}

/// `CUpti_ActivityApiOptions`.
#[repr(C)]
#[allow(missing_docs)]
pub struct ApiOptions {
    pub struct_bytes: usize,
    pub calls: *mut CallOptions,
}

/// `CUpti_ActivityApiCbidOptions`: the callback ids that are recorded (`enable` 1), or those that are not (0).
#[repr(C)]
#[allow(missing_docs)]
pub struct CallOptions {
    pub struct_bytes: usize,
    pub callbacks: *mut u32,
    pub count: usize,
    pub enable: u8,
}

/// `CUpti_ActivityFieldLayoutEntry`.
#[repr(C)]
#[allow(missing_docs)]
pub struct LayoutEntry {
    pub struct_bytes: usize,
    pub id: i32,
    pub offset: usize,
    pub bytes: usize,
    pub alignment: usize,
}

/// `CUpti_ActivityRecordLayout`.
#[repr(C)]
#[allow(missing_docs)]
pub struct RecordLayout {
    pub struct_bytes: usize,
    pub entries: *const LayoutEntry,
    pub count: usize,
    pub record_bytes: usize,
}

/// `CUpti_BufferCallbackCompleteInfo`. The layouts are a table by kind, with null where a kind has none.
#[repr(C)]
#[allow(missing_docs)]
pub struct CompleteInfo {
    pub struct_bytes: usize,
    pub thread: u64,
    pub layouts: *const *const RecordLayout,
    pub layout_count: usize,
}

/// `CUpti_BuffersCallbackRequestFunc_v2`; the last argument is a `CUpti_BufferCallbackRequestInfo`.
pub(super) type RequestFunction = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize, *const c_void);
/// `CUpti_BuffersCallbackCompleteFunc_v2`.
pub(super) type CompleteFunction = unsafe extern "C" fn(*mut u8, usize, usize, *const CompleteInfo);
/// `CUpti_CallbackFunc`.
pub(crate) type CallbackFunction = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// `CUpti_ActivityAttribute` values.
pub(super) mod attribute {
    pub(in crate::user_defined) const ZEROED: u32 = 5;
    pub(in crate::user_defined) const USER_DEFINED_RECORDS: u32 = 11;
    pub(in crate::user_defined) const THREAD_ID_TYPE: u32 = 21;
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::cupti::sys;

    use super::*;

    macro_rules! same {
        ($($ours:ident $theirs:ident { $($our_member:ident $their_member:ident),* })*) => {$(
            assert_eq!(size_of::<$ours>(), size_of::<sys::$theirs>(), stringify!($theirs));
            $( assert_eq!(
                offset_of!($ours, $our_member), offset_of!(sys::$theirs, $their_member),
                "{}.{}", stringify!($theirs), stringify!($their_member)
            ); )*
        )*};
    }

    #[test]
    fn structs_lie_as_the_headers_have_them() {
        same! {
            SubscriberParams CUpti_SubscriberParams { name subscriberName, old_name oldSubscriberName,
                old_name_bytes oldSubscriberSize, allow_several allowMultipleSubscribers }
            FieldSelection CUpti_ActivityFieldSelection { count numFields, ids pFieldIds }
            ActivityConfig CUpti_ActivityConfig { fields fieldSelection, options pKindOptions }
            ApiOptions CUpti_ActivityApiOptions { calls pCbidOptions }
            CallOptions CUpti_ActivityApiCbidOptions { callbacks pCbids, count numCbids, enable enable }
            LayoutEntry CUpti_ActivityFieldLayoutEntry { id fieldId, offset offset, bytes size, alignment alignment }
            RecordLayout CUpti_ActivityRecordLayout { entries pEntries, count numFields, record_bytes recordSize }
            CompleteInfo CUpti_BufferCallbackCompleteInfo { thread threadId, layouts ppRecordLayouts,
                layout_count numRecordLayouts }
        }
    }

    #[test]
    fn attributes_are_numbered_as_the_headers_have_them() {
        use sys::CUpti_ActivityAttribute as Theirs;
        assert_eq!(
            attribute::ZEROED,
            Theirs::CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER as u32
        );
        assert_eq!(
            attribute::USER_DEFINED_RECORDS,
            Theirs::CUPTI_ACTIVITY_ATTR_USER_DEFINED_RECORDS as u32
        );
        assert_eq!(
            attribute::THREAD_ID_TYPE,
            Theirs::CUPTI_ACTIVITY_ATTR_THREAD_ID_TYPE as u32
        );
    }
}
