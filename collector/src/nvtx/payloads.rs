//! Payloads with schemas (nvtx3/nvToolsExtPayload.h, compatibility 0x0104): what a program registers to say what its
//! structs mean, and the structs that it attaches to ranges and marks.
//!
//! A schema goes to the writer when it is registered, and a payload as the bytes that it is; only texts that a payload
//! points to are read at once, since they need not stay.

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::domains::registered;
use super::payload_data::PayloadData;
use crate::host_events::{
    BUDGET, Lost, Text, Thread, are_ranges_wanted, lose_elsewhere, record, with_thread,
};

/// Bytes of a payload that are kept.
const MOST_BYTES: usize = 2048;
/// Entries of a schema or an enumeration that are read.
const MOST_ENTRIES: usize = 128;
/// Schemas that are known at once.
const MOST_SCHEMAS: usize = 512;
/// Where NVTX's tools give numbers to schemas that have none (NVTX_PAYLOAD_SCHEMA_ID_DYNAMIC_START).
const FIRST_DYNAMIC: u64 = 1 << 32;
/// From here on a type is a schema or an enumeration.
pub(crate) const FIRST_SCHEMA: u64 = 1 << 24;

/// nvtxPayloadSchemaEntry_t.
#[repr(C)]
struct Entry {
    flags: u64,
    kind: u64,
    name: *const c_char,
    description: *const c_char,
    detail: u64,
    offset: u64,
    semantics: *const c_void,
    reserved: *const c_void,
}

/// nvtxPayloadSchemaAttr_t.
#[repr(C)]
pub(super) struct SchemaAttributes {
    mask: u64,
    name: *const c_char,
    kind: u64,
    flags: u64,
    entries: *const Entry,
    entry_count: usize,
    payload_bytes: usize,
    alignment: usize,
    id: u64,
    extension: *const c_void,
}

/// nvtxPayloadEnum_t and nvtxPayloadEnumAttr_t.
#[repr(C)]
struct Enumerator {
    name: *const c_char,
    value: u64,
    is_flag: i8,
}

#[repr(C)]
pub(super) struct EnumAttributes {
    mask: u64,
    name: *const c_char,
    entries: *const Enumerator,
    entry_count: usize,
    bytes: usize,
    id: u64,
    extension: *const c_void,
}

const _: () = {
    assert!(size_of::<Entry>() == 64 && size_of::<SchemaAttributes>() == 80);
    assert!(size_of::<Enumerator>() == 24 && size_of::<EnumAttributes>() == 56);
};

/// Members of the attributes that are set (NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_*); the others need not mean anything.
const HAS_NAME: u64 = 1 << 1;
const HAS_TYPE: u64 = 1 << 2;
const HAS_ENTRIES: u64 = 1 << 4;
const HAS_ENTRY_COUNT: u64 = 1 << 5;
const HAS_PAYLOAD_BYTES: u64 = 1 << 6;
const HAS_ALIGNMENT: u64 = 1 << 7;
const HAS_SCHEMA_ID: u64 = 1 << 8;
/// NVTX_PAYLOAD_SCHEMA_TYPE_UNION; those with a selector are beyond it.
const UNION: u64 = 3;
/// The same of enumerations (NVTX_PAYLOAD_ENUM_ATTR_FIELD_*).
const ENUM_HAS_ENTRIES: u64 = 1 << 2;
const ENUM_HAS_ENTRY_COUNT: u64 = 1 << 3;
const ENUM_HAS_SIZE: u64 = 1 << 4;
const ENUM_HAS_ID: u64 = 1 << 5;
/// NVTX_PAYLOAD_ENTRY_FLAG_*.
const IS_POINTER: u64 = 1 << 1;
const ARRAY_BITS: u64 = 7 << 4;
const IS_FIXED_ARRAY: u64 = 1 << 4;
const IS_MESSAGE: u64 = 1 << 10;

/// How a field is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FieldKind {
    Signed = 0,
    Unsigned = 1,
    Float = 2,
    /// The number of a text, which was read for it.
    Text = 3,
    /// Characters in the struct itself.
    Characters = 4,
    /// Of an enumeration, or a schema of its own: `detail` says which.
    Other = 5,
}

