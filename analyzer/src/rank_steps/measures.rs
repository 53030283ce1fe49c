//! What a picture of ranks by steps can show: the catalogue of measures, and what else is known of a rank in a step.

use gputrace_trace::measures::{CATALOGUE, Getter, Measure, Measures};
use serde::{Serialize, Serializer};

/// What is known of one rank's device in one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cell {
    pub(super) duration_ns: i64,
    pub(super) start_ns: i64,
    pub(super) measures: Measures,
    /// What it did together with other ranks; `None` where nothing of that could be compared.
    pub(super) arrivals: Option<Arrivals>,
}

/// How a rank came to the collectives of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrivals {
    pub(super) wait_ns: i64,
    pub(super) late_ns: i64,
    pub(super) clock_error_ns: i64,
}

/// One value of a cell.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub enum CellValue {
    /// Nanoseconds.
    Ns(i64),
    /// A ratio.
    Ratio(f64),
}

/// As a plain number.
impl Serialize for CellValue {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Ns(time) => to.serialize_i64(*time),
            Self::Ratio(ratio) => to.serialize_f64(*ratio),
        }
    }
}

impl CellValue {
    /// As a number, for what is drawn and compared.
    #[must_use]
    pub fn number(self) -> f64 {
        match self {
            Self::Ns(time) => time as f64,
            Self::Ratio(ratio) => ratio,
        }
    }
}

/// A measure of a rank in a step, as a page lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepMeasure {
    /// Its name.
    pub name: &'static str,
    /// "ns" or "ratio".
    pub unit: &'static str,
    /// Its name for readers.
    pub label: &'static str,
    /// What it is, in a line.
    pub definition: &'static str,
    /// Whether it needs other ranks: then it is there when they have been compared.
    pub compared: bool,
}

/// Name, label, definition, how it is read.
type OfArrivals = (&'static str, &'static str, &'static str, fn(&Arrivals) -> i64);

/// What is of a step alone, before the catalogue.
const STEP_TIME: (&str, &str, &str) = (
    "duration_ns",
    "step time",
    "first operation launched in the step to the first launched in the next",
);

/// What ranks do together, after it.
const OF_ARRIVALS: &[OfArrivals] = &[
    (
        "wait_ns",
        "waiting",
        "sum over its collectives: its own arrival to the last rank's",
        |arrivals| arrivals.wait_ns,
    ),
    (
        "late_ns",
        "late",
        "sum over the collectives that it came last to: its arrival minus that of the last but one",
        |arrivals| arrivals.late_ns,
    ),
    (
        "clock_error_ns",
        "clock error",
        "how far off waiting may be because of the hosts' clocks (99 %)",
        |arrivals| arrivals.clock_error_ns,
    ),
];

/// A measure of a cell.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    StepTime,
    Catalogue(&'static Measure),
    Arrivals(&'static OfArrivals),
}

impl Wanted {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let catalogue = CATALOGUE.iter().map(Self::Catalogue);
        let arrivals = OF_ARRIVALS.iter().map(Self::Arrivals);
        std::iter::once(Self::StepTime).chain(catalogue).chain(arrivals)
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::all().find(|wanted| wanted.about().name == name)
    }

    /// What readers need of it.
    pub(super) fn about(self) -> StepMeasure {
        let (name, unit, label, definition, compared) = match self {
            Self::StepTime => (STEP_TIME.0, "ns", STEP_TIME.1, STEP_TIME.2, false),
            Self::Catalogue(measure) => (
                measure.name,
                measure.unit().name(),
                measure.label,
                measure.definition,
                false,
            ),
            Self::Arrivals(of) => (of.0, "ns", of.1, of.2, true),
        };
        StepMeasure {
            name,
            unit,
            label,
            definition,
            compared,
        }
    }

    /// Its value; `None` where that is not known.
    pub(super) fn of(self, cell: &Cell) -> Option<CellValue> {
        match self {
            Self::StepTime => Some(CellValue::Ns(cell.duration_ns)),
            Self::Catalogue(measure) => match measure.get {
                Getter::Ns(get) => Some(CellValue::Ns(get(&cell.measures))),
                Getter::Ratio(get) => get(&cell.measures).map(CellValue::Ratio),
            },
            Self::Arrivals(of) => cell
                .arrivals
                .as_ref()
                .map(|arrivals| CellValue::Ns(of.3(arrivals))),
        }
    }
}

/// All measures of a rank in a step, in the order in which a page lists them.
#[must_use]
pub fn step_measures() -> Vec<StepMeasure> {
    Wanted::all().map(Wanted::about).collect()
}
