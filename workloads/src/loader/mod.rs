//! Data loading: batches are put together in staging memory and copied to the GPU on copy streams, by threads that
//! work ahead of the training loop.

mod options;
mod slot;
mod workers;

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::CudaStream;

pub(crate) use options::LoaderOptions;
pub(crate) use slot::Slot;

use crate::data::{DataSet, Sampler};
use crate::error::Error;
use crate::gpu::Gpu;
use crate::nvtx;
use crate::trouble::Delays;
use slot::{Deadline, PATIENCE};
use workers::{Make, Stop, Workers};

/// What a rank needs of each batch: a stage of a pipeline needs inputs at one end and targets at the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoaderNeeds {
    pub(crate) inputs: bool,
    pub(crate) targets: bool,
}

impl LoaderNeeds {
    /// Both.
    pub(crate) const ALL: Self = Self {
        inputs: true,
        targets: true,
    };
}

/// Makes every `stride`th batch.
struct Maker {
    data: Arc<dyn DataSet>,
    sampler: Sampler,
    share: Range<usize>,
    stride: u64,
    stream: Arc<CudaStream>,
    /// The number of its next batch, from which its delays go.
    number: u64,
    delays: Delays,
}

impl Make for Maker {
    type Item = Slot;

    fn make(&mut self, slot: &mut Slot, stop: &Stop) -> Result<(), Error> {
        let _range = nvtx::Range::new("load batch");
        slot.wait_until_copied()?;
        stop.sleep(self.delays.at(self.number));
        self.number += self.stride;
        let indices = &self.sampler.next()[self.share.clone()];
        let (inputs, targets) = slot.staging();
        self.data.gather(indices, inputs, targets);
        self.sampler.skip(self.stride - 1);
        slot.copy(&self.stream)
    }
}

/// Who makes the batches.
enum Source {
    /// The training loop itself, when it asks for one.
    Caller(RefCell<(Maker, Vec<Slot>)>),
    Workers(Workers<Maker>),
}

/// Hands out this rank's share of each global batch, in order. One batch is to be held at a time.
pub(crate) struct Loader {
    source: Source,
}

impl Loader {
    /// Starts loading: `share` are the samples of each global batch that are this rank's. `sampler` says where to begin,
    /// with the batch that has the number `first`.
    pub(crate) fn start(
        gpu: &Gpu,
        data: &Arc<dyn DataSet>,
        sampler: &Sampler,
        share: &Range<usize>,
        needs: LoaderNeeds,
        options: &LoaderOptions,
        (delays, first): (&Delays, u64),
    ) -> Result<Self, Error> {
        check(data.samples(), sampler, share)?;
        let bytes = |needed: bool, of_one: usize| needed.then_some(of_one * share.len());
        let inputs = bytes(needs.inputs, data.input_bytes());
        let targets = bytes(needs.targets, data.target_bytes());
        let deadline = Deadline::default();
        let slots = (0..options.slots())
            .map(|_| Slot::new(gpu, inputs, targets, !options.no_pin_memory, &deadline))
            .collect::<Result<Vec<_>, _>>()?;
        let workers = u64::from(options.loader_workers);
        let mut makers = (0..workers.max(1))
            .map(|number| {
                let mut sampler = sampler.clone();
                sampler.skip(number);
                Ok(Maker {
                    data: Arc::clone(data),
                    sampler,
                    share: share.clone(),
                    stride: workers.max(1),
                    stream: gpu.context.new_stream()?,
                    number: first + number,
                    delays: delays.clone(),
                })
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let source = match makers.pop() {
            Some(maker) if workers == 0 => Source::Caller(RefCell::new((maker, slots))),
            last => {
                makers.extend(last);
                Source::Workers(Workers::start(
                    makers,
                    slots,
                    options.prefetch_factor as usize,
                    PATIENCE,
                )?)
            }
        };
        Ok(Self { source })
    }

    /// The next batch; `stream` will wait for its copies.
    pub(crate) fn next(&self, stream: &CudaStream) -> Result<Slot, Error> {
        let slot = match &self.source {
            Source::Workers(workers) => workers.next()?,
            Source::Caller(maker) => {
                let (maker, slots) = &mut *maker.borrow_mut();
                let mut slot = slots
                    .pop()
                    .ok_or_else(|| Error::new("the training loop holds all batches"))?;
                maker.make(&mut slot, &Stop::default())?;
                slot
            }
        };
        slot.make_wait(stream)?;
        Ok(slot)
    }

    /// Gives a batch's place back once the stream's work so far is done with it.
    pub(crate) fn give_back(&self, slot: Slot, stream: &CudaStream) -> Result<(), Error> {
        slot.used_by(stream)?;
        match &self.source {
            Source::Workers(workers) => workers.give_back(slot),
            // The place that was used longest ago is taken next.
            Source::Caller(maker) => maker.borrow_mut().1.insert(0, slot),
        }
        Ok(())
    }
}

/// Whether the samples of every batch are there.
fn check(samples: usize, sampler: &Sampler, share: &Range<usize>) -> Result<(), Error> {
    let batch = sampler.global_batch();
    if batch == 0 || batch > samples.min(sampler.samples()) {
        return Err(Error::new(format!(
            "--batch {batch}: must be between 1 and the data set's {samples} samples (--samples)"
        )));
    }
    if sampler.samples() > samples || share.is_empty() || share.end > batch {
        return Err(Error::new(format!(
            "samples {share:?} of a batch of {batch} out of {} cannot be loaded: the data set has {samples}",
            sampler.samples()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_are_not_there_are_refused() {
        let sampler = |batch| Sampler::new(64, batch, 1);
        assert!(check(64, &sampler(16), &(8..16)).is_ok());
        assert!(check(64, &sampler(64), &(0..64)).is_ok());
        for (batch, share) in [(0, 0..1), (65, 0..1), (16, 8..17), (16, 8..8)] {
            assert!(check(64, &sampler(batch), &share).is_err(), "{batch} {share:?}");
        }
        assert!(
            check(63, &sampler(16), &(0..16)).is_err(),
            "fewer samples than are dealt out"
        );
    }
}
