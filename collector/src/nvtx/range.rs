//! A range on its way to the writer: the fields of its record.

use super::operator::{self, Operator};
use super::payload_data::PayloadData;
use crate::host_events::{Text, record};

/// Range kinds of the markers table.
pub(super) const PUSH_POP: u8 = 0;
pub(super) const START_END: u8 = 1;
pub(super) const MARK: u8 = 2;
/// What a range or mark says of itself.
#[derive(Clone, Copy, Default)]
pub(super) struct Label<'a> {
    pub(super) text: Text<'a>,
    pub(super) category: Option<u32>,
    pub(super) color: Option<u32>,
    pub(super) payload: Option<Payload>,
    /// Payloads with schemas.
    pub(super) extended: &'a [PayloadData],
}

/// Fields of a range's record, at the most.
pub(super) const FIELDS: usize = 6;

/// A numeric payload: NVTX's type (nvtxPayloadType_t: 1 u64, 2 i64, 3 f64, 4 u32, 5 i32, 6 f32) and the bits as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    pub(crate) kind: u8,
    pub(crate) bits: u64,
}

impl Payload {
    /// As a number, rounded where a double can't hold it.
    pub(crate) fn as_number(self) -> Option<f64> {
        let low = self.bits as u32;
        Some(match self.kind {
            1 => self.bits as f64,
            2 => self.bits.cast_signed() as f64,
            3 => f64::from_bits(self.bits),
            4 => f64::from(low),
            5 => f64::from(low.cast_signed()),
            6 => f64::from(f32::from_bits(low)),
            _ => return None,
        })
    }

    /// An integer's 64 bits, sign-extended.
    pub(crate) fn as_integer(self) -> Option<u64> {
        let low = self.bits as u32;
        match self.kind {
            1 | 2 => Some(self.bits),
            4 => Some(u64::from(low)),
            5 => Some(i64::from(low.cast_signed()).cast_unsigned()),
            _ => None,
        }
    }
}

/// A range or mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start_ns: i64,
    /// `None` for a mark, and while it is open.
    pub(crate) duration_ns: Option<i64>,
    /// The number of its text.
    pub(crate) text: u64,
    pub(crate) domain: u32,
    pub(crate) depth: u16,
    pub(crate) kind: u8,
    pub(crate) category: Option<u32>,
    pub(crate) color: Option<u32>,
    pub(crate) payload: Option<Payload>,
}

/// Fields of the record of a range that is open, at the most.
const OPEN_FIELDS: usize = operator::FIELDS;

/// A range that is open, as its record will be: what a push adds last is the start, and a pop the duration.
#[derive(Clone, Copy)]
pub(super) struct Open {
    fields: [u64; OPEN_FIELDS],
    count: u8,
    /// What kind of record it will be.
    pub(super) record: u8,
    pub(super) domain: u32,
    pub(super) depth: u16,
}

impl Open {
    /// One of the program's.
    #[inline]
    pub(super) fn new(domain: u32, text: u64, label: &Label<'_>) -> Self {
        let (of_range, count) = Range::new(PUSH_POP, domain, text, label).fields();
        let mut fields = [0; OPEN_FIELDS];
        fields[..FIELDS].copy_from_slice(&of_range);
        Self::of(record::RANGE, fields, count, domain)
    }

    /// An operator of PyTorch's.
    #[inline]
    pub(super) fn operator(operator: &Operator) -> Self {
        let (fields, count) = operator.fields();
        Self::of(record::OPERATOR_RANGE, fields, count, 0)
    }

    /// A function of Python's, or a module of PyTorch's, by its text.
    #[inline]
    pub(super) fn frame(domain: u32, text: u64) -> Self {
        let mut fields = [0; OPEN_FIELDS];
        fields[3] = text;
        Self::of(record::PYTHON_RANGE, fields, 4, domain)
    }

    #[inline]
    fn of(record: u8, fields: [u64; OPEN_FIELDS], count: usize, domain: u32) -> Self {
        Self {
            fields,
            count: count as u8,
            record,
            domain,
            depth: 0,
        }
    }

    /// Says when it began.
    #[inline]
    pub(super) fn begin(&mut self, start_ns: i64) {
        self.fields[1] = start_ns.cast_unsigned();
    }

    /// Says how many ranges enclose it.
    #[inline]
    pub(super) fn set_depth(&mut self, depth: u16) {
        self.depth = depth;
        self.fields[0] |= u64::from(depth) << 24;
    }

    /// The number of its text.
    #[inline]
    pub(super) fn text(&self) -> u64 {
        self.fields[3]
    }

