//! What a subscriber asked for of a kind, and the layout that its records get for it.

use super::super::exports::code;
use super::super::records::Record;
use super::fields::{self, Field};

/// CUpti_ActivityFieldSelection.
#[repr(C)]
pub(super) struct FieldSelection {
    struct_bytes: usize,
    count: usize,
    ids: *const i32,
}

/// CUpti_ActivityConfig; the last member since 13.4.
#[repr(C)]
pub(super) struct ActivityConfig {
    struct_bytes: usize,
    fields: FieldSelection,
    options: *const ApiOptions,
}

/// CUpti_ActivityApiOptions.
#[repr(C)]
struct ApiOptions {
    struct_bytes: usize,
    calls: *const CallOptions,
}

/// CUpti_ActivityApiCbidOptions.
#[repr(C)]
struct CallOptions {
    struct_bytes: usize,
    callbacks: *const u32,
    count: usize,
    enable: u8,
}

/// CUpti_ActivityFieldLayoutEntry.
#[repr(C)]
struct LayoutEntry {
    struct_bytes: usize,
    id: i32,
    offset: usize,
    bytes: usize,
    alignment: usize,
}

/// CUpti_ActivityRecordLayout.
#[repr(C)]
pub(super) struct RecordLayout {
    struct_bytes: usize,
    entries: *const LayoutEntry,
    count: usize,
    record_bytes: usize,
}

// SAFETY: a layout is written once, when it is made, and lives for ever.
unsafe impl Sync for RecordLayout {}
// SAFETY: as above.
unsafe impl Send for RecordLayout {}

/// Which calls of a kind are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Calls {
    #[default]
    All,
    Only(Vec<u32>),
    AllBut(Vec<u32>),
}

impl Calls {
    fn include(&self, callback: u32) -> bool {
        match self {
            Self::All => true,
            Self::Only(wanted) => wanted.contains(&callback),
            Self::AllBut(unwanted) => !unwanted.contains(&callback),
        }
    }
}

/// Fields with their places, and the layout that the client is told.
type UserDefined = (Vec<(Field, usize)>, &'static RecordLayout);

/// An enabled kind of a subscriber.
pub(super) struct Selection {
    kind: u32,
    calls: Calls,
    user_defined: Option<UserDefined>,
}

/// The bytes of a C struct of `T` that the caller says are there, by its first member.
fn has<T>(given: usize, since: usize) -> bool {
    given >= since && given <= 16 * size_of::<T>()
}

/// A C array as a slice; an error where there is none.
///
/// # Safety
/// Null, or so many elements.
unsafe fn slice<'a, T>(place: *const T, count: usize) -> Result<&'a [T], u32> {
    if place.is_null() || count == 0 || count > 4096 {
        return Err(code::INVALID_PARAMETER);
    }
    // SAFETY: checked, and the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(place, count) })
}

impl Selection {
    /// What a configuration asks for. `user_defined`: whether the subscriber's records are.
    ///
    /// # Safety
    /// `config` is null or a `CUpti_ActivityConfig` with what its members lead to.
    pub(super) unsafe fn read(
        record_kind: u32,
        config: *const ActivityConfig,
        user_defined: bool,
        knows_options: bool,
    ) -> Result<Self, u32> {
        let mut selection = Self {
            kind: record_kind,
            calls: Calls::All,
            user_defined: None,
        };
        // SAFETY: the caller's promise.
        let Some(config) = (unsafe { config.as_ref() }) else {
            // Without fields there is nothing to write into a user-defined record.
            return if user_defined {
                Err(code::INVALID_PARAMETER)
            } else {
                Ok(selection)
            };
        };
        if !has::<ActivityConfig>(config.struct_bytes, size_of::<ActivityConfig>() - 8) {
            return Err(code::INVALID_PARAMETER);
        }
        if knows_options && has::<ActivityConfig>(config.struct_bytes, size_of::<ActivityConfig>()) {
            // SAFETY: null or the options, by the caller's promise.
            selection.calls = unsafe { read_calls(config.options)? };
        }
        if user_defined {
            if !has::<FieldSelection>(config.fields.struct_bytes, size_of::<FieldSelection>()) {
                return Err(code::INVALID_PARAMETER);
            }
            // SAFETY: so many numbers, by the caller's promise.
            let ids = unsafe { slice(config.fields.ids, config.fields.count)? };
            selection.user_defined = Some(lay_out(record_kind, ids)?);
        }
        Ok(selection)
    }

    /// The layout that the client is told.
    pub(super) fn layout(&self) -> Option<&'static RecordLayout> {
        self.user_defined.as_ref().map(|(_, layout)| *layout)
    }

    /// Whether another selection is of the same fields and calls.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let ids = |one: &Self| {
            let fields = one.user_defined.as_ref()?.0.iter();
            Some(fields.map(|(field, _)| field.id).collect::<Vec<_>>())
        };
        ids(self) == ids(other) && self.calls == other.calls
    }

    /// Whether a record is asked for.
    pub(super) fn includes(&self, record: &Record) -> bool {
        if self.calls == Calls::All {
            return true;
        }
        // CUpti_ActivityAPI.cbid.
        let callback = record
            .as_bytes()
            .get(4..8)
            .and_then(|bytes| bytes.try_into().ok());
        callback.is_some_and(|bytes| self.calls.include(u32::from_le_bytes(bytes)))
    }

    /// Writes a record as it was asked for behind what is in `bytes`. `thread`: what goes for the calling thread's id.
    pub(super) fn write(&self, record: &Record, thread: Option<u64>, bytes: &mut Vec<u8>) {
        let record = record.as_bytes();
        let Some((places, layout)) = &self.user_defined else {
            bytes.extend_from_slice(record);
            return;
        };
        let start = bytes.len();
        bytes.resize(start + layout.record_bytes, 0);
        let out = &mut bytes[start..];
        let thread_field = fields::thread_field(self.kind);
        for (field, offset) in places {
            let place = &mut out[*offset..offset + field.bytes];
            if let Some(thread) = thread.filter(|_| thread_field == Some(field.id)) {
                place.copy_from_slice(&thread.to_le_bytes());
            } else if let Some(value) = record.get(field.from..field.from + field.from_bytes) {
                // Longer fields have zeros above: none of those is signed. Shorter ones keep the low bytes.
                let bytes = value.len().min(place.len());
                place[..bytes].copy_from_slice(&value[..bytes]);
            }
        }
    }
}

