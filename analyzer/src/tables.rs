//! An analysis as tables: one frame a list of the JSON object, with the same names.
//!
//! The frames are eager Polars ones, for group-bys and joins over ranks; interval algebra never passes through them. A
//! column holds a list's plain members; what is nested has a table of its own or stays in the JSON.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType as ArrowType, Field, Schema};
use polars::prelude::*;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{Analysis, RankAnalysis};

/// A table with its name.
#[derive(Clone, Debug)]
pub struct NamedTable {
    /// "ranks", "kernels", ...
    pub name: &'static str,
    /// Its columns.
    pub frame: DataFrame,
}

/// Why a table could not be made: a fault of this crate.
#[derive(Debug)]
pub struct TableError(String);

impl std::fmt::Display for TableError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for TableError {}

impl From<PolarsError> for TableError {
    fn from(error: PolarsError) -> Self {
        Self(error.to_string())
    }
}

impl From<arrow_schema::ArrowError> for TableError {
    fn from(error: arrow_schema::ArrowError) -> Self {
        Self(error.to_string())
    }
}

type Row = Map<String, Value>;

/// The plain members of something that serialises to an object, and those of its distributions: "latency" has "p50_ns", the
/// row "latency_p50_ns". Other lists and objects have tables of their own, whether or not they are null here.
fn row<T: Serialize>(value: &T) -> Row {
    const OWN_TABLES: &[&str] = &["memory", "step_summary"];
    let Ok(Value::Object(members)) = serde_json::to_value(value) else {
        return Row::new();
    };
    let mut row = Row::new();
    for (name, value) in members {
        match value {
            Value::Object(inner) if inner.contains_key("p50_ns") && !OWN_TABLES.contains(&name.as_str()) => {
                row.extend(
                    inner
                        .into_iter()
                        .map(|(key, value)| (format!("{name}_{key}"), value)),
                );
            }
            Value::Array(_) | Value::Object(_) => {}
            _ if OWN_TABLES.contains(&name.as_str()) => {}
            plain => drop(row.insert(name, plain)),
        }
    }
    row
}

/// The same, for each rank's device: with what names it in front.
fn rows_by_rank<T: Serialize>(ranks: &[RankAnalysis], of: impl Fn(&RankAnalysis) -> Vec<T>) -> Vec<Row> {
    let mut rows = Vec::new();
    for rank in ranks {
        for item in of(rank) {
            let mut members = row(&item);
            members.insert("rank".to_owned(), rank.rank.into());
            members.insert("device_index".to_owned(), rank.device_index.into());
            rows.push(members);
        }
    }
    rows
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnType {
    Integer,
    Float,
    Text,
    Boolean,
}

/// A column's type: the same for all analyses, whatever of it is null. Names end in their units.
fn column_type(name: &str, rows: &[Row]) -> ColumnType {
    const FLOATS: &[&str] = &[
        "ratio",
        "share",
        "bandwidth",
        "algbw",
        "busbw",
        "algbw_with_waiting",
        "best_busbw",
        "mean_depth",
        "standard_deviation_ns",
    ];
    if FLOATS.iter().any(|word| name.ends_with(word)) {
        return ColumnType::Float;
    }
    const INTEGERS: &[&str] = &[
        "rank",
        "last_rank",
        "device_index",
        "sequence",
        "count",
        "ranks",
        "communicator_ranks",
        "sender",
        "receiver",
        "operations",
        "shared",
        "timed",
    ];
    if name.ends_with("_ns") || name.ends_with("bytes") || INTEGERS.contains(&name) {
        return ColumnType::Integer;
    }
    let value = rows
        .iter()
        .filter_map(|row| row.get(name))
        .find(|value| !value.is_null());
    match value {
        Some(Value::Bool(_)) => ColumnType::Boolean,
        Some(Value::Number(number)) if number.is_f64() => ColumnType::Float,
        Some(Value::Number(_)) => ColumnType::Integer,
        _ => ColumnType::Text,
    }
}

fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_u64().map(|_| i64::MAX))
}

