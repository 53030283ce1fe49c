//! What a budget can limit, by name.

use std::collections::BTreeSet;

use gputrace_trace::measures::{CATALOGUE, Getter};

use super::limit::Unit;
use crate::baseline::{Baseline, BaselineDevice, By, Series};
use crate::cause::Cause;
use crate::diff::{Estimate, estimate};
use crate::glob::matches;
use crate::measures::ratio;
use crate::statistics::{Distribution, nearest_rank};

/// Ratios are estimated as whole numbers of this.
const RATIO_UNIT: f64 = 1e-9;

/// Other names of measures, as people say them.
const ALIASES: &[(&str, &str)] = &[
    ("overlap", "overlap_ratio"),
    ("exposed_communication", "communication_exposed_ns"),
    ("hidden_communication", "communication_hidden_ns"),
    ("exposed", "communication_exposed_ns"),
    ("hidden", "communication_hidden_ns"),
];

/// What is limited.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wanted {
    /// The job's step.
    Step(Statistic),
    /// How many steps count.
    Steps,
    /// A measure of the catalogue within the step, over the ranks.
    Measure {
        name: &'static str,
        over: Over,
        share: bool,
    },
    /// Idle time within the step, by cause or all of it.
    Idle {
        cause: Option<&'static str>,
        over: Over,
        share: bool,
    },
    /// Skew of collectives.
    Skew(Statistic),
    /// Single operations.
    Kernel { glob: String, statistic: Statistic },
    /// Sums within the step, the mean over the ranks.
    Sum {
        by: By,
        glob: String,
        what: Option<&'static str>,
    },
    /// Rows that were lost.
    Lost,
    /// Ranks of the job that the run lacks.
    MissingRanks,
}

/// Of many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statistic {
    P50,
    P99,
    Mean,
    Min,
    Max,
}

impl Statistic {
    const ALL: [(&'static str, Self); 6] = [
        ("p50", Self::P50),
        ("median", Self::P50),
        ("p99", Self::P99),
        ("mean", Self::Mean),
        ("min", Self::Min),
        ("max", Self::Max),
    ];

    fn of(word: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(name, _)| *name == word);
        found.map(|(_, statistic)| *statistic)
    }
}

/// Of which rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Mean,
    Min,
    Max,
    Rank(u32),
    /// The longest time, the smallest overlap.
    Worst,
}

impl Over {
    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "mean" => Self::Mean,
            "min" => Self::Min,
            "max" => Self::Max,
            "worst" => Self::Worst,
            other => Self::Rank(other.strip_prefix("rank")?.parse().ok()?),
        })
    }
}

/// What a run has of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Value {
    pub(super) value: f64,
    /// Its error, where steps tell.
    pub(super) estimate: Option<Estimate>,
}

impl Value {
    fn exact(value: f64) -> Self {
        Self {
            value,
            estimate: None,
        }
    }
}

/// All names that begin a measure, and what follows them: for help and for the nearest of a wrong one.
pub fn known() -> Vec<String> {
    let mut all: Vec<String> = [
        "step.p50",
        "step.p99",
        "step.mean",
        "step.min",
        "step.max",
        "steps.count",
    ]
    .map(str::to_owned)
    .to_vec();
    let plain = CATALOGUE
        .iter()
        .map(|measure| plain_name(measure.name).to_owned());
    all.extend(plain);
    all.extend(ALIASES.iter().map(|(name, _)| (*name).to_owned()));
    all.extend(Cause::NAMES.iter().map(|cause| format!("idle.{cause}")));
    let rest = [
        "arrivals.skew.p50",
        "arrivals.skew.p99",
        "arrivals.skew.max",
        "kernel.\"GLOB\".mean",
        "kernel.\"GLOB\".p99",
        "kernel.\"GLOB\".total",
        "operator.\"GLOB\".total",
        "module.\"GLOB\".total",
        "collective.\"GLOB\".transfer",
        "collective.\"GLOB\".wait",
        "lost.rows",
        "ranks.missing",
    ];
    all.extend(rest.map(str::to_owned));
    all
}

