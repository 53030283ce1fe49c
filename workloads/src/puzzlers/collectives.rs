//! `collectives`: every collective over sizes, in nccl-tests' columns, and which way to all-reduce wins where.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use cudarc::driver::CudaStream;

use super::contest::{Contest, contests_json, print_contests};
use super::elements::{ElementName, ReductionName, Values};
use super::operations::{COMPOSITIONS, Kind, Operation, Shape};
use super::world::{Times, World};
use super::{Memory, bytes_text, gigabytes_per_second, json, parse_bytes, sizes};
use crate::error::Error;
use crate::nvtx::Range;
use crate::rank::Rank;
use crate::store::Store;

/// What `collectives` can be asked for.
#[derive(Args, Debug, Clone)]
pub(crate) struct CollectivesOptions {
    /// Ranks, a process each
    #[arg(long, default_value = "2", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) ranks: u32,
    /// Which ones [default: all]
    #[arg(long, value_enum, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) operation: Vec<Operation>,
    /// The smallest size, such as 8 or 4K [default: sized for the device]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) min_bytes: Option<usize>,
    /// The largest size, such as 128M [default: sized for the device]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) max_bytes: Option<usize>,
    /// Each size is so many times the one before [default: sized for the device]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub(crate) factor: Option<u32>,
    /// Measured calls of each size; times are means [default: sized for the device]
    #[arg(long, visible_alias = "steps", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) iterations: Option<u32>,
    /// Calls before, of the largest and the smallest size, in a range of their own
    #[arg(long, default_value = "2", value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub(crate) warmup: u32,
    /// Type of the elements
    #[arg(long, value_enum, default_value = "float", value_name = "TYPE")]
    pub(crate) dtype: ElementName,
    /// Reduction
    #[arg(long, value_enum, default_value = "sum", value_name = "NAME")]
    pub(crate) reduction: ReductionName,
    /// Root of broadcast, reduce, scatter and gather
    #[arg(long, default_value = "0", value_name = "RANK")]
    pub(crate) root: u32,
    /// Don't compare results with what they must be
    #[arg(long)]
    pub(crate) no_check: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl CollectivesOptions {
    /// How many processes it takes. What can be told wrong without a GPU is told here.
    pub(crate) fn processes(&self) -> Result<u32, Error> {
        check_root(self.root, self.ranks)?;
        if let (Some(least), Some(most)) = (self.min_bytes, self.max_bytes)
            && least > most
        {
            return Err(Error::new(format!(
                "--min-bytes {least}: more than --max-bytes {most}"
            )));
        }
        Ok(self.ranks)
    }
}

fn check_root(root: u32, ranks: u32) -> Result<(), Error> {
    if root < ranks {
        return Ok(());
    }
    Err(Error::new(format!(
        "--root {root}: with {ranks} ranks the root is one of 0 to {}",
        ranks - 1
    )))
}

/// One way to call an operation: times are means over iterations and ranks.
#[derive(Debug, Clone, Copy)]
struct Measure {
    time_us: f64,
    /// The shortest iteration of any rank: the last rank to come waits for nobody.
    best_us: f64,
    /// Elements that are not what they must be, over all ranks; nothing where not checked.
    wrong: Option<u64>,
}

/// One operation at one size.
struct Row {
    operation: Operation,
    bytes: usize,
    shape: Shape,
    out_of_place: Measure,
    in_place: Measure,
}

struct Sweep<'a> {
    world: &'a World<'a>,
    options: &'a CollectivesOptions,
    kind: Kind,
    values: Values,
    iterations: u32,
    factor: u32,
    sizes: Vec<usize>,
    /// What is sent, and what is received; in place is all in the second.
    buffers: [Memory; 2],
    stream: Arc<CudaStream>,
}

impl<'a> Sweep<'a> {
    fn new(world: &'a World<'a>, options: &'a CollectivesOptions) -> Result<Self, Error> {
        let simulated = world.gpu.name.starts_with("Simulated");
        let (least, most, factor, iterations) = if simulated {
            (1 << 10, 1 << 20, 4, 10)
        } else {
            (8, 128 << 20, 2, 20)
        };
        let least = options
            .min_bytes
            .unwrap_or_else(|| options.max_bytes.unwrap_or(least).min(least));
        let most = options.max_bytes.unwrap_or_else(|| least.max(most));
        let factor = options.factor.unwrap_or(factor);
        let element = options.dtype.element();
        // Small sizes are rounded up to an element for every rank.
        let place = (world.rank, world.ranks);
        let room = Operation::value_variants()
            .iter()
            .map(|operation| {
                let shape = operation.shape(most / element.bytes(), place, options.root as usize);
                shape.larger() * element.bytes()
            })
            .max()
            .unwrap_or(0);
        Ok(Self {
            world,
            options,
            kind: Kind {
                element,
                reduction: options.reduction.reduction(),
                root: options.root as usize,
            },
            values: Values::new(options.dtype, options.reduction, world.ranks),
            iterations: options.iterations.unwrap_or(iterations),
            factor,
            sizes: sizes(least, most, factor as usize),
            buffers: [
                Memory::new(&world.gpu.context, room)?,
                Memory::new(&world.gpu.context, room)?,
            ],
            stream: Arc::clone(&world.gpu.compute),
        })
    }