/// # Safety
/// As [`Selection::read`].
unsafe fn read_calls(options: *const ApiOptions) -> Result<Calls, u32> {
    // SAFETY: the caller's promise.
    let Some(options) = (unsafe { options.as_ref() }) else {
        return Ok(Calls::All);
    };
    // SAFETY: the caller's promise.
    let Some(calls) = (unsafe { options.calls.as_ref() }) else {
        return Ok(Calls::All);
    };
    if options.struct_bytes < size_of::<ApiOptions>() || calls.struct_bytes < size_of::<CallOptions>() - 7 {
        return Err(code::INVALID_PARAMETER);
    }
    if calls.count == 0 {
        return Ok(Calls::All);
    }
    // SAFETY: so many ids, by the caller's promise.
    let ids = unsafe { slice(calls.callbacks, calls.count)? }.to_vec();
    Ok(if calls.enable == 0 {
        Calls::AllBut(ids)
    } else {
        Calls::Only(ids)
    })
}

/// Lays fields out one behind the other in the order in which they were asked for, each aligned to its size.
fn lay_out(record_kind: u32, ids: &[i32]) -> Result<UserDefined, u32> {
    if ids.first() != Some(&0) {
        return Err(code::INVALID_PARAMETER);
    }
    let alignment = |field: &Field| if field.bytes == 16 { 1 } else { field.bytes };
    let mut places: Vec<(Field, usize)> = Vec::new();
    let mut end = 0usize;
    for id in ids {
        let field = fields::field(record_kind, *id).ok_or(code::INVALID_PARAMETER)?;
        let offset = end.next_multiple_of(alignment(&field));
        end = offset + field.bytes;
        places.push((field, offset));
    }
    let entries: Vec<LayoutEntry> = places
        .iter()
        .map(|(field, offset)| LayoutEntry {
            struct_bytes: size_of::<LayoutEntry>(),
            id: field.id,
            offset: *offset,
            bytes: field.bytes,
            alignment: alignment(field),
        })
        .collect();
    let layout = RecordLayout {
        struct_bytes: size_of::<RecordLayout>(),
        count: entries.len(),
        // A client may look at a layout as long as it has a buffer of it, so none is ever freed.
        entries: Vec::leak(entries).as_ptr(),
        record_bytes: end.next_multiple_of(8),
    };
    Ok((places, Box::leak(Box::new(layout))))
}

impl RecordLayout {
    /// The whole record with its padding.
    pub(super) fn record_bytes(&self) -> usize {
        self.record_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use cudarc::cupti::sys;

    use super::*;

    #[test]
    fn structs_lie_as_the_headers_have_them() {
        assert_eq!(
            size_of::<ActivityConfig>(),
            size_of::<sys::CUpti_ActivityConfig>()
        );
        assert_eq!(
            offset_of!(ActivityConfig, options),
            offset_of!(sys::CUpti_ActivityConfig, pKindOptions)
        );
        assert_eq!(
            offset_of!(ActivityConfig, fields),
            offset_of!(sys::CUpti_ActivityConfig, fieldSelection)
        );
        assert_eq!(
            offset_of!(FieldSelection, ids),
            offset_of!(sys::CUpti_ActivityFieldSelection, pFieldIds)
        );
        assert_eq!(
            size_of::<CallOptions>(),
            size_of::<sys::CUpti_ActivityApiCbidOptions>()
        );
        assert_eq!(
            offset_of!(CallOptions, enable),
            offset_of!(sys::CUpti_ActivityApiCbidOptions, enable)
        );
        assert_eq!(
            size_of::<LayoutEntry>(),
            size_of::<sys::CUpti_ActivityFieldLayoutEntry>()
        );
        assert_eq!(
            offset_of!(LayoutEntry, bytes),
            offset_of!(sys::CUpti_ActivityFieldLayoutEntry, size)
        );
        assert_eq!(
            size_of::<RecordLayout>(),
            size_of::<sys::CUpti_ActivityRecordLayout>()
        );
        assert_eq!(
            offset_of!(RecordLayout, record_bytes),
            offset_of!(sys::CUpti_ActivityRecordLayout, recordSize)
        );
    }

    #[test]
    fn fields_are_aligned_and_the_kind_is_first() {
        // A call: the kind, its id (both of 4 bytes), the thread (8), what it returned (4), its begin (8).
        let (places, layout) = lay_out(4, &[0, 1, 5, 7, 2]).expect("a layout");
        let offsets: Vec<usize> = places.iter().map(|(_, offset)| *offset).collect();
        assert_eq!(offsets, [0, 4, 8, 16, 24]);
        assert_eq!(layout.record_bytes(), 32);
        assert_eq!(lay_out(4, &[1, 0]).err(), Some(code::INVALID_PARAMETER));
        assert_eq!(lay_out(4, &[0, 99]).err(), Some(code::INVALID_PARAMETER));
    }
}
