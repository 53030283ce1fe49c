//! Collectives against their definitions: all element types and reductions, in place and not, odd counts, each root.
//!
//! Every rank knows what every rank sends, and so what itself should get.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::result;

use super::numbers::{from_bytes, rounding_error, to_bytes};
use super::operation::download;
use super::report::{Report, worst_wide_error};
use crate::comm::{self, Communicator, Element, Reduction};
use crate::error::Error;
use crate::gpu::{Buffer, DataType, Gpu};

const ELEMENTS: [Element; 10] = [
    Element::I8,
    Element::U8,
    Element::I32,
    Element::U32,
    Element::I64,
    Element::U64,
    Element::F16,
    Element::F32,
    Element::F64,
    Element::Bf16,
];
const REDUCTIONS: [Reduction; 5] = [
    Reduction::Sum,
    Reduction::Product,
    Reduction::Max,
    Reduction::Min,
    Reduction::Average,
];
/// Elements a rank sends.
const COUNTS: [usize; 3] = [1, 7, 1025];

/// Checks all collectives of a communicator, and of two that it is split into. All ranks call it.
pub(super) fn check(gpu: &Gpu, report: &mut Report, communicator: &Communicator) -> Result<(), Error> {
    let bench = Bench::new(gpu, communicator)?;
    for element in ELEMENTS {
        for count in COUNTS {
            for reduction in REDUCTIONS {
                for in_place in [false, true] {
                    bench.all_reduce(report, (element, reduction), count, in_place)?;
                    bench.reduce_scatter(report, (element, reduction), count, in_place)?;
                    for root in 0..bench.ranks {
                        bench.reduce(report, (element, reduction), count, root, in_place)?;
                    }
                }
            }
            for in_place in [false, true] {
                bench.all_gather(report, element, count, in_place)?;
                for root in 0..bench.ranks {
                    bench.broadcast(report, element, count, root, in_place)?;
                }
            }
        }
    }
    for element in ELEMENTS {
        for count in COUNTS {
            bench.all_to_all(report, element, count)?;
            bench.ring(report, element, count)?;
            for root in 0..bench.ranks {
                bench.gather(report, element, count, root)?;
                bench.scatter(report, element, count, root)?;
            }
        }
    }
    bench.grouped(report)?;
    bench.split(report)?;
    communicator.check_health()
}

/// What rank `rank` sends at `index`: small whole numbers, so that all types have them and their sums exactly.
fn sent(element: Element, rank: usize, ranks: usize, index: usize) -> f64 {
    let choices = (100 / ranks + 1).clamp(2, 11);
    let value = (index * 7 + rank * 3 + index / 5) % choices;
    match element {
        Element::U8 | Element::U32 | Element::U64 => value as f64,
        _ => value as f64 - (choices / 2) as f64,
    }
}

/// What it sends for a product: two ranks' numbers are above 1.
fn factor(rank: usize, ranks: usize, index: usize) -> f64 {
    match (index + rank) % ranks {
        0 => 3.0,
        1 => 2.0,
        _ => 1.0,
    }
}

/// Whole numbers are divided as C does.
fn is_whole(element: Element) -> bool {
    !matches!(
        element,
        Element::F16 | Element::Bf16 | Element::F32 | Element::F64
    )
}

/// What a reduction sends and should give.
struct Reduced {
    ranks: usize,
    element: Element,
    reduction: Reduction,
}

impl Reduced {
    fn sent(&self, rank: usize, index: usize) -> f64 {
        if self.reduction == Reduction::Product {
            factor(rank, self.ranks, index)
        } else {
            sent(self.element, rank, self.ranks, index)
        }
    }

    fn result(&self, index: usize) -> f64 {
        let values = (0..self.ranks).map(|rank| self.sent(rank, index));
        match self.reduction {
            Reduction::Sum => values.sum(),
            Reduction::Product => values.product(),
            Reduction::Max => values.fold(f64::NEG_INFINITY, f64::max),
            Reduction::Min => values.fold(f64::INFINITY, f64::min),
            Reduction::Average => {
                let mean = values.sum::<f64>() / self.ranks as f64;
                if is_whole(self.element) {
                    mean.trunc()
                } else {
                    mean
                }
            }
        }
    }

