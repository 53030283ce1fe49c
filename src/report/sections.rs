//! The tables of an analysis.

use std::collections::{BTreeMap, BTreeSet};

use gputrace_analyzer::{Analysis, ArrivalAnalysis, CATALOGUE, PARTS, RankAnalysis, Sort};

use super::cells::{name, or_dash, rank_label};
use super::communicators;
use super::kernel_labels::{Label, labels};
use super::operators;
use super::steps;
use super::table::{Overflow, print_table};
use super::view::View;
use crate::text::{bytes, duration, gigabytes_per_second, percent, shorten, thousands};

/// Tables with a row for each rank and something else show no more rows than this: the JSON has all.
const MOST_ROWS: usize = 12;

/// Prints a table with a row for some things of each rank, unless that is too long for a screen.
fn by_rank<T>(
    title: &str,
    headings: &[&str],
    analysis: &Analysis,
    of: impl Fn(&RankAnalysis) -> &[T],
    cells: impl Fn(&T) -> Vec<String>,
) {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for rank in &analysis.ranks {
        for item in of(rank) {
            let mut row = vec![rank_label(rank)];
            row.extend(cells(item));
            rows.push(row);
        }
    }
    let left_out = rows.len().saturating_sub(MOST_ROWS);
    rows.truncate(MOST_ROWS);
    let title = if left_out > 0 {
        format!("{title}: the first {MOST_ROWS} rows; --json has {left_out} more")
    } else {
        title.to_owned()
    };
    if !rows.is_empty() {
        print_table(&title, headings, &rows, Overflow::Continue);
    }
}

/// Prints all tables.
pub fn print(analysis: &Analysis, view: View) {
    parts(analysis);
    ranks(analysis);
    idle_causes(analysis);
    steps::steps(analysis);
    by_rank(
        "Streams (idle time by Holistic Trace Analysis's classes)",
        &[
            "rank",
            "stream",
            "operations",
            "busy",
            "idle ratio",
            "host wait",
            "kernel wait",
            "other",
        ],
        analysis,
        |rank| &rank.streams,
        |stream| {
            vec![
                stream.stream.to_string(),
                thousands(stream.ops as u64),
                duration(stream.busy_ns),
                percent(stream.idle_ratio),
                duration(stream.idle_host_wait_ns),
                duration(stream.idle_kernel_wait_ns),
                duration(stream.idle_other_ns),
            ]
        },
    );
    by_rank(
        "Communication by communicator",
        &[
            "rank",
            "collective",
            "communicator",
            "count",
            "bytes",
            "time",
            "hidden",
            "exposed",
        ],
        analysis,
        |rank| &rank.communication,
        |communication| {
            let communicator = communication.communicator_name.as_ref();
            vec![
                communication.name.clone(),
                shorten(communicator.unwrap_or(&communication.communicator), 20),
                thousands(communication.count as u64),
                or_dash(communication.bytes, bytes),
                duration(communication.time_ns),
                duration(communication.hidden_ns),
                duration(communication.exposed_ns),
            ]
        },
    );
    communicators::communicators(analysis);
    communicators::transfers(analysis);
    clocks(analysis);
    arrivals(analysis);
    collective_sizes(analysis);
    by_rank(
        "Copies",
        &[
            "rank",
            "direction",
            "from",
            "to",
            "count",
            "bytes",
            "time",
            "achieved",
            "nominal",
            "link",
        ],
        analysis,
        |rank| &rank.copies,
        |copy| {
            vec![
                copy.direction.clone(),
                copy.source.clone(),
                copy.destination.clone(),
                thousands(copy.count as u64),
                bytes(copy.bytes),
                duration(copy.time_ns),
                or_dash(copy.bandwidth, gigabytes_per_second),
                or_dash(copy.nominal_bandwidth, gigabytes_per_second),
                copy.link.clone().unwrap_or_else(|| "-".to_owned()),
            ]
        },
    );
    by_rank(
        "Launches (latency: from the call to the start, of operations that nothing on their stream held up)",
        &[
            "rank",
            "call",
            "calls",
            "time in calls",
            "mean",
            "latency p50",
            "latency p99",
            "waiting p50",
        ],
        analysis,
        |rank| &rank.launches,
        |launch| {
            vec![
                shorten(&launch.call, 28),
                thousands(launch.calls as u64),
                duration(launch.call_total_ns),
                duration(launch.call_time.mean_ns),
                or_dash((launch.unqueued > 0).then_some(launch.latency.p50_ns), duration),
                or_dash((launch.unqueued > 0).then_some(launch.latency.p99_ns), duration),
                duration(launch.delay.p50_ns),
            ]
        },
    );
    memory(analysis);
    operators::print(analysis);
    kernels(analysis, view);
    if view.explain {
        explanations(analysis);
    }
}

