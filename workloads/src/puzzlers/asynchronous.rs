//! `async`: the same exchange and the same computation in several orders, with each kind of waiting that CUDA has:
//! what does each block?
//!
//! Ranks are pairs. Each iteration has an exchange with the other (ncclSend and ncclRecv in a group, on a stream of
//! their own), some computation that does not need what arrives, and a last kernel that does.

use std::sync::Arc;
use std::time::Instant;

use clap::{Args, ValueEnum};
use cudarc::driver::{CudaEvent, CudaStream};

use super::world::World;
use super::{Memory, bytes_text, json, microseconds_between, parse_bytes, timed_event};
use crate::comm::{self, Element};
use crate::error::Error;
use crate::gpu::DataType;
use crate::nvtx::Range;
use crate::rank::Rank;
use crate::store::Store;

/// An order of things, and what waits for what.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// the host waits for the communication stream, then computes
    Blocking,
    /// computes meanwhile, the host waits for the whole device
    Device,
    /// computes meanwhile, the host waits for the exchange's event
    Event,
    /// the compute stream waits for the event before it computes
    StreamWait,
    /// the compute stream waits for the event where the data are first needed
    LateWait,
    /// everything on one stream
    OneStream,
}

impl Variant {
    fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// What its waiting blocks, in a line.
    fn blocks(self) -> &'static str {
        match self {
            Self::Blocking => {
                "cuStreamSynchronize before computing blocks the host until the data are there: nothing is hidden"
            }
            Self::Device => {
                "cuCtxSynchronize blocks the host until all streams are done, the computation too: hidden, but the host loses the longer of both"
            }
            Self::Event => {
                "cuEventSynchronize blocks the host until the data are there, while the GPU computes: hidden, the host loses the exchange"
            }
            Self::StreamWait => {
                "cuStreamWaitEvent blocks the compute stream, not the host; placed before all computation it hides nothing"
            }
            Self::LateWait => {
                "cuStreamWaitEvent where the data are first needed blocks neither the host nor what can be computed without them"
            }
            Self::OneStream => {
                "one stream runs things in order: nobody waits for anything, and still nothing is hidden"
            }
        }
    }
}

/// What `async` can be asked for.
#[derive(Args, Debug, Clone)]
pub(crate) struct AsyncOptions {
    /// Ranks, a process each, in pairs
    #[arg(long, default_value = "2", value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1024))]
    pub(crate) ranks: u32,
    /// Which ones [default: all]
    #[arg(long, value_enum, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) variant: Vec<Variant>,
    /// Bytes that each rank sends, such as 4M [default: sized for the device]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) bytes: Option<usize>,
    /// How many times as long as the exchange the computation takes
    #[arg(long, default_value = "1.5", value_name = "FACTOR", value_parser = parse_ratio)]
    pub(crate) compute: f64,
    /// Measured iterations; values are medians
    #[arg(long, visible_alias = "steps", default_value = "5", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) iterations: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_ratio(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|ratio: &f64| (0.01..=100.0).contains(ratio))
        .ok_or_else(|| "expected a number from 0.01 to 100".to_owned())
}

impl AsyncOptions {
    /// How many processes it takes. What can be told wrong without a GPU is told here.
    pub(crate) fn processes(&self) -> Result<u32, Error> {
        check_pairs(self.ranks)?;
        Ok(self.ranks)
    }
}

fn check_pairs(ranks: u32) -> Result<(), Error> {
    if ranks.is_multiple_of(2) {
        return Ok(());
    }
    Err(Error::new(format!(
        "--ranks {ranks}: async exchanges between pairs, so an even number is needed"
    )))
}

/// One iteration's times in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Times {
    /// How long the host stood in calls that wait.
    host_blocked_us: f64,
    /// From the first to the last operation on the GPU.
    gpu_us: f64,
    exchange_us: f64,
    compute_us: f64,
    /// How long exchange and computation ran at the same time.
    hidden_us: f64,
}

impl Times {
    fn as_array(&self) -> [f64; 5] {
        [
            self.host_blocked_us,
            self.gpu_us,
            self.exchange_us,
            self.compute_us,
            self.hidden_us,
        ]
    }

    fn from_array([host_blocked_us, gpu_us, exchange_us, compute_us, hidden_us]: [f64; 5]) -> Self {
        Self {
            host_blocked_us,
            gpu_us,
            exchange_us,
            compute_us,
            hidden_us,
        }
    }