    /// Averages of floats are sums of numbers that were divided and rounded before; all else is exact.
    fn limit(&self) -> f64 {
        let rounding = match self.element {
            Element::F16 => rounding_error(DataType::F16),
            Element::Bf16 => rounding_error(DataType::Bf16),
            Element::F32 => rounding_error(DataType::F32),
            Element::F64 => f64::EPSILON,
            _ => 0.0,
        };
        if self.reduction == Reduction::Average {
            2.0 * rounding * self.ranks as f64
        } else {
            0.0
        }
    }
}

/// Values as the bytes of an element type.
fn encode(element: Element, values: &[f64]) -> Vec<u8> {
    let floats = |ty| {
        let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
        to_bytes(ty, &values)
    };
    let whole = |bytes: usize| {
        values
            .iter()
            .flat_map(|&value| (value as i64).to_le_bytes().into_iter().take(bytes))
            .collect()
    };
    match element {
        Element::F16 => floats(DataType::F16),
        Element::Bf16 => floats(DataType::Bf16),
        Element::F32 => floats(DataType::F32),
        Element::F64 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        whole_type => whole(whole_type.bytes()),
    }
}

/// The values of the bytes of an element type.
fn decode(element: Element, bytes: &[u8]) -> Vec<f64> {
    let floats = |ty| from_bytes(ty, bytes).into_iter().map(f64::from).collect();
    // Sign and all other bits beyond the type's are those that C would give a 64-bit integer.
    let whole = |signed: bool| {
        bytes
            .chunks_exact(element.bytes())
            .map(|bytes| {
                let is_negative = signed && bytes.last().is_some_and(|byte| byte >> 7 == 1);
                let mut wide = [if is_negative { 0xff } else { 0 }; 8];
                wide[..bytes.len()].copy_from_slice(bytes);
                if signed {
                    i64::from_le_bytes(wide) as f64
                } else {
                    u64::from_le_bytes(wide) as f64
                }
            })
            .collect()
    };
    match element {
        Element::F16 => floats(DataType::F16),
        Element::Bf16 => floats(DataType::Bf16),
        Element::F32 => floats(DataType::F32),
        Element::F64 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&bytes| f64::from_le_bytes(bytes))
            .collect(),
        Element::I8 | Element::I32 | Element::I64 => whole(true),
        Element::U8 | Element::U32 | Element::U64 => whole(false),
    }
}

/// What untouched memory holds: a number that nobody sends.
const UNTOUCHED: u8 = 0x55;

struct Bench<'a> {
    gpu: &'a Gpu,
    communicator: &'a Communicator,
    stream: Arc<CudaStream>,
    send: Buffer,
    receive: Buffer,
    rank: u32,
    ranks: u32,
}

impl<'a> Bench<'a> {
    fn new(gpu: &'a Gpu, communicator: &'a Communicator) -> Result<Self, Error> {
        let ranks = communicator.ranks();
        let bytes = 8 * COUNTS[COUNTS.len() - 1] * ranks as usize;
        Ok(Self {
            gpu,
            communicator,
            stream: Arc::clone(&gpu.compute),
            send: gpu.buffer(bytes)?,
            receive: gpu.buffer(bytes)?,
            rank: communicator.rank(),
            ranks,
        })
    }

    /// Gives a buffer these bytes, from an offset on; all others are untouched.
    fn fill(&self, buffer: &Buffer, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let mut all = vec![UNTOUCHED; buffer.bytes()];
        all[offset..offset + bytes.len()].copy_from_slice(bytes);
        // SAFETY: the buffer has room for its bytes; memory that is not pinned is read before the call returns.
        unsafe { result::memcpy_htod_async(buffer.address(), &all, self.stream.cu_stream())? };
        Ok(())
    }

    /// Holds `want` against what is in a buffer from an element on. Beyond it the buffer must be untouched, unless it
    /// is the one that was sent from.
    fn compare(
        &self,
        report: &mut Report,
        name: &str,
        element: Element,
        (buffer, from): (&Buffer, usize),
        want: &[f64],
        limit: f64,
    ) -> Result<(), Error> {
        let bytes = download(self.gpu, buffer)?;
        let (start, end) = (from * element.bytes(), (from + want.len()) * element.bytes());
        let mut worst = worst_wide_error(&decode(element, &bytes[start..end]), want);
        let is_received = buffer.address() == self.receive.address();
        if is_received && from == 0 && bytes[end..].iter().any(|&byte| byte != UNTOUCHED) {
            worst = f64::INFINITY;
        }
        // One line for all types, but for those that may round, and those that are wrong.
        if worst == 0.0 && limit == 0.0 {
            report.add(name, worst, limit);
        } else {
            report.add(&format!("{name} {element:?}"), worst, limit);
        }
        Ok(())
    }

