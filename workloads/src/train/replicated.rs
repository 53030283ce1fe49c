//! Parameters of which every rank has all (or all of its stage and shard): single, data parallel, tensor and pipeline
//! parallel training.

use std::ops::Range;

use crate::checkpoint::Part;
use crate::error::Error;
use crate::gpu::{Buffer, DataType, Gpu, clear};
use crate::model::{Layout, Piece, TensorParallel};
use crate::schedule::Optimizer;

use super::reducer::Reducer;
use super::sharing::{Phase, Placement, Sharing};
use super::state::{State, Update};

/// What a stage's parameters are made for.
pub(crate) struct Recipe {
    pub(crate) data_type: DataType,
    pub(crate) optimizer: Optimizer,
    /// Whether a step has several microbatches, whose gradients are accumulated.
    pub(crate) accumulates: bool,
    /// Whether this replica is the one that saves.
    pub(crate) saves: bool,
    /// Whether this rank saves the tensors that tensor parallelism does not divide.
    pub(crate) saves_undivided: bool,
}

/// A unit's place in the flat vectors, and its layout.
struct Member {
    start: usize,
    /// Where the unit begins in the stage's unsharded vector.
    whole_start: usize,
    layout: Layout,
}

/// One flat vector of all the stage's parameters.
pub(crate) struct Replicated {
    members: Vec<Member>,
    data_type: DataType,
    saves: bool,
    saves_undivided: bool,
    state: State,
    /// Parameters in the type that is computed in, where that is not f32.
    working: Option<Buffer>,
    /// Gradients of one microbatch, where they are accumulated or of another type than the state's.
    micro: Option<Buffer>,
    overflow: Buffer,
    unscale: f32,
    reducer: Option<Reducer>,
    /// Sums the gradients that sequence parallelism leaves partial.
    sequence: Option<TensorParallel>,
}

impl Replicated {
    /// Parameters with these values (this rank's, unit by unit).
    pub(crate) fn new(
        gpu: &Gpu,
        layouts: &[Layout],
        values: &[f32],
        recipe: &Recipe,
        reducer: Option<Reducer>,
        parallel: Option<&TensorParallel>,
    ) -> Result<Self, Error> {
        let (mut start, mut whole_start) = (0, 0);
        let members = layouts
            .iter()
            .map(|layout| {
                let member = Member {
                    start,
                    whole_start,
                    layout: layout.clone(),
                };
                start += layout.elements;
                whole_start += layout.whole_elements;
                member
            })
            .collect();
        let elements = values.len();
        let mixed = recipe.data_type != DataType::F32;
        let of_type = |wanted: bool| {
            wanted
                .then(|| gpu.buffer(elements * recipe.data_type.bytes()))
                .transpose()
        };
        let replicated = Self {
            members,
            data_type: recipe.data_type,
            saves: recipe.saves,
            saves_undivided: recipe.saves_undivided,
            state: State::new(gpu, values, recipe.optimizer)?,
            working: of_type(mixed)?,
            micro: of_type(mixed || recipe.accumulates)?,
            overflow: gpu.buffer(size_of::<i32>())?,
            unscale: 1.0,
            reducer,
            sequence: parallel.filter(|parallel| parallel.sequence()).cloned(),
        };
        if let Some(reducer) = &replicated.reducer {
            reducer.broadcast(gpu, replicated.state.parameters.address(), elements)?;
        }
        replicated.refresh(gpu)?;
        Ok(replicated)
    }

    /// Brings the working copy up to date.
    fn refresh(&self, gpu: &Gpu) -> Result<(), Error> {
        let Some(working) = &self.working else {
            return Ok(());
        };
        let (to, from) = (working.address(), self.state.parameters.address());
        gpu.work()
            .cast(DataType::F32, self.data_type, to, from, self.state.elements)
    }

    /// Adds gradients of all elements, in the type that is computed in, to the step's.
    pub(crate) fn accumulate(&self, gpu: &Gpu, gradients: u64) -> Result<(), Error> {
        gpu.work().scale_accumulate(
            self.data_type,
            self.state.gradients.address(),
            gradients,
            self.unscale,
            self.state.elements,
            self.overflow.address(),
        )
    }

