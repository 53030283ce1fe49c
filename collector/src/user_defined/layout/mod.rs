//! From user-defined records to the structs that the decoder reads, by copy plans made of CUPTI's layouts.
//!
//! A buffer is expanded in its place: CUPTI fills its second half, and structs are made of the records from its front on.
//! They are at most twice as long as the user-defined records that they are made of (but for devices, of which there are
//! few), so the front does not overtake what is still to be read; if it would, the rest is counted as unread.

use super::abi::{CompleteInfo, RecordLayout};
use super::fields::KindFields;
use crate::kinds::{self, KINDS};

/// No record that is asked for comes near it.
const MAX_RECORD_BYTES: usize = 1024;
/// The most fields that a layout of ours has.
const MAX_FIELDS: usize = 48;
/// Kinds are below this.
const KIND_COUNT: usize = 64;

/// A piece of a record: from where in the user-defined one to where in the struct.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Copy {
    from: u16,
    to: u16,
    bytes: u16,
}

/// How a kind's records become structs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// The user-defined record's size, its padding included.
    from_bytes: usize,
    to_bytes: usize,
    constant: Option<(usize, u32)>,
    copies: [Copy; MAX_FIELDS],
    count: usize,
    /// Fields that were asked for and are not in the layout.
    missing: usize,
}

impl Plan {
    /// The plan of a layout: `(record bytes, (field, offset, bytes) each)`. `None` where they contradict themselves.
    fn new(
        fields: &KindFields,
        record_bytes: usize,
        entries: impl Iterator<Item = (i32, usize, usize)>,
    ) -> Option<Self> {
        // The record is where the walk through a buffer goes on: at least the kind, and no further than sense.
        if !(4..=MAX_RECORD_BYTES).contains(&record_bytes) {
            return None;
        }
        let mut plan = Self {
            from_bytes: record_bytes,
            to_bytes: fields.record_bytes,
            constant: fields.constant,
            copies: [Copy::default(); MAX_FIELDS],
            count: 0,
            missing: fields.fields.len(),
        };
        let mut has_kind = false;
        for (id, offset, bytes) in entries {
            if bytes == 0 || offset.checked_add(bytes).is_none_or(|end| end > record_bytes) {
                return None;
            }
            if id == 0 {
                has_kind = offset == 0 && bytes >= 4;
                continue;
            }
            // What was not asked for is passed over.
            let Some(field) = fields.fields.iter().find(|field| field.id == id) else {
                continue;
            };
            plan.missing = plan.missing.saturating_sub(1);
            // Longer values keep their low bytes, shorter ones leave zeros.
            plan.add(Copy {
                from: u16::try_from(offset).ok()?,
                to: u16::try_from(field.to).ok()?,
                bytes: u16::try_from(bytes.min(field.bytes)).ok()?,
            })?;
        }
        has_kind.then_some(plan)
    }

    /// Adds a piece, to the one before if it goes on in both records.
    fn add(&mut self, copy: Copy) -> Option<()> {
        if let Some(last) = self
            .count
            .checked_sub(1)
            .and_then(|last| self.copies.get_mut(last))
            && (last.from + last.bytes, last.to + last.bytes) == (copy.from, copy.to)
        {
            last.bytes += copy.bytes;
            return Some(());
        }
        *self.copies.get_mut(self.count)? = copy;
        self.count += 1;
        Some(())
    }

    /// Makes a struct of a user-defined record.
    #[inline]
    fn expand(&self, record_kind: u32, from: &[u8], to: &mut [u8]) {
        let (from, to) = (&from[..self.from_bytes], &mut to[..self.to_bytes]);
        to.fill(0);
        to[..4].copy_from_slice(&record_kind.to_le_bytes());
        if let Some((offset, value)) = self.constant {
            to[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        }
        for copy in &self.copies[..self.count] {
            let (source, target) = (usize::from(copy.from), usize::from(copy.to));
            match copy.bytes {
                4 => to[target..target + 4].copy_from_slice(&from[source..source + 4]),
                8 => to[target..target + 8].copy_from_slice(&from[source..source + 8]),
                bytes => {
                    let bytes = usize::from(bytes);
                    to[target..target + bytes].copy_from_slice(&from[source..source + bytes]);
                }
            }
        }
    }
}

/// A kind's layout as values: the kind, the record's bytes, and of each field its number, offset and bytes.
pub type Layout = (u32, usize, Vec<(i32, usize, usize)>);

/// The plans of the kinds that a subscriber has enabled.
#[derive(Clone, Debug, PartialEq)]
pub struct Plans {
    /// On the heap: 22 KiB, and they are read in a callback, on a stack that may be small.
    by_kind: Vec<Option<Plan>>,
}

impl Default for Plans {
    fn default() -> Self {
        Self {
            by_kind: vec![None; KIND_COUNT],
        }
    }
}

/// What became of a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expanded {
    /// Bytes of structs at the buffer's front.
    pub bytes: usize,
    /// Bytes of user-defined records that could not be read: of a kind without a layout, or cut off.
    pub unread_bytes: usize,
}

