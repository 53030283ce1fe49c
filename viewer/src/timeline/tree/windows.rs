//! A stretch of a thread in parts that can be swept beside each other, and going through the slices of one.

use std::cmp::Reverse;
use std::ops::Range;

use crate::timeline::slices::Slices;

/// About so many slices are gone through at a time: on all cores, though they may be of one thread.
const WINDOW: usize = if cfg!(test) { 8 } else { 1 << 19 };

/// A part of the stretch that is swept on its own: what is open at its beginning are the slices that reach into it, since one
/// that lies in another ends with it or before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from: i64,
    pub(super) to: i64,
    /// What reaches into a later one was counted before.
    pub(super) is_first: bool,
}

/// The windows of one thread: all have about as many slices.
pub(super) fn windows(lanes: &[(u32, &Slices)], from: i64, to: i64) -> Vec<Window> {
    let within = |slices: &Slices| slices.within(from, to);
    let all: usize = lanes.iter().map(|(_, slices)| within(slices).len()).sum();
    let Some((_, longest)) = lanes.iter().max_by_key(|(_, slices)| within(slices).len()) else {
        return Vec::new();
    };
    let count = all.div_ceil(WINDOW).max(1);
    let places = within(longest);
    let cut = |number: usize| longest.start(places.start + places.len() * number / count);
    let mut cuts: Vec<i64> = (1..count).map(cut).filter(|cut| *cut > from).collect();
    cuts.dedup();
    cuts.push(to);
    let begins = std::iter::once(from).chain(cuts.iter().copied());
    let windows = begins.zip(&cuts).enumerate();
    windows
        .map(|(number, (from, to))| Window {
            from,
            to: *to,
            is_first: number == 0,
        })
        .collect()
}

/// Goes through some slices of a lane.
pub(super) struct Cursor<'a> {
    pub(super) row: u32,
    /// Those that come: of a recording that grows a lane is of several.
    parts: std::vec::IntoIter<(usize, &'a Slices, Range<usize>)>,
    part: &'a Slices,
    /// The place of the part's first slice in the lane.
    first: usize,
    left: Range<usize>,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(row: u32, slices: &'a Slices, places: Range<usize>) -> Self {
        Self {
            row,
            parts: slices.plain_parts(places).into_iter(),
            part: slices,
            first: 0,
            left: 0..0,
            at: 0,
        }
    }

    /// Goes to the next slice: its start, and behind that what orders those that begin together.
    #[inline]
    pub(super) fn next(&mut self) -> Option<(i64, Reverse<i64>)> {
        loop {
            if let Some(at) = self.left.next() {
                self.at = at;
                return Some((self.part.start(at), Reverse(self.part.duration(at))));
            }
            (self.first, self.part, self.left) = self.parts.next()?;
        }
    }

    pub(super) fn place(&self) -> usize {
        self.first + self.at
    }

    pub(super) fn name(&self) -> u32 {
        self.part.name(self.at)
    }
}
