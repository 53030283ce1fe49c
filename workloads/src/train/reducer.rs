//! Distributed data parallel's reducer: gradients summed over the ranks in buckets, behind the backward pass.
//!
//! Buckets are filled from the last parameter backwards, since the backward pass completes them in that order; a bucket
//! is reduced on a stream of its own as soon as all of its gradients are on their way.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaStream};

use crate::comm::{Communicator, Element, Reduction};
use crate::error::Error;
use crate::gpu::{Buffer, DataType, Gpu, clear, copy};
use crate::options::{DdpOptions, Desync};

use super::buckets::{Bucket, Tracker, make_buckets, rebuild};

/// What a gradient monitor watches: each parameter tensor's gradient.
struct Monitor {
    tensors: Vec<Range<usize>>,
    squares: Buffer,
}

/// Sums gradients over ranks.
pub(crate) struct Reducer {
    communicator: Rc<Communicator>,
    stream: Arc<CudaStream>,
    ready: CudaEvent,
    reduced: CudaEvent,
    buckets: Vec<Bucket>,
    tracker: Tracker,
    bucket_bytes: usize,
    overlap: bool,
    static_graph: bool,
    /// Where a bucket is copied to be reduced, when buckets are no views of the gradients.
    copies: Option<Buffer>,
    /// Where a bucket is compressed.
    compressed: Option<Buffer>,
    monitor: Option<Monitor>,
    step: u64,
    desync: Option<Desync>,
}

impl Reducer {
    /// A reducer over a communicator's ranks for gradients whose tensors are at `tensors` of the flat vector, in order
    /// and without gaps.
    pub(crate) fn new(
        gpu: &Gpu,
        communicator: Rc<Communicator>,
        tensors: &[Range<usize>],
        options: &DdpOptions,
    ) -> Result<Self, Error> {
        let bucket_bytes = (options.bucket_mb * 1e6) as usize;
        let buckets = make_buckets(tensors, bucket_bytes);
        let elements = tensors.last().map_or(0, |tensor| tensor.end);
        let buffer = |wanted: bool, bytes: usize| wanted.then(|| gpu.buffer(bytes)).transpose();
        Ok(Self {
            communicator,
            stream: gpu.context.new_stream()?,
            ready: gpu.event()?,
            reduced: gpu.event()?,
            tracker: Tracker::new(&buckets),
            buckets,
            bucket_bytes,
            overlap: !options.no_overlap,
            static_graph: options.static_graph,
            copies: buffer(options.no_bucket_view, elements * size_of::<f32>())?,
            compressed: buffer(options.compress.is_some(), elements * DataType::Bf16.bytes())?,
            monitor: options
                .grad_monitor
                .then(|| {
                    Ok::<_, Error>(Monitor {
                        tensors: tensors.to_vec(),
                        squares: gpu.buffer(tensors.len() * size_of::<f32>())?,
                    })
                })
                .transpose()?,
            step: 0,
            desync: options.desync,
        })
    }

    /// The communication stream goes on after what the compute stream has been given so far.
    fn after_compute(&self, gpu: &Gpu) -> Result<(), Error> {
        self.ready.record(&gpu.compute)?;
        Ok(self.stream.wait(&self.ready)?)
    }

    /// The compute stream goes on after what the communication stream has been given so far.
    fn before_compute(&self, gpu: &Gpu) -> Result<(), Error> {
        self.reduced.record(&self.stream)?;
        Ok(gpu.compute.wait(&self.reduced)?)
    }

    /// Gives all ranks the first one's f32.
    pub(crate) fn broadcast(&self, gpu: &Gpu, address: u64, count: usize) -> Result<(), Error> {
        let _range = crate::nvtx::Range::new("broadcast parameters");
        self.after_compute(gpu)?;
        self.communicator
            .broadcast([address; 2], count, Element::F32, 0, &self.stream)?;
        self.before_compute(gpu)
    }

    /// A step begins.
    pub(crate) fn begin_step(&mut self) {
        self.tracker.begin();
    }

    /// These elements' gradients are on their way: reduces the buckets that they complete.
    pub(crate) fn ready(&mut self, gpu: &Gpu, gradients: u64, elements: Range<usize>) -> Result<(), Error> {
        for bucket in self.tracker.arrived(&self.buckets, elements) {
            if self.overlap {
                self.reduce(gpu, gradients, bucket)?;
            }
        }
        Ok(())
    }

