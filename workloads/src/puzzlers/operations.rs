//! The operations that `collectives` sweeps: how much each sends and receives, in place and not, what its result must
//! be, and how its time becomes a bandwidth.
//!
//! Sizes, counts and factors are those of nccl-tests (its PERFORMANCE.md): a size is what the larger buffer holds.

use clap::ValueEnum;
use cudarc::driver::CudaStream;

use super::elements::Wanted;
use super::world::World;
use crate::comm::{self, Element, Reduction};
use crate::error::Error;

/// One operation, or a composition of two that all-reduces.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
#[value(rename_all = "snake_case")]
pub(crate) enum Operation {
    AllReduce,
    /// reduce to the root, then broadcast
    ReduceBroadcast,
    /// reduce-scatter, then all-gather
    ReduceScatterAllGather,
    Broadcast,
    Reduce,
    AllGather,
    ReduceScatter,
    Scatter,
    Gather,
    AllToAll,
    /// each rank to the next one
    #[value(name = "sendrecv", alias = "send_recv")]
    SendReceive,
}

/// What all operations of a run have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) element: Element,
    pub(super) reduction: Reduction,
    pub(super) root: usize,
}

/// How many elements an operation moves on each rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// The count that the operation is called with.
    pub(super) count: usize,
    pub(super) send: usize,
    pub(super) receive: usize,
    /// Elements from the buffer's begin, when the operation is in place.
    pub(super) in_place_send: usize,
    pub(super) in_place_receive: usize,
    /// How many elements the result has on this rank; the rest of the buffer is none of it.
    pub(super) result: usize,
}

impl Shape {
    /// Elements of the larger buffer.
    pub(super) fn larger(&self) -> usize {
        self.send.max(self.receive)
    }
}

/// The three ways to all-reduce.
pub(super) const COMPOSITIONS: [Operation; 3] = [
    Operation::AllReduce,
    Operation::ReduceBroadcast,
    Operation::ReduceScatterAllGather,
];

impl Operation {
    /// As it is called on the command line.
    pub(super) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether elements are reduced.
    pub(super) fn reduces(self) -> bool {
        COMPOSITIONS.contains(&self) || matches!(self, Self::Reduce | Self::ReduceScatter)
    }

    /// Whether one rank is special.
    pub(super) fn has_root(self) -> bool {
        matches!(
            self,
            Self::ReduceBroadcast | Self::Broadcast | Self::Reduce | Self::Scatter | Self::Gather
        )
    }

    /// Whether the result can be written over what is sent. Where not, in place is measured but not checked.
    pub(super) fn can_be_in_place(self) -> bool {
        !matches!(self, Self::AllToAll | Self::SendReceive)
    }

    /// What `rank` sends and receives when the larger buffer has room for `elements`. At least one element moves
    /// between any two ranks.
    pub(super) fn shape(self, elements: usize, (rank, ranks): (usize, usize), root: usize) -> Shape {
        let all = elements.max(1);
        let part = (elements / ranks).max(1);
        let mut shape = Shape {
            count: part,
            send: part,
            receive: part,
            in_place_send: 0,
            in_place_receive: 0,
            result: part,
        };
        match self {
            Self::AllReduce | Self::ReduceBroadcast | Self::Broadcast | Self::Reduce | Self::SendReceive => {
                (shape.count, shape.send, shape.receive, shape.result) = (all, all, all, all);
            }
            Self::ReduceScatterAllGather => {
                // Filled up, so that every rank has as large a part.
                let padded = all.div_ceil(ranks) * ranks;
                (shape.count, shape.send, shape.receive, shape.result) = (all, padded, padded, all);
            }
            Self::AllGather | Self::Gather => {
                (shape.receive, shape.result) = (part * ranks, part * ranks);
                shape.in_place_send = part * rank;
            }
            Self::ReduceScatter | Self::Scatter => {
                shape.send = part * ranks;
                shape.in_place_receive = part * rank;
            }
            Self::AllToAll => {
                (shape.send, shape.receive, shape.result) = (part * ranks, part * ranks, part * ranks);
            }
        }
        if matches!(self, Self::Reduce | Self::Gather) && rank != root {
            shape.result = 0;
        }
        shape
    }

