//! Several GPUs of one process: opening them to each other, and copies between them.

use std::rc::Rc;

use cudarc::driver::{CudaEvent, result, sys};

use crate::error::Error;
use crate::gpu::{Gpu, enable_peer_access};

/// One of several GPUs, with the event by which the others know how far it has come.
pub(crate) struct Device {
    pub(crate) gpu: Rc<Gpu>,
    reached: CudaEvent,
}

/// Opens so many GPUs and lets them reach each other's memory where they can; where they can't, copies between them go
/// through the host's memory. `straggler`: which of them is to be slower, and how many times.
pub(crate) fn open(first: Rc<Gpu>, count: u32, straggler: Option<(u32, f64)>) -> Result<Vec<Device>, Error> {
    let available = cudarc::driver::CudaContext::device_count()?.cast_unsigned();
    if count > available {
        return Err(Error::new(format!(
            "--ranks {count}: {count} GPUs are needed, this process sees {available}"
        )));
    }
    let mut gpus = vec![first];
    for index in 1..count {
        let mut gpu = Gpu::open(index)?;
        if let Some((_, factor)) = straggler.filter(|(straggler, _)| *straggler == index) {
            gpu.slow_down(factor);
        }
        gpus.push(Rc::new(gpu));
    }
    for from in &gpus {
        for to in gpus.iter().filter(|to| !Rc::ptr_eq(from, to)) {
            open_to(from, to)?;
        }
    }
    gpus.into_iter()
        .map(|gpu| {
            gpu.bind()?;
            Ok(Device {
                reached: gpu.event()?,
                gpu,
            })
        })
        .collect()
}

/// Lets `from` reach `to`'s memory, where the hardware can.
fn open_to(from: &Gpu, to: &Gpu) -> Result<(), Error> {
    let (own, other) = (&from.context, &to.context);
    if !enable_peer_access(own, other)? {
        return Ok(());
    }
    // Memory of the stream-ordered kind has permissions of its own, beside those of contexts.
    let mut pool = std::ptr::null_mut();
    let access = sys::CUmemAccessDesc {
        location: sys::CUmemLocation {
            type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            __bindgen_anon_1: sys::CUmemLocation_st__bindgen_ty_1 { id: own.cu_device() },
        },
        flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: a device that is open; valid places for the pool and for one description.
    unsafe {
        sys::cuDeviceGetDefaultMemPool(&raw mut pool, other.cu_device()).result()?;
        sys::cuMemPoolSetAccess(pool, &raw const access, 1).result()?;
    }
    Ok(())
}

impl Device {
    /// Makes this the device that the thread talks to.
    pub(crate) fn enter(&self) -> Result<&Gpu, Error> {
        self.gpu.bind()?;
        Ok(&self.gpu)
    }

    /// This device's compute stream goes on after what the other's has been given so far.
    fn after(&self, other: &Self) -> Result<(), Error> {
        other.enter()?;
        other.reached.record(&other.gpu.compute)?;
        self.enter()?;
        Ok(self.gpu.compute.wait(&other.reached)?)
    }

    /// Copies bytes to another device, on this one's compute stream: after what both have been given so far, and the
    /// other's compute stream goes on after it.
    pub(crate) fn copy_to(&self, other: &Self, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
        if bytes == 0 {
            return Ok(());
        }
        self.after(other)?;
        // SAFETY: both addresses hold `bytes` bytes by this function's contract, each in its device's context.
        unsafe {
            result::memcpy_peer_async(
                other.gpu.context.cu_ctx(),
                to,
                self.gpu.context.cu_ctx(),
                from,
                bytes,
                self.gpu.compute.cu_stream(),
            )?;
        }
        other.after(self)
    }
}
