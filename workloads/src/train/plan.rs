//! Who computes what: a way to train, laid out for one rank.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;

use crate::data::{DataSet, Language, Perceptron, Sampler};
use crate::error::Error;
use crate::gpu::{DataType, Gpu};
use crate::loader::{Loader, LoaderNeeds};
use crate::model::{Layout, Loss, Network, TensorParallel, Unit, UnitSpec};
use crate::options::{Architecture, DdpOptions, Divided, FsdpOptions, Sizes, TrainOptions};
use crate::rank::Rank;
use crate::store::Store;
use crate::trouble::Where;

use super::engine::Engine;
use super::fsdp::FullySharded;
use super::graphs::Graphs;
use super::link::Link;
use super::loss::LossSum;
use super::measure;
use super::mesh::{Mesh, Shape};
use super::meter::Meter;
use super::pipeline::{self, Schedule};
use super::reducer::Reducer;
use super::replicated::{Recipe, Replicated};
use super::runner::{Microbatch, Pipeline, Runner};
use super::share::shares;
use super::sharing::Sharing;
use super::stage::Stage;

/// How replicas come to the same gradients.
#[derive(Clone, Debug)]
pub(crate) enum Reduce {
    /// There is one replica.
    None,
    /// All-reduce in buckets.
    Buckets(DdpOptions),
    /// Each rank keeps a shard: reduce-scatter.
    Shards(FsdpOptions),
}

/// What stages are made even by.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Balance {
    /// Time of each unit's forward and backward pass, measured before training
    Time,
    /// Device memory of each unit, measured before training
    Memory,
    /// Number of layers; of a transformer, of blocks
    #[default]
    Layers,
}

/// How a network is divided over ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Division {
    pub(crate) tensor: u32,
    pub(crate) stages: u32,
    pub(crate) sequence: bool,
    pub(crate) schedule: Schedule,
    pub(crate) balance: Balance,
    /// Microbatches of a pipeline's step.
    pub(crate) microbatches: u32,
}

impl Default for Division {
    fn default() -> Self {
        Self {
            tensor: 1,
            stages: 1,
            sequence: false,
            schedule: Schedule::default(),
            balance: Balance::default(),
            microbatches: 1,
        }
    }
}

/// A way to train.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) division: Division,
    pub(crate) reduce: Reduce,
    /// Whether forward and backward pass are launched as CUDA graphs.
    pub(crate) graphs: bool,
}

/// One rank's part of a run.
pub(crate) struct Plan {
    pub(crate) sizes: Sizes,
    pub(crate) engine: Box<dyn Engine>,
    /// Network and optimizer in words, as checkpoints carry them.
    pub(crate) shape: String,
    pub(super) total_elements: usize,
    /// How the work is divided, in words.
    pub(super) division: String,
    /// Samples of each global batch that are this rank's.
    pub(super) share: Range<usize>,
    pub(super) needs: LoaderNeeds,
}

