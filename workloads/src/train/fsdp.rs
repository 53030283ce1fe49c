//! Fully sharded data parallel training: each rank keeps a shard of every unit's parameters, gradients and moments.
//!
//! A unit's parameters are gathered before its forward pass and again before its backward pass, into one of a few places
//! that are used in turn, and given up right after. `prefetch` places more than one let the next units be gathered while
//! one computes. A unit's gradients are reduced and scattered as soon as its backward pass is done, on a stream of
//! their own, so that they don't hold gathering up.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaStream};

use crate::checkpoint::Part;
use crate::comm::{Communicator, Element, Reduction};
use crate::error::Error;
use crate::gpu::{Buffer, DataType, Gpu, clear};
use crate::model::{Layout, Piece};
use crate::options::FsdpOptions;

use super::replicated::Recipe;
use super::sharing::{Phase, Placement, Sharing};
use super::state::{State, Update};

/// One unit: its elements, padded so that the ranks divide them evenly.
struct Flat {
    elements: usize,
    /// Elements of a rank's shard.
    shard: usize,
    /// Where this rank's shard begins in the state.
    start: usize,
    /// Where the unit begins in the stage's unsharded vector.
    whole_start: usize,
}

/// A place for one unit's gathered parameters.
struct Place {
    buffer: Buffer,
    /// The unit whose parameters are in it, or on their way.
    unit: Option<usize>,
    gathered: CudaEvent,
    /// When whoever computed with what was in it before is done.
    free: CudaEvent,
}

/// A place for one unit's gradients of one microbatch.
struct GradientPlace {
    buffer: Buffer,
    /// When they have been reduced.
    free: CudaEvent,
}

/// One rank's shards, and what they are gathered into.
pub(crate) struct FullySharded {
    communicator: Rc<Communicator>,
    units: Vec<Flat>,
    data_type: DataType,
    state: State,
    /// The shards in the type that is computed in.
    working: Option<Buffer>,
    places: Vec<Place>,
    next_place: usize,
    gradient_places: Vec<GradientPlace>,
    next_gradient_place: usize,
    /// One shard's reduced gradients, before they are accumulated.
    reduced: Buffer,
    overflow: Buffer,
    gather_stream: Arc<CudaStream>,
    reduce_stream: Arc<CudaStream>,
    ready: CudaEvent,
    updated: CudaEvent,
    done: CudaEvent,
    prefetch: usize,
    unscale: f32,
    arrived: usize,
}

impl FullySharded {
    /// Shards of parameters with these values (all of them, unit by unit: the same on every rank).
    pub(crate) fn new(
        gpu: &Gpu,
        communicator: Rc<Communicator>,
        layouts: &[Layout],
        values: &[f32],
        recipe: &Recipe,
        options: &FsdpOptions,
    ) -> Result<Self, Error> {
        let ranks = communicator.ranks() as usize;
        let (mut start, mut whole_start) = (0, 0);
        let mut units = Vec::new();
        for layout in layouts {
            let unit = Flat {
                elements: layout.elements,
                shard: layout.elements.div_ceil(ranks),
                start,
                whole_start,
            };
            start += unit.shard;
            whole_start += unit.elements;
            units.push(unit);
        }
        let own = shards(&units, values, communicator.rank() as usize);
        let greatest = units.iter().map(|unit| unit.shard).max().unwrap_or(0);
        let bytes = recipe.data_type.bytes();
        let prefetch = options.prefetch as usize;
        let places = (0..=prefetch)
            .map(|_| {
                Ok(Place {
                    buffer: gpu.buffer(greatest * ranks * bytes)?,
                    unit: None,
                    gathered: gpu.event()?,
                    free: gpu.event()?,
                })
            })
            .collect::<Result<_, Error>>()?;
        // Two: one is written while the other is reduced.
        let gradient_places = (0..2)
            .map(|_| {
                Ok(GradientPlace {
                    buffer: gpu.buffer(greatest * ranks * bytes)?,
                    free: gpu.event()?,
                })
            })
            .collect::<Result<_, Error>>()?;
        let mixed = recipe.data_type != DataType::F32;
        let sharded = Self {
            units,
            data_type: recipe.data_type,
            state: State::new(gpu, &own, recipe.optimizer)?,
            working: mixed.then(|| gpu.buffer(own.len() * bytes)).transpose()?,
            places,
            next_place: 0,
            gradient_places,
            next_gradient_place: 0,
            reduced: gpu.buffer(greatest * bytes)?,
            overflow: gpu.buffer(size_of::<i32>())?,
            gather_stream: gpu.context.new_stream()?,
            reduce_stream: gpu.context.new_stream()?,
            ready: gpu.event()?,
            updated: gpu.event()?,
            done: gpu.event()?,
            prefetch,
            unscale: 1.0,
            arrived: 0,
            communicator,
        };
        sharded.refresh(gpu)?;
        Ok(sharded)
    }

