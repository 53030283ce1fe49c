//! Collectives from what Kineto writes on their kernels: name, elements, type, process group.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault};

use gputrace_trace::collective_names::function_name;
use gputrace_trace::tables::{Collective, Communicator};
use gputrace_trace::{DurationNs, NameId, TimeNs};
use rustc_hash::FxHasher;

use super::args::Args;
use super::text::Names;

/// The process groups of one file.
#[derive(Default)]
pub(crate) struct Communicators {
    by_id: HashMap<u64, Group>,
    /// Members of all of them.
    members: usize,
}

/// A process group as its collectives describe it.
#[derive(Clone, Debug, Default)]
struct Group {
    created_ns: TimeNs,
    name: Option<NameId>,
    size: u32,
    ranks: Vec<u32>,
}

/// Bytes of an element of PyTorch's scalar types.
fn element_bytes(dtype: &str) -> Option<u64> {
    let dtype = dtype.trim_start_matches("c10::").to_ascii_lowercase();
    Some(match dtype.as_str() {
        "double" | "long" | "int64" | "uint64" | "float64" | "complexfloat" | "long int" => 8,
        "complexdouble" => 16,
        "float" | "int" | "int32" | "float32" | "uint32" | "complexhalf" => 4,
        "half" | "bfloat16" | "short" | "float16" | "int16" | "uint16" => 2,
        "byte" | "char" | "bool" | "int8" | "uint8" | "unsigned char" | "quint8" | "qint8" => 1,
        // Two of four bits share a byte.
        other if other.starts_with("float8") || other == "float4_e2m1fn_x2" => 1,
        _ => return None,
    })
}

/// The numbers in "[0, 1, 2]"; none where the list was shortened with dots.
fn rank_list(text: &str) -> Vec<u32> {
    if text.contains("..") {
        return Vec::new();
    }
    text.split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

impl Communicators {
    /// The row of the collective whose kernel is row `kernel`, with the kernel's start and duration.
    pub(crate) fn collective(
        &mut self,
        args: &Args<'_>,
        kernel: u64,
        (start_ns, duration_ns): (TimeNs, DurationNs),
        names: &mut Names,
    ) -> Collective {
        let mut text = |raw: Option<_>| raw.map(|raw| names.text(raw)).unwrap_or_default();
        let function = text(args.collective);
        let function = function_name(&function).unwrap_or(&function);
        let dtype = text(args.dtype);
        let group = text(args.group_name);
        let description = text(args.group_description);
        let ranks_text = text(args.group_ranks);
        let size = args
            .group_size
            .and_then(|size| u32::try_from(size).ok())
            .unwrap_or(0);
        // Groups are told apart by name, members and size: names alone are counted by each process for itself.
        // Our own export says NCCL's number of the communicator.
        let number = description
            .strip_prefix("communicator 0x")
            .and_then(|number| u64::from_str_radix(number, 16).ok());
        let communicator = number.unwrap_or_else(|| {
            BuildHasherDefault::<FxHasher>::default().hash_one((&group, &ranks_text, size))
        });
        let elements = |count: Option<i64>| count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0);
        let (sent, received) = (elements(args.in_elements), elements(args.out_elements));
        // As NCCL counts for each: what one rank sends or gets.
        let count = match function {
            "AllGather" => sent.min(received),
            "Gather" => sent,
            "ReduceScatter" | "Scatter" => received,
            "AlltoAll" => sent / u64::from(size.max(1)),
            _ => sent.max(received),
        };
        let bytes = element_bytes(&dtype).map_or(0, |bytes| count.saturating_mul(bytes));
        let group_name = match number {
            Some(_) => Some(group).filter(|name| !name.starts_with("0x")),
            None => [description, group].into_iter().find(|name| !name.is_empty()),
        };
        let name = group_name.map(|name| names.interner.intern(&name));
        let known = self.by_id.entry(communicator).or_insert_with(|| {
            let ranks = rank_list(&ranks_text);
            self.members += ranks.len();
            Group {
                created_ns: start_ns,
                name,
                size,
                ranks,
            }
        });
        known.created_ns = known.created_ns.min(start_ns);
        let rank = |value: Option<i64>| {
            value
                .and_then(|value| i32::try_from(value).ok())
                .filter(|rank| *rank >= 0)
        };
        let peer = match function {
            "Send" => rank(args.destination_rank),
            "Recv" => rank(args.source_rank),
            _ => None,
        };
        Collective {
            start_ns,
            duration_ns,
            communicator,
            rank: 0,
            sequence: args.sequence.and_then(|sequence| u64::try_from(sequence).ok()),
            function: names.interner.intern(function),
            datatype: names.interner.intern(&dtype),
            count,
            bytes,
            peer,
            kernel: Some(kernel),
            ..Collective::default()
        }
    }

    /// Bytes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.by_id.capacity() * size_of::<(u64, Group)>() + self.members * size_of::<u32>()
    }

    /// The rows of the groups, for the process of global rank `rank`; and each group's rank of this process.
    pub(crate) fn rows(&self, rank: Option<u32>) -> Vec<Communicator> {
        let mut rows: Vec<Communicator> = self
            .by_id
            .iter()
            .map(|(&communicator, group)| Communicator {
                created_ns: group.created_ns,
                communicator,
                name: group.name,
                rank: rank
                    .and_then(|rank| group.ranks.iter().position(|&member| member == rank))
                    .or(rank
                        .map(|rank| rank as usize)
                        .filter(|rank| *rank < group.size as usize))
                    .and_then(|place| u32::try_from(place).ok())
                    .unwrap_or(0),
                ranks: group.size,
                nodes: 0,
            })
            .collect();
        rows.sort_by_key(|row| (row.created_ns, row.communicator));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_sizes_and_groups_have_ranks() {
        assert_eq!(element_bytes("Float"), Some(4));
        assert_eq!(element_bytes("c10::BFloat16"), Some(2));
        assert_eq!(element_bytes("Float8_e4m3fn"), Some(1));
        assert_eq!(element_bytes("Quaternion"), None);
        assert_eq!(rank_list("[0, 1, 7]"), [0, 1, 7]);
        assert!(rank_list("[0, 1, ..., 7]").is_empty());
    }
}