impl Plan {
    /// Lays a way to train out for this rank. All ranks must call: communicators are made.
    pub(crate) fn new(
        gpu: &Rc<Gpu>,
        options: &TrainOptions,
        way: &Way,
        rank: &Rank,
        store: &Store,
    ) -> Result<Self, Error> {
        let shape = mesh_shape(rank.ranks, way)?;
        let microbatches = (options.accumulate * way.division.microbatches) as usize;
        let tensor = shape.tensor as usize;
        let divided = Divided {
            units: shape.stages as usize,
            columns: tensor,
            samples: shape.data as usize * microbatches * if way.division.sequence { tensor } else { 1 },
        };
        let sizes = options.sizes(&gpu.name, divided)?;
        let network = sizes.architecture.network();
        let shares = shares(
            sizes.batch,
            shape.data as usize,
            microbatches,
            options.trouble.imbalance,
        )?;
        if shape.stages as usize > network.units.len() {
            return Err(Error::new(format!(
                "a pipeline of {} stages is deeper than the model of {} units ({}): use fewer stages or more --layers",
                shape.stages,
                network.units.len(),
                sizes.architecture.describe()
            )));
        }
        let [data, tensor, stage] = shape.positions(rank.rank);
        let share = shares[data.rank as usize].clone();
        let data_type = options.data_type();
        let samples = share.len() / microbatches;
        let rows = samples * network.rows_per_sample;
        network.check(tensor.ranks as usize, way.division.sequence, rows)?;

        let mesh = Mesh::new(store, rank.rank, shape)?;
        let parallel = mesh
            .tensor_ranks
            .as_ref()
            .map(|ranks| TensorParallel::new(gpu, Rc::clone(ranks), way.division.sequence))
            .transpose()?;
        let bounds = stage_bounds(gpu, way, &network, (rows, data_type), store)?;
        let own = bounds[stage.rank as usize]..bounds[stage.rank as usize + 1];
        let units: Vec<Box<dyn Unit>> = network.units[own.clone()]
            .iter()
            .map(|unit| unit.build(parallel.as_ref()))
            .collect();
        let layouts: Vec<Layout> = units.iter().map(|unit| unit.layout().clone()).collect();

        // With a broadcast to come every replica draws parameters of its own, as a program without care for seeds would.
        let seed = match way.reduce {
            Reduce::Buckets(_) => options.seed.wrapping_add(u64::from(data.rank) << 32),
            Reduce::None | Reduce::Shards(_) => options.seed,
        };
        let mut values = Vec::new();
        for (index, layout) in own.clone().zip(&layouts) {
            values.extend(layout.take(&network.units[index].initial(index, seed)));
        }
        let recipe = Recipe {
            data_type,
            optimizer: options.optimizer.optimizer,
            accumulates: microbatches > 1,
            saves: data.rank == 0,
            saves_undivided: tensor.rank == 0,
        };
        let sharing = sharing(gpu, way, &mesh, &layouts, &values, &recipe, parallel.as_ref())?;

        let (is_first, is_last) = (stage.rank == 0, stage.rank + 1 == stage.ranks);
        let schedule = way.division.schedule;
        let slots = match stage.ranks {
            1 => 1,
            stages => pipeline::slots(schedule, stage.rank as usize, stages as usize, microbatches),
        };
        let segment = if options.checkpoint { segment(&network) } else { 0 };
        let (input_bytes, output_bytes) = (
            units[0].input_bytes(rows, data_type),
            units[units.len() - 1].output_bytes(rows, data_type),
        );
        let pipe = mesh
            .stage_ranks
            .as_ref()
            .map(|ranks| {
                let buffers = |bytes: usize| (0..slots).map(|_| gpu.buffer(bytes)).collect::<Result<_, _>>();
                Ok::<_, Error>(Pipeline {
                    schedule,
                    stage: stage.rank as usize,
                    stages: stage.ranks as usize,
                    link: Link::new(gpu, Rc::clone(ranks), data_type.into())?,
                    inputs: buffers(if is_first { 0 } else { input_bytes })?,
                    deltas: buffers(input_bytes)?,
                    received: gpu.buffer(if is_last { 0 } else { output_bytes })?,
                    input_count: input_bytes / data_type.bytes(),
                    output_count: output_bytes / data_type.bytes(),
                    meter: Meter::default(),
                })
            })
            .transpose()?;
        let casts = is_first && network.loss == Loss::MeanSquared && data_type != DataType::F32;
        let divided = if way.division.sequence {
            tensor.ranks as usize
        } else {
            1
        };
        let (data_input_bytes, data_target_bytes) = sample_bytes(&sizes.architecture);
        let microbatch = Microbatch {
            input_bytes: samples * data_input_bytes,
            target_bytes: samples * data_target_bytes,
            target_offset: samples * data_target_bytes / divided * (tensor.rank as usize % divided),
            loss_rows: rows / divided,
            cast_count: casts.then(|| input_bytes / data_type.bytes()),
        };
        let starts = network.starts();
        let tensors = own
            .clone()
            .zip(&layouts)
            .flat_map(|(index, layout)| {
                let named = move |name: &str| format!("unit {index} {name}");
                layout.places.iter().map(move |place| named(place.name))
            })
            .collect();
        let runner = Runner {
            gpu: Rc::clone(gpu),
            mesh,
            stage: Stage::new(gpu, units, (rows, data_type), slots, segment)?
                .synchronized(options.trouble.synchronize),
            sharing,
            data_type,
            microbatches,
            microbatch,
            cast: (0..slots)
                .map(|_| gpu.buffer(if casts { input_bytes } else { 0 }))
                .collect::<Result<_, _>>()?,
            loss: LossSum::new(gpu, &network, sizes.batch)?,
            computes_loss: is_last,
            counts_loss: is_last && (divided > 1 || tensor.rank == 0),
            elements: starts[own.start]..starts[own.end],
            tensors,
            overflow: None,
            pipeline: pipe,
            graphs: way.graphs.then(Graphs::default),
            delay: Duration::ZERO,
        };
        Ok(Self {
            shape: format!(
                "{}, {}",
                sizes.architecture.describe(),
                options.optimizer.optimizer.name()
            ),
            needs: LoaderNeeds {
                inputs: is_first,
                targets: is_last,
            },
            total_elements: starts[network.units.len()],
            division: in_words(rank.ranks, &shape, microbatches, data_type),
            sizes,
            engine: Box::new(runner),
            share,
        })
    }