    /// Brings the working copy up to date; gathering waits for it.
    fn refresh(&self, gpu: &Gpu) -> Result<(), Error> {
        if let Some(working) = &self.working {
            let (to, from) = (working.address(), self.state.parameters.address());
            gpu.work()
                .cast(DataType::F32, self.data_type, to, from, self.state.elements)?;
        }
        self.updated.record(&gpu.compute)?;
        Ok(self.gather_stream.wait(&self.updated)?)
    }

    /// The unit that comes so many steps later in a phase: forward goes up, backward goes down.
    fn after(&self, unit: usize, phase: Phase, steps: usize) -> Option<usize> {
        match phase {
            Phase::Forward => Some(unit + steps).filter(|unit| *unit < self.units.len()),
            Phase::Recompute | Phase::Backward => unit.checked_sub(steps),
        }
    }

    /// Gathers a unit's parameters, unless they are there; gives their place. The place of `computing`'s is left alone.
    fn gather(&mut self, unit: usize, computing: usize) -> Result<usize, Error> {
        if let Some(place) = self.places.iter().position(|place| place.unit == Some(unit)) {
            return Ok(place);
        }
        let count = self.places.len();
        let in_turn = (0..count).map(|step| (self.next_place + step) % count);
        let place = in_turn
            .clone()
            .find(|place| self.places[*place].unit.is_none())
            .or_else(|| {
                in_turn
                    .clone()
                    .find(|place| self.places[*place].unit != Some(computing))
            })
            .ok_or_else(|| Error::new("no place is left for a unit's parameters"))?;
        self.next_place = (place + 1) % count;
        let flat = &self.units[unit];
        let own = self.working.as_ref().unwrap_or(&self.state.parameters).address()
            + (flat.start * self.data_type.bytes()) as u64;
        let target = &mut self.places[place];
        target.unit = Some(unit);
        self.gather_stream.wait(&target.free)?;
        self.communicator.all_gather(
            [own, target.buffer.address()],
            flat.shard,
            self.data_type.into(),
            &self.gather_stream,
        )?;
        target.gathered.record(&self.gather_stream)?;
        Ok(place)
    }

    /// Reduces and scatters a unit's gradients, and adds this rank's shard to the step's.
    fn scatter(&mut self, gpu: &Gpu, unit: usize) -> Result<(), Error> {
        let place = &self.gradient_places[self.next_gradient_place];
        self.next_gradient_place = (self.next_gradient_place + 1) % self.gradient_places.len();
        self.ready.record(&gpu.compute)?;
        self.reduce_stream.wait(&self.ready)?;
        let flat = &self.units[unit];
        self.communicator.reduce_scatter(
            [place.buffer.address(), self.reduced.address()],
            flat.shard,
            (Element::from(self.data_type), Reduction::Sum),
            &self.reduce_stream,
        )?;
        place.free.record(&self.reduce_stream)?;
        gpu.work_on(&self.reduce_stream).scale_accumulate(
            self.data_type,
            self.state.gradients.address() + (flat.start * size_of::<f32>()) as u64,
            self.reduced.address(),
            self.unscale,
            flat.shard,
            self.overflow.address(),
        )
    }
}

/// A rank's shards of all units, one after the other; what is beyond a unit's end is zero.
fn shards(units: &[Flat], values: &[f32], rank: usize) -> Vec<f32> {
    let mut own = Vec::new();
    for unit in units {
        let whole = &values[unit.whole_start..unit.whole_start + unit.elements];
        let first = (rank * unit.shard).min(whole.len());
        let last = (first + unit.shard).min(whole.len());
        own.extend_from_slice(&whole[first..last]);
        own.resize(unit.start + unit.shard, 0.0);
    }
    own
}

