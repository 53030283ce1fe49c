//! Putting the vectors together on rank 0, from what each rank has of them.

use crate::error::Error;
use crate::model::Piece;
use crate::store::Store;

use super::exchange::Exchange;
use super::format::{CHUNK, from_bytes, to_bytes};

/// What one rank saves: pieces of the whole network's vectors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    /// Where elements of this rank's vectors are in the whole network's.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) parameters: Vec<f32>,
    /// The optimizer's vectors, each as long as the parameters.
    pub(crate) moments: Vec<Vec<f32>>,
}

/// The parameters and the optimizer's vectors.
pub(crate) type Whole = (Vec<f32>, Vec<Vec<f32>>);

/// Puts the vectors of `total` elements together on rank 0, and sees to it that each element came exactly once. All
/// ranks must call; those that have nothing to save that another doesn't have give `None`, and all but rank 0 get
/// `None`.
///
/// Beside the whole vectors rank 0 needs some MB for each rank.
pub(crate) fn collect(store: &Store, part: Option<&Part>, total: usize) -> Result<Option<Whole>, Error> {
    collect_over(store, part, total)
}

fn collect_over(store: &dyn Exchange, part: Option<&Part>, total: usize) -> Result<Option<Whole>, Error> {
    if let Some(part) = part {
        check_part(part)?;
    }
    let manifests = store.gather(&manifest(part))?;
    let plan = manifests
        .map(|manifests| Plan::new(&manifests, total))
        .transpose()?;
    // What each rank has to send, as rank 0 has found out.
    let told = store.broadcast(plan.as_ref().map(Plan::to_bytes).as_deref())?;
    let [vectors, rounds] = Plan::numbers(&told)?;
    let mut whole: Vec<Vec<f32>> = Vec::new();
    for vector in 0..vectors {
        if plan.is_some() {
            whole.push(vec![0.0; total]);
        }
        for round in 0..rounds {
            let range = round * CHUNK..(round + 1) * CHUNK;
            let mut values = Vec::new();
            if let Some(part) = part {
                let from = match vector {
                    0 => &part.parameters,
                    number => &part.moments[number - 1],
                };
                for piece in within(&part.pieces, &range) {
                    values.extend_from_slice(&from[piece.local..piece.local + piece.count]);
                }
            }
            let sent = store.gather(&to_bytes(&values))?;
            let (Some(sent), Some(plan)) = (sent, &plan) else {
                continue;
            };
            for (bytes, pieces) in sent.iter().zip(&plan.pieces) {
                let mut values = from_bytes(bytes);
                for piece in within(pieces, &range) {
                    let places = &mut whole[vector][piece.whole..piece.whole + piece.count];
                    if values.len() < places.len() {
                        return Err(Error::new("a rank sent less of a checkpoint than it has"));
                    }
                    places
                        .iter_mut()
                        .zip(&mut values)
                        .for_each(|(place, value)| *place = value);
                }
            }
        }
    }
    let mut whole = whole.into_iter();
    Ok(whole.next().map(|parameters| (parameters, whole.collect())))
}

/// The parts of pieces that lie within `range` of all their elements in a row.
fn within<'a>(pieces: &'a [Piece], range: &std::ops::Range<usize>) -> impl Iterator<Item = Piece> + use<'a> {
    let (from, to) = (range.start, range.end);
    let mut start = 0;
    pieces.iter().filter_map(move |piece| {
        let (first, end) = (start, start + piece.count);
        start = end;
        let (first, end) = (first.max(from) - first, end.min(to).max(first) - first);
        (first < end).then(|| Piece {
            whole: piece.whole + first,
            local: piece.local + first,
            count: end - first,
        })
    })
}