    fn own(&self) -> usize {
        self.rank as usize
    }

    /// This rank's elements of a plain transfer: those that it sends to nobody in particular.
    fn sends(&self, element: Element, rank: usize, range: std::ops::Range<usize>) -> Vec<f64> {
        range
            .map(|index| sent(element, rank, self.ranks as usize, index))
            .collect()
    }

    fn all_reduce(
        &self,
        report: &mut Report,
        kind: (Element, Reduction),
        count: usize,
        in_place: bool,
    ) -> Result<(), Error> {
        let (reduced, element) = (self.reduced(kind), kind.0);
        let values: Vec<f64> = (0..count).map(|index| reduced.sent(self.own(), index)).collect();
        self.fill(&self.send, 0, &encode(element, &values))?;
        self.fill(&self.receive, 0, &[])?;
        let result = if in_place { &self.send } else { &self.receive };
        self.communicator
            .all_reduce([self.send.address(), result.address()], count, kind, &self.stream)?;
        let want: Vec<f64> = (0..count).map(|index| reduced.result(index)).collect();
        let name = format!("all_reduce {}{}", word(kind.1), place(in_place));
        self.compare(report, &name, element, (result, 0), &want, reduced.limit())
    }

    fn reduced(&self, (element, reduction): (Element, Reduction)) -> Reduced {
        Reduced {
            ranks: self.ranks as usize,
            element,
            reduction,
        }
    }

    fn reduce(
        &self,
        report: &mut Report,
        kind: (Element, Reduction),
        count: usize,
        root: u32,
        in_place: bool,
    ) -> Result<(), Error> {
        let (reduced, element) = (self.reduced(kind), kind.0);
        let values: Vec<f64> = (0..count).map(|index| reduced.sent(self.own(), index)).collect();
        self.fill(&self.send, 0, &encode(element, &values))?;
        self.fill(&self.receive, 0, &[])?;
        let result = if in_place { &self.send } else { &self.receive };
        let addresses = [self.send.address(), result.address()];
        self.communicator
            .reduce(addresses, count, kind, root, &self.stream)?;
        let name = format!("reduce {}{}", word(kind.1), place(in_place));
        if self.rank == root {
            let want: Vec<f64> = (0..count).map(|index| reduced.result(index)).collect();
            self.compare(report, &name, element, (result, 0), &want, reduced.limit())
        } else {
            Ok(())
        }
    }

    fn reduce_scatter(
        &self,
        report: &mut Report,
        kind: (Element, Reduction),
        count: usize,
        in_place: bool,
    ) -> Result<(), Error> {
        let (reduced, element) = (self.reduced(kind), kind.0);
        let total = count * self.ranks as usize;
        let values: Vec<f64> = (0..total).map(|index| reduced.sent(self.own(), index)).collect();
        self.fill(&self.send, 0, &encode(element, &values))?;
        self.fill(&self.receive, 0, &[])?;
        let first = self.own() * count;
        let (buffer, from) = if in_place {
            (&self.send, first)
        } else {
            (&self.receive, 0)
        };
        let result = buffer.address() + (from * element.bytes()) as u64;
        self.communicator
            .reduce_scatter([self.send.address(), result], count, kind, &self.stream)?;
        let want: Vec<f64> = (first..first + count)
            .map(|index| reduced.result(index))
            .collect();
        let name = format!("reduce_scatter {}{}", word(kind.1), place(in_place));
        self.compare(report, &name, element, (buffer, from), &want, reduced.limit())
    }

    fn broadcast(
        &self,
        report: &mut Report,
        element: Element,
        count: usize,
        root: u32,
        in_place: bool,
    ) -> Result<(), Error> {
        let own = self.sends(element, self.own(), 0..count);
        self.fill(&self.send, 0, &encode(element, &own))?;
        self.fill(&self.receive, 0, &[])?;
        let result = if in_place { &self.send } else { &self.receive };
        let addresses = [self.send.address(), result.address()];
        self.communicator
            .broadcast(addresses, count, element, root, &self.stream)?;
        let want = self.sends(element, root as usize, 0..count);
        let name = format!("broadcast{}", place(in_place));
        self.compare(report, &name, element, (result, 0), &want, 0.0)
    }

