//! `ring`: an all-reduce built from sends and receives between neighbours, held against NCCL's own.
//!
//! The data are cut into one part for each rank. In the first n - 1 steps every rank sends one part to the next rank
//! and adds what comes from the one before: then each rank has one part summed over all. In the next n - 1 steps the
//! summed parts go around once more. Each rank sends 2 (n - 1) / n of its data, which is the least that any all-reduce
//! can do.

mod compare;

use std::ops::Range as Elements;
use std::sync::Arc;

use clap::Args;
use cudarc::driver::{CudaFunction, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

use compare::{Difference, ELEMENT_BYTES, Type, by_definition, compare, limit, value};

use super::world::World;
use super::{Memory, gigabytes_per_second, json, parse_bytes, parse_count, sizes};
use crate::comm::{self, Element, Reduction};
use crate::error::Error;
use crate::gpu::DataType;
use crate::launch::Rank;
use crate::nvtx::Range;
use crate::store::Store;

/// The kernel of kernels/ring.cu, compiled by kernels/build.sh.
const RING_PTX: &str = include_str!("../../../kernels/ring.ptx");

/// What `ring` can be asked for.
#[derive(Args, Debug, Clone)]
pub(crate) struct RingOptions {
    /// Ranks, a process each
    #[arg(long, default_value = "4", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) ranks: u32,
    /// Types of the elements
    #[arg(
        long,
        value_enum,
        default_value = "int32,float",
        value_name = "TYPE,...",
        value_delimiter = ','
    )]
    pub(crate) dtype: Vec<Type>,
    /// Numbers of elements to compare [default: one, and some around the number of ranks]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = parse_count)]
    pub(crate) counts: Option<Vec<usize>>,
    /// The smallest size to measure [default: sized for the device]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) min_bytes: Option<usize>,
    /// The largest size to measure [default: sized for the device]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) max_bytes: Option<usize>,
    /// Each size is so many times the one before
    #[arg(long, default_value = "8", value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub(crate) factor: u32,
    /// Measured calls of each size; times are the shortest
    #[arg(long, visible_alias = "steps", default_value = "5", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) iterations: u32,
    /// Seed of the values
    #[arg(long, default_value = "1", value_name = "N")]
    pub(crate) seed: u64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl RingOptions {
    /// How many processes it takes. What can be told wrong without a GPU is told here.
    pub(crate) fn processes(&self) -> Result<u32, Error> {
        if let (Some(least), Some(most)) = (self.min_bytes, self.max_bytes)
            && least > most
        {
            return Err(Error::new(format!(
                "--min-bytes {least}: more than --max-bytes {most}"
            )));
        }
        if let Some(small) = self
            .min_bytes
            .or(self.max_bytes)
            .filter(|bytes| *bytes < ELEMENT_BYTES)
        {
            return Err(Error::new(format!(
                "a size of {small} bytes is less than one element of {ELEMENT_BYTES}"
            )));
        }
        Ok(self.ranks)
    }
}

/// The elements of part `index` of `parts`: sizes differ by one at most, and are 0 where there are too few elements.
fn part(count: usize, parts: usize, index: usize) -> Elements<usize> {
    index * count / parts..(index + 1) * count / parts
}

/// Which part a rank sends and which it receives in a step; the receiver of a part adds it or keeps it.
fn parts_of_step(rank: usize, ranks: usize, step: usize, adding: bool) -> (usize, usize) {
    let first = if adding { rank } else { rank + 1 };
    (
        (first + ranks - step) % ranks,
        (first + 2 * ranks - step - 1) % ranks,
    )
}

struct Ring<'a> {
    world: &'a World<'a>,
    seed: u64,
    add_i32: CudaFunction,
    stream: Arc<CudaStream>,
    /// The ring's data, NCCL's data, and what came from the neighbour.
    data: Memory,
    reference: Memory,
    received: Memory,
}

impl<'a> Ring<'a> {
    fn new(world: &'a World<'a>, seed: u64, most_elements: usize) -> Result<Self, Error> {
        let context = &world.gpu.context;
        let bytes = most_elements * ELEMENT_BYTES;
        let module = context.load_module(Ptx::from_src(RING_PTX))?;
        Ok(Self {
            world,
            seed,
            add_i32: module.load_function("add_i32")?,
            stream: Arc::clone(&world.gpu.compute),
            data: Memory::new(context, bytes)?,
            reference: Memory::new(context, bytes)?,
            received: Memory::new(context, bytes.div_ceil(world.ranks) + ELEMENT_BYTES)?,
        })
    }

