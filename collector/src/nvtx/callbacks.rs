//! One function a slot, with NVTX's signatures.

use std::ffi::{c_char, c_int, c_void};

use super::attributes::{Attributes, wide_text, with_label};
use super::domains::{create_domain, domain_number, register_string};
use super::entry::guarded;
use super::range::Label;
use super::{NOT_TRACKED, end, mark, pop, push, start};
use crate::host_events::Text;

/// A label that is only a text.
#[inline]
fn plain(text: *const c_char) -> Label<'static> {
    Label {
        // SAFETY: NVTX's contract is a zero-terminated text that stays for the call; labels are used during it only.
        text: unsafe { Text::from_c(text) },
        ..Label::default()
    }
}

fn wide<T>(text: *const u32, body: impl FnOnce(Label<'_>) -> T) -> T {
    let text = wide_text(text);
    body(Label {
        text: Text::new(text.as_bytes()),
        ..Label::default()
    })
}

fn utf8(text: *const c_char) -> String {
    String::from_utf8_lossy(plain(text).text.bytes).into_owned()
}

pub(super) extern "C" fn mark_ex(attributes: *const Attributes) {
    guarded((), || with_label(attributes, |label| mark(0, label)));
}
pub(super) extern "C" fn mark_a(text: *const c_char) {
    guarded((), || mark(0, plain(text)));
}
pub(super) extern "C" fn mark_w(text: *const u32) {
    guarded((), || wide(text, |label| mark(0, label)));
}
pub(super) extern "C" fn range_start_ex(attributes: *const Attributes) -> u64 {
    guarded(0, || with_label(attributes, |label| start(0, label)))
}
pub(super) extern "C" fn range_start_a(text: *const c_char) -> u64 {
    guarded(0, || start(0, plain(text)))
}
pub(super) extern "C" fn range_start_w(text: *const u32) -> u64 {
    guarded(0, || wide(text, |label| start(0, label)))
}
pub(super) extern "C" fn range_end(id: u64) {
    guarded((), || end(id));
}
pub(super) extern "C" fn push_ex(attributes: *const Attributes) -> c_int {
    guarded(NOT_TRACKED, || with_label(attributes, |label| push(0, label)))
}
pub(super) extern "C" fn push_a(text: *const c_char) -> c_int {
    guarded(NOT_TRACKED, || push(0, plain(text)))
}
pub(super) extern "C" fn push_w(text: *const u32) -> c_int {
    guarded(NOT_TRACKED, || wide(text, |label| push(0, label)))
}
pub(super) extern "C" fn pop_default() -> c_int {
    guarded(NOT_TRACKED, || pop(0))
}
pub(super) extern "C" fn domain_mark_ex(domain: *const c_void, attributes: *const Attributes) {
    guarded((), || {
        with_label(attributes, |label| mark(domain_number(domain), label));
    });
}
pub(super) extern "C" fn domain_start_ex(domain: *const c_void, attributes: *const Attributes) -> u64 {
    guarded(0, || {
        with_label(attributes, |label| start(domain_number(domain), label))
    })
}
pub(super) extern "C" fn domain_end(_domain: *const c_void, id: u64) {
    guarded((), || end(id));
}
pub(super) extern "C" fn domain_push_ex(domain: *const c_void, attributes: *const Attributes) -> c_int {
    guarded(NOT_TRACKED, || {
        with_label(attributes, |label| push(domain_number(domain), label))
    })
}
pub(super) extern "C" fn domain_pop(domain: *const c_void) -> c_int {
    guarded(NOT_TRACKED, || pop(domain_number(domain)))
}
pub(super) extern "C" fn domain_register_a(_domain: *const c_void, text: *const c_char) -> *const c_void {
    guarded(std::ptr::null(), || register_string(plain(text).text))
}
pub(super) extern "C" fn domain_register_w(_domain: *const c_void, text: *const u32) -> *const c_void {
    guarded(std::ptr::null(), || {
        wide(text, |label| register_string(label.text))
    })
}
pub(super) extern "C" fn domain_create_a(name: *const c_char) -> *const c_void {
    guarded(std::ptr::null(), || create_domain(&utf8(name)))
}
pub(super) extern "C" fn domain_create_w(name: *const u32) -> *const c_void {
    guarded(std::ptr::null(), || create_domain(&wide_text(name)))
}
