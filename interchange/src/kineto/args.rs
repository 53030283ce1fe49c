//! The `args` of device operations, calls and collectives.

use super::number::{float, integer};
use super::scan::{Cursor, Go, Raw, RawText, members};

/// What Kineto says of a kernel, a copy, a memset, a call or a synchronisation. Names as in its output_json.cpp and
/// MetadataFieldCatalog.h (2026-08), and those of earlier versions and of ROCm.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Args<'a> {
    pub(crate) device: Option<i64>,
    pub(crate) context: Option<i64>,
    pub(crate) stream: Option<i64>,
    pub(crate) correlation: Option<i64>,
    pub(crate) callback: Option<i64>,
    pub(crate) bytes: Option<i64>,
    pub(crate) grid: [i32; 3],
    pub(crate) block: [i32; 3],
    pub(crate) registers: Option<i64>,
    pub(crate) shared_bytes: Option<i64>,
    pub(crate) graph: Option<i64>,
    pub(crate) graph_node: Option<i64>,
    pub(crate) from_device: Option<i64>,
    pub(crate) to_device: Option<i64>,
    pub(crate) event: Option<i64>,
    pub(crate) collective: Option<RawText<'a>>,
    pub(crate) in_elements: Option<i64>,
    pub(crate) out_elements: Option<i64>,
    pub(crate) group_size: Option<i64>,
    pub(crate) dtype: Option<RawText<'a>>,
    pub(crate) group_name: Option<RawText<'a>>,
    pub(crate) group_description: Option<RawText<'a>>,
    pub(crate) group_ranks: Option<RawText<'a>>,
    pub(crate) sequence: Option<i64>,
    pub(crate) source_rank: Option<i64>,
    pub(crate) destination_rank: Option<i64>,
    pub(crate) address: Option<u64>,
    pub(crate) device_type: Option<i64>,
    pub(crate) device_id: Option<i64>,
    pub(crate) total_allocated: Option<i64>,
    pub(crate) total_reserved: Option<i64>,
    /// Of a process's name in our own export: its number, rank, world size and host.
    pub(crate) process: Option<i64>,
    pub(crate) rank: Option<i64>,
    pub(crate) world_size: Option<i64>,
    pub(crate) host: Option<RawText<'a>>,
    /// Whether a member stands twice.
    pub(crate) duplicates: u32,
    /// What stands in it is no JSON.
    pub(crate) damaged: bool,
}

/// The number in a value, which some writers put between quotes.
fn number(value: Raw<'_>) -> Option<i64> {
    match value {
        Raw::Scalar(bytes) => integer(bytes),
        Raw::Text(text) => integer(text.bytes),
        Raw::Nested(_) => None,
    }
}

fn text(value: Raw<'_>) -> Option<RawText<'_>> {
    match value {
        Raw::Text(text) => Some(text),
        Raw::Scalar(bytes) | Raw::Nested(bytes) => Some(RawText {
            bytes,
            escaped: false,
        }),
    }
}

/// `[x, y, z]`.
fn triple(value: Raw<'_>) -> [i32; 3] {
    let mut found = [0; 3];
    if let Raw::Nested(bytes) = value {
        let inner = bytes.get(1..bytes.len().saturating_sub(1)).unwrap_or_default();
        for (place, part) in found.iter_mut().zip(inner.split(|&byte| byte == b',')) {
            *place = integer(part.trim_ascii())
                .and_then(|value| i32::try_from(value).ok())
                .unwrap_or(0);
        }
    }
    found
}

impl<'a> Args<'a> {
    /// Reads an `args` object. Members that are not as expected are as good as absent.
    pub(crate) fn read(object: Option<&'a [u8]>) -> Self {
        let mut args = Self::default();
        let Some(object) = object else {
            return args;
        };
        let mut duplicates = 0;
        let mut once = |known: bool| duplicates += u32::from(known);
        // The object was cut out whole, so it can only be wrong inside: what stands before that is kept.
        let read = members(&mut Cursor::new(object), |key, value| {
            match key {
                b"device" => {
                    once(args.device.is_some());
                    args.device = number(value);
                }
                b"context" => args.context = number(value),
                // The second is how our own export calls it on waits.
                b"stream" | b"stream of the wait" => {
                    once(args.stream.is_some());
                    args.stream = number(value);
                }
                b"correlation" => {
                    once(args.correlation.is_some());
                    args.correlation = number(value);
                }
                b"cbid" => args.callback = number(value),
                b"bytes" | b"Bytes" => {
                    once(args.bytes.is_some());
                    args.bytes = number(value);
                }
                b"grid" => args.grid = triple(value),
                b"block" => args.block = triple(value),
                b"registers per thread" => args.registers = number(value),
                b"shared memory" => args.shared_bytes = number(value),
                b"graph id" => args.graph = number(value),
                b"graph node id" => args.graph_node = number(value),
                b"fromDevice" => args.from_device = number(value),
                b"toDevice" => args.to_device = number(value),
                b"wait_on_cuda_event_id" | b"event_id" => args.event = number(value),
                b"Collective name" => args.collective = text(value),
                b"In msg nelems" => args.in_elements = number(value),
                b"Out msg nelems" => args.out_elements = number(value),
                b"Group size" => args.group_size = number(value),
                b"dtype" => args.dtype = text(value),
                b"Process Group Name" => args.group_name = text(value),
                b"Process Group Description" => args.group_description = text(value),
                b"Process Group Ranks" => args.group_ranks = text(value),
                b"Seq" => args.sequence = number(value),
                b"Src Rank" => args.source_rank = number(value),
                b"Dst Rank" => args.destination_rank = number(value),
                b"Addr" => args.address = number(value).map(i64::cast_unsigned),
                b"Device Type" => args.device_type = number(value),
                b"Device Id" => args.device_id = number(value),
                b"Total Allocated" => args.total_allocated = number(value),
                b"Total Reserved" => args.total_reserved = number(value),
                b"process" => args.process = number(value),
                b"rank" => args.rank = number(value),
                b"world size" => args.world_size = number(value),
                b"host" => args.host = text(value),
                _ => {}
            }
            Go::On
        });
        args.duplicates = duplicates;
        args.damaged = read.is_err();
        args
    }
}

/// The members of a counter's `args` that are numbers.
pub(crate) fn counter_values(object: &[u8]) -> Vec<(RawText<'_>, f64)> {
    let mut values = Vec::new();
    let _ = members(&mut Cursor::new(object), |key, value| {
        let number = match value {
            Raw::Scalar(bytes) => float(bytes),
            Raw::Text(text) => float(text.bytes),
            Raw::Nested(_) => None,
        };
        if let Some(number) = number {
            let key = RawText {
                bytes: key,
                escaped: key.contains(&b'\\'),
            };
            values.push((key, number));
        }
        Go::On
    });
    values
}