    /// The share of the exchange behind computation, in percent.
    fn hidden_percent(&self) -> f64 {
        if self.exchange_us > 0.0 {
            self.hidden_us / self.exchange_us * 100.0
        } else {
            0.0
        }
    }
}

/// How long two stretches of time, each from its begin to its end, are common.
fn common(one: [f64; 2], other: [f64; 2]) -> f64 {
    (one[1].min(other[1]) - one[0].max(other[0])).max(0.0)
}

/// The median of each of the values.
fn medians(iterations: &[Times]) -> Times {
    let mut medians = [0.0; 5];
    for (index, median) in medians.iter_mut().enumerate() {
        let mut values: Vec<f64> = iterations.iter().map(|times| times.as_array()[index]).collect();
        values.sort_by(f64::total_cmp);
        *median = values.get(values.len() / 2).copied().unwrap_or(0.0);
    }
    Times::from_array(medians)
}

/// Where something begins and ends on a stream.
struct Stretch([CudaEvent; 2]);

struct Bench<'a> {
    world: &'a World<'a>,
    compute: Arc<CudaStream>,
    communication: Arc<CudaStream>,
    sent: Memory,
    received: Memory,
    /// What is computed on: `sums += terms`.
    sums: Memory,
    terms: Memory,
    elements: usize,
    /// How many additions are one iteration's computation.
    additions: usize,
}

impl<'a> Bench<'a> {
    fn new(world: &'a World<'a>, bytes: Option<usize>) -> Result<Self, Error> {
        let context = &world.gpu.context;
        let simulated = world.gpu.name.starts_with("Simulated");
        let bytes = bytes.unwrap_or(if simulated { 1 << 20 } else { 256 << 20 });
        // One addition is short beside the exchange, so that the computation's length can be chosen.
        let elements: usize = if simulated { 1 << 16 } else { 1 << 22 };
        let bench = Self {
            world,
            compute: Arc::clone(&world.gpu.compute),
            communication: context.new_stream()?,
            sent: Memory::new(context, bytes)?,
            received: Memory::new(context, bytes)?,
            sums: Memory::new(context, elements * size_of::<f32>())?,
            terms: Memory::new(context, elements * size_of::<f32>())?,
            elements,
            additions: 1,
        };
        let pattern: Vec<u8> = (0..bytes)
            .map(|index| bench.sent_byte(world.rank, index))
            .collect();
        bench.sent.write(0, &pattern)?;
        Ok(bench)
    }

    /// What a rank sends: no float that could make the sums slow or not a number.
    fn sent_byte(&self, rank: usize, index: usize) -> u8 {
        // The top byte of each little-endian float is 0x3f: numbers from 1/2 to 2.
        if index % 4 == 3 {
            0x3f
        } else {
            (index.wrapping_mul(31) + rank * 7) as u8
        }
    }

    fn peer(&self) -> usize {
        self.world.rank ^ 1
    }

    fn exchange(&self, stream: &CudaStream) -> Result<(), Error> {
        let communicator = &self.world.communicator;
        let (bytes, peer) = (self.sent.bytes, self.peer() as u32);
        comm::group(|| {
            communicator.send(self.sent.address, bytes, Element::U8, peer, stream)?;
            communicator.receive(self.received.address, bytes, Element::U8, peer, stream)
        })
    }

    /// Computation that needs nothing of what arrives.
    fn independent(&self) -> Result<(), Error> {
        let _range = Range::new("compute");
        let queue = self.world.gpu.work_on(&self.compute);
        for _ in 0..self.additions {
            queue.add(
                DataType::F32,
                self.sums.address,
                self.terms.address,
                self.elements,
            )?;
        }
        Ok(())
    }

    /// Computation on what arrived.
    fn dependent(&self) -> Result<(), Error> {
        let _range = Range::new("use what arrived");
        let count = (self.received.bytes / size_of::<f32>()).min(self.elements);
        let queue = self.world.gpu.work_on(&self.compute);
        queue.add(DataType::F32, self.sums.address, self.received.address, count)
    }

