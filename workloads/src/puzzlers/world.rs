//! The ranks of one puzzler: each a GPU and a communicator of all of them.

use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::{Memory, microseconds_between, timed_event};
use crate::comm::{self, Communicator, Element, Reduction};
use crate::error::Error;
use crate::gpu::Gpu;
use crate::launch::Rank;
use crate::nvtx::Range;
use crate::store;

/// One rank with its GPU, connected to all others.
pub(super) struct World {
    pub(super) gpu: Gpu,
    pub(super) communicator: Communicator,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// One element for every rank: for operations whose only purpose is that ranks meet, and for their numbers.
    meeting: Memory,
}

/// How long calls took on one rank, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) mean_us: f64,
    pub(super) best_us: f64,
}

/// How many numbers ranks tell each other at most at a time.
const NUMBERS: usize = 16;

impl World {
    /// Opens this rank's GPU and waits for all ranks.
    pub(super) fn join(rank: &Rank) -> Result<Self, Error> {
        let gpu = Gpu::open(rank.local_rank)?;
        let id = store::share_id(rank.rank, rank.ranks, (&rank.host, rank.port), comm::unique_id)?;
        let communicator = Communicator::new(id, rank.rank, rank.ranks, "world")?;
        let ranks = rank.ranks as usize;
        let meeting = Memory::new(&gpu.context, ranks * NUMBERS * size_of::<f64>())?;
        Ok(Self {
            gpu,
            communicator,
            rank: rank.rank as usize,
            ranks,
            meeting,
        })
    }

    /// The stream's next work begins at about the same time on all ranks: a small all-reduce ends together.
    pub(super) fn meet(&self, stream: &CudaStream) -> Result<(), Error> {
        let _range = Range::new("meet");
        let kind = (Element::F32, Reduction::Sum);
        self.communicator
            .all_reduce([self.meeting.address; 2], 1, kind, stream)
    }

    /// Waits for the stream, and says so if a peer was lost meanwhile.
    pub(super) fn wait(&self, stream: &CudaStream) -> Result<(), Error> {
        stream.synchronize()?;
        self.communicator.check_health()
    }

    /// Microseconds that the stream takes for each of so many calls of `work`, from when all ranks are ready; waits
    /// for them.
    pub(super) fn times(
        &self,
        stream: &Arc<CudaStream>,
        calls: u32,
        work: impl Fn() -> Result<(), Error>,
    ) -> Result<Times, Error> {
        let events = (0..=calls)
            .map(|_| timed_event(&self.gpu.context))
            .collect::<Result<Vec<_>, _>>()?;
        self.meet(stream)?;
        events[0].record(stream)?;
        for event in &events[1..] {
            work()?;
            event.record(stream)?;
        }
        self.wait(stream)?;
        let mut times = Times {
            mean_us: microseconds_between(&events[0], &events[calls as usize])? / f64::from(calls),
            best_us: f64::INFINITY,
        };
        for pair in events.windows(2) {
            times.best_us = times.best_us.min(microseconds_between(&pair[0], &pair[1])?);
        }
        Ok(times)
    }

    /// All ranks' numbers, by rank: every rank must give as many.
    pub(super) fn all_numbers(&self, own: &[f64]) -> Result<Vec<Vec<f64>>, Error> {
        assert!(own.len() <= NUMBERS, "more numbers than there is room for");
        let _range = Range::new("tell results");
        let bytes: Vec<u8> = own.iter().flat_map(|number| number.to_le_bytes()).collect();
        let offset = self.rank * bytes.len();
        self.meeting.write(offset, &bytes)?;
        let stream = &self.gpu.compute;
        let addresses = [self.meeting.address + offset as u64, self.meeting.address];
        self.communicator
            .all_gather(addresses, own.len(), Element::F64, stream)?;
        self.wait(stream)?;
        let all = self.meeting.read(0, self.ranks * bytes.len())?;
        let numbers: Vec<f64> = all
            .as_chunks::<8>()
            .0
            .iter()
            .map(|bytes| f64::from_le_bytes(*bytes))
            .collect();
        Ok(numbers.chunks(own.len()).map(<[f64]>::to_vec).collect())
    }

    /// Means and sums over all ranks of each number.
    pub(super) fn means_and_sums(&self, own: &[f64]) -> Result<Vec<(f64, f64)>, Error> {
        let all = self.all_numbers(own)?;
        Ok((0..own.len())
            .map(|index| {
                let sum: f64 = all.iter().map(|numbers| numbers[index]).sum();
                (sum / self.ranks as f64, sum)
            })
            .collect())
    }
}
