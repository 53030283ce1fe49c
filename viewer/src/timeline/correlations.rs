//! Rows of a table by correlation id, without an index of them: ids come nearly in order, so the least and greatest of every
//! 256 rows leave few rows to look at.

use super::store::Words;

const BLOCK: usize = 256;
/// How far from the last one found the next one is looked for first.
const NEAR: usize = 64;

/// The range of ids in each block of a column.
#[derive(Clone, Debug, Default)]
pub(crate) struct Correlations {
    zones: Vec<(u32, u32)>,
}

impl Correlations {
    pub(crate) fn new(column: Words<'_>) -> Self {
        let zone = |block: usize| {
            let rows = block * BLOCK..((block + 1) * BLOCK).min(column.len());
            rows.map(|row| column.get(row))
                .fold((u32::MAX, 0), |(min, max), id| (min.min(id), max.max(id)))
        };
        Self {
            zones: (0..column.len().div_ceil(BLOCK)).map(zone).collect(),
        }
    }

    /// A row with this id, looked for first around `near`, where the last one was; 0 joins nothing.
    pub(crate) fn find(&self, column: Words<'_>, id: u32, near: &mut usize) -> Option<usize> {
        if id == 0 {
            return None;
        }
        let from = near.saturating_sub(NEAR).min(column.len());
        let to = (*near + NEAR).min(column.len());
        let found = match (from..to).find(|row| column.get(*row) == id) {
            Some(row) => row,
            None => self.rows(column, id).next()?,
        };
        *near = found;
        Some(found)
    }

    /// All rows with this id, in their order.
    pub(crate) fn rows<'a>(&'a self, column: Words<'a>, id: u32) -> impl Iterator<Item = usize> + 'a {
        let zones = self.zones.iter().enumerate();
        let blocks = zones.filter(move |(_, (min, max))| id != 0 && *min <= id && id <= *max);
        blocks.flat_map(move |(block, _)| {
            let from = block * BLOCK;
            let to = (from + BLOCK).min(column.len());
            (from..to).filter(move |row| column.get(*row) == id)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_wherever_they_are() {
        let mut column: Vec<u32> = (1..=2000).collect();
        column[1500] = 7;
        column[3] = 0;
        let column = Words::Plain(&column);
        let correlations = Correlations::new(column);
        assert_eq!(correlations.rows(column, 7).collect::<Vec<_>>(), [6, 1500]);
        assert_eq!(
            correlations.rows(column, 1501).collect::<Vec<_>>(),
            Vec::<usize>::new()
        );
        assert_eq!(correlations.rows(column, 0).count(), 0);
        let mut near = 0;
        assert_eq!(correlations.find(column, 1000, &mut near), Some(999));
        assert_eq!(near, 999);
        assert_eq!(correlations.find(column, 1003, &mut near), Some(1002));
        assert_eq!(correlations.find(column, 2, &mut near), Some(1));
        assert_eq!(correlations.find(column, 0, &mut near), None);
        assert_eq!(correlations.find(column, 9999, &mut near), None);
        assert_eq!(
            Correlations::default().find(Words::Plain(&[]), 1, &mut near),
            None
        );
    }
}