    /// Both, marked on the stream.
    fn marked(
        &self,
        stream: &CudaStream,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Stretch, Error> {
        let events = [
            timed_event(&self.world.gpu.context)?,
            timed_event(&self.world.gpu.context)?,
        ];
        events[0].record(stream)?;
        work()?;
        events[1].record(stream)?;
        Ok(Stretch(events))
    }

    /// All ranks are ready, and nothing runs.
    fn ready(&self) -> Result<(), Error> {
        self.world.meet(&self.communication)?;
        self.world.wait(&self.communication)?;
        self.compute.synchronize()?;
        Ok(())
    }

    /// Chooses how much is computed: so many times as long as the exchange takes.
    fn calibrate(&mut self, ratio: f64) -> Result<(), Error> {
        let _range = Range::new("warm-up");
        let mut unit = Times::default();
        for _ in 0..3 {
            self.ready()?;
            let exchange = self.marked(&self.communication, || self.exchange(&self.communication))?;
            self.world.wait(&self.communication)?;
            let compute = self.marked(&self.compute, || self.independent())?;
            self.compute.synchronize()?;
            // The last: the first ones make connections.
            unit.exchange_us = microseconds_between(&exchange.0[0], &exchange.0[1])?;
            unit.compute_us = microseconds_between(&compute.0[0], &compute.0[1])?;
        }
        // The same on all ranks, or one would wait for the other.
        let means = self.world.means_and_sums(&[unit.exchange_us, unit.compute_us])?;
        let additions = ratio * means[0].0 / means[1].0.max(0.1);
        self.additions = (additions.round() as usize).clamp(1, 100_000);
        Ok(())
    }

    fn iteration(&self, variant: Variant) -> Result<Times, Error> {
        self.ready()?;
        let _range = Range::new(&variant.name());
        let begin = timed_event(&self.world.gpu.context)?;
        begin.record(&self.communication)?;
        self.compute.wait(&begin)?;
        let communication = if variant == Variant::OneStream {
            &self.compute
        } else {
            &self.communication
        };
        let exchange = {
            let _range = Range::new("exchange");
            self.marked(communication, || self.exchange(communication))?
        };
        let arrived = &exchange.0[1];
        let mut host_blocked_us = 0.0;
        let mut blocked = |call: &dyn Fn() -> Result<(), Error>| {
            let _range = Range::new("wait");
            let started = Instant::now();
            let outcome = call();
            host_blocked_us += started.elapsed().as_secs_f64() * 1e6;
            outcome
        };
        match variant {
            Variant::Blocking => blocked(&|| Ok(communication.synchronize()?))?,
            Variant::StreamWait => blocked(&|| Ok(self.compute.wait(arrived)?))?,
            _ => {}
        }
        let compute = self.marked(&self.compute, || self.independent())?;
        match variant {
            Variant::Device => blocked(&|| Ok(self.world.gpu.context.synchronize()?))?,
            Variant::Event => blocked(&|| Ok(arrived.synchronize()?))?,
            Variant::LateWait => blocked(&|| Ok(self.compute.wait(arrived)?))?,
            _ => {}
        }
        self.dependent()?;
        let end = timed_event(&self.world.gpu.context)?;
        end.record(&self.compute)?;
        self.compute.synchronize()?;
        self.world.wait(communication)?;
        let stretch = |of: &Stretch| -> Result<[f64; 2], Error> {
            Ok([
                microseconds_between(&begin, &of.0[0])?,
                microseconds_between(&begin, &of.0[1])?,
            ])
        };
        let (exchange, compute) = (stretch(&exchange)?, stretch(&compute)?);
        Ok(Times {
            host_blocked_us,
            gpu_us: microseconds_between(&begin, &end)?,
            exchange_us: exchange[1] - exchange[0],
            compute_us: compute[1] - compute[0],
            hidden_us: common(exchange, compute),
        })
    }

    /// The medians of so many iterations, and the mean of those over all ranks.
    fn measure(&self, variant: Variant, iterations: u32) -> Result<Times, Error> {
        let times = (0..iterations)
            .map(|_| self.iteration(variant))
            .collect::<Result<Vec<_>, _>>()?;
        let means = self.world.means_and_sums(&medians(&times).as_array())?;
        let mut values = [0.0; 5];
        for (value, (mean, _)) in values.iter_mut().zip(means) {
            *value = mean;
        }
        Ok(Times::from_array(values))
    }

    /// Bytes on this rank that are not what the peer sent.
    fn wrong_bytes(&self) -> Result<usize, Error> {
        let arrived = self.received.read(0, self.received.bytes)?;
        Ok(arrived
            .iter()
            .enumerate()
            .filter(|(index, byte)| **byte != self.sent_byte(self.peer(), *index))
            .count())
    }
}

fn print_rows(rows: &[(Variant, Times)]) {
    println!(
        "# {:<12} {:>16} {:>10} {:>14} {:>13} {:>10}",
        "variant", "host blocked(us)", "GPU(us)", "exchange(us)", "compute(us)", "hidden(%)"
    );
    for (variant, times) in rows {
        println!(
            "  {:<12} {:>16.1} {:>10.1} {:>14.1} {:>13.1} {:>10.0}",
            variant.name(),
            times.host_blocked_us,
            times.gpu_us,
            times.exchange_us,
            times.compute_us,
            times.hidden_percent()
        );
    }
    println!("#\n# what each way of waiting blocks");
    for (variant, _) in rows {
        println!("# {:<12} {}", variant.name(), variant.blocks());
    }
}

fn rows_json(rows: &[(Variant, Times)]) -> String {
    json::array(rows.iter().map(|(variant, times)| {
        json::object(&[
            ("variant", json::string(&variant.name())),
            ("host_blocked_us", json::number(times.host_blocked_us)),
            ("gpu_us", json::number(times.gpu_us)),
            ("exchange_us", json::number(times.exchange_us)),
            ("compute_us", json::number(times.compute_us)),
            ("hidden_percent", json::number(times.hidden_percent())),
            ("blocks", json::string(variant.blocks())),
        ])
    }))
}

/// Runs `async`; rank 0 gives 1 when something arrived wrong.
pub(crate) fn run(options: &AsyncOptions, rank: &Rank, store: &Store) -> Result<i32, Error> {
    check_pairs(rank.ranks)?;
    let world = World::join(rank, store)?;
    let mut bench = Bench::new(&world, options.bytes)?;
    bench.calibrate(options.compute)?;
    let variants = if options.variant.is_empty() {
        Variant::value_variants()
    } else {
        &options.variant
    };
    let rows = variants
        .iter()
        .map(|variant| Ok((*variant, bench.measure(*variant, options.iterations)?)))
        .collect::<Result<Vec<_>, Error>>()?;
    let wrong = world.means_and_sums(&[bench.wrong_bytes()? as f64])?[0].1 as u64;
    if rank.rank != 0 {
        return Ok(0);
    }
    if options.json {
        println!(
            "{}",
            json::object(&[
                ("device", json::string(&world.gpu.name)),
                ("ranks", world.ranks.to_string()),
                ("bytes", bench.sent.bytes.to_string()),
                ("variants", rows_json(&rows)),
                ("wrong_bytes", wrong.to_string()),
            ])
        );
    } else {
        println!(
            "# async: {} ranks in pairs, {}: {} each way, {} additions of {} meanwhile, median of {}",
            world.ranks,
            world.gpu.name,
            bytes_text(bench.sent.bytes),
            bench.additions,
            bytes_text(bench.sums.bytes),
            options.iterations
        );
        print_rows(&rows);
        let verdict = if wrong == 0 { "OK" } else { "FAILED" };
        println!("#\n# Wrong bytes          : {wrong} {verdict}");
    }
    Ok(i32::from(wrong > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_time_is_that_of_both() {
        assert_eq!(common([0.0, 10.0], [5.0, 20.0]), 5.0);
        assert_eq!(common([0.0, 10.0], [2.0, 3.0]), 1.0);
        assert_eq!(common([0.0, 10.0], [10.0, 20.0]), 0.0);
        assert_eq!(common([0.0, 10.0], [15.0, 20.0]), 0.0);
    }

    #[test]
    fn a_median_is_not_moved_by_one_slow_iteration() {
        let times = [1.0, 2.0, 900.0].map(|gpu_us| Times {
            gpu_us,
            exchange_us: 4.0,
            hidden_us: 1.0,
            ..Times::default()
        });
        let median = medians(&times);
        assert_eq!(median.gpu_us, 2.0);
        assert_eq!(median.hidden_percent(), 25.0);
        assert_eq!(Times::default().hidden_percent(), 0.0);
    }

    #[test]
    fn pairs_need_an_even_number() {
        assert!(check_pairs(3).is_err());
        assert!(check_pairs(4).is_ok());
        assert!(parse_ratio("0").is_err() && parse_ratio("x").is_err());
        assert_eq!(parse_ratio("2.5"), Ok(2.5));
    }
}
