//! The ranks of one puzzler: each a GPU and a communicator of all of them.

use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::{Memory, link, microseconds_between, timed_event};
use crate::comm::{self, Communicator, Element, Reduction};
use crate::error::Error;
use crate::gpu::Gpu;
use crate::nvtx::Range;
use crate::rank::Rank;
use crate::store::Store;

/// One rank with its GPU, connected to all others.
pub(super) struct World<'a> {
    pub(super) communicator: Communicator,
    pub(super) gpu: Gpu,
    store: &'a Store,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// An element for the operation whose only purpose is that ranks meet.
    meeting: Memory,
}

/// How long calls took on one rank, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) mean_us: f64,
    pub(super) best_us: f64,
}

impl<'a> World<'a> {
    /// Opens this rank's GPU and waits for all ranks.
    pub(super) fn join(rank: &Rank, store: &'a Store) -> Result<Self, Error> {
        let gpu = Gpu::open(rank.local_rank)?;
        let id = store.share_id(comm::unique_id)?;
        let communicator = Communicator::new(id, rank.rank, rank.ranks, "world")?;
        let meeting = Memory::new(&gpu.context, size_of::<f32>())?;
        Ok(Self {
            communicator,
            gpu,
            store,
            rank: rank.rank as usize,
            ranks: rank.ranks as usize,
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
        let bytes: Vec<u8> = own.iter().flat_map(|number| number.to_le_bytes()).collect();
        let all = self.store.gather(&bytes)?.map(|all| all.concat());
        let all = self.store.broadcast(all.as_deref())?;
        let numbers: Vec<f64> = all
            .as_chunks::<8>()
            .0
            .iter()
            .map(|bytes| f64::from_le_bytes(*bytes))
            .collect();
        Ok(numbers.chunks(own.len().max(1)).map(<[f64]>::to_vec).collect())
    }

    /// A line about each rank, by rank, on rank 0: where it runs, and on which GPU.
    pub(super) fn devices(&self) -> Result<Vec<String>, Error> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let line = format!(
            "Rank {:>2} Pid {:>6} on {:>10} device {:>2} [{}] {}",
            self.rank,
            std::process::id(),
            host.trim(),
            self.gpu.context.ordinal(),
            link::bus_id(&self.gpu.context)
                .and_then(|id| id.into_string().ok())
                .unwrap_or_default(),
            self.gpu.name
        );
        let all = self.store.gather(line.as_bytes())?.unwrap_or_default();
        Ok(all
            .iter()
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect())
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