    fn pieces(&self, with_undivided: bool) -> Vec<Piece> {
        let of = |member: &Member| {
            let (start, whole_start) = (member.start, member.whole_start);
            member
                .layout
                .pieces_to_save(with_undivided)
                .map(move |piece| Piece {
                    whole: whole_start + piece.whole,
                    local: start + piece.local,
                    count: piece.count,
                })
                .collect::<Vec<_>>()
        };
        self.members.iter().flat_map(of).collect()
    }
}

impl Placement for Replicated {
    fn parameters(&mut self, _gpu: &Gpu, unit: usize, _phase: Phase) -> Result<u64, Error> {
        let base = self.working.as_ref().unwrap_or(&self.state.parameters);
        Ok(base.address() + (self.members[unit].start * self.data_type.bytes()) as u64)
    }

    fn done(&mut self, _gpu: &Gpu, _unit: usize, _phase: Phase) -> Result<(), Error> {
        Ok(())
    }

    fn gradients(&mut self, _gpu: &Gpu, unit: usize) -> Result<u64, Error> {
        let base = self.micro.as_ref().unwrap_or(&self.state.gradients);
        Ok(base.address() + (self.members[unit].start * self.data_type.bytes()) as u64)
    }

    fn ready(&mut self, gpu: &Gpu, unit: usize, elements: Range<usize>, last: bool) -> Result<(), Error> {
        let start = self.members[unit].start;
        let elements = start + elements.start..start + elements.end;
        if let Some(micro) = &self.micro {
            gpu.work().scale_accumulate(
                self.data_type,
                self.state.gradients.address() + (elements.start * size_of::<f32>()) as u64,
                micro.address() + (elements.start * self.data_type.bytes()) as u64,
                self.unscale,
                elements.len(),
                self.overflow.address(),
            )?;
        }
        match &mut self.reducer {
            Some(reducer) if last => reducer.ready(gpu, self.state.gradients.address(), elements),
            _ => Ok(()),
        }
    }
}

impl Sharing for Replicated {
    fn begin_step(&mut self, gpu: &Gpu, unscale: f32) -> Result<(), Error> {
        self.unscale = unscale;
        if self.micro.is_some() {
            clear(
                &gpu.compute,
                self.state.gradients.address(),
                self.state.gradients.bytes(),
            )?;
            clear(&gpu.compute, self.overflow.address(), self.overflow.bytes())?;
        }
        if let Some(reducer) = &mut self.reducer {
            reducer.begin_step();
        }
        Ok(())
    }

    fn finish_backward(&mut self, gpu: &Gpu) -> Result<Option<u64>, Error> {
        if let Some(reducer) = &mut self.reducer {
            reducer.finish(gpu, self.state.gradients.address())?;
        }
        if let Some(parallel) = &self.sequence {
            for member in &self.members {
                for place in member
                    .layout
                    .places
                    .iter()
                    .filter(|place| place.partial_in_sequence_parallel)
                {
                    let first = member.start + place.elements.start;
                    let address = self.state.gradients.address() + (first * size_of::<f32>()) as u64;
                    parallel.all_reduce(gpu, DataType::F32, address, place.elements.len())?;
                }
            }
        }
        Ok(self.micro.as_ref().map(|_| self.overflow.address()))
    }

    fn update(&mut self, gpu: &Gpu, update: &Update) -> Result<(), Error> {
        self.state.update(gpu, update)?;
        self.refresh(gpu)
    }

    fn save(&self, gpu: &Gpu) -> Result<Option<Part>, Error> {
        if !self.saves {
            return Ok(None);
        }
        let (parameters, moments) = self.state.read(gpu)?;
        Ok(Some(Part {
            pieces: self.pieces(self.saves_undivided),
            parameters,
            moments,
        }))
    }

    fn norms(&self, gpu: &Gpu) -> Result<Option<Vec<f32>>, Error> {
        self.reducer
            .as_ref()
            .map_or(Ok(None), |reducer| reducer.norms(gpu))
    }

    fn restore(&mut self, gpu: &Gpu, parameters: &[f32], moments: &[&[f32]]) -> Result<(), Error> {
        let pieces = self.pieces(true);
        let take = |whole: &[f32]| {
            let mut local = vec![0.0; self.state.elements];
            for piece in &pieces {
                local[piece.local..piece.local + piece.count]
                    .copy_from_slice(&whole[piece.whole..piece.whole + piece.count]);
            }
            local
        };
        let moments: Vec<Vec<f32>> = moments.iter().map(|moment| take(moment)).collect();
        self.state.write(gpu, &take(parameters), &moments)?;
        self.refresh(gpu)
    }
}