/// Kind and bytes of NVTX's predefined types on x86-64 Linux; `None` for those that are not read.
fn predefined(kind: u64) -> Option<(FieldKind, u8)> {
    use FieldKind::{Characters, Float, Signed, Text, Unsigned};
    Some(match kind {
        1 | 2 | 25 => (Characters, 1),
        3 | 13 => (Signed, 2),
        4 | 14 | 26 => (Unsigned, 2),
        5 | 15 => (Signed, 4),
        6 | 16 | 24 | 27 | 68 | 69 | 71 | 73 => (Unsigned, 4),
        7 | 9 | 17 => (Signed, 8),
        8 | 10 | 18 | 22 | 23 | 67 | 70 | 72 | 74 => (Unsigned, 8),
        11 => (Signed, 1),
        12 | 32 => (Unsigned, 1),
        19 | 43 => (Float, 4),
        20 | 44 => (Float, 8),
        75 | 76 | 80 => (Text, 8),
        _ => return None,
    })
}

/// A field of a schema, as the writer gets it: four words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SchemaField {
    pub(crate) kind: FieldKind,
    /// Bytes of one element; 0 where that is the other schema's to say.
    pub(crate) bytes: u8,
    pub(crate) offset: u32,
    /// Elements; one but for arrays.
    pub(crate) count: u32,
    /// The number of its name.
    pub(crate) name: u64,
    /// The number of another schema or enumeration.
    pub(crate) detail: u64,
}

/// Bytes of a field on its way to the writer.
pub(crate) const FIELD_BYTES: usize = 32;

impl SchemaField {
    fn write(&self, bytes: &mut Vec<u8>) {
        let what = self.kind as u64 | u64::from(self.bytes) << 8 | u64::from(self.count) << 32;
        for word in [what, u64::from(self.offset), self.name, self.detail] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// From its bytes.
    pub(crate) fn read(bytes: &[u8; FIELD_BYTES]) -> Self {
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap_or_default());
        Self {
            kind: match word(0) as u8 {
                0 => FieldKind::Signed,
                1 => FieldKind::Unsigned,
                2 => FieldKind::Float,
                3 => FieldKind::Text,
                4 => FieldKind::Characters,
                _ => FieldKind::Other,
            },
            bytes: (word(0) >> 8) as u8,
            count: (word(0) >> 32) as u32,
            offset: word(1) as u32,
            name: word(2),
            detail: word(3),
        }
    }
}

/// The field of a type that needs no schema.
pub(crate) fn plain_field(kind: u64) -> Option<SchemaField> {
    let (kind, bytes) = predefined(kind)?;
    Some(SchemaField {
        kind,
        bytes,
        offset: 0,
        count: 1,
        name: 0,
        detail: 0,
    })
}

/// What is needed of a schema on the program's threads. Never freed: another thread may be reading it.
struct Known {
    domain: u32,
    id: u64,
    payload_bytes: usize,
    /// Offsets of pointers to texts, and of handles of registered strings.
    texts: Vec<(usize, bool)>,
    /// Which of these is the range's message.
    message: Option<(usize, bool)>,
    name: Box<[u8]>,
}

static KNOWN: [AtomicPtr<Known>; MOST_SCHEMAS] = [const { AtomicPtr::new(null_mut()) }; MOST_SCHEMAS];
static NEXT_DYNAMIC: AtomicU64 = AtomicU64::new(FIRST_DYNAMIC);

/// The places where a schema may stand, in order.
fn places(domain: u32, id: u64) -> impl Iterator<Item = &'static AtomicPtr<Known>> {
    let first = id.wrapping_mul(31).wrapping_add(u64::from(domain)) as usize;
    (0..MOST_SCHEMAS).map(move |step| &KNOWN[first.wrapping_add(step) % MOST_SCHEMAS])
}

