//! Slices by their names.

use gputrace_analyzer::{Launcher, OperationRow};
use gputrace_trace::parallel;
use regex::Regex;
use rustc_hash::{FxHashMap, FxHashSet};

use super::answers::{Found, What};
use super::slices::Slices;
use super::source::{Table, source};
use super::{Timeline, kinds, names};

/// Parts of the time from begin to end in which hits are counted.
const TICKS: usize = 512;
/// Class and bit of a name's number are looked up in a table of bits for each class. Sources, a table and a row, are such numbers too.
const CLASS_BITS: u32 = 28;

/// Numbers of names or sources, quick to ask for.
#[derive(Default)]
struct Numbers {
    by_class: [Vec<u64>; 16],
}

impl Numbers {
    fn insert(&mut self, number: u32) {
        let member = (number & ((1 << CLASS_BITS) - 1)) as usize;
        let bits = &mut self.by_class[(number >> CLASS_BITS) as usize];
        if bits.len() <= member / 64 {
            bits.resize(member / 64 + 1, 0);
        }
        bits[member / 64] |= 1 << (member % 64);
    }

    #[inline]
    fn contains(&self, number: u32) -> bool {
        let member = (number & ((1 << CLASS_BITS) - 1)) as usize;
        let bits = &self.by_class[(number >> CLASS_BITS) as usize];
        bits.get(member / 64)
            .is_some_and(|word| word >> (member % 64) & 1 == 1)
    }
}

/// Where to look: all rows and times unless said.
#[derive(Clone, Debug, Default)]
pub struct Where {
    /// These rows alone, in rising order. Ranges projected onto a GPU count only where their row is named.
    pub rows: Option<Vec<u32>>,
    /// Slices that start in `[from, to)`, ns since the recording's origin.
    pub starts: Option<(i64, i64)>,
}

/// The hits of one row.
struct Hits {
    total: u64,
    /// Start, row and place of the first ones.
    first: Vec<(i64, u32, u32)>,
    ticks: Vec<u32>,
}

impl Timeline {
    /// Which names are on each row, each once.
    pub(super) fn names_on_rows(&self) -> &[Vec<u32>] {
        self.names_on_rows.get_or_init(|| {
            parallel::map(self.rows.data.len(), |row| {
                let mut seen: FxHashSet<u32> = FxHashSet::default();
                let mut last = None;
                let slices = u32::try_from(row).ok().and_then(|row| self.rows.slices(row));
                for name in slices.into_iter().flat_map(|slices| slices.names()) {
                    if last != Some(*name) {
                        seen.insert(*name);
                        last = Some(*name);
                    }
                }
                seen.into_iter().collect()
            })
        })
    }

    /// Whether a row has ranges that are on their threads' rows too.
    fn is_projected(&self, row: u32) -> bool {
        let row = self.rows.rows.get(row as usize);
        row.is_some_and(|row| row.what == What::Nvtx && row.device.is_some())
    }

    /// Slices whose whole name matches, each once, by start, without the first `offset`.
    #[must_use]
    pub fn search(&self, pattern: &Regex, limit: usize, offset: usize) -> Found {
        self.search_where(pattern, &Where::default(), limit, offset)
    }

    /// The same on some rows and of some time alone.
    #[must_use]
    pub fn search_where(&self, pattern: &Regex, place: &Where, limit: usize, offset: usize) -> Found {
        let on_rows = self.names_on_rows();
        let mut distinct: Vec<u32> = on_rows.iter().flatten().copied().collect();
        distinct.sort_unstable();
        distinct.dedup();
        let texts = self.texts();
        // Only kernels' have to be made of what the compiler wrote.
        let kernels = self.kernel_names.get_or_init(|| {
            let is_kernel =
                |number: &&u32| matches!(names::kind(**number), kinds::COMPUTE | kinds::COMMUNICATION);
            let all: Vec<u32> = distinct.iter().filter(is_kernel).copied().collect();
            let full = parallel::map(all.len(), |place| names::full(all[place], texts));
            let full = full
                .into_iter()
                .map(|text| text.unwrap_or_default().into_boxed_str());
            all.into_iter().zip(full).collect()
        });
        const EACH: usize = 1024;
        let chunks: Vec<&[u32]> = distinct.chunks(EACH).collect();
        let matches = |number: &u32| match kernels.get(number) {
            Some(text) => pattern.is_match(text),
            None => names::full(*number, texts).is_some_and(|text| pattern.is_match(&text)),
        };
        let matching: Vec<u32> = parallel::map(chunks.len(), |chunk| {
            let of_chunk = chunks[chunk].iter().copied();
            of_chunk.filter(matches).collect::<Vec<u32>>()
        })
        .concat();
        let mut wanted = Numbers::default();
        for number in &matching {
            wanted.insert(*number);
        }
        let rows: Vec<(u32, &Slices)> = (0u32..)
            .zip(on_rows)
            .filter(|(row, names)| {
                self.is_meant(*row, place) && names.iter().any(|name| wanted.contains(*name))
            })
            .filter_map(|(row, _)| Some((row, &**self.rows.slices(row)?)))
            .collect();
        let starts = self.starts(place);
        let hits = parallel::map(rows.len(), |index| {
            let is_hit = |_, name| wanted.contains(name);
            self.hits_on(rows[index], is_hit, starts, offset.saturating_add(limit))
        });
        self.found(matching.len(), hits, limit, offset)
    }