    /// Elements of the whole, unsharded network.
    pub(crate) fn total_elements(&self) -> usize {
        self.total_elements
    }

    /// Starts loading, from the batch of `first_step` on. A stage in the middle of a pipeline loads nothing.
    pub(crate) fn start_loader(
        &self,
        gpu: &Gpu,
        options: &TrainOptions,
        rank: u32,
        first_step: u64,
    ) -> Result<Option<Loader>, Error> {
        if !self.needs.inputs && !self.needs.targets {
            options.trouble.check_without_loader(rank)?;
            return Ok(None);
        }
        let sizes = &self.sizes;
        let mut sampler = Sampler::new(sizes.samples, sizes.batch, options.seed);
        sampler.skip(first_step);
        let data = data_set(sizes, options.seed);
        let delays = options.trouble.delays(Where::Loader, rank);
        let delays = delays.and(options.loader.loader_delay);
        let from = (&delays, first_step);
        Loader::start(
            gpu,
            &data,
            &sampler,
            &self.share,
            self.needs,
            &options.loader,
            from,
        )
        .map(Some)
    }

    /// One line: what is trained, and how.
    pub(crate) fn headline(&self, gpu: &Gpu, options: &TrainOptions) -> String {
        let mut line = format!(
            "{}, {}, {}, batch {}",
            gpu.name,
            self.division,
            self.sizes.architecture.describe(),
            self.sizes.batch
        );
        if let Some(floor) = entropy_floor(&self.sizes, options.seed) {
            line += &format!(", entropy floor {floor:.4} nats");
        }
        line
    }
}

/// The mesh that a way to train makes of so many ranks.
fn mesh_shape(ranks: u32, way: &Way) -> Result<Shape, Error> {
    let Division { tensor, stages, .. } = way.division;
    let members = tensor * stages;
    if members == 0 || !ranks.is_multiple_of(members) {
        return Err(Error::new(format!(
            "{}: {ranks} ranks cannot be divided into {tensor} tensor x {stages} pipeline: choose a multiple of {members}",
            way.name
        )));
    }
    let data = ranks / members;
    if data > 1 && matches!(way.reduce, Reduce::None) {
        return Err(Error::new(format!(
            "{} runs on {members} {}, but there are {ranks}",
            way.name,
            if members == 1 { "rank" } else { "ranks" }
        )));
    }
    Ok(Shape { data, tensor, stages })
}

/// Where each stage begins, the same on all ranks; the first rank measures where stages are made even by measures.
fn stage_bounds(
    gpu: &Gpu,
    way: &Way,
    network: &Network,
    (rows, data_type): (usize, DataType),
    store: &Store,
) -> Result<Vec<usize>, Error> {
    let stages = way.division.stages as usize;
    let units = network.units.len();
    if stages == 1 {
        return Ok(vec![0, units]);
    }
    let weights = match way.division.balance {
        Balance::Layers => network.units.iter().map(as_layers).collect(),
        by => measure::weights(gpu, network, (rows, data_type), by, store)?,
    };
    Ok(pipeline::balance(&weights, stages))
}