    fn all_gather(
        &self,
        report: &mut Report,
        element: Element,
        count: usize,
        in_place: bool,
    ) -> Result<(), Error> {
        let own = encode(element, &self.sends(element, self.own(), 0..count));
        self.fill(&self.send, 0, &own)?;
        let mut source = self.send.address();
        if in_place {
            let offset = self.own() * count * element.bytes();
            self.fill(&self.receive, offset, &own)?;
            source = self.receive.address() + offset as u64;
        } else {
            self.fill(&self.receive, 0, &[])?;
        }
        self.communicator
            .all_gather([source, self.receive.address()], count, element, &self.stream)?;
        let name = format!("all_gather{}", place(in_place));
        let want = self.of_all(element, 0..count);
        self.compare(report, &name, element, (&self.receive, 0), &want, 0.0)
    }

    /// The same elements of all ranks, one rank's behind the other's.
    fn of_all(&self, element: Element, range: std::ops::Range<usize>) -> Vec<f64> {
        (0..self.ranks as usize)
            .flat_map(|rank| self.sends(element, rank, range.clone()))
            .collect()
    }

    fn all_to_all(&self, report: &mut Report, element: Element, count: usize) -> Result<(), Error> {
        let own = self.sends(element, self.own(), 0..count * self.ranks as usize);
        self.fill(&self.send, 0, &encode(element, &own))?;
        self.fill(&self.receive, 0, &[])?;
        let addresses = [self.send.address(), self.receive.address()];
        self.communicator
            .all_to_all(addresses, count, element, &self.stream)?;
        let first = self.own() * count;
        let want = self.of_all(element, first..first + count);
        self.compare(report, "all_to_all", element, (&self.receive, 0), &want, 0.0)
    }

    fn gather(&self, report: &mut Report, element: Element, count: usize, root: u32) -> Result<(), Error> {
        let own = self.sends(element, self.own(), 0..count);
        self.fill(&self.send, 0, &encode(element, &own))?;
        self.fill(&self.receive, 0, &[])?;
        let addresses = [self.send.address(), self.receive.address()];
        self.communicator
            .gather(addresses, count, element, root, &self.stream)?;
        let want = if self.rank == root {
            self.of_all(element, 0..count)
        } else {
            Vec::new()
        };
        self.compare(report, "gather", element, (&self.receive, 0), &want, 0.0)
    }

    fn scatter(&self, report: &mut Report, element: Element, count: usize, root: u32) -> Result<(), Error> {
        let total = count * self.ranks as usize;
        let own = self.sends(element, self.own(), 0..total);
        self.fill(&self.send, 0, &encode(element, &own))?;
        self.fill(&self.receive, 0, &[])?;
        let addresses = [self.send.address(), self.receive.address()];
        self.communicator
            .scatter(addresses, count, element, root, &self.stream)?;
        let first = self.own() * count;
        let want = self.sends(element, root as usize, first..first + count);
        self.compare(report, "scatter", element, (&self.receive, 0), &want, 0.0)
    }

    /// Each rank sends to the next and receives from the one before, at once.
    fn ring(&self, report: &mut Report, element: Element, count: usize) -> Result<(), Error> {
        let own = self.sends(element, self.own(), 0..count);
        self.fill(&self.send, 0, &encode(element, &own))?;
        self.fill(&self.receive, 0, &[])?;
        let (next, before) = (
            (self.rank + 1) % self.ranks,
            (self.rank + self.ranks - 1) % self.ranks,
        );
        comm::group(|| {
            self.communicator
                .send(self.send.address(), count, element, next, &self.stream)?;
            self.communicator
                .receive(self.receive.address(), count, element, before, &self.stream)
        })?;
        let want = self.sends(element, before as usize, 0..count);
        self.compare(
            report,
            "send and receive",
            element,
            (&self.receive, 0),
            &want,
            0.0,
        )
    }

    /// Several operations of one group, on parts of the same buffers.
    fn grouped(&self, report: &mut Report) -> Result<(), Error> {
        const COUNT: usize = 100;
        let kind = (Element::F32, Reduction::Sum);
        let reduced = self.reduced(kind);
        let values: Vec<f64> = (0..3 * COUNT)
            .map(|index| reduced.sent(self.own(), index))
            .collect();
        self.fill(&self.send, 0, &encode(kind.0, &values))?;
        self.fill(&self.receive, 0, &[])?;
        comm::group(|| {
            for part in 0..3 {
                let offset = (part * COUNT * 4) as u64;
                let addresses = [self.send.address() + offset, self.receive.address() + offset];
                self.communicator
                    .all_reduce(addresses, COUNT, kind, &self.stream)?;
            }
            Ok(())
        })?;
        let want: Vec<f64> = (0..3 * COUNT).map(|index| reduced.result(index)).collect();
        self.compare(
            report,
            "three all_reduces in a group",
            kind.0,
            (&self.receive, 0),
            &want,
            0.0,
        )
    }