fn ranks(analysis: &Analysis) {
    let mut headings = vec!["rank"];
    headings.extend(CATALOGUE.iter().map(|measure| measure.label));
    let rows: Vec<Vec<String>> = analysis
        .ranks
        .iter()
        .map(|rank| {
            let measures = &rank.measures;
            let mut row = vec![rank_label(rank)];
            row.extend(
                CATALOGUE
                    .iter()
                    .map(|measure| measure.text(measures, duration, percent)),
            );
            row
        })
        .collect();
    print_table("Ranks", &headings, &rows, Overflow::Continue);
}

fn parts(analysis: &Analysis) {
    let mut headings = vec!["rank", "span"];
    headings.extend(PARTS.iter().map(|part| part.label));
    let rows: Vec<Vec<String>> = analysis
        .ranks
        .iter()
        .map(|rank| {
            let span_ns = rank.measures.span_ns;
            let share = |time: i64| percent((span_ns > 0).then(|| time as f64 / span_ns as f64));
            let mut row = vec![rank_label(rank), duration(span_ns)];
            row.extend(rank.parts.times().map(share));
            row
        })
        .collect();
    print_table(
        "Where the time goes (each moment counts once: the parts sum to the span)",
        &headings,
        &rows,
        Overflow::Continue,
    );
}

fn idle_causes(analysis: &Analysis) {
    let causes: BTreeSet<&String> = analysis
        .ranks
        .iter()
        .flat_map(|rank| rank.idle_causes.keys())
        .collect();
    if causes.is_empty() {
        return;
    }
    let words: Vec<String> = causes.iter().map(|cause| cause.replace('_', " ")).collect();
    let headings: Vec<&str> = ["rank", "idle"]
        .into_iter()
        .chain(words.iter().map(String::as_str))
        .chain(["host was mostly in"])
        .collect();
    let rows: Vec<Vec<String>> = analysis
        .ranks
        .iter()
        .map(|rank| {
            let mut row = vec![rank_label(rank), duration(rank.measures.idle_ns)];
            row.extend(
                causes
                    .iter()
                    .map(|cause| or_dash(rank.idle_causes.get(*cause).copied(), duration)),
            );
            let most = rank.host_late_by.iter().max_by_key(|(_, time)| **time);
            row.push(or_dash(most, |(what, time)| {
                format!("{} ({})", shorten(what, 40), duration(*time))
            }));
            row
        })
        .collect();
    print_table(
        "Idle time by cause (the parts sum to it)",
        &headings,
        &rows,
        Overflow::Continue,
    );
}

/// "rank 2 (12.9 ms)": who made a rank late most.
fn late_because(arrival: &ArrivalAnalysis) -> String {
    let most = arrival.caused_by.first();
    most.map_or_else(String::new, |most| {
        let who = if most.rank == arrival.rank {
            "itself".to_owned()
        } else {
            format!("rank {}", most.rank)
        };
        format!("{who} ({})", duration(most.cost_ns))
    })
}

/// The clocks of several hosts; where nothing was compared, why.
fn clocks(analysis: &Analysis) {
    if analysis.clocks.len() < 2 {
        return;
    }
    let left_out = analysis.clocks.len().saturating_sub(MOST_ROWS);
    let rows: Vec<Vec<String>> = analysis
        .clocks
        .iter()
        .enumerate()
        .take(MOST_ROWS)
        .map(|(place, clock)| {
            let ranks: Vec<String> = clock.ranks.iter().map(ToString::to_string).collect();
            let bounds = clock.hard_low_ns.zip(clock.hard_high_ns);
            let is_reference = place == clock.reference && clock.offset_ns.is_some();
            vec![
                if clock.host.is_empty() {
                    "not named".to_owned()
                } else {
                    shorten(&clock.host, 24)
                },
                shorten(&ranks.join(" "), 24),
                if is_reference {
                    "the reference".to_owned()
                } else {
                    or_dash(clock.offset_ns, duration)
                },
                or_dash(clock.half_width_ns, |width| format!("±{}", duration(width))),
                or_dash(bounds, |(low, high)| {
                    format!("{} to {}", duration(low), duration(high))
                }),
                or_dash(clock.drift, |drift| format!("{:.3} ppm", drift * 1e6)),
                thousands(clock.collectives),
            ]
        })
        .collect();
    let more = match left_out {
        0 => String::new(),
        more => format!("; --json has {more} more"),
    };
    print_table(
        &format!("Clocks ({}{more})", analysis.clock),
        &[
            "host",
            "ranks",
            "ahead by",
            "99 %",
            "surely",
            "drift",
            "collectives",
        ],
        &rows,
        Overflow::Continue,
    );
}