impl Plans {
    /// The plans of the layouts that come with a buffer.
    ///
    /// # Safety
    /// `info` is null or what CUPTI passed, while its call lasts.
    #[must_use]
    pub unsafe fn read(info: *const CompleteInfo) -> Self {
        let mut plans = Self::default();
        // SAFETY: null or valid, by the caller's promise.
        let Some(info) = (unsafe { info.as_ref() }) else {
            return plans;
        };
        if info.struct_bytes < size_of::<CompleteInfo>() || info.layouts.is_null() {
            return plans;
        }
        for kind in &KINDS {
            let Some(fields) = &kind.fields else { continue };
            let record_kind = kind.kind as usize;
            if record_kind >= info.layout_count.min(KIND_COUNT) {
                continue;
            }
            // SAFETY: the table has so many places, each null or a layout.
            if let Some(layout) = unsafe { (*info.layouts.add(record_kind)).as_ref() } {
                // SAFETY: as above.
                plans.by_kind[record_kind] = unsafe { plan_of(fields, layout) };
            }
        }
        plans
    }

    /// The plans of layouts given as values.
    #[must_use]
    pub fn of(layouts: &[Layout]) -> Self {
        let mut plans = Self::default();
        for (record_kind, record_bytes, entries) in layouts {
            if let Some((fields, place)) =
                fields_of(*record_kind).zip(plans.by_kind.get_mut(*record_kind as usize))
            {
                *place = Plan::new(fields, *record_bytes, entries.iter().copied());
            }
        }
        plans
    }

    /// Whether later plans say nothing new.
    #[must_use]
    pub fn knows(&self, later: &Self) -> bool {
        let mut both = self.by_kind.iter().zip(&later.by_kind);
        both.all(|(known, new)| new.is_none() || known == new)
    }

    /// Takes over what is new in later plans.
    pub fn learn(&mut self, later: &Self) {
        for (known, new) in self.by_kind.iter_mut().zip(&later.by_kind) {
            if new.is_some() {
                *known = *new;
            }
        }
    }

    /// The plans as text, a line a kind: the kind, the bytes of its user-defined record and of its struct, and of each piece
    /// where it is in the one and in the other, and its bytes.
    #[must_use]
    pub fn describe(&self) -> String {
        let line = |(record_kind, plan): (usize, &Plan)| {
            let pieces = plan.copies[..plan.count].iter();
            let pieces: String = pieces
                .map(|copy| format!(" {}:{}:{}", copy.from, copy.to, copy.bytes))
                .collect();
            format!("{record_kind} {} {}{pieces}\n", plan.from_bytes, plan.to_bytes)
        };
        let plans = self.by_kind.iter().enumerate();
        plans
            .filter_map(|(record_kind, plan)| Some(line((record_kind, plan.as_ref()?))))
            .collect()
    }

    /// Fields that were asked for and that the layouts lack.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.by_kind.iter().flatten().map(|plan| plan.missing).sum()
    }

    /// Makes structs, from the buffer's begin on, of the user-defined records between `from` and `end`.
    pub fn expand(&self, buffer: &mut [u8], from: usize, end: usize) -> Expanded {
        let end = end.min(buffer.len());
        let (mut read, mut written) = (from, 0usize);
        let mut record = [0u8; MAX_RECORD_BYTES];
        while let Some(head) = buffer[..end].get(read..).and_then(<[u8]>::first_chunk::<4>) {
            let record_kind = u32::from_le_bytes(*head);
            let Some(plan) = self.by_kind.get(record_kind as usize).and_then(Option::as_ref) else {
                break;
            };
            let next = read + plan.from_bytes;
            // The struct may lie over its own record, which is set aside, but not over the next one.
            if next > end || written + plan.to_bytes > next {
                break;
            }
            record[..plan.from_bytes].copy_from_slice(&buffer[read..next]);
            plan.expand(
                record_kind,
                &record,
                &mut buffer[written..written + plan.to_bytes],
            );
            (read, written) = (next, written + plan.to_bytes);
        }
        Expanded {
            bytes: written,
            unread_bytes: end.saturating_sub(read),
        }
    }
}

/// The fields that are asked for of a kind, where it can be recorded so.
#[must_use]
pub fn fields_of(record_kind: u32) -> Option<&'static KindFields> {
    kinds::of(record_kind)?.fields.as_ref()
}

/// # Safety
/// The layout's entries are where it says.
unsafe fn plan_of(fields: &KindFields, layout: &RecordLayout) -> Option<Plan> {
    use super::abi::LayoutEntry;

    if layout.struct_bytes < size_of::<RecordLayout>()
        || layout.entries.is_null()
        || !(1..=256).contains(&layout.count)
    {
        return None;
    }
    // SAFETY: by the caller's promise. Entries tell their own size: in a later CUPTI they may be longer.
    let stride = unsafe { (*layout.entries).struct_bytes };
    if stride < size_of::<LayoutEntry>() || !stride.is_multiple_of(align_of::<LayoutEntry>()) {
        return None;
    }
    let entries = (0..layout.count).map(|place| {
        // SAFETY: so many entries lie there, `stride` bytes apart.
        let entry = unsafe { &*layout.entries.byte_add(place * stride) };
        (entry.id, entry.offset, entry.bytes)
    });
    Plan::new(fields, layout.record_bytes, entries)
}

#[cfg(test)]
mod tests;