fn known(domain: u32, id: u64) -> Option<&'static Known> {
    for place in places(domain, id) {
        // SAFETY: null, or one that is never freed.
        let known = unsafe { place.load(Ordering::Acquire).as_ref() }?;
        if (known.domain, known.id) == (domain, id) {
            return Some(known);
        }
    }
    None
}

/// Puts a schema where it is found; one of the same number is replaced.
fn keep(new: Known) {
    let bytes = size_of::<Known>() + new.name.len() + 16 * new.texts.len();
    if !BUDGET.take(bytes) {
        lose_elsewhere(Lost::Texts);
        return;
    }
    let (domain, id) = (new.domain, new.id);
    let new = Box::into_raw(Box::new(new));
    for place in places(domain, id) {
        let mut there = place.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or one that is never freed.
            let same = unsafe { there.as_ref() }.is_none_or(|known| (known.domain, known.id) == (domain, id));
            if !same {
                break;
            }
            match place.compare_exchange(there, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(other) => there = other,
            }
        }
    }
    // All places are taken.
    lose_elsewhere(Lost::Texts);
    // SAFETY: made above, and known to nobody.
    drop(unsafe { Box::from_raw(new) });
}

fn text<'a>(text: *const c_char) -> Text<'a> {
    // SAFETY: NVTX's contract is null or a zero-terminated text that stays for the call.
    unsafe { Text::from_c(text) }
}

/// nvtxPayloadSchemaRegister: gives the schema's number.
pub(super) fn register_schema(domain: u32, attributes: &SchemaAttributes) -> u64 {
    let id = if attributes.mask & HAS_SCHEMA_ID != 0 && attributes.id != 0 {
        attributes.id
    } else {
        NEXT_DYNAMIC.fetch_add(1, Ordering::Relaxed)
    };
    let has_entries = HAS_ENTRIES | HAS_ENTRY_COUNT;
    let entries = if attributes.mask & has_entries != has_entries || attributes.entries.is_null() {
        &[]
    } else {
        // SAFETY: as many entries as the program says, which NVTX's contract has there.
        unsafe { std::slice::from_raw_parts(attributes.entries, attributes.entry_count.min(MOST_ENTRIES)) }
    };
    let name = if attributes.mask & HAS_NAME != 0 {
        attributes.name
    } else {
        null()
    };
    let mut new = Known {
        domain,
        id,
        payload_bytes: if attributes.mask & HAS_PAYLOAD_BYTES != 0 {
            attributes.payload_bytes
        } else {
            0
        },
        texts: Vec::new(),
        message: None,
        name: text(name).bytes.into(),
    };
    // Which member of a union a payload holds is not known.
    let is_union = attributes.mask & HAS_TYPE != 0 && attributes.kind >= UNION;
    let alignment = match attributes.mask & HAS_ALIGNMENT != 0 && attributes.alignment > 0 {
        true => attributes.alignment as u64,
        false => u64::MAX,
    };
    with_thread(Lost::Texts, |thread| {
        let name = thread.text(text(name));
        let (mut bytes, mut next) = (Vec::new(), 0u64);
        // Behind an entry whose size is not known here only one that says its offset has a place: at a wrong one a text's address
        // would be anything.
        let mut is_sure = true;
        for (index, entry) in entries.iter().enumerate() {
            let is_implied = entry.offset == 0 && index > 0 && !is_union;
            is_sure |= !is_implied;
            if !is_sure {
                continue;
            }
            let is_array = entry.flags & ARRAY_BITS != 0;
            let (kind, size) = if entry.kind >= FIRST_SCHEMA {
                (FieldKind::Other, 0)
            } else if entry.flags & IS_POINTER != 0 && predefined(entry.kind).is_some() {
                // What it points to need not be there any more.
                (FieldKind::Unsigned, 8)
            } else if let Some(known) = predefined(entry.kind) {
                known
            } else {
                is_sure = false;
                continue;
            };
            let kind = match kind {
                FieldKind::Text if is_union => FieldKind::Unsigned,
                kind => kind,
            };
            let size_there = u64::from(size.max(1));
            let offset = if is_implied {
                next.next_multiple_of(size_there.min(alignment))
            } else {
                entry.offset
            };
            let count = match entry.flags & ARRAY_BITS {
                IS_FIXED_ARRAY => entry.detail.clamp(1, MOST_BYTES as u64),
                _ => 1,
            };
            next = offset.saturating_add(size_there.saturating_mul(count));
            is_sure = size > 0 && (!is_array || entry.flags & ARRAY_BITS == IS_FIXED_ARRAY);
            if next > MOST_BYTES as u64 || is_array && entry.flags & ARRAY_BITS != IS_FIXED_ARRAY {
                continue;
            }
            if kind == FieldKind::Text {
                let place = (offset as usize, entry.kind == 80);
                new.texts.push(place);
                if entry.flags & IS_MESSAGE != 0 {
                    new.message = Some(place);
                }
            }
            let field = SchemaField {
                kind,
                bytes: size,
                offset: offset as u32,
                count: count as u32,
                name: thread.text(text(entry.name)),
                detail: if kind == FieldKind::Other { entry.kind } else { 0 },
            };
            field.write(&mut bytes);
        }
        thread.push_bytes(
            Lost::Texts,
            record::SCHEMA,
            &[u64::from(domain), id, name],
            &bytes,
        );
    });
    keep(new);
    id
}