    /// Sends one part to the next rank while another comes from the one before, to `target`.
    fn exchange(
        &self,
        element: Element,
        sent: &Elements<usize>,
        came: &Elements<usize>,
        target: u64,
    ) -> Result<(), Error> {
        let World {
            communicator,
            rank,
            ranks,
            ..
        } = self.world;
        let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        // Without the group a send could wait for a receive that its receiver only calls after its own send.
        comm::group(|| {
            // Empty parts are empty for both sides.
            if !sent.is_empty() {
                let address = self.data.address + (sent.start * ELEMENT_BYTES) as u64;
                communicator.send(address, sent.len(), element, next as u32, &self.stream)?;
            }
            if !came.is_empty() {
                communicator.receive(target, came.len(), element, previous as u32, &self.stream)?;
            }
            Ok(())
        })
    }

    /// Adds what was received to a part.
    fn add(&self, ty: Type, elements: &Elements<usize>) -> Result<(), Error> {
        if elements.is_empty() {
            return Ok(());
        }
        let address = self.data.address + (elements.start * ELEMENT_BYTES) as u64;
        let received = self.received.address;
        match ty {
            Type::Float => {
                let queue = self.world.gpu.work_on(&self.stream);
                queue.add(DataType::F32, address, received, elements.len())
            }
            Type::Int32 => {
                let count = i32::try_from(elements.len()).map_err(|_| {
                    Error::new("a part of the ring has more elements than a kernel can count")
                })?;
                let mut launch = self.stream.launch_builder(&self.add_i32);
                launch.arg(&address).arg(&received).arg(&count);
                let config = LaunchConfig {
                    grid_dim: (count.cast_unsigned().div_ceil(256).clamp(1, 2048), 1, 1),
                    block_dim: (256, 1, 1),
                    shared_mem_bytes: 0,
                };
                // SAFETY: the kernel's arguments in its order; both arrays hold `count` elements.
                unsafe { launch.launch(config)? };
                Ok(())
            }
        }
    }

    /// The ring all-reduce, in place in `data`.
    fn all_reduce(&self, ty: Type, count: usize) -> Result<(), Error> {
        let (rank, ranks, element) = (self.world.rank, self.world.ranks, ty.element());
        let part = |index| part(count, ranks, index);
        for step in 0..ranks - 1 {
            let _range = Range::new(&format!("reduce-scatter {step}"));
            let (sent, came) = parts_of_step(rank, ranks, step, true);
            self.exchange(element, &part(sent), &part(came), self.received.address)?;
            self.add(ty, &part(came))?;
        }
        for step in 0..ranks - 1 {
            let _range = Range::new(&format!("all-gather {step}"));
            let (sent, came) = parts_of_step(rank, ranks, step, false);
            let target = self.data.address + (part(came).start * ELEMENT_BYTES) as u64;
            self.exchange(element, &part(sent), &part(came), target)?;
        }
        Ok(())
    }

    /// NCCL's, in place in `reference`.
    fn nccl(&self, ty: Type, count: usize) -> Result<(), Error> {
        self.world.communicator.all_reduce(
            [self.reference.address; 2],
            count,
            (ty.element(), Reduction::Sum),
            &self.stream,
        )
    }

    /// Both on the same values: the ring against NCCL's, and the ring against the definition.
    fn compared(&self, ty: Type, count: usize) -> Result<[Difference; 2], Error> {
        let _range = Range::new(&format!("compare {count} {}", ty.name()));
        let bytes: Vec<u8> = (0..count)
            .flat_map(|index| value(ty, self.seed, self.world.rank, index).to_le_bytes())
            .collect();
        self.data.write(0, &bytes)?;
        self.reference.write(0, &bytes)?;
        self.all_reduce(ty, count)?;
        self.nccl(ty, count)?;
        self.world.wait(&self.stream)?;
        let result = self.data.read(0, bytes.len())?;
        let reference = self.reference.read(0, bytes.len())?;
        let right = by_definition(ty, self.seed, self.world.ranks, count);
        Ok([compare(ty, &result, &reference), compare(ty, &result, &right)])
    }

    /// Microseconds of one call, the shortest of `iterations` on this rank.
    fn time(&self, iterations: u32, call: impl Fn() -> Result<(), Error>) -> Result<f64, Error> {
        // The first call over a connection makes it.
        call()?;
        Ok(self.world.times(&self.stream, iterations, call)?.best_us)
    }
}

/// One count's comparison, over all ranks.
struct Comparison {
    ty: Type,
    count: usize,
    different: usize,
    relative: f64,
    /// Relative to the definition.
    from_definition: f64,
    equal: bool,
}

/// One size's cost: the shortest call of any rank, since the last rank to come waits for nobody.
struct Cost {
    ty: Type,
    count: usize,
    ring_us: f64,
    nccl_us: f64,
}

impl Cost {
    fn bytes(&self) -> usize {
        self.count * ELEMENT_BYTES
    }

