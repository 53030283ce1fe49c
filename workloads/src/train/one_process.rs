//! Laying out training on several GPUs of one process.

use std::rc::Rc;

use crate::error::Error;
use crate::gpu::{DataType, Gpu};
use crate::loader::LoaderNeeds;
use crate::model::{Layout, Loss, Network};
use crate::options::{Divided, Sizes, TrainOptions};

use super::data_parallel::{DataParallel, Replica};
use super::devices::{self, Device};
use super::engine::Engine;
use super::loss::LossSum;
use super::model_parallel::{Layers, ModelParallel};
use super::pipeline;
use super::plan::{Plan, sample_bytes, segment};
use super::replicated::{Recipe, Replicated};
use super::runner::Microbatch;
use super::share::shares;
use super::stage::Stage;

/// A way to use several GPUs from one process, and how many.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OneProcess {
    /// A replica of the network on each (`dp`).
    Replicas(u32),
    /// A part of the network on each (`mp`).
    Layers(u32),
}

impl OneProcess {
    /// How many GPUs it uses.
    pub(crate) fn gpus(self) -> u32 {
        let (Self::Replicas(count) | Self::Layers(count)) = self;
        count
    }

    /// What it is called on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Replicas(_) => "dp",
            Self::Layers(_) => "mp",
        }
    }
}

/// What all parts are made from.
struct Making<'a> {
    options: &'a TrainOptions,
    sizes: &'a Sizes,
    network: &'a Network,
    data_type: DataType,
    microbatches: usize,
    /// Samples of a microbatch.
    samples: usize,
}

impl Making<'_> {
    fn rows(&self) -> usize {
        self.samples * self.network.rows_per_sample
    }

    fn segment(&self) -> usize {
        if self.options.checkpoint {
            segment(self.network)
        } else {
            0
        }
    }

    /// Whether features are cast from f32.
    fn casts(&self) -> bool {
        self.network.loss == Loss::MeanSquared && self.data_type != DataType::F32
    }

    fn recipe(&self, accumulates: bool) -> Recipe {
        Recipe {
            data_type: self.data_type,
            optimizer: self.options.optimizer.optimizer,
            accumulates,
            saves: true,
            saves_undivided: true,
        }
    }

    /// The parameters that units begin with.
    fn values(&self, units: std::ops::Range<usize>) -> Vec<f32> {
        units
            .flat_map(|index| self.network.units[index].initial(index, self.options.seed))
            .collect()
    }

    fn microbatch(&self) -> Microbatch {
        let (input_bytes, target_bytes) = sample_bytes(&self.sizes.architecture);
        Microbatch {
            input_bytes: self.samples * input_bytes,
            target_bytes: self.samples * target_bytes,
            target_offset: 0,
            loss_rows: self.rows(),
            // An f32 feature is four bytes.
            cast_count: self.casts().then_some(self.samples * input_bytes / 4),
        }
    }
}

/// Lays the way out on this process's GPUs, of which the first is open.
pub(crate) fn plan(first: &Rc<Gpu>, options: &TrainOptions, way: OneProcess) -> Result<Plan, Error> {
    let microbatches = options.accumulate as usize;
    let count = way.gpus();
    let (replicas, parts) = match way {
        OneProcess::Replicas(count) => (count as usize, 1),
        OneProcess::Layers(count) => (1, count as usize),
    };
    let divided = Divided {
        units: parts,
        samples: replicas * microbatches,
        ..Divided::default()
    };
    let sizes = options.sizes(&first.name, divided)?;
    let network = sizes.architecture.network();
    let shares = shares(sizes.batch, replicas, microbatches, options.trouble.imbalance)?;
    let data_type = options.data_type();
    let making = Making {
        options,
        sizes: &sizes,
        network: &network,
        data_type,
        microbatches,
        samples: sizes.batch / microbatches,
    };
    network.check(1, false, making.rows())?;
    let devices = devices::open(Rc::clone(first), count, options.trouble.straggler)?;
    let engine: Box<dyn Engine> = match way {
        OneProcess::Replicas(_) => Box::new(replicate(devices, &making, &shares)?),
        OneProcess::Layers(_) => Box::new(divide(devices, &making)?),
    };
    first.bind()?;
    let mut division = format!("1 process on {count} {}", if count == 1 { "GPU" } else { "GPUs" });
    if microbatches > 1 {
        division += &format!(", {microbatches} microbatches");
    }
    if data_type != DataType::F32 {
        division += &format!(", {}", data_type.name());
    }
    Ok(Plan {
        engine,
        shape: format!(
            "{}, {}",
            sizes.architecture.describe(),
            options.optimizer.optimizer.name()
        ),
        total_elements: network.starts()[network.units.len()],
        division,
        share: 0..sizes.batch,
        needs: LoaderNeeds::ALL,
        sizes,
    })
}

