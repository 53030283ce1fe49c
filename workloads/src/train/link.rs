//! A stage's connections to the stages before and after it.

use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaStream};

use crate::comm::{self, Communicator, Element};
use crate::error::Error;
use crate::gpu::Gpu;

/// Something to be sent or received: address, elements, and the peer's stage.
#[derive(Clone, Copy)]
pub(crate) struct Parcel {
    pub(crate) address: u64,
    pub(crate) count: usize,
    pub(crate) peer: u32,
}

/// Sends and receives between neighbouring stages, on a stream of their own.
pub(crate) struct Link {
    communicator: Rc<Communicator>,
    stream: Arc<CudaStream>,
    ready: CudaEvent,
    done: CudaEvent,
    element: Element,
}

impl Link {
    /// A link over the communicator of a pipeline's stages, for activations of one type.
    pub(crate) fn new(gpu: &Gpu, communicator: Rc<Communicator>, element: Element) -> Result<Self, Error> {
        Ok(Self {
            communicator,
            stream: gpu.context.new_stream()?,
            ready: gpu.event()?,
            done: gpu.event()?,
            element,
        })
    }

    /// Sends and receives together, after what the compute stream has been given so far; the compute stream goes on
    /// after what is received, and does not wait for what is sent.
    pub(crate) fn exchange(&self, gpu: &Gpu, sends: &[Parcel], receives: &[Parcel]) -> Result<(), Error> {
        self.ready.record(&gpu.compute)?;
        self.stream.wait(&self.ready)?;
        comm::group(|| {
            for parcel in sends {
                let &Parcel { address, count, peer } = parcel;
                self.communicator
                    .send(address, count, self.element, peer, &self.stream)?;
            }
            for parcel in receives {
                let &Parcel { address, count, peer } = parcel;
                self.communicator
                    .receive(address, count, self.element, peer, &self.stream)?;
            }
            Ok(())
        })?;
        if !receives.is_empty() {
            self.done.record(&self.stream)?;
            gpu.compute.wait(&self.done)?;
        }
        Ok(())
    }

    /// The compute stream goes on after everything that was sent.
    pub(crate) fn finish(&self, gpu: &Gpu) -> Result<(), Error> {
        self.done.record(&self.stream)?;
        Ok(gpu.compute.wait(&self.done)?)
    }
}