fn plain_name(name: &str) -> &str {
    name.strip_suffix("_ns").unwrap_or(name)
}

/// The measure of the catalogue of this name, with or without its unit.
fn of_catalogue(name: &str) -> Option<&'static str> {
    let name = ALIASES
        .iter()
        .find(|(alias, _)| *alias == name)
        .map_or(name, |(_, name)| name);
    let found = CATALOGUE
        .iter()
        .find(|measure| measure.name == name || plain_name(measure.name) == name);
    found.map(|measure| measure.name)
}

/// Reads the name of something, in the parts between its dots. `None` where there is no such thing.
pub(super) fn parse(path: &[String]) -> Option<(Wanted, Unit)> {
    let words: Vec<&str> = path.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["step"] => Some((Wanted::Step(Statistic::P50), Unit::Ns)),
        ["step", word] => Some((Wanted::Step(Statistic::of(word)?), Unit::Ns)),
        ["steps", "count"] => Some((Wanted::Steps, Unit::Count)),
        ["ranks", "missing"] => Some((Wanted::MissingRanks, Unit::Count)),
        ["lost", "rows"] | ["lost"] => Some((Wanted::Lost, Unit::Count)),
        ["arrivals", "skew", word] => Some((Wanted::Skew(Statistic::of(word)?), Unit::Ns)),
        ["kernel", glob, "total"] => Some((sum(By::Kernel, glob, None), Unit::Ns)),
        ["kernel", glob, word] => {
            let (glob, statistic) = ((*glob).to_owned(), Statistic::of(word)?);
            Some((Wanted::Kernel { glob, statistic }, Unit::Ns))
        }
        ["operator", glob, "total" | "direct"] => Some((sum(By::Operator, glob, None), Unit::Ns)),
        ["module", glob, "total"] => Some((sum(By::Module, glob, None), Unit::Ns)),
        ["collective", glob, "total"] => Some((sum(By::Collective, glob, None), Unit::Ns)),
        ["collective", glob, "transfer"] => Some((sum(By::Collective, glob, Some("transfer")), Unit::Ns)),
        ["collective", glob, "wait"] => Some((sum(By::Collective, glob, Some("wait")), Unit::Ns)),
        ["idle", cause, rest @ ..] if Cause::NAMES.contains(cause) => {
            let cause = Cause::NAMES.iter().find(|name| *name == cause).copied();
            let (over, share) = over_and_share(rest)?;
            Some((Wanted::Idle { cause, over, share }, unit(share)))
        }
        // What the catalogue calls so ends with the last operation of the step.
        ["idle" | "idle_ns", rest @ ..] => {
            let (over, share) = over_and_share(rest)?;
            let cause = None;
            Some((Wanted::Idle { cause, over, share }, unit(share)))
        }
        [name, rest @ ..] => {
            let name = of_catalogue(name)?;
            let (over, share) = over_and_share(rest)?;
            let is_ratio = CATALOGUE
                .iter()
                .any(|measure| measure.name == name && matches!(measure.get, Getter::Ratio(_)));
            // A ratio over the step is none.
            let fits = !(is_ratio && share);
            fits.then_some((Wanted::Measure { name, over, share }, unit(share || is_ratio)))
        }
        [] => None,
    }
}

fn unit(share: bool) -> Unit {
    if share { Unit::Ratio } else { Unit::Ns }
}

fn sum(by: By, glob: &str, what: Option<&'static str>) -> Wanted {
    Wanted::Sum {
        by,
        glob: glob.to_owned(),
        what,
    }
}

/// "ratio" and one of [`Over`]'s words, in either order; the worst rank where none is named.
fn over_and_share(words: &[&str]) -> Option<(Over, bool)> {
    let (mut over, mut share) = (None, false);
    for word in words {
        match *word {
            "ratio" if !share => share = true,
            word if over.is_none() => over = Some(Over::of(word)?),
            _ => return None,
        }
    }
    Some((over.unwrap_or(Over::Worst), share))
}