    /// What element `position` of `rank`'s result must be.
    pub(super) fn wanted(
        self,
        position: usize,
        (rank, ranks): (usize, usize),
        root: usize,
        count: usize,
    ) -> Wanted {
        match self {
            Self::AllReduce | Self::ReduceBroadcast | Self::ReduceScatterAllGather | Self::Reduce => {
                Wanted::Reduced { index: position }
            }
            Self::Broadcast => Wanted::Copied {
                rank: root,
                index: position,
            },
            Self::AllGather | Self::Gather => Wanted::Copied {
                rank: position / count,
                index: position % count,
            },
            Self::ReduceScatter => Wanted::Reduced {
                index: rank * count + position,
            },
            Self::Scatter => Wanted::Copied {
                rank: root,
                index: rank * count + position,
            },
            Self::AllToAll => Wanted::Copied {
                rank: position / count,
                index: rank * count + position % count,
            },
            Self::SendReceive => Wanted::Copied {
                rank: (rank + ranks - 1) % ranks,
                index: position,
            },
        }
    }

    /// The bytes that the algorithm bandwidth is of, which are the size in nccl-tests' first column.
    pub(super) fn algorithm_bytes(self, count: usize, ranks: usize, element_bytes: usize) -> usize {
        let parts = match self {
            Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::Scatter | Self::Gather => ranks,
            _ => 1,
        };
        count * parts * element_bytes
    }

    /// Bus bandwidth over algorithm bandwidth: what a link carries, whatever the number of ranks.
    pub(super) fn bus_factor(self, ranks: usize) -> f64 {
        let n = ranks as f64;
        match self {
            Self::AllReduce | Self::ReduceBroadcast | Self::ReduceScatterAllGather => 2.0 * (n - 1.0) / n,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll | Self::Scatter | Self::Gather => {
                (n - 1.0) / n
            }
            Self::Broadcast | Self::Reduce | Self::SendReceive => 1.0,
        }
    }

