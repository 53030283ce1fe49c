//! An operation of a device by who launched it.

use super::branches::Sum;
use super::launched_by::Pass;

/// An operation of a device by who launched it.
#[derive(Clone, Copy)]
pub(super) struct Launched {
    /// Its place among the device's operations.
    pub(super) place: u32,
    pub(super) sum: Sum,
    pub(super) operator: u32,
    pub(super) frame: u32,
    /// The innermost native function of its stack.
    pub(super) native: u32,
    pub(super) module: u32,
    pub(super) pass: Pass,
    /// Its kernel works on TF32 matrix units, by its name.
    pub(super) is_tf32: bool,
}