    /// Ranks of even numbers and of odd ones, the last rank first: each half gathers and sums by itself.
    fn split(&self, report: &mut Report) -> Result<(), Error> {
        const COUNT: usize = 33;
        let color = self.rank % 2;
        let members: Vec<u32> = (0..self.ranks).filter(|rank| rank % 2 == color).rev().collect();
        let position = members.iter().position(|&rank| rank == self.rank).unwrap_or(0);
        let half = self.communicator.split(
            color,
            self.ranks - self.rank,
            (position as u32, members.len() as u32),
            "half",
        )?;
        let element = Element::I32;
        let own = self.sends(element, self.own(), 0..COUNT);
        self.fill(&self.send, 0, &encode(element, &own))?;
        self.fill(&self.receive, 0, &[])?;
        let addresses = [self.send.address(), self.receive.address()];
        half.all_gather(addresses, COUNT, element, &self.stream)?;
        let want: Vec<f64> = members
            .iter()
            .flat_map(|&rank| self.sends(element, rank as usize, 0..COUNT))
            .collect();
        self.compare(
            report,
            "all_gather of a split",
            element,
            (&self.receive, 0),
            &want,
            0.0,
        )?;
        self.fill(&self.receive, 0, &[])?;
        half.all_reduce(addresses, COUNT, (element, Reduction::Sum), &self.stream)?;
        let want: Vec<f64> = (0..COUNT)
            .map(|index| want.iter().skip(index).step_by(COUNT).sum())
            .collect();
        self.compare(
            report,
            "all_reduce of a split",
            element,
            (&self.receive, 0),
            &want,
            0.0,
        )?;
        half.check_health()
    }
}

fn word(reduction: Reduction) -> &'static str {
    match reduction {
        Reduction::Sum => "sum",
        Reduction::Product => "product",
        Reduction::Max => "max",
        Reduction::Min => "min",
        Reduction::Average => "average",
    }
}

fn place(in_place: bool) -> &'static str {
    if in_place { " in place" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_keeps_what_is_sent_and_summed() {
        for element in ELEMENTS {
            for ranks in [1usize, 2, 3, 8, 64] {
                let reduced = |reduction| Reduced {
                    ranks,
                    element,
                    reduction,
                };
                for index in 0..200 {
                    let mut values: Vec<f64> =
                        (0..ranks).map(|rank| sent(element, rank, ranks, index)).collect();
                    for reduction in REDUCTIONS {
                        let result = reduced(reduction).result(index);
                        if reduction != Reduction::Average || is_whole(element) {
                            values.push(result);
                        }
                    }
                    assert_eq!(
                        decode(element, &encode(element, &values)),
                        values,
                        "{element:?} {ranks}"
                    );
                }
            }
        }
    }

    #[test]
    fn reductions_tell_ranks_and_each_other_apart() {
        let of = |reduction| {
            let reduced = Reduced {
                ranks: 3,
                element: Element::I32,
                reduction,
            };
            (0..50).map(|index| reduced.result(index)).collect::<Vec<_>>()
        };
        let results = REDUCTIONS.map(of);
        for (index, result) in results.iter().enumerate() {
            for other in &results[index + 1..] {
                assert_ne!(result, other);
            }
        }
        for rank in 1..3 {
            assert!(
                (0..50).any(|index| sent(Element::I32, rank, 3, index) != sent(Element::I32, 0, 3, index))
            );
        }
    }

    #[test]
    fn averages_of_whole_numbers_are_cut_towards_zero() {
        let reduced = Reduced {
            ranks: 2,
            element: Element::I32,
            reduction: Reduction::Average,
        };
        let results: Vec<f64> = (0..50).map(|index| reduced.result(index)).collect();
        assert!(results.iter().all(|result| result.fract() == 0.0));
        let sums = (0..50).map(|index| reduced.sent(0, index) + reduced.sent(1, index));
        assert!(
            sums.zip(&results)
                .any(|(sum, result)| sum < 0.0 && sum != 2.0 * result)
        );
    }
}
