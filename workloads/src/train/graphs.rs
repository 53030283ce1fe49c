//! Forward and backward pass as CUDA graphs: captured at their first use, launched with one call from then on.
//!
//! A graph holds addresses and numbers as they were when it was captured, so there is one for each place that a batch
//! may lie in and each loss scale.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};

use super::engine::Batch;
use crate::error::Error;
use crate::gpu::Gpu;

/// The graphs of a run.
#[derive(Default)]
pub(crate) struct Graphs {
    captured: HashMap<(u64, u64, u32), CudaGraph>,
}

impl Graphs {
    /// Launches the graph of a batch's place and a loss scale. The first time, `body` enqueues what it is made of.
    pub(super) fn run(
        &mut self,
        gpu: &Gpu,
        batch: Batch,
        scale: f32,
        body: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let key = (batch.inputs, batch.targets, scale.to_bits());
        if let Entry::Vacant(place) = self.captured.entry(key) {
            // Threads that load batches go on meanwhile.
            gpu.compute
                .begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
            let enqueued = body();
            let graph = gpu.compute.end_capture(CUgraphInstantiate_flags(0));
            enqueued?;
            let graph = graph?.ok_or_else(|| Error::new("the captured graph is empty"))?;
            place.insert(graph);
        }
        Ok(self.captured[&key].launch()?)
    }
}
