//! The device mesh: which rank is where in data, tensor and pipeline parallelism, and the communicators along its axes.
//!
//! Neighbours in the ranks' order share a layer (tensor), then come replicas (data), then stages (pipeline): what talks
//! most is nearest.

use std::rc::Rc;

use crate::comm::{self, Communicator};
use crate::error::Error;
use crate::store::Store;

/// A position along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
}

/// How many ranks each axis has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) data: u32,
    pub(crate) tensor: u32,
    pub(crate) stages: u32,
}

impl Shape {
    /// The positions of a rank: data, tensor, stage.
    pub(crate) fn positions(self, rank: u32) -> [Position; 3] {
        let at = |rank, ranks| Position { rank, ranks };
        [
            at(rank / self.tensor % self.data, self.data),
            at(rank % self.tensor, self.tensor),
            at(rank / (self.tensor * self.data), self.stages),
        ]
    }

    /// How many ranks in all.
    pub(crate) fn ranks(self) -> u32 {
        self.data * self.tensor * self.stages
    }
}

/// One rank's view of the mesh. An axis of one rank has no communicator.
pub(crate) struct Mesh {
    pub(crate) data: Position,
    pub(crate) tensor: Position,
    pub(crate) stage: Position,
    pub(crate) data_ranks: Option<Rc<Communicator>>,
    pub(crate) tensor_ranks: Option<Rc<Communicator>>,
    pub(crate) stage_ranks: Option<Rc<Communicator>>,
    pub(crate) world: Option<Rc<Communicator>>,
}

impl Mesh {
    /// Connects all ranks, then splits them along the axes. On the context that is current.
    pub(crate) fn new(store: &Store, rank: u32, shape: Shape) -> Result<Self, Error> {
        let [data, tensor, stage] = shape.positions(rank);
        let ranks = shape.ranks();
        let mut mesh = Self {
            data,
            tensor,
            stage,
            data_ranks: None,
            tensor_ranks: None,
            stage_ranks: None,
            world: None,
        };
        if ranks == 1 {
            return Ok(mesh);
        }
        let id = store.share_id(comm::unique_id)?;
        let world = Rc::new(Communicator::new(id, rank, ranks, "world")?);
        // Who has the same position along the two other axes is in one group.
        let split = |axis: Position, others: [Position; 2], name: &str| {
            Ok::<_, Error>(match axis.ranks {
                1 => None,
                all if all == ranks => Some(Rc::clone(&world)),
                members => {
                    let color = others[0].rank * others[1].ranks + others[1].rank;
                    let group = world.split(color, axis.rank, (axis.rank, members), name)?;
                    Some(Rc::new(group))
                }
            })
        };
        mesh.data_ranks = split(data, [stage, tensor], "data parallel")?;
        mesh.tensor_ranks = split(tensor, [stage, data], "tensor parallel")?;
        mesh.stage_ranks = split(stage, [data, tensor], "pipeline parallel")?;
        mesh.world = Some(world);
        Ok(mesh)
    }

    /// What went wrong on any communicator behind the calls' back.
    pub(crate) fn check_health(&self) -> Result<(), Error> {
        let all = [
            &self.world,
            &self.data_ranks,
            &self.tensor_ranks,
            &self.stage_ranks,
        ];
        all.into_iter()
            .flatten()
            .try_for_each(|communicator| communicator.check_health())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_a_place_of_its_own() {
        let shape = Shape {
            data: 2,
            tensor: 4,
            stages: 3,
        };
        let mut seen: Vec<[u32; 3]> = (0..shape.ranks())
            .map(|rank| shape.positions(rank).map(|position| position.rank))
            .collect();
        assert_eq!(seen[0], [0, 0, 0]);
        assert_eq!(seen[1], [0, 1, 0], "neighbours share a layer");
        assert_eq!(seen[4], [1, 0, 0], "then come replicas");
        assert_eq!(seen[8], [0, 0, 1], "then stages");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 24);
    }
}