impl Wanted {
    /// Its value over the runs of one side.
    ///
    /// # Errors
    /// Why the runs don't have it.
    pub(super) fn of(&self, runs: &[Baseline]) -> Result<Value, String> {
        let values: Vec<Value> = match self {
            // With several runs these have an error of their own.
            Self::Step(Statistic::P50) => {
                let steps: Vec<&[i64]> = runs.iter().map(|run| run.step_ns.as_slice()).collect();
                with_steps(runs)?;
                return Ok(of_estimate(estimate(&steps), 1.0));
            }
            Self::Measure { name, over, share } => {
                return over_ranks(runs, *over, is_low_bad(name), |run, device| {
                    by_step(run, device, name, *share)
                });
            }
            Self::Idle { cause, over, share } => {
                return over_ranks(runs, *over, false, |run, device| {
                    idle_by_step(run, device, *cause, *share)
                });
            }
            Self::Sum { by, glob, what } => return summed(runs, *by, glob, *what),
            other => runs
                .iter()
                .map(|run| other.of_run(run))
                .collect::<Result<_, _>>()?,
        };
        let count = values.len().max(1) as f64;
        Ok(Value::exact(
            values.iter().map(|value| value.value).sum::<f64>() / count,
        ))
    }

    fn of_run(&self, run: &Baseline) -> Result<Value, String> {
        match self {
            Self::Step(statistic) => {
                with_steps(std::slice::from_ref(run))?;
                Ok(Value::exact(of_values(&run.step_ns, *statistic)))
            }
            Self::Steps => Ok(Value::exact(if run.whole_run.is_some() {
                0.0
            } else {
                run.steps() as f64
            })),
            Self::Lost => {
                let rows: u64 = run.losses.iter().map(|loss| loss.count.unwrap_or(1)).sum();
                Ok(Value::exact(rows as f64))
            }
            Self::MissingRanks => Ok(Value::exact(run.job_ranks.count_missing() as f64)),
            Self::Skew(statistic) => {
                let skew = run
                    .skew
                    .ok_or("no collective whose arrivals can be compared is recorded")?;
                Ok(Value::exact(match statistic {
                    Statistic::P50 => skew.p50_ns,
                    Statistic::P99 => skew.p99_ns,
                    Statistic::Mean => skew.mean_ns,
                    Statistic::Min => skew.min_ns,
                    Statistic::Max => skew.max_ns,
                } as f64))
            }
            Self::Kernel { glob, statistic } => kernel(run, glob, *statistic),
            Self::Measure { .. } | Self::Idle { .. } | Self::Sum { .. } => {
                Err("it is computed over runs".to_owned())
            }
        }
    }

    /// Whether a loss is of what this is made of, by the words for what it touches.
    pub(super) fn touched_by(&self, affects: &str) -> bool {
        let says = |words: &[&str]| words.iter().any(|word| affects.contains(word));
        let all = says(&[
            "every",
            "whatever",
            "duration",
            "busy",
            "kernels",
            "ranks of that file",
            "steps",
        ]);
        match self {
            Self::Lost | Self::MissingRanks | Self::Steps => false,
            Self::Idle { .. } => all || says(&["idle", "synchronizations", "host waited"]),
            Self::Skew(_)
            | Self::Sum {
                by: By::Collective, ..
            } => all || says(&["wait", "transfer", "skew", "matching", "communicator", "compares"]),
            _ => all || says(&["overlap"]),
        }
    }
}

fn with_steps(runs: &[Baseline]) -> Result<(), String> {
    match runs
        .iter()
        .find_map(|run| run.whole_run.as_ref().map(|why| (run, why)))
    {
        Some((run, why)) => Err(format!("{}: {why}", run.source)),
        None => Ok(()),
    }
}

