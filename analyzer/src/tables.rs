//! An analysis as tables: an Arrow batch for each list of the JSON object, with the same names.
//!
//! A column holds a list's plain members; what is nested has a table of its own or stays in the JSON.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::ArrowError;
use rustc_hash::FxHashMap;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{Analysis, RankAnalysis, UnattributedMemory};

/// A table with its name.
#[derive(Clone, Debug)]
pub struct NamedTable {
    /// "ranks", "kernels", ...
    pub name: &'static str,
    /// Its columns.
    pub batch: RecordBatch,
}

type Row = Map<String, Value>;

/// The plain members of something that serialises to an object, and those of its distributions: "latency" has "p50_ns", the
/// row "latency_p50_ns". Other lists and objects have tables of their own, whether or not they are null here.
fn row<T: Serialize>(value: &T) -> Row {
    const OWN_TABLES: &[&str] = &[
        "memory",
        "step_summary",
        "unattributed",
        "unattributed_memory",
        "peak",
    ];
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
fn rows_by_rank<T: Serialize>(ranks: &[RankAnalysis], of: impl Fn(&RankAnalysis) -> &[T]) -> Vec<Row> {
    let mut rows = Vec::new();
    for rank in ranks {
        for item in of(rank) {
            let mut members = row(item);
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
        "per_second",
        "mfu",
        "hfu",
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
        "flops",
        "parent",
        "batch",
        "m",
        "n",
        "k",
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

/// Rows as a batch: the columns `first` that there are, then the others in their order by name. All may be null.
fn batch(rows: &[Row], first: &[&str]) -> Result<RecordBatch, ArrowError> {
    let all: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| row.keys().map(String::as_str))
        .collect();
    let rest = all.iter().copied().filter(|name| !first.contains(name));
    let first = first.iter().copied().filter(|name| all.contains(name));
    RecordBatch::try_from_iter_with_nullable(first.chain(rest).map(|name| (name, column(name, rows), true)))
}

/// The column `name` of rows.
fn column(name: &str, rows: &[Row]) -> ArrayRef {
    let values = rows
        .iter()
        .map(|row| row.get(name).filter(|value| !value.is_null()));
    match column_type(name, rows) {
        ColumnType::Integer => {
            let integers: Int64Array = values.map(|value| value.and_then(integer)).collect();
            Arc::new(integers)
        }
        ColumnType::Float => {
            let floats: Float64Array = values.map(|value| value.and_then(Value::as_f64)).collect();
            Arc::new(floats)
        }
        ColumnType::Boolean => {
            let booleans: BooleanArray = values.map(|value| value.and_then(Value::as_bool)).collect();
            Arc::new(booleans)
        }
        ColumnType::Text => {
            let texts: StringArray = values
                .map(|value| {
                    value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                })
                .collect();
            Arc::new(texts)
        }
    }
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

/// Kernels over all ranks by name and kind: counts and times summed, longest first.
fn kernels_of_all_ranks(ranks: &[RankAnalysis]) -> Vec<Row> {
    struct Sums {
        count: usize,
        total_ns: i64,
        min_ns: i64,
        max_ns: i64,
    }
    let mut groups: FxHashMap<(&str, &str), Sums> = FxHashMap::default();
    for kernel in ranks.iter().flat_map(|rank| &rank.kernels) {
        let sums = groups.entry((&kernel.name, kernel.kind)).or_insert(Sums {
            count: 0,
            total_ns: 0,
            min_ns: i64::MAX,
            max_ns: i64::MIN,
        });
        sums.count += kernel.count;
        // Totals of a damaged trace may be as great as numbers go.
        sums.total_ns = sums.total_ns.saturating_add(kernel.total_ns);
        sums.min_ns = sums.min_ns.min(kernel.durations.min_ns);
        sums.max_ns = sums.max_ns.max(kernel.durations.max_ns);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|((name, kind), sums)| (Reverse(sums.total_ns), *name, *kind));
    groups
        .into_iter()
        .map(|((name, kind), sums)| {
            Row::from_iter([
                ("name".to_owned(), name.into()),
                ("kind".to_owned(), kind.into()),
                ("count".to_owned(), sums.count.into()),
                ("total_ns".to_owned(), sums.total_ns.into()),
                ("min_ns".to_owned(), sums.min_ns.into()),
                ("max_ns".to_owned(), sums.max_ns.into()),
            ])
        })
        .collect()
}

/// All tables of an analysis that have rows.
///
/// # Errors
/// When Arrow refuses a table: a fault of this crate.
pub fn tables(analysis: &Analysis) -> Result<Vec<NamedTable>, ArrowError> {
    // Columns that name the row.
    const FIRST: &[&str] = &["rank", "device_index", "communicator", "name", "kind", "sequence"];
    const FIRST_OF_ALL_RANKS: &[&str] = &["name", "kind", "count", "total_ns", "min_ns", "max_ns"];
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
    let (mut memory_rows, mut memory_parts) = (Vec::new(), Vec::new());
    for rank in ranks {
        let mut place = Row::new();
        place.insert("rank".to_owned(), rank.rank.into());
        place.insert("device_index".to_owned(), rank.device_index.into());
        for queue in &rank.queues {
            for (time, depth) in &queue.timeline {
                let mut members = place.clone();
                members.insert("stream".to_owned(), queue.stream.into());
                members.insert("time_ns".to_owned(), time.0.into());
                members.insert("depth".to_owned(), (*depth).into());
                queue_rows.push(members);
            }
        }
        for (part, of) in rank
            .attribution
            .unattributed_memory
            .iter()
            .flat_map(UnattributedMemory::parts)
        {
            let mut members = place.clone();
            members.insert("part".to_owned(), part.into());
            members.extend(row(&of));
            memory_parts.push(members);
        }
        for (time, bytes) in rank.memory.iter().flat_map(|memory| &memory.timeline) {
            let mut members = place.clone();
            members.insert("time_ns".to_owned(), time.0.into());
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
    let named: Vec<(&'static str, Vec<Row>)> = vec![
        ("ranks", ranks.iter().map(row).collect()),
        ("streams", rows_by_rank(ranks, |rank| &rank.streams)),
        ("kinds", rows_by_rank(ranks, |rank| &rank.kinds)),
        ("kernels_of_all_ranks", kernels_of_all_ranks(ranks)),
        ("kernels", rows_by_rank(ranks, |rank| &rank.kernels)),
        ("communication", rows_by_rank(ranks, |rank| &rank.communication)),
        ("copies", rows_by_rank(ranks, |rank| &rank.copies)),
        ("launches", rows_by_rank(ranks, |rank| &rank.launches)),
        (
            "operators",
            rows_by_rank(ranks, |rank| &rank.attribution.operators),
        ),
        ("shapes", rows_by_rank(ranks, |rank| &rank.attribution.shapes)),
        ("products", rows_by_rank(ranks, |rank| &rank.attribution.products)),
        ("modules", rows_by_rank(ranks, |rank| &rank.attribution.modules)),
        (
            "module_classes",
            rows_by_rank(ranks, |rank| &rank.attribution.module_classes),
        ),
        ("stacks", rows_by_rank(ranks, |rank| &rank.attribution.stacks)),
        (
            "unattributed",
            rows_by_rank(ranks, |rank| rank.attribution.unattributed.as_slice()),
        ),
        ("steps", rows_by_rank(ranks, |rank| &rank.steps)),
        ("idle_causes", cause_rows(|rank| &rank.idle_causes)),
        ("host_late_by", cause_rows(|rank| &rank.host_late_by)),
        ("longest_gaps", rows_by_rank(ranks, |rank| &rank.longest_gaps)),
        (
            "step_summaries",
            rows_by_rank(ranks, |rank| rank.step_summary.as_slice()),
        ),
        ("queues", rows_by_rank(ranks, |rank| &rank.queues)),
        ("queue_timelines", queue_rows),
        ("memory", rows_by_rank(ranks, |rank| rank.memory.as_slice())),
        ("memory_parts", memory_parts),
        ("memory_timelines", memory_rows),
        ("notes", pairs(["note_number", "note"], &numbered_notes)),
        ("collectives", analysis.collectives.iter().map(row).collect()),
        ("collective_ranks", arrival_rows),
        ("communicators", analysis.communicators.iter().map(row).collect()),
        ("communicator_ranks", communicator_rows),
        ("transfers", analysis.transfers.iter().map(row).collect()),
        (
            "collective_sizes",
            analysis.collective_sizes.iter().map(row).collect(),
        ),
        ("arrivals", analysis.arrivals.iter().map(row).collect()),
        ("hangs", analysis.hangs.iter().map(row).collect()),
        ("unfinished", analysis.unfinished.iter().map(row).collect()),
        (
            "recording_cost",
            analysis.recording_cost.iter().map(row).collect(),
        ),
        (
            "recording_overhead",
            analysis.recording_overhead.iter().map(row).collect(),
        ),
        ("findings", analysis.findings.iter().map(row).collect()),
        ("losses", analysis.losses.iter().map(row).collect()),
    ];
    named
        .into_iter()
        .filter(|(_, rows)| !rows.is_empty())
        .map(|(name, rows)| {
            let first = if name == "kernels_of_all_ranks" {
                FIRST_OF_ALL_RANKS
            } else {
                FIRST
            };
            Ok(NamedTable {
                name,
                batch: batch(&rows, first)?,
            })
        })
        .collect()
}