    /// Enqueues the operation.
    pub(super) fn enqueue(
        self,
        world: &World,
        shape: &Shape,
        addresses: [u64; 2],
        kind: Kind,
        stream: &CudaStream,
    ) -> Result<(), Error> {
        let communicator = &world.communicator;
        let (element, reduction) = (kind.element, (kind.element, kind.reduction));
        let (count, root) = (shape.count, kind.root as u32);
        let received = addresses[1];
        match self {
            Self::AllReduce => communicator.all_reduce(addresses, count, reduction, stream),
            Self::ReduceBroadcast => {
                communicator.reduce(addresses, count, reduction, root, stream)?;
                communicator.broadcast([received; 2], count, element, root, stream)
            }
            Self::ReduceScatterAllGather => {
                let part = shape.send / world.ranks;
                let own = received + (world.rank * part * element.bytes()) as u64;
                communicator.reduce_scatter([addresses[0], own], part, reduction, stream)?;
                communicator.all_gather([own, received], part, element, stream)
            }
            Self::Broadcast => communicator.broadcast(addresses, count, element, root, stream),
            Self::Reduce => communicator.reduce(addresses, count, reduction, root, stream),
            Self::AllGather => communicator.all_gather(addresses, count, element, stream),
            Self::ReduceScatter => communicator.reduce_scatter(addresses, count, reduction, stream),
            Self::Scatter => communicator.scatter(addresses, count, element, root, stream),
            Self::Gather => communicator.gather(addresses, count, element, root, stream),
            Self::AllToAll => communicator.all_to_all(addresses, count, element, stream),
            Self::SendReceive => {
                let (next, previous) = (
                    (world.rank + 1) % world.ranks,
                    (world.rank + world.ranks - 1) % world.ranks,
                );
                comm::group(|| {
                    communicator.send(addresses[0], count, element, next as u32, stream)?;
                    communicator.receive(received, count, element, previous as u32, stream)
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::elements::{ElementName, ReductionName, Values, decode};
    use super::*;

    /// What the ranks' results are by the operations' definitions, computed from what the ranks send.
    fn by_definition(
        operation: Operation,
        sent: &[Vec<f64>],
        rank: usize,
        root: usize,
        count: usize,
    ) -> Vec<f64> {
        let sum = |index: usize| sent.iter().map(|values| values[index]).sum::<f64>();
        let n = sent.len();
        match operation {
            Operation::AllReduce | Operation::ReduceBroadcast | Operation::ReduceScatterAllGather => {
                (0..count).map(sum).collect()
            }
            Operation::Reduce if rank == root => (0..count).map(sum).collect(),
            Operation::Broadcast => sent[root][..count].to_vec(),
            Operation::AllGather => sent.iter().flat_map(|values| values[..count].to_vec()).collect(),
            Operation::Gather if rank == root => {
                sent.iter().flat_map(|values| values[..count].to_vec()).collect()
            }
            Operation::Reduce | Operation::Gather => Vec::new(),
            Operation::ReduceScatter => (0..count).map(|index| sum(rank * count + index)).collect(),
            Operation::Scatter => sent[root][rank * count..(rank + 1) * count].to_vec(),
            Operation::AllToAll => sent
                .iter()
                .flat_map(|values| values[rank * count..(rank + 1) * count].to_vec())
                .collect(),
            Operation::SendReceive => sent[(rank + n - 1) % n][..count].to_vec(),
        }
    }

    #[test]
    fn what_is_wanted_is_the_definition() {
        for ranks in 1..=4 {
            let values = Values::new(ElementName::Float, ReductionName::Sum, ranks);
            for (operation, elements) in Operation::value_variants()
                .iter()
                .flat_map(|o| [1, 7, 64].map(|e| (*o, e)))
            {
                let root = ranks - 1;
                let sent: Vec<Vec<f64>> = (0..ranks)
                    .map(|rank| {
                        let shape = operation.shape(elements, (rank, ranks), root);
                        let bytes = values.bytes_of(rank, 0, shape.send);
                        bytes.chunks(4).map(|bytes| decode(Element::F32, bytes)).collect()
                    })
                    .collect();
                for rank in 0..ranks {
                    let shape = operation.shape(elements, (rank, ranks), root);
                    let right = by_definition(operation, &sent, rank, root, shape.count);
                    assert_eq!(right.len(), shape.result, "{operation:?} {ranks} {elements}");
                    let bytes: Vec<u8> = right
                        .iter()
                        .flat_map(|value| (*value as f32).to_le_bytes())
                        .collect();
                    let wanted = |position| operation.wanted(position, (rank, ranks), root, shape.count);
                    assert_eq!(
                        values.count_wrong(&bytes, wanted),
                        0,
                        "{operation:?} {ranks} {elements} {rank}"
                    );
                }
            }
        }
    }

    #[test]
    fn buffers_hold_what_is_in_place() {
        for operation in Operation::value_variants() {
            for (rank, ranks) in [(0, 1), (2, 3), (0, 4)] {
                let shape = operation.shape(100, (rank, ranks), 0);
                assert!(
                    shape.in_place_send + shape.send <= shape.larger(),
                    "{operation:?}"
                );
                assert!(
                    shape.in_place_receive + shape.receive <= shape.larger(),
                    "{operation:?}"
                );
            }
        }
    }

    #[test]
    fn bandwidths_are_as_in_nccl_tests() {
        // 8 ranks: 1.75 for all-reduce, 0.875 for what each rank has a part of, 1 for the rest.
        assert!((Operation::AllReduce.bus_factor(8) - 1.75).abs() < 1e-12);
        assert!((Operation::AllToAll.bus_factor(8) - 0.875).abs() < 1e-12);
        assert!((Operation::Broadcast.bus_factor(8) - 1.0).abs() < 1e-12);
        // all_gather of 1 MiB on 4 ranks of f32: 65536 elements each, bandwidth of the whole.
        let shape = Operation::AllGather.shape(1 << 18, (1, 4), 0);
        assert_eq!(
            (shape.count, shape.larger(), shape.in_place_send),
            (65536, 1 << 18, 65536)
        );
        assert_eq!(Operation::AllGather.algorithm_bytes(shape.count, 4, 4), 1 << 20);
    }
}
