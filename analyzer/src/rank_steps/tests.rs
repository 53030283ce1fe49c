//! Tables of a few ranks, computed by hand.

use std::collections::BTreeMap;

use gputrace_trace::TimeNs;

use super::{Binned, CellValue, InCommunicator, KnownRank, RankCells, RankState, RankSteps, step_measures};
use crate::Measures;
use crate::measures::ratio;
use crate::steps::StepAnalysis;

/// A step of this number that computes for so long of its time.
fn step(number: u64, duration_ns: i64, compute_ns: i64) -> StepAnalysis {
    let start = i64::try_from(number).unwrap() * 1000;
    StepAnalysis {
        name: format!("step {number}"),
        start_ns: TimeNs(start),
        end_ns: TimeNs(start + duration_ns),
        duration_ns,
        measures: Measures {
            span_ns: duration_ns,
            compute_ns,
            idle_ratio: ratio(duration_ns - compute_ns, duration_ns),
            ..Measures::default()
        },
        ..StepAnalysis::default()
    }
}

fn rank(rank: u32, steps: Vec<StepAnalysis>) -> KnownRank {
    KnownRank {
        rank: Some(rank),
        device_index: 0,
        device_name: None,
        host: format!("host{}", rank / 2),
        communicators: Vec::new(),
        steps,
    }
}

/// Ranks 0 to 2 with steps 1 to 4, of which rank 1 lacks the third; rank 2 computes longer.
fn table() -> RankSteps {
    let plain = |number| step(number, 100, 50);
    let known = vec![
        rank(
            2,
            vec![step(1, 100, 80), step(2, 100, 90), plain(3), step(4, 300, 80)],
        ),
        rank(0, vec![plain(1), plain(2), plain(3), plain(4)]),
        rank(1, vec![plain(1), step(2, 100, 60), plain(4)]),
    ];
    let others = BTreeMap::from([
        (1, RankState::Missing),
        (3, RankState::Missing),
        (4, RankState::Nothing),
    ]);
    RankSteps::of(known, &others)
}

fn cells(table: &RankSteps, measure: &str, most: usize, binned: Binned) -> RankCells {
    table.cells(measure, None, most, binned).unwrap()
}

fn ns(values: &[i64]) -> Vec<Option<CellValue>> {
    values.iter().map(|value| Some(CellValue::Ns(*value))).collect()
}