    /// Operations on GPUs that were launched within a module or Python function whose whole name matches, by start, without the first
    /// `offset`. Nothing before the analysis is there.
    #[must_use]
    pub fn search_launched(
        &self,
        launcher: Launcher,
        pattern: &Regex,
        place: &Where,
        limit: usize,
        offset: usize,
    ) -> Found {
        // By process and device.
        let mut wanted: FxHashMap<(u32, u32), Numbers> = FxHashMap::default();
        let mut names: FxHashSet<&str> = FxHashSet::default();
        let launched = self.known.iter().flat_map(|known| known.launched.iter());
        for device in launched {
            names.extend(device.names(launcher).filter(|name| pattern.is_match(name)));
            let of_device = wanted.entry((device.process, device.device_index)).or_default();
            for row in device.within(launcher, |name| pattern.is_match(name)) {
                of_device.insert(match row {
                    OperationRow::Kernel(row) => source(Table::Kernel, row),
                    OperationRow::Copy(row) => source(Table::Copy, row),
                    OperationRow::Memset(row) => source(Table::Memset, row),
                    OperationRow::GraphLaunch(row) => source(Table::GraphLaunch, row),
                });
            }
        }
        let rows: Vec<(u32, &Slices, &Numbers)> = (0u32..)
            .zip(&self.rows.rows)
            .filter(|(row, about)| about.what == What::Stream && self.is_meant(*row, place))
            .filter_map(|(row, about)| {
                let wanted = wanted.get(&(about.process?, about.device?))?;
                Some((row, &**self.rows.slices(row)?, wanted))
            })
            .collect();
        let starts = self.starts(place);
        let hits = parallel::map(rows.len(), |index| {
            let (row, slices, wanted) = rows[index];
            let is_hit = |place: u32, _| wanted.contains(slices.source(place as usize));
            self.hits_on((row, slices), is_hit, starts, offset.saturating_add(limit))
        });
        self.found(names.len(), hits, limit, offset)
    }

    fn is_meant(&self, row: u32, place: &Where) -> bool {
        match &place.rows {
            Some(rows) => rows.binary_search(&row).is_ok(),
            None => !self.is_projected(row),
        }
    }

    fn starts(&self, place: &Where) -> Option<(i64, i64)> {
        let starts = place.starts;
        starts.map(|(from, to)| (self.absolute(from), self.absolute(to)))
    }

    /// The hits of all rows together.
    fn found(&self, names: usize, hits: Vec<Hits>, limit: usize, offset: usize) -> Found {
        let mut found = Found {
            names,
            ticks: vec![0; TICKS],
            ..Found::default()
        };
        let mut first: Vec<(i64, u32, u32)> = Vec::new();
        for hits in hits {
            found.total += hits.total;
            for (all, tick) in found.ticks.iter_mut().zip(hits.ticks) {
                *all = all.saturating_add(tick);
            }
            first.extend(hits.first);
        }
        first.sort_unstable();
        found.hits = first
            .into_iter()
            .skip(offset)
            .take(limit)
            .filter_map(|(_, row, place)| {
                let slices = self.rows.slices(row)?;
                Some(self.reference(row, slices, place as usize))
            })
            .collect();
        found.truncated = found.total > (offset as u64).saturating_add(found.hits.len() as u64);
        found
    }

    /// `is_hit` is asked with a slice's place and its name.
    fn hits_on(
        &self,
        (row, slices): (u32, &Slices),
        is_hit: impl Fn(u32, u32) -> bool,
        starts: Option<(i64, i64)>,
        most: usize,
    ) -> Hits {
        let (begin, end) = (self.base.begin, self.base.end);
        let width = i128::from((end - begin).max(1));
        let mut hits = Hits {
            total: 0,
            first: Vec::new(),
            ticks: vec![0; TICKS],
        };
        // Hits come by start: a tick lasts until its end.
        let (mut tick, mut tick_end) = (0, i64::MIN);
        let places = match starts {
            Some((from, to)) => {
                let first = slices.first_from(from);
                first..slices.next_from(first, to)
            }
            None => 0..slices.len(),
        };
        // Where a column's blocks are known, those before the first place are not gone through.
        let names = slices.names().skip(places.start).take(places.len());
        for (place, name) in (places.start as u32..).zip(names) {
            if !is_hit(place, *name) {
                continue;
            }
            let start = slices.start(place as usize);
            hits.total += 1;
            if hits.first.len() < most {
                hits.first.push((start, row, place));
            }
            if start >= tick_end {
                let at = i128::from(start - begin).max(0) * TICKS as i128 / width;
                tick = usize::try_from(at).unwrap_or(0).min(TICKS - 1);
                let next = (width * (tick as i128 + 1)).div_euclid(TICKS as i128);
                tick_end = begin + i64::try_from(next).unwrap_or(i64::MAX - begin.max(0));
            }
            hits.ticks[tick] += 1;
        }
        hits
    }
}