    fn place(&self) -> (usize, usize) {
        (self.world.rank, self.world.ranks)
    }

    fn shape(&self, operation: Operation, bytes: usize) -> Shape {
        operation.shape(bytes / self.kind.element.bytes(), self.place(), self.kind.root)
    }

    /// Offsets in the buffers, in bytes, of what is sent and received, and which buffer is sent from.
    fn offsets(&self, shape: &Shape, in_place: bool) -> [usize; 2] {
        let size = self.kind.element.bytes();
        if in_place {
            [shape.in_place_send * size, shape.in_place_receive * size]
        } else {
            [0, 0]
        }
    }

    fn sent_buffer(&self, in_place: bool) -> &Memory {
        &self.buffers[usize::from(in_place)]
    }

    fn call(&self, operation: Operation, shape: &Shape, in_place: bool) -> Result<(), Error> {
        let [send, receive] = self.offsets(shape, in_place);
        let addresses = [
            self.sent_buffer(in_place).address + send as u64,
            self.buffers[1].address + receive as u64,
        ];
        operation.enqueue(self.world, shape, addresses, self.kind, &self.stream)
    }

    fn warm_up(&self, operation: Operation) -> Result<(), Error> {
        let _range = Range::new("warm-up");
        for bytes in [self.sizes.last(), self.sizes.first()].into_iter().flatten() {
            let shape = self.shape(operation, *bytes);
            for _ in 0..self.options.warmup {
                self.call(operation, &shape, false)?;
            }
            self.world.wait(&self.stream)?;
        }
        Ok(())
    }

    fn time(&self, operation: Operation, shape: &Shape, in_place: bool) -> Result<Times, Error> {
        let _range = Range::new(if in_place { "in-place" } else { "out-of-place" });
        self.world.times(&self.stream, self.iterations, || {
            self.call(operation, shape, in_place)
        })
    }

    /// Calls the operation once on values that are known, and counts what is wrong on this rank.
    fn count_wrong(&self, operation: Operation, shape: &Shape, in_place: bool) -> Result<usize, Error> {
        let _range = Range::new("check");
        let size = self.kind.element.bytes();
        let [send, receive] = self.offsets(shape, in_place);
        // Nothing that was there before may pass for a result.
        self.buffers[1].fill(0xa5)?;
        let sent = self.values.bytes_of(self.world.rank, 0, shape.send);
        self.sent_buffer(in_place).write(send, &sent)?;
        self.call(operation, shape, in_place)?;
        self.world.wait(&self.stream)?;
        let result = self.buffers[1].read(receive, shape.result * size)?;
        Ok(self.values.count_wrong(&result, |position| {
            operation.wanted(position, self.place(), self.kind.root, shape.count)
        }))
    }

    fn row(&self, operation: Operation, bytes: usize) -> Result<Row, Error> {
        let shape = self.shape(operation, bytes);
        let real_bytes = operation.algorithm_bytes(shape.count, self.world.ranks, self.kind.element.bytes());
        let _range = Range::new(&format!("{} {}", operation.name(), bytes_text(real_bytes)));
        let mut own = Vec::new();
        for in_place in [false, true] {
            let times = self.time(operation, &shape, in_place)?;
            own.extend([times.mean_us, times.best_us]);
            let checked = !self.options.no_check && (!in_place || operation.can_be_in_place());
            let wrong = if checked {
                self.count_wrong(operation, &shape, in_place)? as f64
            } else {
                f64::NAN
            };
            own.push(wrong);
        }
        let all = self.world.all_numbers(&own)?;
        let measure = |index: usize| {
            let of_ranks = |index: usize| all.iter().map(move |numbers| numbers[index]);
            Measure {
                time_us: of_ranks(index).sum::<f64>() / self.world.ranks as f64,
                best_us: of_ranks(index + 1).fold(f64::INFINITY, f64::min),
                wrong: (!own[index + 2].is_nan()).then(|| of_ranks(index + 2).sum::<f64>() as u64),
            }
        };
        Ok(Row {
            operation,
            bytes: real_bytes,
            shape,
            out_of_place: measure(0),
            in_place: measure(3),
        })
    }
}

