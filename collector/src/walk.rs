//! Walking over the records in a buffer without decoding them.

use std::ops::Range;

use crate::records::RecordSizes;

/// The whole records of a buffer: kind and place of each. What is behind a record of unknown size is none of them.
pub(crate) fn records<'a>(
    bytes: &'a [u8],
    sizes: &'a RecordSizes,
) -> impl Iterator<Item = (u32, Range<usize>)> + 'a {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let (record_kind, place) = record_at(bytes, offset, sizes)?;
        offset = place.end;
        Some((record_kind, place))
    })
}

/// The record that begins at `offset`, if it is whole and its size known.
#[inline]
fn record_at(bytes: &[u8], offset: usize, sizes: &RecordSizes) -> Option<(u32, Range<usize>)> {
    let rest = bytes.get(offset..)?;
    let record_kind = u32::from_le_bytes(*rest.first_chunk()?);
    let size = sizes.get(record_kind).filter(|size| *size <= rest.len())?;
    Some((record_kind, offset..offset + size))
}

/// Walks over whole records: kind and bytes of each.
pub(crate) fn walk(bytes: &[u8], sizes: &RecordSizes, mut visit: impl FnMut(u32, &[u8])) {
    for (record_kind, place) in records(bytes, sizes) {
        visit(record_kind, &bytes[place]);
    }
}

/// Moves the records that `keep` wants together at the front, with whatever is behind a record of unknown size. Gives their
/// length.
pub(crate) fn compact(
    bytes: &mut [u8],
    sizes: &RecordSizes,
    mut keep: impl FnMut(u32, &[u8]) -> bool,
) -> usize {
    let (mut read, mut written) = (0, 0);
    while let Some((record_kind, place)) = record_at(bytes, read, sizes) {
        read = place.end;
        if keep(record_kind, &bytes[place.clone()]) {
            let size = place.len();
            if place.start != written {
                bytes.copy_within(place, written);
            }
            written += size;
        }
    }
    bytes.copy_within(read.., written);
    written + bytes.len() - read
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Kind 1 has 8 bytes, kind 2 24, others are not known.
    fn sizes() -> RecordSizes {
        RecordSizes::ask(|kind| match kind {
            1 => Some(8),
            2 => Some(24),
            _ => None,
        })
    }

    /// Whether the number behind the kind is.
    fn is_even(record: &[u8]) -> bool {
        record[4].is_multiple_of(2)
    }

    proptest! {
        #[test]
        fn what_is_kept_stays_in_order_and_whole(
            records in prop::collection::vec((1u32..4, 0u32..100), 0..50), cut in 0usize..30
        ) {
            let mut bytes = Vec::new();
            let mut starts = Vec::new();
            for (kind, number) in records {
                starts.push(bytes.len());
                bytes.extend(kind.to_le_bytes());
                bytes.extend(number.to_le_bytes());
                bytes.resize(bytes.len() + if kind == 2 { 16 } else { 0 }, 7);
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            // From the first record on that is not known or not whole, everything stays.
            let mut expected: Vec<u8> = Vec::new();
            starts.retain(|start| *start < bytes.len());
            for (place, &start) in starts.iter().enumerate() {
                let record = &bytes[start..starts.get(place + 1).copied().unwrap_or(bytes.len())];
                let is_whole = matches!((record[0], record.len()), (1, 8) | (2, 24));
                if !is_whole {
                    expected.extend(&bytes[start..]);
                    break;
                }
                if is_even(record) {
                    expected.extend(record);
                }
            }
            let kept = compact(&mut bytes, &sizes(), |_, record| is_even(record));
            prop_assert_eq!(&bytes[..kept], &expected[..]);
        }
    }
}
