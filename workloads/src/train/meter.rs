//! How long a pipeline's stage really computes in a step, by events on its compute stream.

use cudarc::driver::CudaEvent;
use cudarc::driver::sys::CUevent_flags;

use crate::error::Error;
use crate::gpu::Gpu;

/// Measures the passes of each step.
#[derive(Default)]
pub(crate) struct Meter {
    passes: Vec<(CudaEvent, CudaEvent)>,
    next: usize,
    /// Milliseconds that the passes of all steps took, and from each step's first to its last.
    busy_ms: f64,
    window_ms: f64,
    steps: u32,
}

/// A stage's means over the measured steps, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StageTimes {
    pub(crate) busy_ms: f64,
    pub(crate) window_ms: f64,
}

impl Meter {
    /// A step begins.
    pub(crate) fn begin_step(&mut self) {
        self.next = 0;
    }

    /// A pass begins.
    pub(crate) fn start(&mut self, gpu: &Gpu) -> Result<(), Error> {
        if self.next == self.passes.len() {
            let event = || gpu.context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
            self.passes.push((event()?, event()?));
        }
        Ok(self.passes[self.next].0.record(&gpu.compute)?)
    }

    /// The pass ends.
    pub(crate) fn stop(&mut self, gpu: &Gpu) -> Result<(), Error> {
        self.passes[self.next].1.record(&gpu.compute)?;
        self.next += 1;
        Ok(())
    }

    /// Reads the step's passes, which must be done.
    pub(crate) fn read(&mut self) -> Result<(), Error> {
        let passes = &self.passes[..self.next];
        let (Some(first), Some(last)) = (passes.first(), passes.last()) else {
            return Ok(());
        };
        for (start, stop) in passes {
            self.busy_ms += f64::from(start.elapsed_ms(stop)?);
        }
        self.window_ms += f64::from(first.0.elapsed_ms(&last.1)?);
        self.steps += 1;
        Ok(())
    }

    /// The means of a step.
    pub(crate) fn times(&self) -> StageTimes {
        let steps = f64::from(self.steps.max(1));
        StageTimes {
            busy_ms: self.busy_ms / steps,
            window_ms: self.window_ms / steps,
        }
    }
}
