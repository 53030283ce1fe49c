//! Names that the program gives to things: categories, threads, streams, contexts, devices, events and whatever else.

use std::ffi::{c_char, c_int, c_void};

use gputrace_trace::now;

use super::attributes::{message, wide_text};
use super::domains::domain_number;
use super::entry::guarded;
use crate::cupti::running;
use crate::host_events::{Lost, Text, record, with_thread};

/// What a name is of: the `kind` of table `object_names`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Named {
    Category = 0,
    Thread = 1,
    Device = 2,
    Context = 3,
    Stream = 4,
    Event = 5,
    Resource = 6,
}

/// nvtxResourceAttributes_t.
#[repr(C)]
pub(super) struct Resource {
    version: u16,
    size: u16,
    identifier_type: i32,
    identifier: u64,
    message_type: i32,
    message: *const c_void,
}

const _: () = assert!(size_of::<Resource>() == 32);

/// Resource types of CUDA (class 4) and its runtime (class 5), and threads of Linux (class 3).
fn resource_kind(identifier_type: i32) -> Named {
    match identifier_type {
        0x4_0001 | 0x5_0000 => Named::Device,
        0x4_0002 => Named::Context,
        0x4_0003 | 0x5_0001 => Named::Stream,
        0x4_0004 | 0x5_0002 => Named::Event,
        _ => Named::Resource,
    }
}

/// Passes a name on; `resource_type` is what the program said of the identifier, where it did.
fn name(named: Named, domain: u32, identifier: u64, resource_type: Option<i32>, text: Text<'_>) {
    // CUPTI has numbers of its own for contexts and streams; it may be asked from here, since this is none of its callbacks.
    let number = running::cupti().and_then(|cupti| match named {
        Named::Stream => cupti.stream_id(identifier),
        Named::Context => cupti.context_id(identifier),
        _ => None,
    });
    with_thread(Lost::Ranges, |thread| {
        let text = thread.text(text);
        let what = named as u64
            | u64::from(resource_type.is_some()) << 8
            | u64::from(number.is_some()) << 9
            | u64::from(domain) << 32;
        let numbers =
            u64::from(resource_type.unwrap_or(0).cast_unsigned()) | u64::from(number.unwrap_or(0)) << 32;
        let time = now().0.cast_unsigned();
        thread.push(
            Lost::Ranges,
            record::NAME,
            &[what, time, identifier, text, numbers],
        );
    });
}

/// A name on its way to the writer.
pub(crate) struct NameRecord {
    pub(crate) kind: u8,
    pub(crate) time_ns: i64,
    pub(crate) domain: u32,
    pub(crate) identifier: u64,
    pub(crate) resource_type: Option<u32>,
    pub(crate) cupti: Option<u32>,
    pub(crate) text: u64,
}

impl NameRecord {
    /// From a record's fields.
    pub(crate) fn read(fields: &[u64]) -> Self {
        let what = fields[0];
        Self {
            kind: what as u8,
            time_ns: fields[1].cast_signed(),
            domain: (what >> 32) as u32,
            identifier: fields[2],
            resource_type: (what & 1 << 8 != 0).then_some(fields[4] as u32),
            cupti: (what & 1 << 9 != 0).then_some((fields[4] >> 32) as u32),
            text: fields[3],
        }
    }
}

fn narrow(text: *const c_char) -> Text<'static> {
    // SAFETY: NVTX's contract is a zero-terminated text that stays for the call.
    unsafe { Text::from_c(text) }
}

macro_rules! naming {
    ($($named:ident, $identifier:ty: $narrow:ident, $wide:ident;)*) => {
        $(
            pub(super) extern "C" fn $narrow(identifier: $identifier, text: *const c_char) {
                guarded((), || name(Named::$named, 0, identifier as u64, None, narrow(text)));
            }
            pub(super) extern "C" fn $wide(identifier: $identifier, text: *const u32) {
                guarded((), || {
                    let text = wide_text(text);
                    name(Named::$named, 0, identifier as u64, None, Text::new(text.as_bytes()));
                });
            }
        )*
    };
}
naming! {
    Category, u32: category_a, category_w;
    Thread, u32: thread_a, thread_w;
    Device, c_int: device_a, device_w;
    Context, usize: context_a, context_w;
    Stream, usize: stream_a, stream_w;
    Event, usize: event_a, event_w;
}

pub(super) extern "C" fn domain_category_a(domain: *const c_void, category: u32, text: *const c_char) {
    guarded((), || {
        name(
            Named::Category,
            domain_number(domain),
            category.into(),
            None,
            narrow(text),
        );
    });
}
pub(super) extern "C" fn domain_category_w(domain: *const c_void, category: u32, text: *const u32) {
    guarded((), || {
        let text = wide_text(text);
        let text = Text::new(text.as_bytes());
        name(
            Named::Category,
            domain_number(domain),
            category.into(),
            None,
            text,
        );
    });
}
/// Gives no handle: a resource is named once and nothing refers to it later.
pub(super) extern "C" fn resource_create(domain: *const c_void, resource: *const Resource) -> *const c_void {
    guarded(std::ptr::null(), || {
        // SAFETY: null, or the program's attributes by NVTX's contract.
        if let Some(resource) = unsafe { resource.as_ref() } {
            let kind = resource_kind(resource.identifier_type);
            let (domain, identifier) = (domain_number(domain), resource.identifier);
            message(resource.message_type, resource.message, |text| {
                name(kind, domain, identifier, Some(resource.identifier_type), text);
            });
        }
        std::ptr::null()
    })
}