fn of_estimate(estimate: Estimate, unit: f64) -> Value {
    let scaled = Estimate {
        value: estimate.value * unit,
        error: estimate.error.map(|error| error * unit),
        ..estimate
    };
    Value {
        value: scaled.value,
        estimate: Some(scaled),
    }
}

fn of_values(values: &[i64], statistic: Statistic) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    match statistic {
        Statistic::P50 => nearest_rank(&sorted, 50) as f64,
        Statistic::P99 => nearest_rank(&sorted, 99) as f64,
        Statistic::Mean => values.iter().map(|value| *value as f64).sum::<f64>() / values.len().max(1) as f64,
        Statistic::Min => sorted.first().copied().unwrap_or(0) as f64,
        Statistic::Max => sorted.last().copied().unwrap_or(0) as f64,
    }
}

/// Of ratios the small ones are bad.
fn is_low_bad(name: &str) -> bool {
    name == "overlap_ratio"
}

/// One device's values by step, and what one of them counts.
type ByStep = Option<(Vec<i64>, f64)>;

/// Computes something for each rank, and takes the rank that is wanted.
fn over_ranks(
    runs: &[Baseline],
    over: Over,
    low_is_bad: bool,
    of: impl Fn(&Baseline, u32) -> ByStep,
) -> Result<Value, String> {
    let mut of_ranks: Vec<Value> = Vec::new();
    let devices: BTreeSet<(u32, u32)> = runs
        .iter()
        .flat_map(|run| {
            run.devices
                .iter()
                .map(|device| (device.rank, device.device_index))
        })
        .collect();
    for (rank, device_index) in devices {
        if matches!(over, Over::Rank(wanted) if wanted != rank) {
            continue;
        }
        let mut unit = 1.0;
        let found: Option<Vec<Vec<i64>>> = runs
            .iter()
            .map(|run| {
                let is = |device: &BaselineDevice| (device.rank, device.device_index) == (rank, device_index);
                let place = run.devices.iter().position(is)?;
                let (values, of_one) = of(run, u32::try_from(place).ok()?)?;
                unit = of_one;
                Some(values)
            })
            .collect();
        if let Some(found) = found {
            let runs: Vec<&[i64]> = found.iter().map(Vec::as_slice).collect();
            of_ranks.push(of_estimate(estimate(&runs), unit));
        }
    }
    let by_value = |a: &&Value, b: &&Value| a.value.total_cmp(&b.value);
    let chosen = match over {
        Over::Max | Over::Rank(_) => of_ranks.iter().max_by(by_value),
        Over::Worst if !low_is_bad => of_ranks.iter().max_by(by_value),
        Over::Min | Over::Worst => of_ranks.iter().min_by(by_value),
        Over::Mean => {
            let count = of_ranks.len() as f64;
            let mean = of_ranks.iter().map(|value| value.value).sum::<f64>() / count;
            return match of_ranks.is_empty() {
                true => Err(none_has_it(over)),
                false => Ok(Value::exact(mean)),
            };
        }
    };
    chosen.copied().ok_or_else(|| none_has_it(over))
}

fn none_has_it(over: Over) -> String {
    match over {
        Over::Rank(rank) => format!("rank {rank} does not have it in each run"),
        _ => "no rank has it in each run".to_owned(),
    }
}

/// A device's series; of one device alone it is that of all.
fn of_device<'a>(run: &'a Baseline, by: By, name: &str, device: u32) -> Option<&'a Series> {
    let device = (run.devices.len() > 1).then_some(device);
    run.series(by, name, device)
}

