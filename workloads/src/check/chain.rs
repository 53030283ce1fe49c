//! A run of a network's units, forward and backward, with memory whose edges are watched.

use std::cell::Cell;

use super::operation::{download, upload};
use crate::error::Error;
use crate::gpu::{Buffer, DataType, Gpu, copy};
use crate::model::{Gradients, Pass, TensorParallel, Unit, UnitSpec};

/// Bytes behind each piece of memory that nothing may write.
const GUARD: usize = 256;

/// Device memory that holds NaN, in every type, until it is written, and is longer than it should need to be.
pub(super) struct Guarded {
    buffer: Buffer,
    bytes: usize,
}

impl Guarded {
    fn new(gpu: &Gpu, bytes: usize) -> Result<Self, Error> {
        Ok(Self {
            buffer: upload(gpu, &vec![0xff; bytes + GUARD])?,
            bytes,
        })
    }

    pub(super) fn address(&self) -> u64 {
        self.buffer.address()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is in it.
    pub(super) fn read(&self, gpu: &Gpu) -> Result<Vec<u8>, Error> {
        let mut bytes = download(gpu, &self.buffer)?;
        bytes.truncate(self.bytes);
        Ok(bytes)
    }

    /// Bytes behind its end that were written.
    fn overrun(&self, gpu: &Gpu) -> Result<usize, Error> {
        let bytes = download(gpu, &self.buffer)?;
        Ok(bytes[self.bytes..].iter().filter(|&&byte| byte != 0xff).count())
    }
}

/// What a run computed.
pub(super) struct Run {
    pub(super) output: Guarded,
    /// Each unit's flat gradients, and that by the input; of a run with a backward pass.
    pub(super) gradients: Vec<Guarded>,
    pub(super) input_gradient: Option<Guarded>,
}

/// Units that feed each other, on one rank.
pub(super) struct Chain<'a> {
    gpu: &'a Gpu,
    pub(super) units: Vec<Box<dyn Unit>>,
    rows: usize,
    /// Whether somebody could want the gradient by the input.
    pub(super) has_input_gradient: bool,
    /// Bytes that were written where they should not be, and elements whose gradients were not announced just once.
    faults: Cell<usize>,
}

impl<'a> Chain<'a> {
    pub(super) fn new(
        gpu: &'a Gpu,
        specs: &[UnitSpec],
        rows: usize,
        has_input_gradient: bool,
        parallel: Option<&TensorParallel>,
    ) -> Self {
        Self {
            gpu,
            units: specs.iter().map(|spec| spec.build(parallel)).collect(),
            rows,
            has_input_gradient,
            faults: Cell::new(0),
        }
    }

    /// How much was wrong with memory and announcements so far.
    pub(super) fn faults(&self) -> usize {
        self.faults.get()
    }

    /// Bytes of its input and output on this rank.
    pub(super) fn edge_bytes(&self, ty: DataType) -> [usize; 2] {
        let input = self
            .units
            .first()
            .map_or(0, |unit| unit.input_bytes(self.rows, ty));
        let output = self
            .units
            .last()
            .map_or(0, |unit| unit.output_bytes(self.rows, ty));
        [input, output]
    }

    /// Runs forward, and backward where the gradient by the output is given. `parameters`: each unit's flat ones.
    pub(super) fn run(
        &self,
        ty: DataType,
        parameters: &[u64],
        input: u64,
        delta: Option<u64>,
    ) -> Result<Run, Error> {
        let memory = |bytes: &dyn Fn(&dyn Unit) -> usize| -> Result<Vec<Guarded>, Error> {
            let sizes = self.units.iter().map(|unit| bytes(unit.as_ref()));
            sizes.map(|bytes| Guarded::new(self.gpu, bytes)).collect()
        };
        let outputs = memory(&|unit| unit.output_bytes(self.rows, ty))?;
        let saved = memory(&|unit| unit.saved_bytes(self.rows, ty))?;
        let scratch = memory(&|unit| unit.scratch_bytes(self.rows, ty))?;
        let pass = |unit: usize, outputs: &[Guarded]| Pass {
            gpu: self.gpu,
            data_type: ty,
            rows: self.rows,
            parameters: parameters[unit],
            input: if unit == 0 {
                input
            } else {
                outputs[unit - 1].address()
            },
            output: outputs[unit].address(),
            saved: saved[unit].address(),
            scratch: scratch[unit].address(),
        };
        for (index, unit) in self.units.iter().enumerate() {
            unit.forward(&pass(index, &outputs))?;
        }
        let mut run = Run {
            output: Guarded::new(self.gpu, self.edge_bytes(ty)[1])?,
            gradients: Vec::new(),
            input_gradient: None,
        };
        if let Some(last) = outputs.last() {
            copy(
                &self.gpu.compute,
                run.output.address(),
                last.address(),
                last.bytes(),
            )?;
        }
        let Some(delta) = delta else {
            return Ok(run);
        };
        run.gradients = memory(&|unit| unit.layout().elements * ty.bytes())?;
        // Before each unit, the gradient by its input.
        let deltas = memory(&|unit| unit.input_bytes(self.rows, ty))?;
        let end = Guarded::new(self.gpu, run.output.bytes())?;
        copy(&self.gpu.compute, end.address(), delta, end.bytes())?;
        for (index, unit) in self.units.iter().enumerate().rev() {
            let gradients = Gradients {
                parameters: run.gradients[index].address(),
                output: deltas.get(index + 1).unwrap_or(&end).address(),
                input: (index > 0 || self.has_input_gradient).then(|| deltas[index].address()),
            };
            let mut announced = vec![0usize; unit.layout().elements];
            unit.backward(&pass(index, &outputs), &gradients, &mut |elements| {
                announced[elements].iter_mut().for_each(|times| *times += 1);
                Ok(())
            })?;
            self.count_faults(announced.iter().filter(|&&times| times != 1).count());
        }
        let all = [&outputs, &saved, &scratch, &run.gradients, &deltas];
        for memory in all.into_iter().flatten().chain([&end]) {
            self.count_faults(memory.overrun(self.gpu)?);
        }
        run.input_gradient = deltas.into_iter().next().filter(|_| self.has_input_gradient);
        Ok(run)
    }

    fn count_faults(&self, more: usize) {
        self.faults.set(self.faults.get() + more);
    }
}