/// Whether the pieces are within the part's vectors.
fn check_part(part: &Part) -> Result<(), Error> {
    let elements = part.parameters.len();
    let is_within = |piece: &Piece| {
        piece
            .local
            .checked_add(piece.count)
            .is_some_and(|end| end <= elements)
    };
    if part.pieces.iter().all(is_within) && part.moments.iter().all(|moment| moment.len() == elements) {
        return Ok(());
    }
    Err(Error::new(format!(
        "the pieces of a checkpoint are not all within the {elements} elements of this rank"
    )))
}

/// What a rank has, in numbers: how many vectors, then where each piece begins and how long it is.
fn manifest(part: Option<&Part>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Some(part) = part else {
        return bytes;
    };
    let pieces = part.pieces.iter().flat_map(|piece| [piece.whole, piece.count]);
    for number in std::iter::once(1 + part.moments.len()).chain(pieces) {
        bytes.extend_from_slice(&(number as u64).to_le_bytes());
    }
    bytes
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|number| u64::from_le_bytes(*number) as usize)
}

/// What rank 0 gets from each rank.
struct Plan {
    /// Each rank's pieces.
    pieces: Vec<Vec<Piece>>,
    vectors: usize,
    /// How often the ranks send, for each vector.
    rounds: usize,
}

impl Plan {
    /// From what the ranks have. All elements must be there once.
    fn new(manifests: &[Vec<u8>], total: usize) -> Result<Self, Error> {
        let mut plan = Self {
            pieces: Vec::with_capacity(manifests.len()),
            vectors: 0,
            rounds: 0,
        };
        for manifest in manifests {
            let mut numbers = numbers(manifest);
            let vectors = numbers.next().unwrap_or(0);
            if vectors != 0 && plan.vectors != 0 && vectors != plan.vectors {
                return Err(Error::new(
                    "ranks save different numbers of vectors in one checkpoint",
                ));
            }
            plan.vectors = plan.vectors.max(vectors);
            let mut pieces = Vec::new();
            while let (Some(whole), Some(count)) = (numbers.next(), numbers.next()) {
                // Where it is on the rank is of no use here.
                let local = 0;
                pieces.push(Piece { whole, local, count });
            }
            plan.pieces.push(pieces);
        }
        check_once(&plan.pieces, total)?;
        let elements = |pieces: &Vec<Piece>| pieces.iter().map(|piece| piece.count).sum::<usize>();
        let most = plan.pieces.iter().map(elements).max().unwrap_or(0);
        plan.rounds = most.div_ceil(CHUNK);
        Ok(plan)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let numbers = [self.vectors, self.rounds];
        numbers.map(|number| (number as u64).to_le_bytes()).concat()
    }

    /// Vectors and rounds.
    fn numbers(bytes: &[u8]) -> Result<[usize; 2], Error> {
        numbers(bytes)
            .collect::<Vec<_>>()
            .try_into()
            .map_err(|_| Error::new("rank 0 says nothing of the checkpoint to collect"))
    }
}

/// Whether the ranks' pieces are all of `total` elements, each once.
fn check_once(pieces: &[Vec<Piece>], total: usize) -> Result<(), Error> {
    let mut all: Vec<(usize, usize, usize)> = pieces
        .iter()
        .enumerate()
        .flat_map(|(rank, pieces)| pieces.iter().map(move |piece| (piece.whole, piece.count, rank)))
        .filter(|&(_, count, _)| count > 0)
        .collect();
    all.sort_unstable();
    let none = |element: usize| {
        Err(Error::new(format!(
            "element {element} of the checkpoint is saved by no rank"
        )))
    };
    let (mut next, mut last) = (0, 0);
    for (whole, count, rank) in all {
        if whole > next {
            return none(next);
        }
        if whole < next {
            return Err(Error::new(format!(
                "element {whole} of the checkpoint is saved twice, by ranks {last} and {rank}"
            )));
        }
        next = whole.saturating_add(count);
        last = rank;
    }
    if next > total {
        return Err(Error::new(format!(
            "rank {last} saves element {} of a checkpoint of {total}",
            next - 1
        )));
    }
    if next < total { none(next) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