/// Bandwidths in GB/s (10^9 bytes): of the algorithm and of the bus.
fn bandwidths(row: &Row, measure: &Measure, (ranks, element_bytes): (usize, usize)) -> (f64, f64) {
    let bytes = row
        .operation
        .algorithm_bytes(row.shape.count, ranks, element_bytes);
    let algorithm = gigabytes_per_second(bytes, measure.time_us);
    (algorithm, algorithm * row.operation.bus_factor(ranks))
}

/// Four columns, as wide as those of a measure.
fn columns_of(time: &str, algorithm: &str, bus: &str, wrong: &str) -> String {
    format!("  {time:>7}  {algorithm:>6}  {bus:>6}  {wrong:>6}")
}

/// A time in microseconds in seven columns, with as many places as nccl-tests gives it.
pub(super) fn time_text(time_us: f64) -> String {
    if time_us >= 10_000.0 {
        format!("{time_us:7.0}")
    } else if time_us >= 100.0 {
        format!("{time_us:7.1}")
    } else {
        format!("{time_us:7.2}")
    }
}

impl Sweep<'_> {
    fn scale(&self) -> (usize, usize) {
        (self.world.ranks, self.kind.element.bytes())
    }

    fn reduction_of(&self, operation: Operation) -> String {
        if operation.reduces() {
            self.options.reduction.name()
        } else {
            "none".to_owned()
        }
    }

    fn root_of(&self, operation: Operation) -> i64 {
        if operation.has_root() {
            i64::from(self.options.root)
        } else {
            -1
        }
    }

    fn print_head(&self, operation: Operation) {
        println!("#\n# {}", operation.name());
        println!(
            "# minBytes {} maxBytes {} step: {}(factor) warmup iters: {} iters: {} validation: {}",
            self.sizes.first().unwrap_or(&0),
            self.sizes.last().unwrap_or(&0),
            self.factor,
            self.options.warmup,
            self.iterations,
            u8::from(!self.options.no_check)
        );
        println!("#");
        println!("# {:^48}  {:^33} {:^33}", "", "out-of-place", "in-place");
        // Literal: the places are those of `print_row`.
        println!(
            "#       size         count      type   redop    root{0}{0}",
            columns_of("time", "algbw", "busbw", "#wrong")
        );
        println!(
            "#        (B)    (elements)                          {0}{0}",
            columns_of("(us)", "(GB/s)", "(GB/s)", "")
        );
    }

    fn print_row(&self, row: &Row) {
        let columns = |measure: &Measure| {
            let (algorithm, bus) = bandwidths(row, measure, self.scale());
            let wrong = measure
                .wrong
                .map_or_else(|| "N/A".to_owned(), |wrong| wrong.to_string());
            columns_of(
                &time_text(measure.time_us),
                &format!("{algorithm:.2}"),
                &format!("{bus:.2}"),
                &wrong,
            )
        };
        println!(
            "{:>12}  {:>12}  {:>8}  {:>6}  {:>6}{}{}",
            row.bytes,
            row.shape.count,
            self.options.dtype.name(),
            self.reduction_of(row.operation),
            self.root_of(row.operation),
            columns(&row.out_of_place),
            columns(&row.in_place)
        );
    }

    fn average_bus_bandwidth(&self, rows: &[Row]) -> f64 {
        let both = rows.iter().flat_map(|row| {
            [&row.out_of_place, &row.in_place].map(|measure| bandwidths(row, measure, self.scale()).1)
        });
        both.sum::<f64>() / (2 * rows.len()).max(1) as f64
    }

    fn print_foot(&self, rows: &[Row]) {
        if !self.options.no_check {
            let wrong = wrong_elements(rows);
            let verdict = if wrong == 0 { "OK" } else { "FAILED" };
            println!("# Out of bounds values : {wrong} {verdict}");
        }
        println!("# Avg bus bandwidth    : {:.6}", self.average_bus_bandwidth(rows));
    }

    fn row_json(&self, row: &Row) -> String {
        let measure = |measure: &Measure| {
            let (algorithm, bus) = bandwidths(row, measure, self.scale());
            json::object(&[
                ("time_us", json::number(measure.time_us)),
                ("best_us", json::number(measure.best_us)),
                ("algbw_gb_s", json::number(algorithm)),
                ("busbw_gb_s", json::number(bus)),
                (
                    "wrong",
                    json::optional(measure.wrong.map(|wrong| wrong.to_string())),
                ),
            ])
        };
        json::object(&[
            ("operation", json::string(&row.operation.name())),
            ("size_bytes", row.bytes.to_string()),
            ("count", row.shape.count.to_string()),
            ("redop", json::string(&self.reduction_of(row.operation))),
            ("root", self.root_of(row.operation).to_string()),
            ("out_of_place", measure(&row.out_of_place)),
            ("in_place", measure(&row.in_place)),
        ])
    }
}