#[test]
fn rows_are_ranks_and_columns_steps() {
    let table = table();
    let rows: Vec<(Option<u32>, RankState, usize)> = table
        .rows
        .iter()
        .map(|row| (row.rank, row.state, row.steps))
        .collect();
    assert_eq!(
        rows,
        [
            (Some(0), RankState::Here, 4),
            (Some(1), RankState::Here, 3),
            (Some(2), RankState::Here, 4),
            (Some(3), RankState::Missing, 0),
            (Some(4), RankState::Nothing, 0),
        ]
    );
    // Rank 4 is here, and ran nothing.
    assert_eq!(table.here(), (4, 5));
    let numbers: Vec<u64> = table.columns.iter().map(|column| column.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert_eq!(table.span(), Some((1000, 4300)));
}

#[test]
fn what_is_not_there_has_no_value() {
    let cells = cells(&table(), "compute_ns", 100, Binned::Max);
    assert_eq!(cells.columns, [(0, 0), (1, 1), (2, 2), (3, 3)]);
    assert_eq!(cells.values[0], ns(&[50, 50, 50, 50]));
    let mut second = ns(&[50, 60, 0, 50]);
    second[2] = None;
    assert_eq!(cells.values[1], second);
    assert_eq!(cells.values[2], ns(&[80, 90, 50, 80]));
    assert!(cells.values[3].is_empty());
    // Of 50, 50, 80; of 50, 60, 90; of 50, 50 the lower; of 50, 50, 80.
    assert_eq!(cells.medians, ns(&[50, 60, 50, 50]));
    // |50-50|, |50-60|, 0, 0 over 4; 0, 0, 0 over 3; 30, 30, 0, 30 over 4.
    assert_eq!(cells.distances, [Some(2.5), Some(0.0), Some(22.5), None, None]);
    // A null in JSON, and no 0.
    let json = serde_json::to_value(&cells).unwrap();
    assert_eq!(json["values"][1], serde_json::json!([50, 60, null, 50]));
}

#[test]
fn several_steps_of_a_cell_are_their_greatest_or_their_median() {
    let table = table();
    let greatest = cells(&table, "compute_ns", 2, Binned::Max);
    assert_eq!(greatest.columns, [(0, 1), (2, 3)]);
    assert_eq!(greatest.values[1], ns(&[60, 50]));
    assert_eq!(greatest.values[2], ns(&[90, 80]));
    let median = cells(&table, "compute_ns", 2, Binned::Median);
    assert_eq!(median.values[1], ns(&[50, 50]));
    assert_eq!(median.values[2], ns(&[80, 50]));
    // How far a row stands out is of single steps.
    assert_eq!(
        greatest.distances,
        cells(&table, "compute_ns", 4, Binned::Max).distances
    );
    // Three columns have no room for four steps of one each.
    assert_eq!(
        cells(&table, "compute_ns", 3, Binned::Max).columns,
        [(0, 1), (2, 3)]
    );
    assert_eq!(cells(&table, "compute_ns", 1, Binned::Max).columns, [(0, 3)]);
}

#[test]
fn some_steps_alone() {
    let chosen = table()
        .cells("compute_ns", Some((2, 3)), 10, Binned::Max)
        .unwrap();
    assert_eq!(chosen.columns, [(1, 1), (2, 2)]);
    assert_eq!(chosen.values[2], ns(&[90, 50]));
    assert_eq!(chosen.distances[2], Some(15.0));
    assert_eq!(
        table()
            .cells("compute_ns", Some((9, 9)), 10, Binned::Max)
            .unwrap()
            .columns,
        []
    );
}

#[test]
fn measures_are_those_of_the_catalogue_and_a_few_more() {
    let table = table();
    let all = step_measures();
    for measure in gputrace_trace::measures::CATALOGUE {
        let own = all.iter().find(|own| own.name == measure.name).unwrap();
        assert_eq!((own.label, own.definition), (measure.label, measure.definition));
        assert_eq!(own.unit, measure.unit().name());
    }
    for measure in &all {
        let cells = cells(&table, measure.name, 10, Binned::Max);
        let known = cells.values[0][0].is_some();
        // What needs other ranks is not known before they were compared; without communication there is no ratio.
        assert_eq!(
            known,
            !measure.compared && measure.name != "overlap_ratio",
            "{}",
            measure.name
        );
    }
    assert_eq!(
        cells(&table, "duration_ns", 10, Binned::Max).values[2],
        ns(&[100, 100, 100, 300])
    );
    let ratio = cells(&table, "idle_ratio", 10, Binned::Max).values[2][0];
    assert_eq!(ratio, Some(CellValue::Ratio(0.2)));
    assert!(table.cells("nothing", None, 10, Binned::Max).is_none());
}

#[test]
fn numbers_that_begin_anew_are_columns_of_their_own() {
    let steps = || vec![step(0, 10, 1), step(1, 10, 2), step(0, 10, 3), step(1, 10, 4)];
    let table = RankSteps::of(vec![rank(0, steps()), rank(1, steps())], &BTreeMap::new());
    let columns: Vec<(u64, u64)> = table.columns.iter().map(|one| (one.repeat, one.number)).collect();
    assert_eq!(columns, [(0, 0), (0, 1), (1, 0), (1, 1)]);
    assert_eq!(
        cells(&table, "compute_ns", 10, Binned::Max).values[1],
        ns(&[1, 2, 3, 4])
    );
}

#[test]
fn communicators_have_rows_and_pipelines_have_stages() {
    let of = |communicator: &str, name: Option<&str>, ranks, place| InCommunicator {
        communicator: communicator.to_owned(),
        name: name.map(str::to_owned),
        ranks: Some(ranks),
        place: Some(place),
    };
    let known: Vec<KnownRank> = (0..4)
        .map(|number| {
            let mut one = rank(number, vec![step(1, 10, 1)]);
            let (pipeline, stage) = (number % 2, number / 2);
            one.communicators = vec![
                of("0xa", None, 4, number),
                of(&format!("0xb{pipeline}"), Some("mesh_pp"), 2, stage),
                // No pipeline: "pp" is no word of it.
                of(&format!("0xc{stage}"), Some("upper"), 2, pipeline),
            ];
            one
        })
        .collect();
    let table = RankSteps::of(known, &BTreeMap::new());
    let stages: Vec<Option<u32>> = table.rows.iter().map(|row| row.stage).collect();
    assert_eq!(stages, [Some(0), Some(0), Some(1), Some(1)]);
    let rows: Vec<(&str, &[u32])> = table
        .communicators
        .iter()
        .map(|one| (one.communicator.as_str(), one.rows.as_slice()))
        .collect();
    assert_eq!(
        rows,
        [
            ("0xa", &[0, 1, 2, 3][..]),
            ("0xb0", &[0, 2]),
            ("0xb1", &[1, 3]),
            ("0xc0", &[0, 1]),
            ("0xc1", &[2, 3]),
        ]
    );
}

#[test]
fn nothing_at_all() {
    let table = RankSteps::of(Vec::new(), &BTreeMap::new());
    assert_eq!((table.here(), table.span()), ((0, 0), None));
    let cells = cells(&table, "compute_ns", 10, Binned::Max);
    assert!(cells.values.is_empty() && cells.columns.is_empty());
}