    /// Bus bandwidths in GB/s, of the ring and of NCCL's.
    fn bus_gb_s(&self, ranks: usize) -> [f64; 2] {
        let factor = 2.0 * (ranks as f64 - 1.0) / ranks as f64;
        [self.ring_us, self.nccl_us].map(|time_us| gigabytes_per_second(self.bytes(), time_us) * factor)
    }
}

fn comparison(ring: &Ring, ty: Type, count: usize) -> Result<Comparison, Error> {
    let world = ring.world;
    let [to_nccl, to_definition] = ring.compared(ty, count)?;
    let own = [to_nccl.elements as f64, to_nccl.relative, to_definition.relative];
    let all = world.all_numbers(&own)?;
    let largest = |index: usize| all.iter().map(|numbers| numbers[index]).fold(0.0, f64::max);
    let limit = limit(ty, world.ranks);
    // Rounding makes the definition's f64 sum differ in the last place even where the two rings agree.
    let definition_limit = if ty == Type::Int32 { 0.0 } else { 1e-6 };
    Ok(Comparison {
        ty,
        count,
        different: largest(0) as usize,
        relative: largest(1),
        from_definition: largest(2),
        equal: largest(1) <= limit && (limit > 0.0 || largest(0) == 0.0) && largest(2) <= definition_limit,
    })
}

/// The counts that are compared when none are asked for: fewer elements than ranks, and parts of unequal sizes.
fn odd_counts(ranks: usize) -> Vec<usize> {
    let mut counts = vec![1, ranks - 1, ranks, ranks + 1, 3 * ranks - 1, 1009, 65_537];
    counts.retain(|count| *count > 0);
    counts.sort_unstable();
    counts.dedup();
    counts
}

fn print_comparisons(comparisons: &[Comparison], ranks: usize) {
    println!("#\n# the same as ncclAllReduce?");
    println!(
        "# {:>10}  {:>8}  {:>10}  {:>12}  {:>12}  {:>15}",
        "count", "type", "#different", "most", "allowed", "from definition"
    );
    for row in comparisons {
        println!(
            "{:>12}  {:>8}  {:>10}  {:>12.3e}  {:>12.3e}  {:>15.3e}  {}",
            row.count,
            row.ty.name(),
            row.different,
            row.relative,
            limit(row.ty, ranks),
            row.from_definition,
            if row.equal { "OK" } else { "FAILED" }
        );
    }
}

fn print_costs(costs: &[Cost], ranks: usize) {
    println!("#\n# cost beside ncclAllReduce: the shortest call");
    println!(
        "# {:>10}  {:>12}  {:>8}  {:>10}  {:>8}  {:>10}  {:>8}  {:>9}",
        "size", "count", "type", "ring", "busbw", "NCCL", "busbw", "ring/NCCL"
    );
    println!(
        "# {:>10}  {:>12}  {:>8}  {:>10}  {:>8}  {:>10}  {:>8}",
        "(B)", "(elements)", "", "(us)", "(GB/s)", "(us)", "(GB/s)"
    );
    for row in costs {
        let [ring, nccl] = row.bus_gb_s(ranks);
        println!(
            "{:>12}  {:>12}  {:>8}  {:>10.1}  {:>8.3}  {:>10.1}  {:>8.3}  {:>9.2}",
            row.bytes(),
            row.count,
            row.ty.name(),
            row.ring_us,
            ring,
            row.nccl_us,
            nccl,
            row.ring_us / row.nccl_us
        );
    }
}

fn print_json(world: &World, comparisons: &[Comparison], costs: &[Cost], unequal: usize) {
    let comparison = |row: &Comparison| {
        json::object(&[
            ("count", row.count.to_string()),
            ("type", json::string(row.ty.name())),
            ("different", row.different.to_string()),
            ("relative", format!("{:e}", row.relative)),
            ("allowed", format!("{:e}", limit(row.ty, world.ranks))),
            ("from_definition", format!("{:e}", row.from_definition)),
            ("equal", row.equal.to_string()),
        ])
    };
    let cost = |row: &Cost| {
        let [ring, nccl] = row.bus_gb_s(world.ranks);
        json::object(&[
            ("size_bytes", row.bytes().to_string()),
            ("count", row.count.to_string()),
            ("type", json::string(row.ty.name())),
            ("ring_us", json::number(row.ring_us)),
            ("ring_busbw_gb_s", json::number(ring)),
            ("nccl_us", json::number(row.nccl_us)),
            ("nccl_busbw_gb_s", json::number(nccl)),
        ])
    };
    println!(
        "{}",
        json::object(&[
            ("device", json::string(&world.gpu.name)),
            ("ranks", world.ranks.to_string()),
            ("comparisons", json::array(comparisons.iter().map(comparison))),
            ("costs", json::array(costs.iter().map(cost))),
            ("unequal", unequal.to_string()),
        ])
    );
}