/// Rows as a frame. Columns that name the row come first, others in their order by name.
fn frame(rows: &[Row]) -> Result<DataFrame, TableError> {
    const FIRST: &[&str] = &["rank", "device_index", "communicator", "name", "kind", "sequence"];
    let all: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| row.keys().map(String::as_str))
        .collect();
    let first = FIRST.iter().copied().filter(|name| all.contains(name));
    let rest = all.iter().copied().filter(|name| !FIRST.contains(name));
    let columns = first
        .chain(rest)
        .map(|name| {
            let values = rows
                .iter()
                .map(|row| row.get(name).filter(|value| !value.is_null()));
            let title: PlSmallStr = name.into();
            match column_type(name, rows) {
                ColumnType::Integer => Column::new(
                    title,
                    values
                        .map(|value| value.and_then(integer))
                        .collect::<Vec<Option<i64>>>(),
                ),
                ColumnType::Float => Column::new(
                    title,
                    values
                        .map(|value| value.and_then(Value::as_f64))
                        .collect::<Vec<Option<f64>>>(),
                ),
                ColumnType::Boolean => Column::new(
                    title,
                    values
                        .map(|value| value.and_then(Value::as_bool))
                        .collect::<Vec<Option<bool>>>(),
                ),
                ColumnType::Text => {
                    let texts = values.map(|value| {
                        value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                    });
                    Column::new(title, texts.collect::<Vec<Option<String>>>())
                }
            }
        })
        .collect();
    Ok(DataFrame::new(rows.len(), columns)?)
}

/// One row a value of a list of pairs.
fn pairs<K: Into<Value> + Clone, V: Into<Value> + Copy>(names: [&str; 2], list: &[(K, V)]) -> Vec<Row> {
    list.iter()
        .map(|(key, value)| {
            let mut members = Row::new();
            members.insert(names[0].to_owned(), key.clone().into());
            members.insert(names[1].to_owned(), (*value).into());
            members
        })
        .collect()
}

/// Kernels over all ranks: their counts and times summed, by name and kind, longest first.
// Polars would have everyone use its lazy engine; for one group-by that is twice its build again.
#[expect(deprecated)]
fn kernels_of_all_ranks(kernels: &DataFrame) -> Result<DataFrame, TableError> {
    if kernels.height() == 0 {
        return Ok(kernels.clone());
    }
    // Totals of a damaged trace may be as great as numbers go, and Polars' sums wrap: of so many none can pass the end.
    let most = i64::MAX / i64::try_from(kernels.height()).unwrap_or(i64::MAX);
    let totals: Vec<Option<i64>> = kernels
        .column("total_ns")?
        .i64()?
        .iter()
        .map(|total| total.map(|total| total.min(most)))
        .collect();
    let mut kernels = kernels.clone();
    kernels.with_column(Column::new("total_ns".into(), totals))?;
    let by = ["name", "kind"];
    let sums = kernels.group_by_stable(by)?.select(["count", "total_ns"]).sum()?;
    let shortest = kernels.group_by_stable(by)?.select(["min_ns"]).min()?;
    let longest = kernels.group_by_stable(by)?.select(["max_ns"]).max()?;
    let joined = sums.inner_join(&shortest, by, by)?.inner_join(&longest, by, by)?;
    let mut renamed = joined;
    for (from, to) in [
        ("count_sum", "count"),
        ("total_ns_sum", "total_ns"),
        ("min_ns_min", "min_ns"),
        ("max_ns_max", "max_ns"),
    ] {
        renamed.rename(from, to.into())?;
    }
    Ok(renamed.sort(
        ["total_ns", "name"],
        SortMultipleOptions::default().with_order_descending_multi([true, false]),
    )?)
}