    fn reduce(&self, gpu: &Gpu, gradients: u64, bucket: usize) -> Result<(), Error> {
        let elements = self.buckets[bucket].elements.clone();
        let (at, count) = (
            gradients + (elements.start * size_of::<f32>()) as u64,
            elements.len(),
        );
        self.after_compute(gpu)?;
        let queue = gpu.work_on(&self.stream);
        let bytes = count * size_of::<f32>();
        let copied = self.copies.as_ref().map_or(at, |copies| {
            copies.address() + (elements.start * size_of::<f32>()) as u64
        });
        if copied != at {
            copy(&self.stream, copied, at, bytes)?;
        }
        if let Some(compressed) = &self.compressed {
            let to = compressed.address() + (elements.start * DataType::Bf16.bytes()) as u64;
            queue.cast(DataType::F32, DataType::Bf16, to, copied, count)?;
            self.sum(to, count, Element::Bf16, bucket)?;
            queue.cast(DataType::Bf16, DataType::F32, copied, to, count)?;
        } else {
            self.sum(copied, count, Element::F32, bucket)?;
        }
        if copied != at {
            copy(&self.stream, at, copied, bytes)?;
        }
        Ok(())
    }

    /// One bucket's all-reduce, or what --desync makes of it.
    fn sum(&self, address: u64, count: usize, element: Element, bucket: usize) -> Result<(), Error> {
        let sum = (element, Reduction::Sum);
        let desync = self
            .desync
            .filter(|desync| bucket == 0 && desync.is_at(self.communicator.rank(), self.step));
        match desync.map(|desync| desync.what) {
            None => self
                .communicator
                .all_reduce([address; 2], count, sum, &self.stream),
            Some(crate::options::DesyncWhat::Skip) => Ok(()),
            Some(crate::options::DesyncWhat::Other) => {
                self.communicator
                    .broadcast([address; 2], count, element, 0, &self.stream)
            }
            Some(crate::options::DesyncWhat::Size) => {
                self.communicator
                    .all_reduce([address; 2], count.div_ceil(2), sum, &self.stream)
            }
        }
    }

    /// After the backward pass: what was not reduced behind it is reduced now, and the compute stream waits.
    pub(crate) fn finish(&mut self, gpu: &Gpu, gradients: u64) -> Result<(), Error> {
        if !self.overlap {
            for bucket in 0..self.buckets.len() {
                self.reduce(gpu, gradients, bucket)?;
            }
        }
        self.watch(gpu, gradients)?;
        self.before_compute(gpu)?;
        if self.static_graph && self.step == 0 {
            self.buckets = rebuild(self.tracker.order(), self.bucket_bytes);
            self.tracker = Tracker::new(&self.buckets);
        }
        self.step += 1;
        Ok(())
    }

    /// The norm of each gradient, averaged over the ranks: one small all-reduce a tensor.
    fn watch(&self, gpu: &Gpu, gradients: u64) -> Result<(), Error> {
        let Some(monitor) = &self.monitor else {
            return Ok(());
        };
        let _range = crate::nvtx::Range::new("gradient norms");
        let queue = gpu.work_on(&self.stream);
        clear(&self.stream, monitor.squares.address(), monitor.squares.bytes())?;
        for (index, tensor) in monitor.tensors.iter().enumerate() {
            let at = monitor.squares.address() + (index * size_of::<f32>()) as u64;
            let gradient = gradients + (tensor.start * size_of::<f32>()) as u64;
            queue.sum_of_squares(at, gradient, tensor.len())?;
            let average = (Element::F32, Reduction::Average);
            self.communicator.all_reduce([at; 2], 1, average, &self.stream)?;
        }
        Ok(())
    }

    /// The norms of the last step's gradients, tensor by tensor, where they are watched.
    pub(crate) fn norms(&self, gpu: &Gpu) -> Result<Option<Vec<f32>>, Error> {
        let Some(monitor) = &self.monitor else {
            return Ok(None);
        };
        self.before_compute(gpu)?;
        let squares = gpu.download(monitor.squares.address(), monitor.tensors.len())?;
        Ok(Some(squares.into_iter().map(f32::sqrt).collect()))
    }
}