/// nvtxPayloadEnumRegister: gives the enumeration's number.
pub(super) fn register_enum(domain: u32, attributes: &EnumAttributes) -> u64 {
    let id = if attributes.mask & ENUM_HAS_ID != 0 && attributes.id != 0 {
        attributes.id
    } else {
        NEXT_DYNAMIC.fetch_add(1, Ordering::Relaxed)
    };
    let has_entries = ENUM_HAS_ENTRIES | ENUM_HAS_ENTRY_COUNT;
    let entries = if attributes.mask & has_entries != has_entries || attributes.entries.is_null() {
        &[]
    } else {
        // SAFETY: as many entries as the program says, which NVTX's contract has there.
        unsafe { std::slice::from_raw_parts(attributes.entries, attributes.entry_count.min(MOST_ENTRIES)) }
    };
    // Without a size it is an int's.
    let size = if attributes.mask & ENUM_HAS_SIZE != 0 {
        attributes.bytes as u64
    } else {
        4
    };
    with_thread(Lost::Texts, |thread| {
        let mut bytes = Vec::new();
        for entry in entries {
            bytes.extend_from_slice(&entry.value.to_le_bytes());
            bytes.extend_from_slice(&thread.text(text(entry.name)).to_le_bytes());
        }
        thread.push_bytes(Lost::Texts, record::ENUM, &[u64::from(domain), id, size], &bytes);
    });
    id
}

/// A payload on its way to the writer, beside its bytes.
pub(crate) struct PayloadRecord {
    pub(crate) domain: u32,
    pub(crate) schema: u64,
    pub(crate) time_ns: i64,
    /// The number of its range's text.
    pub(crate) range: u64,
}

impl PayloadRecord {
    /// From a record's fields.
    pub(crate) fn read(fields: &[u64]) -> Self {
        Self {
            domain: fields[0] as u32,
            schema: fields[1],
            time_ns: fields[2].cast_signed(),
            range: fields[3],
        }
    }
}

/// The bytes of a payload, as far as they are kept.
fn bytes_of(data: &PayloadData, schema: Option<&Known>, buffer: &mut [u8; MOST_BYTES]) -> usize {
    let bytes = if data.bytes == usize::MAX {
        // The schema says.
        schema.map_or(0, |schema| schema.payload_bytes)
    } else {
        data.bytes
    };
    let bytes = if data.payload.is_null() {
        0
    } else {
        bytes.min(MOST_BYTES)
    };
    // SAFETY: NVTX's contract is that the payload is so long.
    unsafe { std::ptr::copy_nonoverlapping(data.payload.cast::<u8>(), buffer.as_mut_ptr(), bytes) };
    bytes
}

