//! Copy plans on made-up layouts.

use proptest::prelude::*;

use super::*;
use crate::kinds::RecordKind;
use crate::records::{self, kind};
use crate::user_defined::fields::Field;

/// The layout that CUPTI makes of the fields in this order, each so much longer than in the struct.
fn laid_out(record_kind: u32, order: &[(Field, usize)], others: &[(i32, usize)]) -> Layout {
    let mut entries = vec![(0, 0, 4)];
    let mut end = 4usize;
    let own = order
        .iter()
        .map(|(field, longer)| (field.id, field.bytes + longer));
    for (id, bytes) in own.chain(others.iter().copied()) {
        let alignment = if bytes.is_power_of_two() && bytes <= 8 {
            bytes
        } else {
            1
        };
        let offset = end.next_multiple_of(alignment);
        entries.push((id, offset, bytes));
        end = offset + bytes;
    }
    (record_kind, end.next_multiple_of(8), entries)
}

fn usual(record_kind: u32) -> Layout {
    let fields = fields_of(record_kind).expect("a kind").fields;
    let order: Vec<(Field, usize)> = fields.iter().map(|field| (*field, 0)).collect();
    laid_out(record_kind, &order, &[])
}

/// A buffer whose second half begins with these bytes.
fn buffer_with(records: &[u8], capacity: usize) -> (Vec<u8>, usize) {
    let mut buffer = vec![0xee; capacity];
    buffer[capacity / 2..capacity / 2 + records.len()].copy_from_slice(records);
    (buffer, capacity / 2)
}

#[test]
fn pieces_that_go_on_in_both_are_one() {
    let fields = fields_of(kind::DRIVER).expect("calls");
    // Kind, callback, start, end as in the struct, then the thread behind the process that is not asked for.
    let entries = [
        (0, 0, 4),
        (1, 4, 4),
        (2, 8, 8),
        (3, 16, 8),
        (5, 24, 8),
        (6, 32, 8),
        (7, 40, 4),
    ];
    let plan = Plan::new(fields, 48, entries.into_iter()).expect("a plan");
    assert_eq!(plan.missing, 0);
    let copy = |from, to, bytes| Copy { from, to, bytes };
    assert_eq!(
        &plan.copies[..plan.count],
        [copy(4, 4, 20), copy(24, 28, 4), copy(32, 32, 4), copy(40, 36, 4)]
    );
}

#[test]
fn plans_are_written_as_text() {
    let plans = Plans::of(&[usual(kind::CONTEXT), usual(kind::STREAM)]);
    assert_eq!(plans.describe(), "9 16 16 4:4:8 12:14:2\n37 24 24 4:4:16\n");
}

#[test]
fn layouts_that_contradict_themselves_give_no_plan() {
    let fields = fields_of(kind::DRIVER).expect("calls");
    let plan = |bytes, entries: &[(i32, usize, usize)]| Plan::new(fields, bytes, entries.iter().copied());
    assert!(plan(8, &[(0, 0, 4), (1, 4, 4)]).is_some());
    assert!(plan(8, &[(0, 0, 4), (1, 8, 4)]).is_none(), "behind the record");
    assert!(plan(8, &[(0, 0, 4), (1, usize::MAX, 4)]).is_none());
    assert!(plan(8, &[(0, 0, 4), (1, 4, 0)]).is_none(), "of no bytes");
    assert!(
        plan(8, &[(0, 4, 4), (1, 0, 4)]).is_none(),
        "the kind is elsewhere"
    );
    assert!(plan(8, &[(1, 4, 4)]).is_none(), "no kind");
    assert!(plan(0, &[]).is_none());
    assert!(plan(1 << 20, &[(0, 0, 4)]).is_none());
    let lacking = plan(8, &[(0, 0, 4), (1, 4, 4)]).expect("a plan");
    assert_eq!(lacking.missing, fields.fields.len() - 1);
}