fn arrivals(analysis: &Analysis) {
    if analysis.arrivals.len() < 2 {
        return;
    }
    let rows: Vec<Vec<String>> = analysis
        .arrivals
        .iter()
        .map(|arrival| {
            let error = match arrival.clock_error_ns {
                0 => String::new(),
                error => format!(" ±{}", duration(error)),
            };
            let undecided = match arrival.undecided_count {
                0 => String::new(),
                count => format!(" (and {} that clocks can't decide)", thousands(count as u64)),
            };
            vec![
                format!("{} (GPU {})", arrival.rank, arrival.device_index),
                thousands(arrival.collectives as u64),
                format!("{}{undecided}", thousands(arrival.last_count as u64)),
                duration(arrival.cost_ns),
                format!("{}{error}", duration(arrival.wait_ns)),
                late_because(arrival),
            ]
        })
        .collect();
    let spread = analysis.clock_end_spread_ns.map_or_else(String::new, |spread| {
        format!("; ends agree within {}", duration(spread))
    });
    print_table(
        &format!("Arrivals at collectives ({}{spread})", analysis.clock),
        &[
            "rank",
            "collectives",
            "came last",
            "cost of that",
            "waited for others",
            "late because of",
        ],
        &rows,
        Overflow::Continue,
    );
}

fn collective_sizes(analysis: &Analysis) {
    let rows: Vec<Vec<String>> = analysis
        .collective_sizes
        .iter()
        .map(|size| {
            vec![
                size.name.clone(),
                or_dash(size.ranks, |ranks| ranks.to_string()),
                format!("{} to {}", bytes(size.bytes_from), bytes(size.bytes_below)),
                thousands(size.count as u64),
                duration(size.kernel.p50_ns),
                or_dash(size.algbw, gigabytes_per_second),
                or_dash(size.busbw, gigabytes_per_second),
                or_dash(size.algbw_with_waiting, gigabytes_per_second),
            ]
        })
        .collect();
    if !rows.is_empty() {
        print_table(
            "Collectives by size (bandwidths over the transfer alone, and with the waiting)",
            &[
                "collective",
                "ranks",
                "bytes",
                "count",
                "kernel p50",
                "algbw",
                "busbw",
                "with waiting",
            ],
            &rows,
            Overflow::Continue,
        );
    }
}

fn memory(analysis: &Analysis) {
    let rows: Vec<Vec<String>> = analysis
        .ranks
        .iter()
        .filter_map(|rank| {
            let memory = rank.memory.as_ref()?;
            Some(vec![
                rank_label(rank),
                bytes(memory.peak_bytes),
                or_dash(memory.peak_reserved_bytes, bytes),
                thousands(memory.allocations as u64),
                thousands(memory.frees as u64),
                memory.counted_by.clone(),
            ])
        })
        .collect();
    if !rows.is_empty() {
        print_table(
            "Device memory",
            &[
                "rank",
                "peak",
                "peak reserved",
                "allocations",
                "frees",
                "counted by",
            ],
            &rows,
            Overflow::Continue,
        );
    }
}

