//! The training loop of `single` and `ddp`: the same steps, with gradients reduced over ranks in the second.

use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::{CudaEvent, CudaStream};

use crate::buckets::{Bucket, make_buckets};
use crate::comm::{self, Communicator, Element, Reduction};
use crate::data::{DataSet, Sampler};
use crate::error::Error;
use crate::gpu::{Gpu, address, element};
use crate::launch::Rank;
use crate::loader::{Loader, Share};
use crate::mlp::Mlp;
use crate::nvtx::Range;
use crate::options::{DdpOptions, TrainOptions};
use crate::store::Store;

/// Gradient reduction over ranks.
struct Reducer {
    communicator: Communicator,
    stream: Arc<CudaStream>,
    buckets: Vec<Bucket>,
    overlap: bool,
    ready: CudaEvent,
    reduced: CudaEvent,
}

impl Reducer {
    /// Connects the ranks, and gives all of them rank 0's parameters.
    fn new(gpu: &Gpu, mlp: &Mlp, rank: &Rank, store: &Store, options: &DdpOptions) -> Result<Self, Error> {
        let id = store.share_id(comm::unique_id)?;
        let communicator = Communicator::new(id, rank.rank, rank.ranks, "world")?;
        let layers: Vec<_> = mlp.layers.iter().map(crate::mlp::Layer::elements).collect();
        let buckets = make_buckets(&layers, (options.bucket_mb * 1e6) as usize);
        let stream = gpu.context.new_stream()?;
        let reducer = Self {
            communicator,
            stream,
            buckets,
            overlap: !options.no_overlap,
            ready: gpu.event()?,
            reduced: gpu.event()?,
        };
        let _range = Range::new("broadcast parameters");
        reducer.after(&gpu.compute)?;
        reducer.communicator.broadcast(
            [address(&mlp.parameters); 2],
            mlp.parameter_count(),
            Element::F32,
            0,
            &reducer.stream,
        )?;
        reducer.finish(&gpu.compute)?;
        Ok(reducer)
    }

    /// The communication stream goes on after what `compute` has been given so far.
    fn after(&self, compute: &CudaStream) -> Result<(), Error> {
        self.ready.record(compute)?;
        Ok(self.stream.wait(&self.ready)?)
    }

    /// `compute` goes on after what the communication stream has been given so far.
    fn finish(&self, compute: &CudaStream) -> Result<(), Error> {
        self.reduced.record(&self.stream)?;
        Ok(compute.wait(&self.reduced)?)
    }

    fn reduce(&self, gpu: &Gpu, mlp: &Mlp, bucket: &Bucket) -> Result<(), Error> {
        self.after(&gpu.compute)?;
        let gradients = element(address(&mlp.gradients), bucket.elements.start);
        self.communicator.all_reduce(
            [gradients; 2],
            bucket.elements.len(),
            (Element::F32, Reduction::Average),
            &self.stream,
        )
    }

    /// Called when a layer's gradients are on their way: reduces the bucket that they complete.
    fn layer_done(&self, gpu: &Gpu, mlp: &Mlp, layer: usize) -> Result<(), Error> {
        match self
            .buckets
            .iter()
            .find(|bucket| bucket.complete_after_layer == layer)
        {
            Some(bucket) if self.overlap => self.reduce(gpu, mlp, bucket),
            _ => Ok(()),
        }
    }

    /// Called after the backward pass: what was not reduced behind it is reduced now, and the optimizer waits.
    fn backward_done(&self, gpu: &Gpu, mlp: &Mlp) -> Result<(), Error> {
        if !self.overlap {
            for bucket in &self.buckets {
                self.reduce(gpu, mlp, bucket)?;
            }
        }
        self.finish(&gpu.compute)
    }

    /// The loss over all ranks, in place.
    fn reduce_loss(&self, gpu: &Gpu, mlp: &Mlp) -> Result<(), Error> {
        self.after(&gpu.compute)?;
        let loss = (Element::F32, Reduction::Average);
        self.communicator
            .all_reduce([address(&mlp.loss); 2], 1, loss, &self.stream)?;
        self.finish(&gpu.compute)
    }
}

