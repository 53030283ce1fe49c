//! Copies between host and device, and within the device, on the compute stream.

use cudarc::driver::{CudaStream, result};

use super::{Buffer, Gpu};
use crate::error::Error;

impl Gpu {
    /// Copies f32 to device memory that holds at least as many.
    pub(crate) fn upload(&self, to: &Buffer, values: &[f32]) -> Result<(), Error> {
        if size_of_val(values) > to.bytes() {
            return Err(Error::new("an upload is longer than its buffer"));
        }
        if values.is_empty() {
            return Ok(());
        }
        // SAFETY: the buffer was just found long enough, and the driver has taken pageable memory when it returns.
        unsafe { result::memcpy_htod_async(to.address(), values, self.compute.cu_stream())? };
        Ok(())
    }

    /// Copies `count` f32 from a device address; waits for the compute stream.
    pub(crate) fn download(&self, from: u64, count: usize) -> Result<Vec<f32>, Error> {
        let mut values = vec![0.0; count];
        if count > 0 {
            // SAFETY: the address holds `count` f32 by this function's contract; synchronized before use.
            unsafe { result::memcpy_dtoh_async(&mut values, from, self.compute.cu_stream())? };
        }
        self.compute.synchronize()?;
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
