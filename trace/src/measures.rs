//! The catalogue of measures: what the analysis says of a device over a window (the run or a step), in one list.
//!
//! The analyzer computes them. The terminal's tables, the JSON, Parquet, Perfetto, the HTML report and the page go by this
//! list, and `docs/measures.md` is checked against it, so a measure that is added here is in all of them.

use serde::ser::{Serialize, SerializeStruct, Serializer};

/// What a measure counts in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// A quotient from 0 to 1; unknown where there is nothing to divide by.
    Ratio,
}

impl Unit {
    /// As JSON and `docs/measures.md` write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Ratio => "ratio",
        }
    }
}

/// How a measure is read, by its unit.
#[derive(Clone, Copy, Debug)]
pub enum Getter {
    /// Nanoseconds.
    Ns(fn(&Measures) -> i64),
    /// A ratio, where it is known.
    Ratio(fn(&Measures) -> Option<f64>),
}

/// One measure of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Its name wherever programs read it: the JSON's member, Parquet's column, Perfetto's argument.
    pub name: &'static str,
    /// Its name in tables that people read.
    pub label: &'static str,
    /// What it is, in a line.
    pub definition: &'static str,
    /// Its value.
    pub get: Getter,
}

impl Measure {
    /// What it counts in.
    #[must_use]
    pub fn unit(&self) -> Unit {
        match self.get {
            Getter::Ns(_) => Unit::Ns,
            Getter::Ratio(_) => Unit::Ratio,
        }
    }

    /// Its value as text, by what writes times and what writes ratios.
    pub fn text(
        &self,
        measures: &Measures,
        time: impl Fn(i64) -> String,
        ratio: impl Fn(Option<f64>) -> String,
    ) -> String {
        match self.get {
            Getter::Ns(get) => time(get(measures)),
            Getter::Ratio(get) => ratio(get(measures)),
        }
    }
}

/// There is one measure of a name.
impl PartialEq for Measure {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// Name, unit, label and definition: what a reader needs to make a column of it.
impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_struct("Measure", 4)?;
        members.serialize_field("name", self.name)?;
        members.serialize_field("unit", self.unit().name())?;
        members.serialize_field("label", self.label)?;
        members.serialize_field("definition", self.definition)?;
        members.end()
    }
}

macro_rules! catalogue {
    (@type Ns) => { i64 };
    (@type Ratio) => { Option<f64> };
    ($($name:ident: $unit:ident, $label:literal, $definition:literal;)*) => {
        /// The measures of one device over a window. All but the ratios are lengths of unions, never sums.
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct Measures {
            $(#[doc = $definition] pub $name: catalogue!(@type $unit),)*
        }

        /// All measures, in the order in which tables show them.
        pub const CATALOGUE: &[Measure] = &[$(
            Measure {
                name: stringify!($name),
                label: $label,
                definition: $definition,
                get: Getter::$unit(|measures| measures.$name),
            },
        )*];
    };
}

catalogue! {
    span_ns: Ns, "span", "first operation's start to last operation's end, less pauses in recording in which nothing ran";
    busy_ns: Ns, "busy", "union of all operations";
    idle_ns: Ns, "idle", "span minus busy";
    idle_ratio: Ratio, "idle ratio", "idle over span; null without a span";
    compute_ns: Ns, "all compute", "union of kernels that are not communication, with communication beside them or not";
    communication_ns: Ns, "communication", "union of communication kernels";
    communication_hidden_ns: Ns, "hidden", "the part of communication's union that lies in compute's union";
    communication_exposed_ns: Ns, "exposed", "the rest of communication's union";
    overlap_ratio: Ratio, "overlap ratio", "hidden over communication; null without communication";
    copy_ns: Ns, "copy", "union of copies";
    copy_exposed_ns: Ns, "copy exposed", "the part of copies' union that lies outside compute's union";
    memset_ns: Ns, "memset", "union of memsets";
}
