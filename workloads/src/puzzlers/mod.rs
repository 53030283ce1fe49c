//! Communication puzzlers: small programs that each ask one question of the machine's links, of NCCL or of CUDA's
//! ways to wait, and print the answer as a table.

pub(crate) mod asynchronous;
pub(crate) mod collectives;
pub(crate) mod p2p;
pub(crate) mod ring;

mod contest;
mod elements;
mod json;
mod link;
mod operations;
mod world;

use std::sync::Arc;

use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaContext, CudaEvent, result};

use crate::comm;
use crate::error::Error;

/// A size as people type it: `8`, `4K`, `128M`, `1G`, also with `B` or `iB` behind; K is 1024, as in nccl-tests.
pub(crate) fn parse_bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = text[digits.len()..].to_ascii_uppercase();
    let shift = match unit.trim_end_matches('B').trim_end_matches('I') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err("expected a number of bytes, such as 8, 64K, 128M or 1G".to_owned()),
    };
    digits
        .parse::<usize>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "expected a number of bytes above 0, such as 8, 64K, 128M or 1G".to_owned())
}

/// A whole number above 0.
pub(crate) fn parse_count(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| "expected a whole number above 0".to_owned())
}

/// Bytes as people read them: the largest binary unit that leaves a whole number.
pub(crate) fn bytes_text(bytes: usize) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

/// Sizes from `least` to `most`, each `factor` times the one before.
fn sizes(least: usize, most: usize, factor: usize) -> Vec<usize> {
    std::iter::successors(Some(least), |size| size.checked_mul(factor))
        .take_while(|size| *size <= most)
        .collect()
}

/// GB/s (10^9 bytes) of `bytes` in `microseconds`; 0 where no time passed.
pub(crate) fn gigabytes_per_second(bytes: usize, microseconds: f64) -> f64 {
    if microseconds > 0.0 {
        bytes as f64 / microseconds / 1e3
    } else {
        0.0
    }
}

/// Opens a device by its number.
fn open_device(ordinal: usize) -> Result<Arc<CudaContext>, Error> {
    let context = CudaContext::new(ordinal)?;
    // SAFETY: streams are ordered by events of our own, where they meet.
    unsafe { context.disable_event_tracking() };
    Ok(context)
}

/// How many GPUs this process sees.
fn device_count() -> Result<usize, Error> {
    if !comm::can_load("libcuda.so.1") && !comm::can_load("libcuda.so") {
        return Err(Error::new(
            "no GPU can be used here: libcuda.so.1 (NVIDIA's driver) was not found",
        ));
    }
    result::init()?;
    Ok(usize::try_from(CudaContext::device_count()?).unwrap_or(0))
}

/// An event that takes its time.
fn timed_event(context: &Arc<CudaContext>) -> Result<CudaEvent, Error> {
    Ok(context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?)
}

/// Microseconds from one event to another; waits for both.
fn microseconds_between(start: &CudaEvent, end: &CudaEvent) -> Result<f64, Error> {
    Ok(f64::from(start.elapsed_ms(end)?) * 1e3)
}

/// Device memory of the plain kind (cuMemAlloc): a memory pool's would not be open to peers.
pub(crate) struct Memory {
    context: Arc<CudaContext>,
    address: u64,
    bytes: usize,
}

impl Memory {
    /// Zeroed memory; waits for it. At least one byte is taken, so that there is an address.
    fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, Error> {
        context.bind_to_thread()?;
        // SAFETY: the context is current; the memory is owned by the value made of it.
        let address = unsafe { result::malloc_sync(bytes.max(1))? };
        let memory = Self {
            context: Arc::clone(context),
            address,
            bytes,
        };
        memory.fill(0)?;
        Ok(memory)
    }

    /// Sets every byte. Not for memory that streams work on.
    fn fill(&self, value: u8) -> Result<(), Error> {
        self.context.bind_to_thread()?;
        if self.bytes > 0 {
            // SAFETY: the range is this memory.
            unsafe { result::memset_d8_sync(self.address, value, self.bytes)? };
            // A memset of device memory may return before it is done, and streams don't wait for it.
            self.context.synchronize()?;
        }
        Ok(())
    }

    /// Copies to `offset` on. Not for memory that streams work on.
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        assert!(
            offset + bytes.len() <= self.bytes,
            "a write past the end of device memory"
        );
        self.context.bind_to_thread()?;
        if !bytes.is_empty() {
            // SAFETY: the range was checked.
            unsafe { result::memcpy_htod_sync(self.address + offset as u64, bytes)? };
            // From pageable memory the last part may still be on its way.
            self.context.synchronize()?;
        }
        Ok(())
    }

    /// The bytes from `offset` on. Streams that work on them must have been waited for.
    fn read(&self, offset: usize, bytes: usize) -> Result<Vec<u8>, Error> {
        assert!(
            offset + bytes <= self.bytes,
            "a read past the end of device memory"
        );
        self.context.bind_to_thread()?;
        let mut copy = vec![0u8; bytes];
        if bytes > 0 {
            // SAFETY: the range was checked.
            unsafe { result::memcpy_dtoh_sync(&mut copy, self.address + offset as u64)? };
        }
        Ok(copy)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // A failure at the end changes nothing.
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated by `new`, freed once; freeing waits for the device.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_typed() {
        assert_eq!(parse_bytes("8"), Ok(8));
        assert_eq!(parse_bytes("4K"), Ok(4096));
        assert_eq!(parse_bytes("4kib"), Ok(4096));
        assert_eq!(parse_bytes("128MB"), Ok(128 << 20));
        assert_eq!(parse_bytes("1G"), Ok(1 << 30));
        for wrong in ["", "0", "x", "-1", "1.5M", "4Q", "99999999999G", "K"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_told_in_whole_units() {
        assert_eq!(bytes_text(1000), "1000 B");
        assert_eq!(bytes_text(4096), "4 KiB");
        assert_eq!(bytes_text((1 << 20) + (1 << 10)), "1025 KiB");
        assert_eq!(bytes_text(3 << 30), "3 GiB");
    }

    #[test]
    fn sizes_grow_by_the_factor() {
        assert_eq!(sizes(8, 64, 2), [8, 16, 32, 64]);
        assert_eq!(sizes(8, 63, 3), [8, 24]);
        assert_eq!(sizes(8, 8, 2), [8]);
    }

    #[test]
    fn bandwidth_is_bytes_over_time() {
        // 1 MB in 1 ms is 1 GB/s.
        assert!((gigabytes_per_second(1_000_000, 1e3) - 1.0).abs() < 1e-12);
    }
}
