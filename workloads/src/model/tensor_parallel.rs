//! Tensor parallelism's part of a unit: which shard a rank has, and the collectives at the shards' edges.

use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaStream};

use super::Shard;
use crate::comm::{Communicator, Element, Reduction};
use crate::error::Error;
use crate::gpu::{DataType, Gpu};

/// The ranks that share each layer, as this one sees them.
#[derive(Clone)]
pub(crate) struct TensorParallel {
    inner: Rc<Inner>,
}

struct Inner {
    communicator: Rc<Communicator>,
    stream: Arc<CudaStream>,
    ready: CudaEvent,
    done: CudaEvent,
    sequence: bool,
}

impl TensorParallel {
    /// Tensor parallelism over a communicator's ranks. `sequence`: between the sharded layers each rank has its rows
    /// only.
    pub(crate) fn new(gpu: &Gpu, communicator: Rc<Communicator>, sequence: bool) -> Result<Self, Error> {
        Ok(Self {
            inner: Rc::new(Inner {
                communicator,
                stream: gpu.context.new_stream()?,
                ready: gpu.event()?,
                done: gpu.event()?,
                sequence,
            }),
        })
    }

    /// Which shard this rank has.
    pub(crate) fn shard(&self) -> Shard {
        Shard {
            rank: self.inner.communicator.rank() as usize,
            ranks: self.inner.communicator.ranks() as usize,
        }
    }

    /// Whether rows are divided between the sharded layers.
    pub(crate) fn sequence(&self) -> bool {
        self.inner.sequence
    }

    /// Runs `operation` on the communication stream: after what the compute stream has been given so far, and the
    /// compute stream goes on after it.
    fn between(
        &self,
        gpu: &Gpu,
        operation: impl FnOnce(&Communicator, &CudaStream) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let inner = &*self.inner;
        inner.ready.record(&gpu.compute)?;
        inner.stream.wait(&inner.ready)?;
        operation(&inner.communicator, &inner.stream)?;
        inner.done.record(&inner.stream)?;
        Ok(gpu.compute.wait(&inner.done)?)
    }

    /// Sums `count` elements over the ranks, in place.
    pub(crate) fn all_reduce(
        &self,
        gpu: &Gpu,
        data_type: DataType,
        address: u64,
        count: usize,
    ) -> Result<(), Error> {
        let sum = (Element::from(data_type), Reduction::Sum);
        self.between(gpu, |communicator, stream| {
            communicator.all_reduce([address; 2], count, sum, stream)
        })
    }

    /// Gathers every rank's `count` elements at `from` to `to`.
    pub(crate) fn all_gather(
        &self,
        gpu: &Gpu,
        data_type: DataType,
        [from, to]: [u64; 2],
        count: usize,
    ) -> Result<(), Error> {
        self.between(gpu, |communicator, stream| {
            communicator.all_gather([from, to], count, data_type.into(), stream)
        })
    }

    /// Sums all ranks' elements at `from` and leaves this rank's `count` of them at `to`.
    pub(crate) fn reduce_scatter(
        &self,
        gpu: &Gpu,
        data_type: DataType,
        [from, to]: [u64; 2],
        count: usize,
    ) -> Result<(), Error> {
        let sum = (Element::from(data_type), Reduction::Sum);
        self.between(gpu, |communicator, stream| {
            communicator.reduce_scatter([from, to], count, sum, stream)
        })
    }
}
