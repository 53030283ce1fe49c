//! The units that one rank computes, with the memory that their passes need: a whole network, or a part of it.

use crate::error::Error;
use crate::gpu::{Buffer, DataType, Gpu};
use crate::model::{Gradients, Pass, Unit};
use crate::nvtx::Range;

use super::sharing::{Phase, Placement};

/// Activations of one microbatch in flight: outputs of units, and what forward keeps for backward.
struct Slot {
    outputs: Vec<Buffer>,
    saved: Vec<Buffer>,
}

/// A run of neighbouring units with room for `slots` microbatches at once.
pub(crate) struct Stage {
    units: Vec<Box<dyn Unit>>,
    data_type: DataType,
    rows: usize,
    /// Units that are recomputed together from their first input; 0: everything is kept.
    segment: usize,
    slots: Vec<Slot>,
    /// What is recomputed, one segment at a time.
    recomputed: Slot,
    scratch: Buffer,
    deltas: [Buffer; 2],
    /// Whether the host waits for the GPU after each unit.
    synchronizes: bool,
}

impl Stage {
    /// A stage for microbatches of `rows` rows. `segment`: see the field.
    pub(crate) fn new(
        gpu: &Gpu,
        units: Vec<Box<dyn Unit>>,
        (rows, data_type): (usize, DataType),
        slots: usize,
        segment: usize,
    ) -> Result<Self, Error> {
        let output = |unit: &dyn Unit| unit.output_bytes(rows, data_type);
        let saved = |unit: &dyn Unit| unit.saved_bytes(rows, data_type);
        let greatest = |bytes: &dyn Fn(&dyn Unit) -> usize| {
            units.iter().map(|unit| bytes(unit.as_ref())).max().unwrap_or(0)
        };
        let is_kept =
            |index: usize| segment == 0 || (index + 1).is_multiple_of(segment) || index + 1 == units.len();
        let slots = (0..slots)
            .map(|_| {
                let kept = units
                    .iter()
                    .enumerate()
                    .map(|(index, unit)| gpu.buffer(if is_kept(index) { output(unit.as_ref()) } else { 0 }));
                let outputs = kept.collect::<Result<_, _>>()?;
                let saved = match segment {
                    0 => units
                        .iter()
                        .map(|unit| gpu.buffer(saved(unit.as_ref())))
                        .collect::<Result<_, _>>()?,
                    _ => Vec::new(),
                };
                Ok(Slot { outputs, saved })
            })
            .collect::<Result<_, Error>>()?;
        let of_segment = |bytes: usize| (0..segment).map(|_| gpu.buffer(bytes)).collect::<Result<_, _>>();
        let recomputed = Slot {
            outputs: of_segment(greatest(&output))?,
            saved: of_segment(greatest(&saved))?,
        };
        let delta = greatest(&output).max(greatest(&|unit| unit.input_bytes(rows, data_type)));
        let scratch = gpu.buffer(greatest(&|unit| unit.scratch_bytes(rows, data_type)))?;
        let deltas = [gpu.buffer(delta)?, gpu.buffer(delta)?];
        Ok(Self {
            units,
            data_type,
            rows,
            segment,
            slots,
            recomputed,
            scratch,
            deltas,
            synchronizes: false,
        })
    }

    /// Where asked, the host waits for the GPU after each unit of forward and backward: trouble on purpose.
    pub(crate) fn synchronized(self, synchronizes: bool) -> Self {
        Self { synchronizes, ..self }
    }

    /// A unit's pass has been enqueued.
    fn unit_done(&self, gpu: &Gpu) -> Result<(), Error> {
        if self.synchronizes {
            gpu.context.synchronize()?;
        }
        Ok(())
    }

    /// A place for the loss's gradient by the last unit's output.
    pub(crate) fn delta(&self) -> u64 {
        self.deltas[0].address()
    }

    /// Where the stage's output for a slot is.
    pub(crate) fn output(&self, slot: usize) -> u64 {
        self.place(slot, self.units.len() - 1).0
    }

    /// Output and saved memory of a unit.
    fn place(&self, slot: usize, unit: usize) -> (u64, u64) {
        let slot = &self.slots[slot];
        if self.segment == 0 {
            return (slot.outputs[unit].address(), slot.saved[unit].address());
        }
        let within = unit % self.segment;
        let is_kept = within + 1 == self.segment || unit + 1 == self.units.len();
        let output = if is_kept {
            &slot.outputs[unit]
        } else {
            &self.recomputed.outputs[within]
        };
        (output.address(), self.recomputed.saved[within].address())
    }

    fn pass<'a>(&self, gpu: &'a Gpu, slot: usize, unit: usize, input: u64, parameters: u64) -> Pass<'a> {
        let (output, saved) = self.place(slot, unit);
        let input = if unit == 0 {
            input
        } else {
            self.place(slot, unit - 1).0
        };
        Pass {
            gpu,
            data_type: self.data_type,
            rows: self.rows,
            parameters,
            input,
            output,
            saved,
            scratch: self.scratch.address(),
        }
    }

    fn run_forward(
        &self,
        gpu: &Gpu,
        (slot, input): (usize, u64),
        units: std::ops::Range<usize>,
        phase: Phase,
        placement: &mut dyn Placement,
    ) -> Result<(), Error> {
        for unit in units {
            let parameters = placement.parameters(gpu, unit, phase)?;
            self.units[unit].forward(&self.pass(gpu, slot, unit, input, parameters))?;
            placement.done(gpu, unit, phase)?;
            self.unit_done(gpu)?;
        }
        Ok(())
    }

    /// Computes the stage's output for a microbatch whose input is at `input`, which must stay there until backward.
    pub(crate) fn forward(
        &self,
        gpu: &Gpu,
        slot: usize,
        input: u64,
        placement: &mut dyn Placement,
    ) -> Result<(), Error> {
        self.run_forward(gpu, (slot, input), 0..self.units.len(), Phase::Forward, placement)
    }

    /// Computes gradients, given the loss's gradient by the stage's output (overwritten); that by the stage's input goes
    /// to `to`. `last`: this is the step's last microbatch.
    pub(crate) fn backward(
        &self,
        gpu: &Gpu,
        (slot, input): (usize, u64),
        (delta, to): (u64, Option<u64>),
        last: bool,
        placement: &mut dyn Placement,
    ) -> Result<(), Error> {
        let mut delta = delta;
        for unit in (0..self.units.len()).rev() {
            let ends_segment =
                self.segment > 0 && ((unit + 1).is_multiple_of(self.segment) || unit + 1 == self.units.len());
            if ends_segment {
                let _range = Range::new("recompute");
                let first = unit - unit % self.segment;
                self.run_forward(gpu, (slot, input), first..unit + 1, Phase::Recompute, placement)?;
            }
            let before = if unit == 0 {
                to
            } else {
                let free = usize::from(delta == self.deltas[0].address());
                Some(self.deltas[free].address())
            };
            let parameters = placement.parameters(gpu, unit, Phase::Backward)?;
            let gradients = Gradients {
                parameters: placement.gradients(gpu, unit)?,
                output: delta,
                input: before,
            };
            let pass = self.pass(gpu, slot, unit, input, parameters);
            self.units[unit].backward(&pass, &gradients, &mut |elements| {
                placement.ready(gpu, unit, elements, last)
            })?;
            placement.done(gpu, unit, Phase::Backward)?;
            self.unit_done(gpu)?;
            if let (true, Some(before)) = (unit > 0, before) {
                delta = before;
            }
        }
        Ok(())
    }
}
