//! A run's baseline, as it is kept.

use std::collections::BTreeMap;

use gputrace_trace::Loss;
use serde::{Deserialize, Serialize};

use crate::job_ranks::JobRanks;
use crate::statistics::Distribution;

/// The schema's name and version.
pub const SCHEMA: &str = "gputrace.baseline/1";

/// What a series, or a row of a comparison, is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Kernels, copies and memsets of one name.
    Kernel,
    /// What one operator launched itself.
    Operator,
    /// What was launched in one module, and in none inside it.
    Module,
    /// Collectives of one name on one communicator.
    Collective,
    /// One step of the job.
    Step,
    /// The step of a rank's device, and the parts that it is made of.
    Rank,
    /// A measure of the catalogue, within the steps.
    Measure,
}

impl By {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::Rank,
        Self::Kernel,
        Self::Operator,
        Self::Module,
        Self::Collective,
        Self::Step,
        Self::Measure,
    ];

    /// Its word in JSON and on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Operator => "operator",
            Self::Module => "module",
            Self::Collective => "collective",
            Self::Step => "step",
            Self::Rank => "rank",
            Self::Measure => "measure",
        }
    }
}

/// A rank's device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BaselineDevice {
    /// The rank; where no process says its own, their order.
    pub rank: u32,
    /// Device index within the process.
    pub device_index: u32,
    /// The device's name, where it is known.
    pub device_name: Option<String>,
    /// The host.
    pub host: String,
}

/// What something took in each step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// What it is of.
    pub by: By,
    /// Its name: a kernel's, a part's.
    pub name: String,
    /// "time"; of collectives "transfer" and "wait".
    pub what: String,
    /// The place in [`Baseline::devices`]; `None` is the mean over all of them.
    pub device: Option<u32>,
    /// Nanoseconds by step, in the order of [`Baseline::step_names`]. Of kernels, operators, modules and collectives these are sums of
    /// durations; of parts and measures they are time passed.
    pub values: Vec<i64>,
    /// The exact sum over these steps, of all devices where it is of all.
    pub total_ns: i64,
    /// How many there were in these steps; of parts and measures 0.
    pub count: u64,
}

/// Operations of one name on one device, as the analysis has them: warm-up among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    /// The name.
    pub name: String,
    /// The place in [`Baseline::devices`].
    pub device: u32,
    /// How many.
    pub count: usize,
    /// Sum of their durations.
    pub total_ns: i64,
    /// Mean, extremes and percentiles.
    #[serde(flatten)]
    pub durations: Distribution,
}

/// One operation of the step of median length on the first device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// Its name in [`Baseline::texts`].
    pub name: u32,
    /// The operator that launched it, likewise.
    pub operator: Option<u32>,
    /// How long it took.
    pub duration_ns: i64,
}

/// A run, as far as others are compared with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// [`SCHEMA`].
    pub schema: String,
    /// Where the recording was.
    pub source: String,
    /// "cuda", "sim" or "imported".
    pub device: String,
    /// By rank and device.
    pub devices: Vec<BaselineDevice>,
    /// How many of the job's ranks it is of, and which are missing. Baselines of earlier versions do not say.
    #[serde(default)]
    pub job_ranks: JobRanks,
    /// Why the whole run is taken as one step: it has none. Null where it has.
    pub whole_run: Option<String>,
    /// The steps that count.
    pub step_names: Vec<String>,
    /// The slow first ones, which don't.
    pub warm_up: Vec<String>,
    /// Whether steps were guessed from a pattern.
    pub detected: bool,
    /// How long each step of the job was: as long as on its slowest device.
    pub step_ns: Vec<i64>,
    /// What each step is made of, by name: the mean over the devices, and what the slowest device's step is longer than that mean
    /// (`rank_spread`). They sum to `step_ns`.
    pub parts: BTreeMap<String, Vec<i64>>,
    /// All else, by step.
    pub series: Vec<Series>,
    /// By name and device: single operations.
    pub kernels: Vec<Durations>,
    /// Skew of collectives (last arrival minus first), without warm-up; null where arrivals can't be compared.
    pub skew: Option<Distribution>,
    /// What was lost.
    pub losses: Vec<Loss>,
    /// Names that `order` numbers.
    pub texts: Vec<String>,
    /// What ran in the step of median length on the first device, in order; empty where that is too much.
    pub order: Vec<Placed>,
}

impl Baseline {
    /// The number of steps that count.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.step_ns.len()
    }

    /// Whether everything has a value a step, as it is made. Files may say anything.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let steps = self.steps();
        let devices = u32::try_from(self.devices.len()).unwrap_or(u32::MAX);
        let texts = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        steps > 0
            && self.step_names.len() == steps
            && self.parts.values().all(|values| values.len() == steps)
            && self.series.iter().all(|series| {
                series.values.len() == steps && series.device.is_none_or(|device| device < devices)
            })
            && self.kernels.iter().all(|kernel| kernel.device < devices)
            && self
                .order
                .iter()
                .all(|placed| placed.name < texts && placed.operator.is_none_or(|name| name < texts))
    }

    /// The values of one series.
    #[must_use]
    pub fn series(&self, by: By, name: &str, device: Option<u32>) -> Option<&Series> {
        let found = |series: &&Series| series.by == by && series.device == device && series.name == name;
        self.series.iter().find(found)
    }

    /// Leaves out what a file of kilobytes has no room for: all but 64 steps, spread evenly, single devices' series of little time,
    /// and the order of a step of more than 4,000 operations. What is left out is not compared, and nothing else changes.
    #[must_use]
    pub fn small(mut self) -> Self {
        const STEPS: usize = 64;
        const SERIES: usize = 300;
        const SERIES_OF_DEVICES: usize = 1_200;
        const ORDER: usize = 4_000;
        let count = self.steps();
        if count > STEPS {
            let kept: Vec<usize> = (0..STEPS).map(|place| place * count / STEPS).collect();
            let thin = |values: &mut Vec<i64>| *values = kept.iter().map(|place| values[*place]).collect();
            self.step_names = kept.iter().map(|place| self.step_names[*place].clone()).collect();
            thin(&mut self.step_ns);
            self.parts.values_mut().for_each(thin);
            self.series.iter_mut().for_each(|series| thin(&mut series.values));
        }
        let mut of_names = 0;
        let mut of_devices = 0;
        // They come longest first.
        self.series.retain(|series| match (series.by, series.device) {
            (By::Rank | By::Measure | By::Step, _) => true,
            (_, None) => {
                of_names += 1;
                of_names <= SERIES
            }
            (_, Some(_)) => {
                of_devices += 1;
                of_devices <= SERIES_OF_DEVICES
            }
        });
        self.kernels.truncate(SERIES_OF_DEVICES);
        if self.order.len() > ORDER {
            self.order.clear();
            self.texts.clear();
        }
        self
    }
}