/// All tables of an analysis. Empty lists give tables without columns, which are left out.
///
/// # Errors
/// When Polars refuses a frame.
pub fn tables(analysis: &Analysis) -> Result<Vec<NamedTable>, TableError> {
    let ranks = &analysis.ranks;
    let cause_rows = |of: fn(&RankAnalysis) -> &std::collections::BTreeMap<String, i64>| {
        let mut rows = Vec::new();
        for rank in ranks {
            let list: Vec<(String, i64)> = of(rank)
                .iter()
                .map(|(cause, time)| (cause.clone(), *time))
                .collect();
            for mut members in pairs(["cause", "time_ns"], &list) {
                members.insert("rank".to_owned(), rank.rank.into());
                members.insert("device_index".to_owned(), rank.device_index.into());
                rows.push(members);
            }
        }
        rows
    };
    let mut queue_rows = Vec::new();
    let mut memory_rows = Vec::new();
    for rank in ranks {
        let mut place = Row::new();
        place.insert("rank".to_owned(), rank.rank.into());
        place.insert("device_index".to_owned(), rank.device_index.into());
        for queue in &rank.queues {
            for (time, depth) in &queue.timeline {
                let mut members = place.clone();
                members.insert("stream".to_owned(), queue.stream.into());
                members.insert("time_ns".to_owned(), (*time).into());
                members.insert("depth".to_owned(), (*depth).into());
                queue_rows.push(members);
            }
        }
        for (time, bytes) in rank.memory.iter().flat_map(|memory| &memory.timeline) {
            let mut members = place.clone();
            members.insert("time_ns".to_owned(), (*time).into());
            members.insert("bytes".to_owned(), (*bytes).into());
            memory_rows.push(members);
        }
    }
    let mut arrival_rows = Vec::new();
    for collective in &analysis.collectives {
        for participant in &collective.timing.participants {
            let mut members = row(collective);
            members.retain(|name, _| {
                ["communicator", "name", "sequence", "start_ns", "warm_up"].contains(&name.as_str())
            });
            members.insert("rank".to_owned(), participant.rank.into());
            members.insert("device_index".to_owned(), participant.device.into());
            members.insert("wait_ns".to_owned(), participant.wait_ns.into());
            members.insert("transfer_ns".to_owned(), participant.transfer_ns.into());
            arrival_rows.push(members);
        }
    }
    let mut communicator_rows = Vec::new();
    for communicator in &analysis.communicators {
        for time in &communicator.times {
            let mut members = row(communicator);
            members.retain(|name, _| name.starts_with("communicator"));
            members.insert("rank".to_owned(), time.rank.into());
            members.insert("device_index".to_owned(), time.device.into());
            members.insert("time_ns".to_owned(), time.time_ns.into());
            members.insert("exposed_ns".to_owned(), time.exposed_ns.into());
            communicator_rows.push(members);
        }
    }
    let numbered_notes: Vec<(u64, &str)> = (1..).zip(analysis.notes.iter().map(String::as_str)).collect();
    let kernels = frame(&rows_by_rank(ranks, |rank| rank.kernels.clone()))?;
    let named: Vec<(&'static str, DataFrame)> = vec![
        ("ranks", frame(&ranks.iter().map(row).collect::<Vec<_>>())?),
        (
            "streams",
            frame(&rows_by_rank(ranks, |rank| rank.streams.clone()))?,
        ),
        ("kinds", frame(&rows_by_rank(ranks, |rank| rank.kinds.clone()))?),
        ("kernels_of_all_ranks", kernels_of_all_ranks(&kernels)?),
        ("kernels", kernels),
        (
            "communication",
            frame(&rows_by_rank(ranks, |rank| rank.communication.clone()))?,
        ),
        ("copies", frame(&rows_by_rank(ranks, |rank| rank.copies.clone()))?),
        (
            "launches",
            frame(&rows_by_rank(ranks, |rank| rank.launches.clone()))?,
        ),
        ("steps", frame(&rows_by_rank(ranks, |rank| rank.steps.clone()))?),
        ("idle_causes", frame(&cause_rows(|rank| &rank.idle_causes))?),
        ("host_late_by", frame(&cause_rows(|rank| &rank.host_late_by))?),
        (
            "longest_gaps",
            frame(&rows_by_rank(ranks, |rank| rank.longest_gaps.clone()))?,
        ),
        (
            "step_summaries",
            frame(&rows_by_rank(ranks, |rank| {
                rank.step_summary.clone().into_iter().collect()
            }))?,
        ),
        ("queues", frame(&rows_by_rank(ranks, |rank| rank.queues.clone()))?),
        ("queue_timelines", frame(&queue_rows)?),
        (
            "memory",
            frame(&rows_by_rank(ranks, |rank| {
                rank.memory.clone().into_iter().collect()
            }))?,
        ),
        ("memory_timelines", frame(&memory_rows)?),
        ("notes", frame(&pairs(["note_number", "note"], &numbered_notes))?),
        (
            "collectives",
            frame(&analysis.collectives.iter().map(row).collect::<Vec<_>>())?,
        ),
        ("collective_ranks", frame(&arrival_rows)?),
        (
            "communicators",
            frame(&analysis.communicators.iter().map(row).collect::<Vec<_>>())?,
        ),
        ("communicator_ranks", frame(&communicator_rows)?),
        (
            "transfers",
            frame(&analysis.transfers.iter().map(row).collect::<Vec<_>>())?,
        ),
        (
            "collective_sizes",
            frame(&analysis.collective_sizes.iter().map(row).collect::<Vec<_>>())?,
        ),
        (
            "arrivals",
            frame(&analysis.arrivals.iter().map(row).collect::<Vec<_>>())?,
        ),
        (
            "hangs",
            frame(&analysis.hangs.iter().map(row).collect::<Vec<_>>())?,
        ),
        (
            "unfinished",
            frame(&analysis.unfinished.iter().map(row).collect::<Vec<_>>())?,
        ),
        (
            "recording_cost",
            frame(&analysis.recording_cost.iter().map(row).collect::<Vec<_>>())?,
        ),
        (
            "recording_overhead",
            frame(&analysis.recording_overhead.iter().map(row).collect::<Vec<_>>())?,
        ),
        (
            "findings",
            frame(&analysis.findings.iter().map(row).collect::<Vec<_>>())?,
        ),
        (
            "losses",
            frame(&analysis.losses.iter().map(row).collect::<Vec<_>>())?,
        ),
    ];
    Ok(named
        .into_iter()
        .filter(|(_, frame)| frame.height() > 0)
        .map(|(name, frame)| NamedTable { name, frame })
        .collect())
}

/// A frame as an Arrow batch, for writers of files.
///
/// # Errors
/// When a column has a type that no table here has.
pub fn to_batch(frame: &DataFrame) -> Result<RecordBatch, TableError> {
    let mut fields = Vec::new();
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for column in frame.columns() {
        let (data_type, array): (ArrowType, ArrayRef) = match column.dtype() {
            DataType::Int64 => {
                let values: Int64Array = column.i64()?.iter().collect();
                (ArrowType::Int64, Arc::new(values))
            }
            DataType::Float64 => {
                let values: Float64Array = column.f64()?.iter().collect();
                (ArrowType::Float64, Arc::new(values))
            }
            DataType::Boolean => {
                let values: BooleanArray = column.bool()?.iter().collect();
                (ArrowType::Boolean, Arc::new(values))
            }
            DataType::String => {
                let values: StringArray = column.str()?.iter().collect();
                (ArrowType::Utf8, Arc::new(values))
            }
            other => return Err(TableError(format!("column {} has type {other}", column.name()))),
        };
        fields.push(Field::new(column.name().as_str(), data_type, true));
        arrays.push(array);
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}