fn wrong_elements(rows: &[Row]) -> u64 {
    let wrong = |measure: &Measure| measure.wrong.unwrap_or(0);
    rows.iter()
        .map(|row| wrong(&row.out_of_place) + wrong(&row.in_place))
        .sum()
}

/// Sizes at which all three ways were measured, out of place.
fn contests(rows: &[Row]) -> Vec<Contest> {
    let of = |operation: Operation| rows.iter().filter(move |row| row.operation == operation);
    of(Operation::AllReduce)
        .filter_map(|first| {
            let time = |operation| {
                of(operation)
                    .find(|row| row.shape.count == first.shape.count)
                    .map(|row| row.out_of_place.best_us)
            };
            let [a, b, c] = COMPOSITIONS.map(time);
            Some(Contest {
                bytes: first.bytes,
                times_us: [a?, b?, c?],
            })
        })
        .collect()
}

/// Runs `collectives`; rank 0 gives 1 when a result was wrong.
pub(crate) fn run(options: &CollectivesOptions, rank: &Rank, store: &Store) -> Result<i32, Error> {
    check_root(options.root, rank.ranks)?;
    let world = World::join(rank, store)?;
    let sweep = Sweep::new(&world, options)?;
    let operations = if options.operation.is_empty() {
        Operation::value_variants()
    } else {
        &options.operation
    };
    let speaks = rank.rank == 0;
    let text = speaks && !options.json;
    let devices = world.devices()?;
    if text {
        println!("# collectives: {} ranks, {}", world.ranks, world.gpu.name);
        println!("#\n# Using devices");
        for device in devices {
            println!("#  {device}");
        }
    }
    let mut rows = Vec::new();
    let mut averages = Vec::new();
    for operation in operations {
        let _range = Range::new(&operation.name());
        sweep.warm_up(*operation)?;
        if text {
            sweep.print_head(*operation);
        }
        let begin = rows.len();
        for bytes in &sweep.sizes {
            let row = sweep.row(*operation, *bytes)?;
            if text {
                sweep.print_row(&row);
            }
            rows.push(row);
        }
        averages.push((operation.name(), sweep.average_bus_bandwidth(&rows[begin..])));
        if text {
            sweep.print_foot(&rows[begin..]);
        }
    }
    let contests = contests(&rows);
    if text && !contests.is_empty() {
        print_contests(&contests);
    }
    if speaks && options.json {
        let averages: Vec<_> = averages
            .iter()
            .map(|(name, average)| (name.as_str(), json::number(*average)))
            .collect();
        println!(
            "{}",
            json::object(&[
                ("device", json::string(&world.gpu.name)),
                ("ranks", world.ranks.to_string()),
                ("type", json::string(&options.dtype.name())),
                ("iterations", sweep.iterations.to_string()),
                ("rows", json::array(rows.iter().map(|row| sweep.row_json(row)))),
                ("avg_busbw_gb_s", json::object(&averages)),
                ("compositions", contests_json(&contests)),
                ("wrong", wrong_elements(&rows).to_string()),
            ])
        );
    }
    Ok(i32::from(speaks && wrong_elements(&rows) > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_nccl_tests_places() {
        assert_eq!(
            [1.234, 123.45, 12_345.6].map(time_text),
            ["   1.23", "  123.5", "  12346"]
        );
    }

    #[test]
    fn bandwidths_follow_the_formulas() {
        let shape = Operation::AllGather.shape(1 << 18, (0, 4), 0);
        let measure = Measure {
            time_us: 100.0,
            best_us: 90.0,
            wrong: Some(0),
        };
        let row = Row {
            operation: Operation::AllGather,
            bytes: 1 << 20,
            shape,
            out_of_place: measure,
            in_place: measure,
        };
        // 1 MiB in 100 us, three quarters of it over the bus.
        let (algorithm, bus) = bandwidths(&row, &measure, (4, 4));
        assert!((algorithm - 10.485_76).abs() < 1e-9);
        assert!((bus - 7.864_32).abs() < 1e-9);
    }

    #[test]
    fn a_root_must_be_a_rank() {
        assert!(check_root(2, 2).is_err());
        assert!(check_root(1, 2).is_ok());
    }
}
