//! Copies between host and device, through page-locked memory, and within the device.

use cudarc::driver::{CudaStream, result};

use super::{Buffer, Gpu, Staging};
use crate::error::Error;

/// Bytes of a copy through page-locked memory: what is larger goes in parts.
const CHUNK_BYTES: usize = 16 << 20;
/// Bytes of a page of host memory.
const PAGE_BYTES: usize = 4096;

impl Gpu {
    /// Copies f32 to device memory that holds at least as many.
    pub(crate) fn upload(&self, to: &Buffer, values: &[f32]) -> Result<(), Error> {
        if size_of_val(values) > to.bytes() {
            return Err(Error::new("an upload is longer than its buffer"));
        }
        let mut staging = Staging::new(size_of_val(values).min(CHUNK_BYTES), true)?;
        let mut to = to.address();
        for values in values.chunks(CHUNK_BYTES / size_of::<f32>()) {
            let place = &mut staging.bytes()[..size_of_val(values)];
            for (place, value) in place.chunks_exact_mut(size_of::<f32>()).zip(values) {
                place.copy_from_slice(&value.to_ne_bytes());
            }
            // SAFETY: the buffer was found long enough; the staging memory is left alone until the copy is done.
            unsafe { result::memcpy_htod_async(to, place, self.compute.cu_stream())? };
            to += place.len() as u64;
            self.compute.synchronize()?;
        }
        Ok(())
    }

    /// Copies `count` f32 from a device address; waits for the compute stream.
    pub(crate) fn download(&self, from: u64, count: usize) -> Result<Vec<f32>, Error> {
        let mut values = Vec::with_capacity(count);
        let mut left = count * size_of::<f32>();
        // A few numbers are not worth locking pages for.
        let mut staging = Staging::new(left.min(CHUNK_BYTES), left > PAGE_BYTES)?;
        let mut from = from;
        while left > 0 {
            let bytes = left.min(CHUNK_BYTES);
            let place = &mut staging.bytes()[..bytes];
            // SAFETY: the address holds `count` f32 by this function's contract; synchronized before use.
            unsafe { result::memcpy_dtoh_async(place, from, self.compute.cu_stream())? };
            self.compute.synchronize()?;
            let read = place.chunks_exact(size_of::<f32>());
            values.extend(read.map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap_or_default())));
            (from, left) = (from + bytes as u64, left - bytes);
        }
        Ok(values)
    }

    /// Copies one i32 from a device address; waits for the compute stream.
    pub(crate) fn download_int(&self, from: u64) -> Result<i32, Error> {
        let mut value = [0i32];
        // SAFETY: as in `download`.
        unsafe { result::memcpy_dtoh_async(&mut value, from, self.compute.cu_stream())? };
        self.compute.synchronize()?;
        Ok(value[0])
    }
}

/// Copies bytes within device memory, or between two devices' memories where they can reach each other.
pub(crate) fn copy(stream: &CudaStream, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
    if bytes > 0 {
        // SAFETY: both hold `bytes` bytes by this function's contract, and outlive the stream's work.
        unsafe { result::memcpy_dtod_async(to, from, bytes, stream.cu_stream())? };
    }
    Ok(())
}

/// Zeroes bytes of device memory.
pub(crate) fn clear(stream: &CudaStream, address: u64, bytes: usize) -> Result<(), Error> {
    if bytes > 0 {
        // SAFETY: the address holds `bytes` bytes by this function's contract, and outlives the stream's work.
        unsafe { result::memset_d8_async(address, 0, bytes, stream.cu_stream())? };
    }
    Ok(())
}