#[test]
fn a_buffer_full_of_kernels_is_expanded_in_its_place() {
    let layout = usual(kind::CONCURRENT_KERNEL);
    let plans = Plans::of(std::slice::from_ref(&layout));
    let capacity = 64 << 10;
    let count = capacity / 2 / layout.1;
    let mut delivered = Vec::new();
    for number in 0..count {
        let mut record = vec![0u8; layout.1];
        record[..4].copy_from_slice(&kind::CONCURRENT_KERNEL.to_le_bytes());
        for (id, offset, bytes) in &layout.2[1..] {
            let value = (number as u64) << 8 | *id as u64;
            record[*offset..offset + bytes].copy_from_slice(&value.to_le_bytes()[..*bytes]);
        }
        delivered.extend(record);
    }
    let (mut buffer, from) = buffer_with(&delivered, capacity);
    let expanded = plans.expand(&mut buffer, from, from + delivered.len());
    let bytes = fields_of(kind::CONCURRENT_KERNEL).expect("kernels").record_bytes;
    assert_eq!(
        expanded,
        Expanded {
            bytes: count * bytes,
            unread_bytes: 0
        }
    );
    for (number, record) in buffer[..expanded.bytes].chunks(bytes).enumerate() {
        let kernel: records::Kernel = records::read(record);
        let value = |id: u64| (number as u64) << 8 | id;
        assert_eq!((kernel.start, kernel.end), (value(7), value(8)));
        assert_eq!((kernel.name, kernel.graph_node), (value(24), value(31)));
        assert_eq!(
            kernel.block.map(i64::from),
            [16, 17, 18].map(|id| value(id) as i64)
        );
        assert_eq!(kernel.registers, value(4) as u16);
        assert_eq!(u64::from(kernel.correlation), value(22));
        assert_eq!((kernel.completed, kernel.grid_id, kernel.queued), (0, 0, 0));
    }
}

#[test]
fn what_cannot_be_read_is_counted() {
    let layout = usual(kind::STREAM);
    let plans = Plans::of(std::slice::from_ref(&layout));
    let mut record = vec![0u8; layout.1];
    record[..4].copy_from_slice(&kind::STREAM.to_le_bytes());
    // One whole record, then a part of one.
    let mut delivered = record.clone();
    delivered.extend(&record[..layout.1 - 1]);
    let (mut buffer, from) = buffer_with(&delivered, 1 << 10);
    let expanded = plans.expand(&mut buffer, from, from + delivered.len());
    assert_eq!((expanded.bytes, expanded.unread_bytes), (24, layout.1 - 1));
    // Then one of a kind without a layout.
    let mut delivered = record;
    delivered.extend(kind::CONTEXT.to_le_bytes());
    let (mut buffer, from) = buffer_with(&delivered, 1 << 10);
    let expanded = plans.expand(&mut buffer, from, from + delivered.len());
    assert_eq!((expanded.bytes, expanded.unread_bytes), (24, 4));
}

#[test]
fn structs_never_overtake_what_is_to_be_read() {
    // The struct of a layout with the kind alone is longer than twice the record: the front would overtake.
    let plans = Plans::of(&[(kind::DRIVER, 8, vec![(0, 0, 4)])]);
    let mut delivered = Vec::new();
    for number in 0..60u32 {
        delivered.extend(kind::DRIVER.to_le_bytes());
        delivered.extend(number.to_le_bytes());
    }
    let (mut buffer, from) = buffer_with(&delivered, 960);
    let expanded = plans.expand(&mut buffer, from, from + delivered.len());
    assert!(expanded.unread_bytes > 0);
    let read = (delivered.len() - expanded.unread_bytes) / 8;
    assert_eq!(expanded.bytes, read * 40);
    assert!(from + read * 8 >= expanded.bytes);
}

#[test]
fn our_own_selection_fits_into_half_a_buffer() {
    // A process has as many records of devices as devices: thousands of them would fit, too.
    for (record_kind, fields) in kinds().into_iter().filter(|(kind, _)| *kind != kind::DEVICE) {
        let (_, bytes, _) = usual(record_kind);
        assert!(
            fields.record_bytes <= 2 * bytes,
            "kind {record_kind}: {bytes} bytes become {}",
            fields.record_bytes
        );
    }
}

