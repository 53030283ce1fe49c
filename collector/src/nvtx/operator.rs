//! An operator of PyTorch's on its way to the writer: the fields of its record.

/// Fields of an operator's record, at the most.
pub(super) const FIELDS: usize = 7;

const HAS_SEQUENCE: u64 = 1;
const HAS_NUMBER: u64 = 2;
const IS_BACKWARD: u64 = 4;
/// Where the depth and PyTorch's number of a thread begin; threads beyond 24 bits are as good as not said.
const THREAD: u32 = 40;
const MOST_THREADS: u32 = 1 << (u64::BITS - THREAD);

/// An operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operator {
    pub(crate) start_ns: i64,
    pub(crate) duration_ns: i64,
    /// The numbers of its texts; 0 for those that it has none of.
    pub(crate) name: u64,
    pub(crate) input_dims: u64,
    pub(crate) input_types: u64,
    pub(crate) sequence: Option<u32>,
    pub(crate) number: Option<u32>,
    pub(crate) forward_thread: Option<u32>,
}

impl Operator {
    /// The record's fields, and how many of them mean something.
    #[inline]
    pub(super) fn fields(&self) -> ([u64; FIELDS], usize) {
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        let thread = self.forward_thread.filter(|thread| *thread < MOST_THREADS);
        let what = flag(self.sequence.is_some(), HAS_SEQUENCE)
            | flag(self.number.is_some(), HAS_NUMBER)
            | flag(self.forward_thread.is_some(), IS_BACKWARD)
            | u64::from(thread.unwrap_or(0)) << THREAD;
        let numbers = u64::from(self.sequence.unwrap_or(0)) << 32 | u64::from(self.number.unwrap_or(0));
        let (start, duration) = (self.start_ns.cast_unsigned(), self.duration_ns.cast_unsigned());
        let fields = [
            what,
            start,
            duration,
            self.name,
            numbers,
            self.input_dims,
            self.input_types,
        ];
        let count = match (self.input_dims, self.input_types) {
            (0, 0) => 5,
            (_, 0) => 6,
            _ => 7,
        };
        (fields, count)
    }

    /// From a record's fields.
    pub(crate) fn read(fields: &[u64]) -> Self {
        let (what, numbers) = (fields[0], fields[4]);
        let part = |flag: u64, part: u64| (what & flag != 0).then_some(part as u32);
        Self {
            start_ns: fields[1].cast_signed(),
            duration_ns: fields[2].cast_signed(),
            name: fields[3],
            input_dims: fields[5],
            input_types: fields[6],
            sequence: part(HAS_SEQUENCE, numbers >> 32),
            number: part(HAS_NUMBER, numbers),
            forward_thread: part(IS_BACKWARD, what >> THREAD),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn fields_say_what_the_operator_is(
            (start_ns, duration_ns, depth) in any::<(i64, i64, u16)>(),
            (name, input_dims, input_types) in any::<(u64, u64, u64)>(),
            (sequence, number) in any::<(Option<u32>, Option<u32>)>(),
            forward_thread in prop::option::of(0..MOST_THREADS),
        ) {
            let operator = Operator {
                start_ns, duration_ns, name, input_dims, input_types, sequence, number, forward_thread,
            };
            let (mut fields, count) = operator.fields();
            // The depth of any range is put there, and means nothing here.
            fields[0] |= u64::from(depth) << 24;
            let mut read = [0; FIELDS];
            read[..count].copy_from_slice(&fields[..count]);
            prop_assert_eq!(Operator::read(&read), operator);
        }
    }
}
