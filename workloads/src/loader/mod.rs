//! Data loading on a thread of its own: batches are gathered into pinned memory and copied to the GPU on a copy
//! stream, two ahead of the training loop.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use cudarc::driver::sys::CUstream;
use cudarc::driver::{CudaEvent, CudaSlice, CudaStream, result};

use crate::data::{DataSet, Sampler};
use crate::error::Error;
use crate::gpu::{Gpu, address};
use crate::nvtx;

/// Batches that are in flight at once.
const SLOTS: usize = 2;

/// Pinned host memory for f32.
struct Pinned {
    values: *mut f32,
    count: usize,
}

// SAFETY: plain memory, owned by whoever owns this.
unsafe impl Send for Pinned {}

impl Pinned {
    fn new(count: usize) -> Result<Self, Error> {
        // SAFETY: the context is current on this thread; the memory is written before it is read.
        let values = unsafe { result::malloc_host(count * size_of::<f32>(), 0)? };
        Ok(Self {
            values: values.cast(),
            count,
        })
    }

    fn as_mut_slice(&mut self) -> &mut [f32] {
        // SAFETY: `count` f32 of our own; all bit patterns are f32.
        unsafe { std::slice::from_raw_parts_mut(self.values, self.count) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, freed once. At the end of a run nothing can be done about a failure.
        let _ = unsafe { result::free_host(self.values.cast()) };
    }
}

/// One batch's place on the GPU.
pub(crate) struct Slot {
    x: CudaSlice<f32>,
    y: CudaSlice<f32>,
    copied: CudaEvent,
    consumed: CudaEvent,
}

impl Slot {
    /// Device address of the features.
    pub(crate) fn x(&self) -> u64 {
        address(&self.x)
    }

    /// Device address of the targets.
    pub(crate) fn y(&self) -> u64 {
        address(&self.y)
    }
}

/// The loader's thread, and the slots that go back and forth.
pub(crate) struct Loader {
    ready: Receiver<Result<Slot, Error>>,
    free: Option<SyncSender<Slot>>,
    thread: Option<JoinHandle<()>>,
}

/// Which share of which data a loader deals out.
pub(crate) struct Share {
    pub(crate) data: DataSet,
    pub(crate) sampler: Sampler,
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    /// Samples a step for this rank.
    pub(crate) batch: usize,
}

impl Loader {
    /// Starts loading.
    pub(crate) fn start(gpu: &Gpu, share: Share) -> Result<Self, Error> {
        let (free, slots_to_fill) = sync_channel::<Slot>(SLOTS);
        let (filled, ready) = sync_channel(SLOTS);
        for _ in 0..SLOTS {
            let slot = Slot {
                x: gpu.zeros(share.batch * share.data.features)?,
                y: gpu.zeros(share.batch * share.data.targets)?,
                copied: gpu.event()?,
                consumed: gpu.event()?,
            };
            slot.consumed.record(&gpu.compute)?;
            // There is room for all slots.
            drop(free.send(slot));
        }
        let context = gpu.context.clone();
        let stream = context.new_stream()?;
        let thread = std::thread::Builder::new()
            .name("loader".to_owned())
            .spawn(move || {
                let outcome = context
                    .bind_to_thread()
                    .map_err(Error::from)
                    .and_then(|()| load(share, &stream, &slots_to_fill, &filled));
                if let Err(error) = outcome {
                    // The training loop may be gone already; then nobody asks.
                    drop(filled.send(Err(error)));
                }
            })?;
        Ok(Self {
            ready,
            free: Some(free),
            thread: Some(thread),
        })
    }

    /// The next batch; `stream` will wait for its copy.
    pub(crate) fn next(&self, stream: &CudaStream) -> Result<Slot, Error> {
        let slot = self
            .ready
            .recv()
            .map_err(|_| Error::new("the data loader ended"))??;
        stream.wait(&slot.copied)?;
        Ok(slot)
    }

    /// Gives a batch's place back once the stream's work so far is done with it.
    pub(crate) fn give_back(&self, slot: Slot, stream: &CudaStream) -> Result<(), Error> {
        slot.consumed.record(stream)?;
        if let Some(free) = &self.free {
            // A loader that has ended says why at the next batch.
            drop(free.send(slot));
        }
        Ok(())
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Without slots to fill the thread ends, once its copies are done; only then may their memory be freed.
        // It never waits to hand a slot over: there is room for all of them.
        self.free = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn load(
    mut share: Share,
    stream: &CudaStream,
    slots: &Receiver<Slot>,
    filled: &SyncSender<Result<Slot, Error>>,
) -> Result<(), Error> {
    let (features, targets) = (share.data.features, share.data.targets);
    let mut staging = (
        Pinned::new(share.batch * features)?,
        Pinned::new(share.batch * targets)?,
    );
    let raw: CUstream = stream.cu_stream();
    while let Ok(slot) = slots.recv() {
        let _range = nvtx::Range::new("load batch");
        // The staging memory is free again once the last copies are done.
        stream.synchronize()?;
        let indices = share.sampler.next(share.rank, share.ranks);
        let (x, y) = (staging.0.as_mut_slice(), staging.1.as_mut_slice());
        share.data.gather(indices, x, y);
        stream.wait(&slot.consumed)?;
        // SAFETY: the slots hold exactly these many f32, and the staging memory is pinned and lives until the
        // copies are done (synchronized above and on the way out).
        unsafe {
            result::memcpy_htod_async(slot.x(), x, raw)?;
            result::memcpy_htod_async(slot.y(), y, raw)?;
        }
        slot.copied.record(stream)?;
        if filled.send(Ok(slot)).is_err() {
            break;
        }
    }
    stream.synchronize()?;
    Ok(())
}
