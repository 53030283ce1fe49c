//! How long operations take among a communicator's ranks: the one place that asks the model.

use super::bootstrap::Member;
use super::mesh::Mesh;
use super::model::{self, Choice, RankPlace, Shape};
use super::operation::Operation;
use crate::device::model::{Path, bandwidth};

/// The shape of ranks, for the model.
pub(super) fn shape<'a>(members: impl Iterator<Item = &'a Member>) -> Shape {
    let places: Vec<RankPlace> = members
        .map(|member| RankPlace {
            host: member.host_hash,
            device: member.device,
        })
        .collect();
    Shape::of(&places)
}

/// What NCCL would choose for the collectives of one group, in their order, and the time of each.
///
/// NCCL chooses once for those of one function, reduction and type whose sizes are within a factor of four, as if they
/// were one; of that one's time each has its share by bytes.
pub(super) fn collectives(operations: &[Operation], mesh: &Mesh) -> Vec<Choice> {
    let bytes = |index: usize| operations[index].model_bytes(mesh.ranks);
    let kind = |index: usize| {
        let Operation {
            function,
            reduction,
            datatype,
            ..
        } = operations[index];
        (function as u8, reduction, datatype)
    };
    let mut order: Vec<usize> = (0..operations.len()).collect();
    order.sort_by_key(|index| (kind(*index), std::cmp::Reverse(bytes(*index))));
    let mut choices: Vec<Option<Choice>> = vec![None; operations.len()];
    let mut rest = order.as_slice();
    while let [first, ..] = rest {
        let together = rest
            .iter()
            .take_while(|index| kind(**index) == kind(*first) && bytes(**index) * 4 >= bytes(*first))
            .count();
        let (batch, others) = rest.split_at(together);
        rest = others;
        let total: u64 = batch.iter().map(|index| bytes(*index)).sum();
        let choice = choose(&operations[*first], total, together as u32, mesh);
        for index in batch {
            let share = bytes(*index) as f64 / total.max(1) as f64;
            choices[*index] = Some(Choice {
                transfer_ns: (choice.transfer_ns as f64 * share).round() as i64,
                ..choice
            });
        }
    }
    choices.into_iter().flatten().collect()
}

fn choose(operation: &Operation, bytes: u64, count: u32, mesh: &Mesh) -> Choice {
    if mesh.ranks == 1 {
        return Choice {
            algorithm: c"RING",
            protocol: c"SIMPLE",
            channels: 1,
            threads: 512,
            transfer_ns: own_copy_ns(bytes),
        };
    }
    model::choose_on(&mesh.shape, operation.function, bytes, count)
}

/// Channels, threads and time of a send.
pub(super) fn send(bytes: u64, from: u32, to: u32, mesh: &Mesh) -> Choice {
    if from == to {
        return Choice {
            transfer_ns: own_copy_ns(bytes),
            ..model::send_receive(&mesh.shape, bytes)
        };
    }
    let pair = [mesh.member(from as usize), mesh.member(to as usize)];
    model::send_receive(&shape(pair.into_iter()), bytes)
}

/// A copy within the device by a kernel, which is what a send to oneself is.
pub(super) fn own_copy_ns(bytes: u64) -> i64 {
    (7e3 + bytes as f64 / bandwidth(Path::Device) * 1e9).round() as i64
}