/// The text that a pointer or handle in a payload means.
fn text_at(bytes: &[u8], (offset, is_handle): (usize, bool)) -> Option<Text<'_>> {
    let word = bytes.get(offset..offset + 8)?;
    let address = usize::from_le_bytes(word.try_into().ok()?);
    Some(if is_handle {
        registered(std::ptr::without_provenance(address))
    } else {
        text(std::ptr::without_provenance(address))
    })
}

/// Passes on what a range or mark carries. `range` is the number of its text.
#[cold]
pub(super) fn pass_on(thread: &mut Thread, domain: u32, time_ns: i64, range: u64, payloads: &[PayloadData]) {
    if !are_ranges_wanted() {
        return;
    }
    for data in payloads {
        let schema = known(domain, data.schema);
        let mut buffer = [0; MOST_BYTES];
        let bytes = bytes_of(data, schema, &mut buffer);
        if bytes == 0 {
            continue;
        }
        for &place in schema.map_or(&[][..], |schema| &schema.texts) {
            if let Some(text) = text_at(&buffer[..bytes], place) {
                let number = thread.text(text);
                buffer[place.0..place.0 + 8].copy_from_slice(&number.to_le_bytes());
            }
        }
        let fields = [u64::from(domain), data.schema, time_ns.cast_unsigned(), range];
        thread.push_bytes(Lost::Ranges, record::PAYLOAD, &fields, &buffer[..bytes]);
    }
}

/// Calls `body` with the name of a range that is nothing but payloads: its message, where one has one, else its schema's
/// name.
pub(super) fn with_message<T>(domain: u32, payloads: &[PayloadData], body: impl FnOnce(Text<'_>) -> T) -> T {
    for data in payloads {
        let Some(schema) = known(domain, data.schema) else {
            continue;
        };
        let mut buffer = [0; MOST_BYTES];
        let bytes = bytes_of(data, Some(schema), &mut buffer);
        if let Some(place) = schema.message
            && let Some(text) = text_at(&buffer[..bytes], place)
        {
            return body(text);
        }
    }
    let first = payloads.first().and_then(|data| known(domain, data.schema));
    body(first.map_or_else(Text::default, |schema| Text::new(&schema.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_events::testing;

    /// Where the texts of a schema of these entries (type, offset) are taken to be.
    fn texts(kind: u64, alignment: usize, entries: &[(u64, u64)]) -> Vec<usize> {
        let _turn = testing::turn();
        let entries: Vec<Entry> = entries
            .iter()
            .map(|(kind, offset)| Entry {
                flags: 0,
                kind: *kind,
                name: null(),
                description: null(),
                detail: 0,
                offset: *offset,
                semantics: null(),
                reserved: null(),
            })
            .collect();
        let id = register_schema(
            7,
            &SchemaAttributes {
                mask: HAS_TYPE | HAS_ENTRIES | HAS_ENTRY_COUNT | HAS_ALIGNMENT,
                name: null(),
                kind,
                flags: 0,
                entries: entries.as_ptr(),
                entry_count: entries.len(),
                payload_bytes: 0,
                alignment,
                id: 0,
                extension: null(),
            },
        );
        let known = known(7, id).expect("it was kept");
        known.texts.iter().map(|(offset, _)| *offset).collect()
    }

    #[test]
    fn a_text_is_read_only_where_it_is_known_to_be() {
        // Of one schema type: static, and a union. A byte (12), and a text (75).
        let (fixed, union) = (1, UNION);
        assert_eq!(texts(fixed, 0, &[(12, 0), (75, 0), (75, 0)]), [8, 16]);
        assert_eq!(texts(fixed, 1, &[(12, 0), (75, 0)]), [1]);
        // An enumeration, a nested schema, or a type of a later version may have any size.
        for unknown in [FIRST_SCHEMA + 1, 999] {
            let none: [usize; 0] = [];
            assert_eq!(texts(fixed, 0, &[(unknown, 0), (75, 0)]), none);
            assert_eq!(texts(fixed, 0, &[(unknown, 0), (75, 16), (75, 0)]), [16, 24]);
        }
        assert!(texts(union, 0, &[(12, 0), (75, 0), (75, 8)]).is_empty());
    }
}
