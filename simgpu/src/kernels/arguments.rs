//! A launch's arguments, and the arrays that they lead to.

use std::marker::PhantomData;

use super::element::Plain;
use crate::device::memory::{allocation_of, device_range};
use crate::driver::error;

/// The bytes of a launch's arguments, in order.
#[derive(Default)]
pub(crate) struct Arguments {
    bytes: Vec<Vec<u8>>,
}

impl Arguments {
    /// Appends one argument.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.push(bytes.to_vec());
    }

    fn number<const N: usize>(&self, index: usize) -> Result<[u8; N], u32> {
        self.bytes
            .get(index)
            .and_then(|bytes| bytes.as_slice().try_into().ok())
            .ok_or(error::INVALID_VALUE)
    }

    /// Argument `index`, a float.
    pub(super) fn float(&self, index: usize) -> Result<f32, u32> {
        self.number(index).map(f32::from_le_bytes)
    }

    /// Argument `index`, an int that counts something.
    pub(super) fn count(&self, index: usize) -> Result<usize, u32> {
        usize::try_from(i32::from_le_bytes(self.number(index)?)).map_err(|_| error::INVALID_VALUE)
    }

    /// Argument `index`, the address of so many elements.
    pub(super) fn array<T: Plain>(&self, index: usize, count: usize) -> Result<Array<T>, u32> {
        Array::new(self.address(index)?, count)
    }

    /// Argument `index`, the address of as many elements as there are to the end of its allocation: for kernels that
    /// are not told how many there are. Found at the launch: freeing may be enqueued before the kernel runs.
    pub(super) fn array_to_end<T: Plain>(&self, index: usize) -> Result<Array<T>, u32> {
        let address = self.address(index)?;
        let (start, bytes, _) = allocation_of(address).ok_or(error::ILLEGAL_ADDRESS)?;
        Array::new(
            address,
            (start + bytes as u64 - address) as usize / size_of::<T>(),
        )
    }

    /// Argument `index`, an address.
    pub(super) fn address(&self, index: usize) -> Result<u64, u32> {
        self.number(index).map(u64::from_le_bytes)
    }
}

/// An array in device memory, its bounds checked at the launch.
pub(crate) struct Array<T> {
    address: usize,
    count: usize,
    element: PhantomData<T>,
}

impl<T> Clone for Array<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Array<T> {}

impl<T: Plain> Array<T> {
    /// Checks that the array lies in device memory and begins where such an element may.
    pub(crate) fn new(address: u64, count: usize) -> Result<Self, u32> {
        let bytes = count.checked_mul(size_of::<T>()).ok_or(error::INVALID_VALUE)?;
        if count > 0 {
            device_range(address, bytes)?;
            if !address.is_multiple_of(align_of::<T>() as u64) {
                return Err(error::ILLEGAL_ADDRESS);
            }
        }
        Ok(Self {
            address: address as usize,
            count,
            element: PhantomData,
        })
    }

    /// Its elements.
    pub(crate) fn get(self) -> &'static [T] {
        if self.count == 0 {
            return &[];
        }
        // SAFETY: the range was inside a device allocation and aligned at the launch, CUDA forbids freeing it before
        // the kernel ends, and every bit pattern is an element. Kernels that race on memory are as undefined here as on
        // a GPU.
        unsafe { std::slice::from_raw_parts(self.address as *const T, self.count) }
    }

    /// Its elements, to write.
    #[allow(clippy::mut_from_ref)] // Device memory is shared by nature; see `get`.
    pub(crate) fn get_mut(self) -> &'static mut [T] {
        if self.count == 0 {
            return &mut [];
        }
        // SAFETY: as in `get`; the stream's order keeps other operations away, or the program has a race.
        unsafe { std::slice::from_raw_parts_mut(self.address as *mut T, self.count) }
    }

    /// Whether it begins where `other` does: a kernel that works in place.
    pub(super) fn is(self, other: Self) -> bool {
        self.address == other.address
    }
}