/// Kernels: of one rank with all their statistics, of several summed over them.
pub(super) fn kernels(analysis: &Analysis, view: View) {
    let title = "Kernels (total is a sum over streams, not time passed)";
    if let [rank] = analysis.ranks.as_slice() {
        let headings = [
            "kind",
            "count",
            "total",
            "share",
            "mean",
            "p50",
            "p99",
            "max",
            "occupancy",
        ];
        let rows = rank
            .kernels
            .iter()
            .take(view.top)
            .map(|kernel| {
                let cells = vec![
                    kernel.kind.to_owned(),
                    thousands(kernel.count as u64),
                    duration(kernel.total_ns),
                    percent(Some(kernel.share)),
                    duration(kernel.durations.mean_ns),
                    duration(kernel.durations.p50_ns),
                    duration(kernel.durations.p99_ns),
                    duration(kernel.durations.max_ns),
                    kernel
                        .occupancy
                        .map_or_else(|| "-".to_owned(), |share| percent(Some(share))),
                ];
                (kernel.name.as_str(), cells)
            })
            .collect();
        print_kernels(title, &headings, rows, view.full_names);
        return;
    }
    /// Sums over ranks.
    #[derive(Default)]
    struct Sums {
        count: usize,
        total_ns: i64,
        least_ns: i64,
        most_ns: i64,
        max_ns: i64,
    }
    let mut sums: BTreeMap<(&str, &str), Sums> = BTreeMap::new();
    for kernel in analysis.ranks.iter().flat_map(|rank| &rank.kernels) {
        let sum = sums.entry((&kernel.name, kernel.kind)).or_insert_with(|| Sums {
            least_ns: i64::MAX,
            ..Sums::default()
        });
        sum.count += kernel.count;
        sum.total_ns = sum.total_ns.saturating_add(kernel.total_ns);
        sum.least_ns = sum.least_ns.min(kernel.total_ns);
        sum.most_ns = sum.most_ns.max(kernel.total_ns);
        sum.max_ns = sum.max_ns.max(kernel.durations.max_ns);
    }
    let mean = |sum: &Sums| sum.total_ns / i64::try_from(sum.count).unwrap_or(i64::MAX).max(1);
    let mut order: Vec<((&str, &str), Sums)> = sums.into_iter().collect();
    order.sort_by_key(|(_, sum)| {
        std::cmp::Reverse(match view.sort {
            Sort::Total => sum.total_ns,
            Sort::Count => i64::try_from(sum.count).unwrap_or(i64::MAX),
            Sort::Mean => mean(sum),
            Sort::Max => sum.max_ns,
        })
    });
    let headings = [
        "kind",
        "count",
        "total",
        "mean",
        "max",
        "least of a rank",
        "most of a rank",
    ];
    let rows = order
        .into_iter()
        .take(view.top)
        .map(|((text, kind), sum)| {
            let cells = vec![
                kind.to_owned(),
                thousands(sum.count as u64),
                duration(sum.total_ns),
                duration(mean(&sum)),
                duration(sum.max_ns),
                duration(sum.least_ns),
                duration(sum.most_ns),
            ];
            (text, cells)
        })
        .collect();
    let title = format!("{title}, over all ranks");
    print_kernels(&title, &headings, rows, view.full_names);
}

/// A table of kernels: a name and its other cells. Names are short ones, with what tells equal ones apart in a column of its own.
fn print_kernels(title: &str, others: &[&str], rows: Vec<(&str, Vec<String>)>, full_names: bool) {
    /// What the other columns take of a line.
    const OTHERS: usize = 84;
    let names: Vec<&str> = rows.iter().map(|(name, _)| *name).collect();
    let labels = if full_names {
        let whole = |text: &&str| Label {
            short: (*text).to_owned(),
            difference: String::new(),
        };
        names.iter().map(whole).collect()
    } else {
        labels(&names)
    };
    let any_alike = labels.iter().any(|label| !label.difference.is_empty());
    let mut headings = vec!["kernel"];
    headings.extend(any_alike.then_some("variant"));
    headings.extend(others);
    let rows: Vec<Vec<String>> = labels
        .into_iter()
        .zip(rows)
        .map(|(label, (_, cells))| {
            let mut row = vec![name(&label.short, OTHERS)];
            row.extend(any_alike.then_some(label.difference));
            row.extend(cells);
            row
        })
        .collect();
    print_table(title, &headings, &rows, Overflow::Drop);
}

fn explanations(analysis: &Analysis) {
    let mut seen = BTreeSet::new();
    let mut rows = Vec::new();
    for kernel in analysis.ranks.iter().flat_map(|rank| &rank.kernels) {
        if seen.insert((&kernel.name, &kernel.kind)) {
            rows.push(vec![
                name(&kernel.name, 70),
                kernel.kind.to_owned(),
                kernel.kind_reason.clone().into_owned(),
            ]);
        }
    }
    print_table(
        "Why each name has its kind",
        &["kernel", "kind", "because"],
        &rows,
        Overflow::Continue,
    );
}
