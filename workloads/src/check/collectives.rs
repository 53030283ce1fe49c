//! Collectives against their definitions: all element types and reductions, in place and not, odd counts, each root.
//!
//! Every rank knows what every rank sends, and so what itself should get.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::driver::result;

use super::operation::download;
use super::report::{Report, worst_wide_error};
use super::values::{ELEMENTS, REDUCTIONS, Reduced, decode, encode, sent};
use crate::comm::{self, Communicator, Element, Reduction};
use crate::error::Error;
use crate::gpu::{Buffer, Gpu};

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