/// A measure of the catalogue by step; ratios, and shares of the step, in [`RATIO_UNIT`]s.
fn by_step(run: &Baseline, device: u32, name: &str, share: bool) -> ByStep {
    let values =
        |name: &str| of_device(run, By::Measure, name, device).map(|series| series.values.as_slice());
    let quotient = |part: &[i64], whole: &[i64]| {
        let ratios = part
            .iter()
            .zip(whole)
            .filter_map(|(part, whole)| ratio(*part, *whole));
        let ratios: Vec<i64> = ratios.map(|ratio| (ratio / RATIO_UNIT).round() as i64).collect();
        (!ratios.is_empty()).then_some((ratios, RATIO_UNIT))
    };
    match name {
        "overlap_ratio" => quotient(values("communication_hidden_ns")?, values("communication_ns")?),
        "idle_ratio" => quotient(values("idle_ns")?, values("span_ns")?),
        name if share => quotient(values(name)?, &of_device(run, By::Rank, "step", device)?.values),
        name => Some((values(name)?.to_vec(), 1.0)),
    }
}

/// Idle time by step, of one cause or of all.
fn idle_by_step(run: &Baseline, device: u32, cause: Option<&str>, share: bool) -> ByStep {
    let step = &of_device(run, By::Rank, "step", device)?.values;
    // A cause that no gap has took nothing.
    let mut values = vec![0i64; run.steps()];
    for name in Cause::NAMES
        .iter()
        .filter(|name| cause.is_none_or(|cause| cause == **name))
    {
        if let Some(series) = of_device(run, By::Rank, &format!("idle.{name}"), device) {
            for (sum, value) in values.iter_mut().zip(&series.values) {
                *sum = sum.saturating_add(*value);
            }
        }
    }
    if !share {
        return Some((values, 1.0));
    }
    let ratios = values
        .iter()
        .zip(step)
        .filter_map(|(part, whole)| ratio(*part, *whole));
    Some((
        ratios.map(|ratio| (ratio / RATIO_UNIT).round() as i64).collect(),
        RATIO_UNIT,
    ))
}

/// What all that matches takes in a step, the mean over the devices.
fn summed(runs: &[Baseline], by: By, glob: &str, what: Option<&str>) -> Result<Value, String> {
    let mut sums: Vec<Vec<i64>> = Vec::new();
    for run in runs {
        let mut sum = vec![0i64; run.steps()];
        let mut any = false;
        let found = |series: &&Series| {
            series.by == by
                && series.device.is_none()
                && matches(glob, &series.name)
                && what.is_none_or(|what| series.what == what)
        };
        for series in run.series.iter().filter(found) {
            any = true;
            for (sum, value) in sum.iter_mut().zip(&series.values) {
                *sum = sum.saturating_add(*value);
            }
        }
        if !any {
            return Err(format!("no {} matches \"{glob}\" in {}", by.word(), run.source));
        }
        sums.push(sum);
    }
    let sums: Vec<&[i64]> = sums.iter().map(Vec::as_slice).collect();
    Ok(of_estimate(estimate(&sums), 1.0))
}

/// Of all operations that match, on all devices; percentiles are of the name where they are greatest.
fn kernel(run: &Baseline, glob: &str, statistic: Statistic) -> Result<Value, String> {
    let found: Vec<_> = run
        .kernels
        .iter()
        .filter(|kernel| matches(glob, &kernel.name))
        .collect();
    let of = |get: fn(&Distribution) -> i64| found.iter().map(move |kernel| get(&kernel.durations));
    let value = match statistic {
        Statistic::Mean => {
            let count: usize = found.iter().map(|kernel| kernel.count).sum();
            let total: f64 = found.iter().map(|kernel| kernel.total_ns as f64).sum();
            (count > 0).then(|| total / count as f64)
        }
        Statistic::P50 => of(|of| of.p50_ns).max().map(|value| value as f64),
        Statistic::P99 => of(|of| of.p99_ns).max().map(|value| value as f64),
        Statistic::Max => of(|of| of.max_ns).max().map(|value| value as f64),
        Statistic::Min => of(|of| of.min_ns).min().map(|value| value as f64),
    };
    let value = value.ok_or_else(|| format!("no kernel matches \"{glob}\" in {}", run.source))?;
    Ok(Value::exact(value))
}
