//! What a program says of a range: nvtxEventAttributes_t.

use std::ffi::c_void;

use super::domains;
use super::payload_data::PayloadData;
use super::range::{Label, Payload};
use crate::host_events::Text;

/// nvtxEventAttributes_t, version 2 and 3.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Attributes {
    pub(super) version: u16,
    pub(super) size: u16,
    pub(super) category: u32,
    pub(super) color_type: i32,
    pub(super) color: u32,
    pub(super) payload_type: i32,
    pub(super) reserved: i32,
    pub(super) payload: u64,
    pub(super) message_type: i32,
    pub(super) message: *const c_void,
}

const _: () = assert!(size_of::<Attributes>() == 48);

/// nvtxMessageType_t.
const ASCII: i32 = 1;
const UNICODE: i32 = 2;
const REGISTERED: i32 = 3;
/// NVTX_COLOR_ARGB.
const ARGB: i32 = 1;

/// NVTX_PAYLOAD_TYPE_EXT: the payload is the address of `nvtxPayloadData_t`s, and the reserved member their number.
const EXTENDED: i32 = 0xDFBD_0009_u32.cast_signed();

/// The most payloads of one range.
const MOST_PAYLOADS: usize = 16;

/// The longest wide text that is read, in characters.
const LONGEST_WIDE: usize = 32 << 10;

/// wchar_t is 32 bits on Linux.
pub(super) fn wide_text(mut text: *const u32) -> String {
    let mut result = String::new();
    if text.is_null() {
        return result;
    }
    for _ in 0..LONGEST_WIDE {
        // SAFETY: NVTX's contract is a text that ends in a zero, which was not passed yet.
        let character = unsafe { text.read_unaligned() };
        if character == 0 {
            break;
        }
        result.push(char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER));
        text = text.wrapping_add(1);
    }
    result
}

/// So many payloads at an address; none at null.
///
/// # Safety
/// `data` is null, or so many are there for as long as the result is used.
pub(super) unsafe fn payloads<'a>(data: *const PayloadData, count: usize) -> &'a [PayloadData] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: by the caller's promise; more than a few are not looked at.
    unsafe { std::slice::from_raw_parts(data, count.min(MOST_PAYLOADS)) }
}

/// Calls `body` with the text that an nvtxMessageValue_t of a type holds.
#[inline]
pub(super) fn message<T>(kind: i32, message: *const c_void, body: impl FnOnce(Text<'_>) -> T) -> T {
    match kind {
        // SAFETY: the type says that it is a text, which NVTX's contract has end in a zero.
        ASCII => body(unsafe { Text::from_c(message.cast()) }),
        UNICODE => {
            let wide = wide_text(message.cast());
            body(Text::new(wide.as_bytes()))
        }
        REGISTERED => body(domains::registered(message)),
        _ => body(Text::default()),
    }
}

/// Calls `body` with what the attributes say; null says nothing.
#[inline]
pub(super) fn with_label<T>(attributes: *const Attributes, body: impl FnOnce(Label<'_>) -> T) -> T {
    // SAFETY: null, or the program's attributes by NVTX's contract, of which the first two members are always there.
    let is_whole = !attributes.is_null()
        && usize::from(unsafe { (&raw const (*attributes).size).read_unaligned() })
            >= size_of::<Attributes>();
    if !is_whole {
        return body(Label::default());
    }
    // SAFETY: as many bytes are there as the size says. Copied, since nothing says that they are aligned.
    let attributes = unsafe { attributes.read_unaligned() };
    let payload_kind = attributes.payload_type;
    let mut label = Label {
        text: Text::default(),
        category: (attributes.category != 0).then_some(attributes.category),
        color: (attributes.color_type == ARGB).then_some(attributes.color),
        extended: &[],
        payload: (1..=6).contains(&payload_kind).then_some(Payload {
            kind: payload_kind as u8,
            bits: attributes.payload,
        }),
    };
    if payload_kind == EXTENDED && attributes.reserved > 0 {
        let data = std::ptr::without_provenance::<PayloadData>(attributes.payload as usize);
        let count = attributes.reserved as usize;
        // SAFETY: null, or as many as the type says by NVTX's contract.
        label.extended = unsafe { payloads(data, count) };
    }
    message(attributes.message_type, attributes.message, |text| {
        body(Label { text, ..label })
    })
}
