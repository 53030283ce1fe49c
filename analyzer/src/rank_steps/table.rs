//! The table itself: who its rows are, which steps its columns are, and what each cell holds.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::known::{InCommunicator, KnownRank};
use super::measures::Cell;
use crate::analysis::Analysis;
use crate::arrivals;
use crate::step_summary::{job_steps, numbered};
use crate::steps::StepAnalysis;

/// How far a rank's recording was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RankState {
    /// It is in the table.
    Here,
    /// It has not been read yet.
    Reading,
    /// The job has it, and nothing of it is here.
    Missing,
    /// It is here, and ran nothing on a GPU.
    Nothing,
}

/// A row: a device of a rank, or a rank of which nothing is here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankRow {
    /// The rank in the job; null where it is not known.
    pub rank: Option<u32>,
    /// Device index within the process; null of a rank that is not here.
    pub device_index: Option<u32>,
    /// The device's name; null where it is not known.
    pub device_name: Option<String>,
    /// Host of the process; empty where it is not known.
    pub host: String,
    /// Whether it is here.
    pub state: RankState,
    /// Its pipeline stage: its place in a communicator that is named after a pipeline. Null where there is none.
    pub stage: Option<u32>,
    /// How many of the steps it has.
    pub steps: usize,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StepColumn {
    /// The step's number.
    pub number: u64,
    /// How often a rank had that number before (where numbers begin anew).
    pub repeat: u64,
    /// Its name.
    pub name: String,
}

/// A communicator with the rows that are in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RankCommunicator {
    /// Its hash, in hexadecimal.
    pub communicator: String,
    /// Its name; null where it has none.
    pub name: Option<String>,
    /// Ranks in it, recorded or not; null where that is not known.
    pub ranks: Option<u32>,
    /// Places of the rows.
    pub rows: Vec<u32>,
}

/// Ranks by steps.
#[derive(Clone, Debug, Default)]
pub struct RankSteps {
    /// By rank and device; those that are not here among them.
    pub rows: Vec<RankRow>,
    /// By time.
    pub columns: Vec<StepColumn>,
    /// Those that any row is in: the largest first.
    pub communicators: Vec<RankCommunicator>,
    /// Whether ranks were compared with each other.
    pub compared: bool,
    /// By row and column; empty for a row without a device.
    pub(super) cells: Vec<Vec<Option<Cell>>>,
}

impl RankSteps {
    /// Of what is known of some ranks alone; `others` are in the job and have no device among them.
    #[must_use]
    pub fn of(mut known: Vec<KnownRank>, others: &BTreeMap<u32, RankState>) -> Self {
        known.sort_by_key(|one| (one.rank.unwrap_or(u32::MAX), one.device_index));
        let (steps, _) = job_steps(known.iter().map(|one| one.steps.as_slice()));
        let columns: Vec<StepColumn> = steps
            .into_iter()
            .map(|((repeat, number), name)| StepColumn {
                number,
                repeat,
                name: name.to_owned(),
            })
            .collect();
        let places: FxHashMap<(u64, u64), usize> = columns
            .iter()
            .enumerate()
            .map(|(place, column)| ((column.repeat, column.number), place))
            .collect();
        let here: BTreeSet<u32> = known.iter().filter_map(|one| one.rank).collect();
        let mut rows: Vec<Row> = known.into_iter().map(Row::Device).collect();
        let others = others.iter().filter(|(rank, _)| !here.contains(rank));
        rows.extend(others.map(|(rank, state)| Row::Rank(*rank, *state)));
        rows.sort_by_key(|row| match row {
            Row::Device(one) => (one.rank.unwrap_or(u32::MAX), one.device_index),
            Row::Rank(rank, _) => (*rank, 0),
        });
        let mut table = Self {
            columns,
            ..Self::default()
        };
        let mut communicators: BTreeMap<String, RankCommunicator> = BTreeMap::new();
        for (place, row) in rows.into_iter().enumerate() {
            let one = match row {
                Row::Device(one) => one,
                Row::Rank(rank, state) => {
                    table.cells.push(Vec::new());
                    table.rows.push(RankRow {
                        rank: Some(rank),
                        device_index: None,
                        device_name: None,
                        host: String::new(),
                        state,
                        stage: None,
                        steps: 0,
                    });
                    continue;
                }
            };
            for of in &one.communicators {
                let known =
                    communicators
                        .entry(of.communicator.clone())
                        .or_insert_with(|| RankCommunicator {
                            communicator: of.communicator.clone(),
                            name: of.name.clone(),
                            ranks: of.ranks,
                            rows: Vec::new(),
                        });
                let row = u32::try_from(place).unwrap_or(u32::MAX);
                if known.rows.last() != Some(&row) {
                    known.rows.push(row);
                }
            }
            let mut cells = vec![None; table.columns.len()];
            for (number, step) in numbered(&one.steps) {
                if let Some(column) = places.get(&number) {
                    cells[*column] = Some(cell(step));
                }
            }
            table.cells.push(cells);
            table.rows.push(RankRow {
                rank: one.rank,
                device_index: Some(one.device_index),
                stage: one.communicators.iter().find_map(stage),
                steps: one.steps.len(),
                device_name: one.device_name,
                host: one.host,
                state: RankState::Here,
            });
        }
        table.communicators = communicators.into_values().collect();
        table.communicators.sort_by(|a, b| {
            let order = |one: &RankCommunicator| std::cmp::Reverse(one.rows.len());
            (order(a), &a.communicator).cmp(&(order(b), &b.communicator))
        });
        table
    }