#[test]
fn later_plans_add_to_those_that_are_known() {
    let (stream, context) = (usual(kind::STREAM), usual(kind::CONTEXT));
    let mut known = Plans::of(std::slice::from_ref(&stream));
    let both = Plans::of(&[stream.clone(), context.clone()]);
    assert!(!known.knows(&both));
    known.learn(&both);
    assert!(known.knows(&both) && known.knows(&Plans::of(std::slice::from_ref(&context))));
    known.learn(&Plans::of(std::slice::from_ref(&context)));
    assert_eq!(known, both);
    assert_eq!(known.missing(), 0);
    let other = Plans::of(&[(kind::STREAM, stream.1 + 8, stream.2)]);
    assert!(!known.knows(&other));
    known.learn(&other);
    assert!(known.knows(&other) && !known.knows(&both));
}

/// The kinds that can be recorded so.
fn kinds() -> Vec<(u32, &'static KindFields)> {
    let fields = |kind: &RecordKind| Some((kind.kind, fields_of(kind.kind)?));
    KINDS.iter().filter_map(fields).collect()
}

proptest! {
    /// Fields in any order, longer than in the struct or not, with others between that were not asked for.
    #[test]
    fn any_layout_gives_the_same_structs(
        picks in proptest::collection::vec((0..kinds().len(), any::<[u64; 24]>()), 1..40),
        order in proptest::collection::vec(any::<u32>(), 24),
        longer in proptest::collection::vec(prop_oneof![Just(0usize), Just(4)], 24),
        others in proptest::collection::vec((900..950i32, prop_oneof![Just(1usize), Just(2), Just(8)]), 0..6),
    ) {
        let kinds = kinds();
        let layouts: Vec<Layout> = kinds
            .iter()
            .map(|(record_kind, fields)| {
                let mut fields_in_order: Vec<(Field, usize)> = fields
                    .fields
                    .iter()
                    .zip(&longer)
                    // Ids grow from 4 to 8 bytes; nothing else does.
                    .map(|(field, longer)| (*field, if field.bytes == 4 { *longer } else { 0 }))
                    .collect();
                fields_in_order.sort_by_key(|(field, _)| order[field.id as usize % order.len()]);
                laid_out(*record_kind, &fields_in_order, &others)
            })
            .collect();
        let plans = Plans::of(&layouts);
        prop_assert_eq!(plans.missing(), 0);
        let (mut delivered, mut expected) = (Vec::new(), Vec::new());
        for (pick, values) in &picks {
            let ((record_kind, fields), layout) = (kinds[*pick], &layouts[*pick]);
            let mut record = vec![0xabu8; layout.1];
            let mut made = vec![0u8; fields.record_bytes];
            record[..4].copy_from_slice(&record_kind.to_le_bytes());
            made[..4].copy_from_slice(&record_kind.to_le_bytes());
            if let Some((offset, value)) = fields.constant {
                made[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
            }
            for ((id, offset, bytes), value) in layout.2[1..].iter().zip(values) {
                let mut long = [0u8; 16];
                long[..8].copy_from_slice(&value.to_le_bytes());
                record[*offset..offset + bytes].copy_from_slice(&long[..*bytes]);
                if let Some(field) = fields.fields.iter().find(|field| field.id == *id) {
                    let kept = field.bytes.min(*bytes);
                    made[field.to..field.to + kept].copy_from_slice(&long[..kept]);
                }
            }
            delivered.extend(record);
            expected.extend(made);
        }
        let (mut buffer, from) = buffer_with(&delivered, 4 * (delivered.len() + expected.len()));
        let expanded = plans.expand(&mut buffer, from, from + delivered.len());
        prop_assert_eq!(expanded, Expanded { bytes: expected.len(), unread_bytes: 0 });
        prop_assert_eq!(&buffer[..expanded.bytes], &expected[..]);
    }

    /// Whatever bytes come: nothing panics, and the parts add up.
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(0u8..44, 0..600), end in 0usize..700) {
        let layouts: Vec<Layout> = kinds().into_iter().map(|(record_kind, _)| usual(record_kind)).collect();
        let (mut buffer, from) = buffer_with(&bytes, 1 << 11);
        let expanded = Plans::of(&layouts).expand(&mut buffer, from, from + end);
        prop_assert!(expanded.unread_bytes <= end);
    }
}