/// How many layers a unit counts for. Tables and the last projection are little beside a block, so that stages are equal
/// that have equally many blocks.
fn as_layers(unit: &UnitSpec) -> f64 {
    match unit {
        UnitSpec::Linear { .. } | UnitSpec::Block { .. } => 1.0,
        UnitSpec::Embedding { .. } | UnitSpec::Head { .. } => 0.1,
    }
}

/// How this rank holds its parameters.
fn sharing(
    gpu: &Gpu,
    way: &Way,
    mesh: &Mesh,
    layouts: &[Layout],
    values: &[f32],
    recipe: &Recipe,
    parallel: Option<&TensorParallel>,
) -> Result<Box<dyn Sharing>, Error> {
    let reducer = match (&way.reduce, &mesh.data_ranks) {
        (Reduce::Shards(options), Some(ranks)) => {
            let sharded = FullySharded::new(gpu, Rc::clone(ranks), layouts, values, recipe, options)?;
            return Ok(Box::new(sharded));
        }
        (Reduce::Buckets(options), Some(ranks)) => Some(Reducer::new(
            gpu,
            Rc::clone(ranks),
            &tensor_ranges(layouts),
            options,
        )?),
        _ => None,
    };
    Ok(Box::new(Replicated::new(
        gpu, layouts, values, recipe, reducer, parallel,
    )?))
}

/// Each tensor's range in the flat vector of all units, in order.
fn tensor_ranges(layouts: &[Layout]) -> Vec<Range<usize>> {
    let mut start = 0;
    let mut ranges = Vec::new();
    for layout in layouts {
        ranges.extend(
            layout
                .places
                .iter()
                .map(|place| start + place.elements.start..start + place.elements.end),
        );
        start += layout.elements;
    }
    ranges
}

/// Units that are recomputed together: a transformer's block keeps enough inside to be worth it alone, linear layers in
/// pairs.
pub(super) fn segment(network: &Network) -> usize {
    match network.loss {
        Loss::CrossEntropy => 1,
        Loss::MeanSquared => 2,
    }
}

/// Bytes of one sample's inputs and targets.
pub(super) fn sample_bytes(architecture: &Architecture) -> (usize, usize) {
    match architecture {
        Architecture::Perceptron(sizes) => (sizes[0] * 4, sizes[sizes.len() - 1] * 4),
        Architecture::Transformer { context, .. } => (context * 4, context * 4),
    }
}

/// The data that the network is trained on.
fn data_set(sizes: &Sizes, seed: u64) -> Arc<dyn DataSet> {
    match &sizes.architecture {
        Architecture::Perceptron(layers) => Arc::new(Perceptron::new(
            sizes.samples,
            layers[0],
            layers[layers.len() - 1],
            seed,
        )),
        Architecture::Transformer {
            vocabulary, context, ..
        } => Arc::new(Language::new(sizes.samples, *context, *vocabulary, seed)),
    }
}

/// The least cross entropy that the data leaves, in nats, where it is known.
fn entropy_floor(sizes: &Sizes, seed: u64) -> Option<f64> {
    match &sizes.architecture {
        Architecture::Perceptron(_) => None,
        Architecture::Transformer {
            vocabulary, context, ..
        } => Some(Language::new(1, *context, *vocabulary, seed).entropy_floor_nats()),
    }
}

/// How the work is divided: ranks, mesh, microbatches, and the type that is computed in.
pub(super) fn in_words(ranks: u32, shape: &Shape, microbatches: usize, data_type: DataType) -> String {
    let mut words = format!("{ranks} {}", if ranks == 1 { "rank" } else { "ranks" });
    if shape.tensor > 1 || shape.stages > 1 {
        words += &format!(
            " ({} data x {} tensor x {} pipeline)",
            shape.data, shape.tensor, shape.stages
        );
    }
    if microbatches > 1 {
        words += &format!(", {microbatches} microbatches");
    }
    if data_type != DataType::F32 {
        words += &format!(", {}", data_type.name());
    }
    words
}