    /// When it began.
    pub(super) fn start_ns(&self) -> i64 {
        self.fields[1].cast_signed()
    }

    /// The record of the range that ends.
    #[inline]
    pub(super) fn end(&mut self, end_ns: i64) -> &[u64] {
        self.fields[2] = end_ns.wrapping_sub(self.fields[1].cast_signed()).cast_unsigned();
        &self.fields[..usize::from(self.count)]
    }
}

/// Says that there is no duration: no range is that long.
const NO_DURATION: u64 = i64::MIN.cast_unsigned();
const HAS_CATEGORY: u64 = 1 << 16;
const HAS_COLOR: u64 = 1 << 17;

impl Range {
    /// One that has not begun.
    #[inline]
    pub(super) fn new(kind: u8, domain: u32, text: u64, label: &Label<'_>) -> Self {
        Self {
            start_ns: 0,
            duration_ns: None,
            text,
            domain,
            depth: 0,
            kind,
            category: label.category,
            color: label.color,
            payload: label.payload,
        }
    }

    /// The record's fields, and how many of them mean something.
    #[inline]
    pub(super) fn fields(&self) -> ([u64; FIELDS], usize) {
        let mut what = u64::from(self.kind) | u64::from(self.depth) << 24 | u64::from(self.domain) << 40;
        let (mut paint, mut payload, mut count) = (0, 0, 4);
        if let Some(category) = self.category {
            what |= HAS_CATEGORY;
            paint = u64::from(category) << 32;
            count = 5;
        }
        if let Some(color) = self.color {
            what |= HAS_COLOR;
            paint |= u64::from(color);
            count = 5;
        }
        if let Some(told) = self.payload {
            what |= u64::from(told.kind) << 8;
            payload = told.bits;
            count = 6;
        }
        let duration = self.duration_ns.map_or(NO_DURATION, i64::cast_unsigned);
        let start = self.start_ns.cast_unsigned();
        ([what, start, duration, self.text, paint, payload], count)
    }

    /// From a record's fields.
    pub(crate) fn read(fields: &[u64]) -> Self {
        let what = fields[0];
        let payload_kind = (what >> 8) as u8;
        Self {
            start_ns: fields[1].cast_signed(),
            duration_ns: (fields[2] != NO_DURATION).then_some(fields[2].cast_signed()),
            text: fields[3],
            domain: (what >> 40) as u32,
            depth: (what >> 24) as u16,
            kind: what as u8,
            category: (what & HAS_CATEGORY != 0).then_some((fields[4] >> 32) as u32),
            color: (what & HAS_COLOR != 0).then_some(fields[4] as u32),
            payload: (payload_kind != 0).then_some(Payload {
                kind: payload_kind,
                bits: fields[5],
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn fields_say_what_the_range_is(
            (start_ns, duration_ns, text) in (any::<i64>(), prop::option::of(-1i64..i64::MAX), any::<u64>()),
            (domain, depth, kind) in (0..1u32 << 24, any::<u16>(), 0..3u8),
            (category, color) in (any::<Option<u32>>(), any::<Option<u32>>()),
            payload in prop::option::of((1..7u8, any::<u64>())),
        ) {
            let payload = payload.map(|(kind, bits)| Payload { kind, bits });
            let range = Range {
                start_ns, duration_ns, text, domain, depth, kind, category, color, payload,
            };
            let (fields, count) = range.fields();
            let mut read = [0; FIELDS];
            read[..count].copy_from_slice(&fields[..count]);
            prop_assert_eq!(Range::read(&read), range);
        }
    }

    #[test]
    fn integers_of_64_bits_keep_them_all() {
        let payload = |kind, bits| Payload { kind, bits };
        assert_eq!(payload(1, u64::MAX).as_integer(), Some(u64::MAX));
        assert_eq!(
            payload(2, (-5i64).cast_unsigned()).as_integer(),
            Some((-5i64).cast_unsigned())
        );
        assert_eq!(
            payload(5, 0xffff_fffe).as_integer(),
            Some((-2i64).cast_unsigned())
        );
        assert_eq!(payload(5, 0xffff_fffe).as_number(), Some(-2.0));
        assert_eq!(payload(4, 0xffff_fffe).as_number(), Some(4_294_967_294.0));
        assert_eq!(payload(3, 1.5f64.to_bits()).as_number(), Some(1.5));
        assert_eq!(payload(6, u64::from(0.25f32.to_bits())).as_number(), Some(0.25));
        assert_eq!(
            (payload(3, 0).as_integer(), payload(9, 0).as_number()),
            (None, None)
        );
    }
}