/// A replica on each GPU, with its share of each microbatch.
fn replicate(
    devices: Vec<Device>,
    making: &Making<'_>,
    shares: &[std::ops::Range<usize>],
) -> Result<DataParallel, Error> {
    let (network, data_type) = (making.network, making.data_type);
    let (sample_input, _) = sample_bytes(&making.sizes.architecture);
    let sample_output = network.rows_per_sample * network.outputs * data_type.bytes();
    let starts = network.starts();
    let elements = starts[network.units.len()];
    let layouts: Vec<Layout> = network
        .units
        .iter()
        .map(|unit| unit.build(None).layout().clone())
        .collect();
    let first = Rc::clone(&devices[0].gpu);
    first.bind()?;
    let values = making.values(0..network.units.len());
    let state = Replicated::new(&first, &layouts, &values, &making.recipe(true), None, None)?;
    let of_first = |bytes: usize| first.buffer(bytes);
    let (outputs, deltas, returned) = (
        of_first(making.samples * sample_output)?,
        of_first(making.samples * sample_output)?,
        of_first(elements * data_type.bytes())?,
    );
    let loss = LossSum::new(&first, network, making.sizes.batch)?;
    let replicas = devices
        .into_iter()
        .zip(shares)
        .map(|(device, share)| {
            let gpu = device.enter()?;
            // A share of the batch is a share of each microbatch.
            let of_microbatch = |at: usize| at / making.microbatches;
            let samples = of_microbatch(share.start)..of_microbatch(share.end);
            let bytes = |of_sample: usize| samples.start * of_sample..samples.end * of_sample;
            let (input_bytes, output_bytes) = (bytes(sample_input), bytes(sample_output));
            let cast_count = making.casts().then_some(input_bytes.len() / 4);
            let rows = samples.len() * network.rows_per_sample;
            let units = network.units.iter().map(|unit| unit.build(None)).collect();
            let flat = elements * data_type.bytes();
            Ok(Replica {
                stage: Stage::new(gpu, units, (rows, data_type), 1, making.segment())?
                    .synchronized(making.options.trouble.synchronize),
                input: gpu.buffer(input_bytes.len())?,
                cast: gpu.buffer(cast_count.map_or(0, |count| count * data_type.bytes()))?,
                delta: gpu.buffer(output_bytes.len())?,
                parameters: gpu.buffer(flat)?,
                gradients: gpu.buffer(flat)?,
                input_bytes,
                output_bytes,
                cast_count,
                device,
            })
        })
        .collect::<Result<_, Error>>()?;
    Ok(DataParallel {
        replicas,
        state,
        starts: starts.into(),
        data_type,
        microbatches: making.microbatches,
        microbatch: making.microbatch(),
        outputs,
        deltas,
        returned,
        loss,
        overflow: None,
    })
}

/// A part of the network on each GPU, with as many units each as can be.
fn divide(devices: Vec<Device>, making: &Making<'_>) -> Result<ModelParallel, Error> {
    let (network, data_type, rows) = (making.network, making.data_type, making.rows());
    let count = devices.len();
    if count > network.units.len() {
        return Err(Error::new(format!(
            "--ranks {count}: more GPUs than the model has units ({} of {}): use fewer GPUs or more --layers",
            network.units.len(),
            making.sizes.architecture.describe()
        )));
    }
    let bounds = pipeline::balance(&vec![1.0; network.units.len()], count);
    let starts = network.starts();
    let mut parts = Vec::new();
    for (index, device) in devices.into_iter().enumerate() {
        let gpu = device.enter()?;
        let own = bounds[index]..bounds[index + 1];
        let units: Vec<_> = network.units[own.clone()]
            .iter()
            .map(|unit| unit.build(None))
            .collect();
        let layouts: Vec<Layout> = units.iter().map(|unit| unit.layout().clone()).collect();
        let (input_bytes, output_bytes) = (
            units[0].input_bytes(rows, data_type),
            units[units.len() - 1].output_bytes(rows, data_type),
        );
        let recipe = making.recipe(making.microbatches > 1);
        let values = making.values(own.clone());
        let sharing = Replicated::new(gpu, &layouts, &values, &recipe, None, None)?;
        let between = |bytes: usize, wanted: bool| gpu.buffer(if wanted { bytes } else { 0 });
        parts.push(Layers {
            sharing,
            elements: starts[own.start]..starts[own.end],
            input: between(input_bytes, index > 0)?,
            input_delta: between(input_bytes, index > 0)?,
            delta: between(output_bytes, index + 1 < count)?,
            stage: Stage::new(gpu, units, (rows, data_type), 1, making.segment())?
                .synchronized(making.options.trouble.synchronize),
            input_bytes,
            device,
        });
    }
    let microbatch = making.microbatch();
    let last = parts[count - 1].device.enter()?;
    let (targets, loss) = (
        last.buffer(microbatch.target_bytes)?,
        LossSum::new(last, network, making.sizes.batch)?,
    );
    let first = parts[0].device.enter()?;
    Ok(ModelParallel {
        cast: first.buffer(microbatch.cast_count.map_or(0, |count| count * data_type.bytes()))?,
        parts,
        data_type,
        microbatches: making.microbatches,
        microbatch,
        targets,
        loss,
        overflows: Vec::new(),
    })
}