/// Runs `ring`; rank 0 gives 1 when the ring's result is not NCCL's.
pub(crate) fn run(options: &RingOptions, rank: &Rank, store: &Store) -> Result<i32, Error> {
    options.processes()?;
    let world = World::join(rank, store)?;
    let (least, most) = if world.gpu.name.starts_with("Simulated") {
        (1 << 10, 512 << 10)
    } else {
        (1 << 10, 256 << 20)
    };
    let least = options
        .min_bytes
        .unwrap_or_else(|| options.max_bytes.unwrap_or(least).min(least));
    let most = options.max_bytes.unwrap_or_else(|| least.max(most));
    let sizes = sizes(least, most, options.factor as usize);
    let counts = options.counts.clone().unwrap_or_else(|| odd_counts(world.ranks));
    let room = counts
        .iter()
        .copied()
        .max()
        .unwrap_or(0)
        .max(most / ELEMENT_BYTES);
    let ring = Ring::new(&world, options.seed, room)?;
    let (mut comparisons, mut costs) = (Vec::new(), Vec::new());
    for ty in &options.dtype {
        for count in &counts {
            comparisons.push(comparison(&ring, *ty, *count)?);
        }
        for bytes in &sizes {
            let count = bytes / ELEMENT_BYTES;
            comparisons.push(comparison(&ring, *ty, count)?);
            let _range = Range::new(&format!("cost {} {}", super::bytes_text(*bytes), ty.name()));
            let ring_us = {
                let _range = Range::new("ring");
                ring.time(options.iterations, || ring.all_reduce(*ty, count))?
            };
            let nccl_us = {
                let _range = Range::new("ncclAllReduce");
                ring.time(options.iterations, || ring.nccl(*ty, count))?
            };
            let all = world.all_numbers(&[ring_us, nccl_us])?;
            let shortest = |index: usize| {
                all.iter()
                    .map(|numbers| numbers[index])
                    .fold(f64::INFINITY, f64::min)
            };
            costs.push(Cost {
                ty: *ty,
                count,
                ring_us: shortest(0),
                nccl_us: shortest(1),
            });
        }
    }
    if rank.rank != 0 {
        return Ok(0);
    }
    let unequal = comparisons.iter().filter(|row| !row.equal).count();
    if options.json {
        print_json(&world, &comparisons, &costs, unequal);
    } else {
        println!(
            "# ring: {} ranks, {}: {} steps of send and receive, the first half adding",
            world.ranks,
            world.gpu.name,
            2 * (world.ranks - 1)
        );
        print_comparisons(&comparisons, world.ranks);
        print_costs(&costs, world.ranks);
        let verdict = if unequal == 0 { "OK" } else { "FAILED" };
        println!("#\n# Unequal results      : {unequal} {verdict}");
    }
    Ok(i32::from(unequal > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ring on the host, all ranks in turn: the same parts and steps, sums instead of kernels.
    fn on_the_host(ranks: usize, count: usize) -> Vec<Vec<u64>> {
        let mut data: Vec<Vec<u64>> = (0..ranks)
            .map(|rank| (0..count).map(|index| (rank * 1000 + index) as u64).collect())
            .collect();
        for (step, adding) in (0..ranks - 1)
            .map(|step| (step, true))
            .chain((0..ranks - 1).map(|step| (step, false)))
        {
            let before = data.clone();
            for (rank, before) in before.iter().enumerate() {
                let next = (rank + 1) % ranks;
                let (sent, _) = parts_of_step(rank, ranks, step, adding);
                let (_, came) = parts_of_step(next, ranks, step, adding);
                assert_eq!(sent, came, "what is sent is what the next rank expects");
                for index in part(count, ranks, sent) {
                    if adding {
                        data[next][index] += before[index];
                    } else {
                        data[next][index] = before[index];
                    }
                }
            }
        }
        data
    }

    #[test]
    fn the_steps_make_an_all_reduce() {
        for ranks in 1..=9 {
            for count in [1, 2, ranks, ranks + 1, 100] {
                let sums: Vec<u64> = (0..count)
                    .map(|index| (0..ranks).map(|rank| (rank * 1000 + index) as u64).sum())
                    .collect();
                for (rank, result) in on_the_host(ranks, count).iter().enumerate() {
                    assert_eq!(*result, sums, "{ranks} ranks, {count} elements, rank {rank}");
                }
            }
        }
    }

    #[test]
    fn parts_cover_everything_once() {
        for (count, parts) in [(1, 4), (3, 4), (10, 3), (12, 4)] {
            let all: Vec<usize> = (0..parts).flat_map(|index| part(count, parts, index)).collect();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
            // What is received fits the buffer for it.
            assert!((0..parts).all(|index| part(count, parts, index).len() <= count.div_ceil(parts)));
        }
    }
}