impl Placement for FullySharded {
    fn parameters(&mut self, gpu: &Gpu, unit: usize, phase: Phase) -> Result<u64, Error> {
        let place = self.gather(unit, unit)?;
        // While this one computes the next may be gathered. Recomputation is followed by the backward pass of the same
        // units, so there is nothing to look ahead to.
        if phase != Phase::Recompute {
            for steps in 1..=self.prefetch {
                if let Some(next) = self.after(unit, phase, steps) {
                    self.gather(next, unit)?;
                }
            }
        }
        gpu.compute.wait(&self.places[place].gathered)?;
        Ok(self.places[place].buffer.address())
    }

    fn done(&mut self, gpu: &Gpu, unit: usize, phase: Phase) -> Result<(), Error> {
        if let Some(place) = self.places.iter_mut().find(|place| place.unit == Some(unit)) {
            place.free.record(&gpu.compute)?;
            // Given up at once, so that the backward pass gathers it again; not between recomputation and the backward
            // pass of the same unit.
            if phase != Phase::Recompute {
                place.unit = None;
            }
        }
        Ok(())
    }

    fn gradients(&mut self, gpu: &Gpu, unit: usize) -> Result<u64, Error> {
        self.arrived = 0;
        let place = &self.gradient_places[self.next_gradient_place];
        gpu.compute.wait(&place.free)?;
        let address = place.buffer.address();
        // What is beyond the unit's end is summed too: it must be a number.
        let flat = &self.units[unit];
        let padded = flat.shard * self.communicator.ranks() as usize * self.data_type.bytes();
        let bytes = flat.elements * self.data_type.bytes();
        clear(&gpu.compute, address + bytes as u64, padded - bytes)?;
        Ok(address)
    }

    fn ready(&mut self, gpu: &Gpu, unit: usize, elements: Range<usize>, _last: bool) -> Result<(), Error> {
        self.arrived += elements.len();
        if self.arrived == self.units[unit].elements {
            self.scatter(gpu, unit)?;
        }
        Ok(())
    }
}

impl Sharing for FullySharded {
    fn begin_step(&mut self, gpu: &Gpu, unscale: f32) -> Result<(), Error> {
        self.unscale = unscale;
        clear(
            &gpu.compute,
            self.state.gradients.address(),
            self.state.gradients.bytes(),
        )?;
        clear(&gpu.compute, self.overflow.address(), self.overflow.bytes())?;
        // What was gathered before the optimizer's step is out of date.
        for place in &mut self.places {
            place.unit = None;
        }
        Ok(())
    }

    fn finish_backward(&mut self, gpu: &Gpu) -> Result<Option<u64>, Error> {
        self.done.record(&self.reduce_stream)?;
        gpu.compute.wait(&self.done)?;
        Ok(Some(self.overflow.address()))
    }

    fn update(&mut self, gpu: &Gpu, update: &Update) -> Result<(), Error> {
        self.state.update(gpu, update)?;
        self.refresh(gpu)
    }

    fn save(&self, gpu: &Gpu) -> Result<Option<Part>, Error> {
        let (parameters, moments) = self.state.read(gpu)?;
        let rank = self.communicator.rank() as usize;
        let pieces = self
            .units
            .iter()
            .filter_map(|unit| {
                let first = (rank * unit.shard).min(unit.elements);
                let count = unit.shard.min(unit.elements - first);
                (count > 0).then_some(Piece {
                    whole: unit.whole_start + first,
                    local: unit.start,
                    count,
                })
            })
            .collect();
        Ok(Some(Part {
            pieces,
            parameters,
            moments,
        }))
    }

    fn restore(&mut self, gpu: &Gpu, parameters: &[f32], moments: &[&[f32]]) -> Result<(), Error> {
        let rank = self.communicator.rank() as usize;
        let moments: Vec<Vec<f32>> = moments
            .iter()
            .map(|moment| shards(&self.units, moment, rank))
            .collect();
        self.state
            .write(gpu, &shards(&self.units, parameters, rank), &moments)?;
        self.refresh(gpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_padded_to_equal_lengths() {
        let unit = |elements: usize, shard, start, whole_start| Flat {
            elements,
            shard,
            start,
            whole_start,
        };
        // Five and one elements over four ranks: shards of two and one.
        let units = [unit(5, 2, 0, 0), unit(1, 1, 2, 5)];
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let all: Vec<Vec<f32>> = (0..4).map(|rank| shards(&units, &values, rank)).collect();
        assert_eq!(
            all,
            [[1.0, 2.0, 6.0], [3.0, 4.0, 0.0], [5.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
        );
    }
}