    /// Of an analysis; `others` as in [`Self::of`].
    #[must_use]
    pub fn of_analysis(analysis: &Analysis, others: &BTreeMap<u32, RankState>) -> Self {
        let mut known: Vec<KnownRank> = analysis.ranks.iter().map(KnownRank::of).collect();
        let mut places: FxHashMap<u32, Vec<usize>> = FxHashMap::default();
        for (place, one) in known.iter().enumerate() {
            if let Some(rank) = one.rank {
                places.entry(rank).or_default().push(place);
            }
        }
        for communicator in &analysis.communicators {
            // Their order is that of their places only where all were recorded.
            let all = communicator.communicator_ranks;
            let whole = all.is_some_and(|all| all as usize == communicator.ranks.len());
            for (place, rank) in (0u32..).zip(&communicator.ranks) {
                for row in places.get(rank).into_iter().flatten() {
                    known[*row].communicators.push(InCommunicator {
                        communicator: communicator.communicator.clone(),
                        name: communicator.communicator_name.clone(),
                        ranks: all,
                        place: whole.then_some(place),
                    });
                }
            }
        }
        let mut table = Self::of(known, others);
        table.compare(analysis);
        table
    }

    /// Adds what ranks did together.
    fn compare(&mut self, analysis: &Analysis) {
        self.compared = true;
        let rows: FxHashMap<(u32, u32), usize> = self
            .rows
            .iter()
            .enumerate()
            .filter_map(|(place, row)| Some(((row.rank?, row.device_index?), place)))
            .collect();
        // By row: when each step begins and ends, and its column.
        let times = |cells: &Vec<Option<Cell>>| {
            let known = cells.iter().enumerate();
            let known = known.filter_map(|(column, cell)| Some((column, cell.as_ref()?)));
            let mut times: Vec<(i64, i64, usize)> = known
                .map(|(column, cell)| {
                    (
                        cell.start_ns,
                        cell.start_ns.saturating_add(cell.duration_ns),
                        column,
                    )
                })
                .collect();
            times.sort_unstable();
            times
        };
        let times: Vec<_> = self.cells.iter().map(times).collect();
        for collective in analysis.collectives.iter().filter(|one| arrivals::counts(one)) {
            let (Some(start), Some(skew)) = (collective.start_ns, collective.skew_ns) else {
                continue;
            };
            let timing = &collective.timing;
            for participant in &timing.participants {
                let who = (participant.rank, participant.device);
                let Some(row) = rows.get(&who) else {
                    continue;
                };
                // Each rank needs every other one, so it was waiting from its own arrival on.
                let own = start.0.saturating_add(skew).saturating_sub(participant.wait_ns);
                let after = times[*row].partition_point(|(from, ..)| *from <= own);
                let step = after.checked_sub(1).map(|place| times[*row][place]);
                let Some((.., column)) = step.filter(|(_, end, _)| own < *end) else {
                    continue;
                };
                let Some(cell) = self.cells[*row][column].as_mut() else {
                    continue;
                };
                let of = cell.arrivals.get_or_insert_default();
                of.wait_ns = of.wait_ns.saturating_add(participant.wait_ns);
                of.clock_error_ns = of.clock_error_ns.saturating_add(timing.clock_error_ns);
                if timing.last == Some(who) {
                    let cost = collective.last_rank_cost_ns.unwrap_or(0);
                    of.late_ns = of.late_ns.saturating_add(cost);
                }
            }
        }
    }

    /// From the first step's start to the last one's end; `None` without steps.
    #[must_use]
    pub fn span(&self) -> Option<(i64, i64)> {
        let cells = || self.cells.iter().flatten().flatten();
        let begin = cells().map(|cell| cell.start_ns).min()?;
        let end = cells()
            .map(|cell| cell.start_ns.saturating_add(cell.duration_ns))
            .max()?;
        Some((begin, end))
    }

    /// How many ranks are here, and how many the job has as far as that is known.
    #[must_use]
    pub fn here(&self) -> (usize, usize) {
        let mut ranks: BTreeMap<(u32, usize), bool> = BTreeMap::new();
        for (place, row) in self.rows.iter().enumerate() {
            // Who says no rank is one of its own.
            let key = row.rank.map_or((u32::MAX, place), |rank| (rank, 0));
            ranks.insert(key, matches!(row.state, RankState::Here | RankState::Nothing));
        }
        (ranks.values().filter(|here| **here).count(), ranks.len())
    }
}

/// What becomes a row.
enum Row {
    Device(KnownRank),
    Rank(u32, RankState),
}

fn cell(step: &StepAnalysis) -> Cell {
    Cell {
        duration_ns: step.duration_ns,
        start_ns: step.start_ns.0,
        measures: step.measures.clone(),
        arrivals: None,
    }
}

/// The place in a communicator that is named after a pipeline: "pp", "pipe" or "pipeline" is a word of its name.
fn stage(of: &InCommunicator) -> Option<u32> {
    let name = of.name.as_ref()?.to_ascii_lowercase();
    let mut words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
    let is_pipeline = words.any(|word| matches!(word, "pp" | "pipe" | "pipeline"));
    of.place.filter(|_| is_pipeline)
}
