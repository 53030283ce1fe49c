//! One measure of the table, for a picture: of neighbouring steps one value, where there are more than a picture has room for.

use serde::{Deserialize, Serialize};

use super::measures::{Cell, CellValue, Wanted};
use super::table::RankSteps;

/// What is shown of several steps of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binned {
    /// The greatest value.
    #[default]
    Max,
    /// The middle one; of an even number the lower of the two.
    Median,
}

/// One measure of each rank in each step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankCells {
    /// Its name.
    pub measure: &'static str,
    /// What a cell shows of several steps: "max" or "median".
    pub binned: &'static str,
    /// Places of the first and the last step of each column.
    pub columns: Vec<(u32, u32)>,
    /// By row and column; null where nothing is known, and nothing at all of a row without a device.
    pub values: Vec<Vec<Option<CellValue>>>,
    /// By column: the median over the rows; null where no row has a value.
    pub medians: Vec<Option<CellValue>>,
    /// By row, over its single steps: the mean distance from the median of all rows in that step, in the measure's unit. Null without a
    /// value.
    pub distances: Vec<Option<f64>>,
}

/// The middle one, of an even number the lower of the two.
fn median(values: &mut [CellValue]) -> Option<CellValue> {
    if values.is_empty() {
        return None;
    }
    let middle = (values.len() - 1) / 2;
    let (_, value, _) = values.select_nth_unstable_by(middle, |a, b| a.number().total_cmp(&b.number()));
    Some(*value)
}

impl RankSteps {
    /// One measure of the steps whose numbers are within `steps` (all without), in at most `most` columns; `None` where there is no
    /// measure of that name.
    #[must_use]
    pub fn cells(
        &self,
        measure: &str,
        steps: Option<(u64, u64)>,
        most: usize,
        binned: Binned,
    ) -> Option<RankCells> {
        let wanted = Wanted::named(measure)?;
        let chosen: Vec<usize> = (0..self.columns.len())
            .filter(|place| {
                let number = self.columns[*place].number;
                steps.is_none_or(|(first, last)| (first..=last).contains(&number))
            })
            .collect();
        let every = chosen.len().div_ceil(most.max(1)).max(1);
        let groups: Vec<&[usize]> = chosen.chunks(every).collect();
        let value = |row: usize, column: usize| -> Option<CellValue> {
            let cell: &Cell = self.cells[row].get(column)?.as_ref()?;
            wanted.of(cell)
        };
        let rows = 0..self.rows.len();
        let of_group = |row: usize, group: &[usize]| {
            let mut values: Vec<CellValue> = group.iter().filter_map(|column| value(row, *column)).collect();
            match binned {
                Binned::Max => values
                    .into_iter()
                    .max_by(|a, b| a.number().total_cmp(&b.number())),
                Binned::Median => median(&mut values),
            }
        };
        let values: Vec<Vec<Option<CellValue>>> = rows
            .clone()
            .map(|row| match self.cells[row].is_empty() {
                true => Vec::new(),
                false => groups.iter().map(|group| of_group(row, group)).collect(),
            })
            .collect();
        let medians = (0..groups.len())
            .map(|column| {
                let mut all: Vec<CellValue> = values.iter().filter_map(|row| *row.get(column)?).collect();
                median(&mut all)
            })
            .collect();
        let mut sums = vec![(0.0f64, 0u32); self.rows.len()];
        for column in &chosen {
            let mut all: Vec<CellValue> = rows.clone().filter_map(|row| value(row, *column)).collect();
            let Some(middle) = median(&mut all) else {
                continue;
            };
            for row in rows.clone() {
                if let Some(value) = value(row, *column) {
                    sums[row].0 += (value.number() - middle.number()).abs();
                    sums[row].1 += 1;
                }
            }
        }
        let place = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        Some(RankCells {
            measure: wanted.about().name,
            binned: match binned {
                Binned::Max => "max",
                Binned::Median => "median",
            },
            columns: groups
                .iter()
                .map(|group| (place(group[0]), place(group[group.len() - 1])))
                .collect(),
            values,
            medians,
            distances: sums
                .into_iter()
                .map(|(sum, count)| (count > 0).then(|| sum / f64::from(count)))
                .collect(),
        })
    }
}
