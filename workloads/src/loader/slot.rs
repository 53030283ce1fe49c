//! One batch's place: on the host, where it is put together, and on the GPU.

use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, CudaStream, result};

use crate::error::Error;
use crate::gpu::{Buffer, Gpu, Staging};

/// How long copies that are still on their way are waited for before their memory is left alone.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// When slots of one loader stop waiting for a device that hangs: a while after the first of them had to wait.
#[derive(Clone, Default)]
pub(super) struct Deadline(Arc<OnceLock<Instant>>);

impl Deadline {
    /// Whether the event comes before the deadline. A device that has failed does no work any more.
    fn comes(&self, event: &CudaEvent) -> bool {
        while let Ok(false) = event.try_is_complete() {
            if Instant::now() > *self.0.get_or_init(|| Instant::now() + PATIENCE) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

/// One side of a batch: inputs or targets.
struct Place {
    device: Buffer,
    staging: Staging,
}

impl Place {
    fn new(gpu: &Gpu, count: usize, pinned: bool) -> Result<Self, Error> {
        Ok(Self {
            device: gpu.buffer(count)?,
            staging: Staging::new(count, pinned)?,
        })
    }

    /// Starts the copy to the device.
    fn copy(&mut self, stream: &CudaStream) -> Result<(), Error> {
        let to = self.device.address();
        // SAFETY: the device has as many bytes there as are staged, and neither is freed before the slot's `copied`
        // has come.
        unsafe { result::memcpy_htod_async(to, self.staging.bytes(), stream.cu_stream())? };
        Ok(())
    }
}

/// One batch's place, and where its copies and its use are.
pub(crate) struct Slot {
    /// Left alone in the end if copies never come to theirs.
    inputs: ManuallyDrop<Option<Place>>,
    targets: ManuallyDrop<Option<Place>>,
    copied: CudaEvent,
    consumed: CudaEvent,
    /// Device memory is freed in this stream's order.
    compute: Arc<CudaStream>,
    deadline: Deadline,
}

impl Slot {
    /// A slot for so many bytes of inputs and of targets, where there are to be any.
    pub(super) fn new(
        gpu: &Gpu,
        inputs: Option<usize>,
        targets: Option<usize>,
        pinned: bool,
        deadline: &Deadline,
    ) -> Result<Self, Error> {
        gpu.bind()?;
        let place = |count: Option<usize>| count.map(|count| Place::new(gpu, count, pinned)).transpose();
        // Workers wait for copies without keeping a core busy.
        let flags = CUevent_flags::CU_EVENT_BLOCKING_SYNC;
        let slot = Self {
            inputs: ManuallyDrop::new(place(inputs)?),
            targets: ManuallyDrop::new(place(targets)?),
            copied: gpu.context.new_event(Some(flags))?,
            consumed: gpu.event()?,
            compute: Arc::clone(&gpu.compute),
            deadline: deadline.clone(),
        };
        // Its memory is there once the compute stream has come so far.
        slot.consumed.record(&gpu.compute)?;
        Ok(slot)
    }

    /// Device address of the inputs, in the order of this rank's share; 0 where the rank needs none.
    pub(crate) fn inputs(&self) -> u64 {
        self.inputs.as_ref().map_or(0, |place| place.device.address())
    }

    /// Device address of the targets; 0 where the rank needs none.
    pub(crate) fn targets(&self) -> u64 {
        self.targets.as_ref().map_or(0, |place| place.device.address())
    }

    /// Waits until the staging memory may be written again.
    pub(super) fn wait_until_copied(&self) -> Result<(), Error> {
        Ok(self.copied.synchronize()?)
    }

    /// The staging memory of both sides; empty where the rank needs none.
    pub(super) fn staging(&mut self) -> (&mut [u8], &mut [u8]) {
        fn bytes(place: &mut Option<Place>) -> &mut [u8] {
            place.as_mut().map_or(&mut [], |place| place.staging.bytes())
        }
        (bytes(&mut self.inputs), bytes(&mut self.targets))
    }

    /// Copies what is staged to the device, once what was there has been used.
    pub(super) fn copy(&mut self, stream: &CudaStream) -> Result<(), Error> {
        stream.wait(&self.consumed)?;
        let places = [&mut *self.inputs, &mut *self.targets];
        let copies = places
            .into_iter()
            .flatten()
            .try_for_each(|place| place.copy(stream));
        // Also of a copy whose successor failed the end must be known.
        self.copied.record(stream)?;
        copies
    }

    /// `stream` goes on when the batch is there.
    pub(super) fn make_wait(&self, stream: &CudaStream) -> Result<(), Error> {
        Ok(stream.wait(&self.copied)?)
    }

    /// The batch has been used when `stream` has come so far.
    pub(super) fn used_by(&self, stream: &CudaStream) -> Result<(), Error> {
        Ok(self.consumed.record(stream)?)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Failures: the device is gone, and its memory with it.
        let _ = self.copied.context().bind_to_thread();
        if self.deadline.comes(&self.copied) {
            let _ = self.compute.wait(&self.consumed);
            // SAFETY: dropped once, here, and not used behind it.
            unsafe {
                ManuallyDrop::drop(&mut self.inputs);
                ManuallyDrop::drop(&mut self.targets);
            }
        }
    }
}
