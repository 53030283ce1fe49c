//! Rows of a table by correlation id: for a few ids without an index of them, since ids come nearly in order and the least and
//! greatest of every 256 rows leave few rows to look at; for all ids of another table with one that is dropped afterwards.

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

/// The first row of each id, for as many lookups as a table has rows.
#[derive(Debug)]
pub(crate) enum FirstRows {
    /// By id above the least one. As most programs leave them: CUPTI counts.
    Dense(u32, Vec<u32>),
    /// In order of the ids.
    Sparse(Vec<(u32, u32)>),
}

impl FirstRows {
    /// A dense index may have so many places for each row.
    const MOST_SPREAD: usize = 8;
    const NONE: u32 = u32::MAX;

    pub(crate) fn new(ids: &[u32]) -> Self {
        let known = || (0u32..).zip(ids).filter(|(_, id)| **id != 0);
        let (least, most) = known().fold((u32::MAX, 0), |(least, most), (_, id)| {
            (least.min(*id), most.max(*id))
        });
        let places = most.checked_sub(least).map_or(0, |spread| spread as usize + 1);
        if places / Self::MOST_SPREAD <= ids.len() {
            let mut rows = vec![Self::NONE; places];
            for (row, id) in known() {
                let place = &mut rows[(id - least) as usize];
                *place = row.min(*place);
            }
            return Self::Dense(least, rows);
        }
        let mut rows: Vec<(u32, u32)> = known().map(|(row, id)| (*id, row)).collect();
        rows.sort_unstable();
        rows.dedup_by_key(|(id, _)| *id);
        Self::Sparse(rows)
    }

    /// The first row with this id; 0 joins nothing.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<usize> {
        let row = match self {
            Self::Dense(least, rows) => *rows.get(id.checked_sub(*least)? as usize)?,
            Self::Sparse(rows) => {
                let place = rows.binary_search_by_key(&id, |(id, _)| *id).ok()?;
                rows[place].1
            }
        };
        (row != Self::NONE).then_some(row as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_row_of_each_id_is_found_near_and_far() {
        for apart in [1, 3, 40_000] {
            let ids: Vec<u32> = (0..1000).map(|row| (row % 900) * apart).collect();
            let index = FirstRows::new(&ids);
            assert_eq!(matches!(index, FirstRows::Sparse(_)), apart > 8);
            for id in 0..1000 {
                let first = ids.iter().position(|other| *other == id * apart && id > 0);
                assert_eq!(index.get(id * apart), first);
            }
            assert_eq!((index.get(0), index.get(u32::MAX)), (None, None));
        }
        for ids in [&[][..], &[0, 0], &[u32::MAX]] {
            let index = FirstRows::new(ids);
            assert_eq!((index.get(0), index.get(1)), (None, None));
            assert_eq!(index.get(u32::MAX), ids.contains(&u32::MAX).then_some(0));
        }
    }

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