/// `single`.
pub(crate) fn single(options: &TrainOptions, rank: &Rank, store: &Store) -> Result<(), Error> {
    train(options, rank, store, None)
}

/// `ddp`.
pub(crate) fn ddp(options: &DdpOptions, rank: &Rank, store: &Store) -> Result<(), Error> {
    train(&options.train, rank, store, Some(options))
}

fn train(options: &TrainOptions, rank: &Rank, store: &Store, ddp: Option<&DdpOptions>) -> Result<(), Error> {
    let gpu = Gpu::open(rank.local_rank)?;
    let sizes = options.sizes(&gpu.name, rank.ranks)?;
    let batch = sizes.batch / rank.ranks as usize;
    let (features, targets) = (sizes.layers[0], sizes.layers[sizes.layers.len() - 1]);
    // Every rank draws parameters of its own, as a program without care for seeds would; rank 0's are broadcast.
    let mut mlp = Mlp::new(
        &gpu,
        &sizes.layers,
        batch,
        options.seed.wrapping_add(u64::from(rank.rank) << 32),
    )?;
    let reducer = ddp
        .map(|options| Reducer::new(&gpu, &mlp, rank, store, options))
        .transpose()?;
    let share = Share {
        data: DataSet::new(sizes.samples, features, targets, options.seed),
        sampler: Sampler::new(sizes.samples, sizes.batch, options.seed),
        rank: rank.rank as usize,
        ranks: rank.ranks as usize,
        batch,
    };
    let loader = Loader::start(&gpu, share)?;
    if rank.rank == 0 {
        println!(
            "{}, {} ranks, layers {:?}, batch {}",
            gpu.name, rank.ranks, sizes.layers, sizes.batch
        );
    }
    gpu.compute.synchronize()?;
    let started = Instant::now();
    let mut losses = (0.0, 0.0);
    for step in 0..sizes.steps {
        let _step = Range::new(&format!("step {step}"));
        let slot = {
            let _range = Range::new("data");
            loader.next(&gpu.compute)?
        };
        {
            let _range = Range::new("forward");
            mlp.forward(&gpu, slot.x())?;
            mlp.loss(&gpu, slot.y())?;
        }
        {
            let _range = Range::new("backward");
            for layer in (0..mlp.layers.len()).rev() {
                mlp.backward(&gpu, layer, slot.x())?;
                if let Some(reducer) = &reducer {
                    reducer.layer_done(&gpu, &mlp, layer)?;
                }
            }
            if let Some(reducer) = &reducer {
                reducer.backward_done(&gpu, &mlp)?;
            }
        }
        loader.give_back(slot, &gpu.compute)?;
        {
            let _range = Range::new("optimizer");
            mlp.update(&gpu, sizes.learning_rate)?;
        }
        let is_end = step == 0 || step + 1 == sizes.steps;
        if options.print_losses || is_end {
            if let Some(reducer) = &reducer {
                reducer.reduce_loss(&gpu, &mlp)?;
            }
            let loss = mlp.read_loss(&gpu)?;
            losses = (if step == 0 { loss } else { losses.0 }, loss);
            if options.print_losses && rank.rank == 0 {
                println!("step {step} loss {loss}");
            }
        }
        // Never far ahead of the GPU, as a loop that reads its loss is not: bounds the queue and shows a lost peer.
        gpu.compute.synchronize()?;
        if let Some(reducer) = &reducer {
            reducer.communicator.check_health()?;
        }
    }
    if rank.rank == 0 && sizes.steps > 0 {
        let per_step = started.elapsed().as_secs_f64() * 1e3 / sizes.steps as f64;
        println!(
            "loss {:.6} -> {:.6} in {} steps, {per_step:.2} ms a step",
            losses.0, losses.1, sizes.steps
        );
    }
    Ok(())
}
