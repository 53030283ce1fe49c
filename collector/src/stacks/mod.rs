//! Stacks of the host at what it launches, on request (`--kinds +stacks`).
//!
//! At the beginning of a call that puts work on a device, its thread's return addresses are taken (`unwind`) and looked up among the
//! stacks that are known (`known`); a number goes to the writer (`capture`). Of a new stack the writer gets the addresses, with the
//! objects that they lay in at that moment (`objects`), since a library may be gone when the writer comes to it. The writer finds
//! their functions in the objects' files (`symbols`) and makes rows (`rows`). So a recording needs no files of the machine that it
//! was made on, and says of a killed process what it had said by then.
//!
//! On the program's thread nothing waits, and memory is only taken for a stack or an object that was not there before.

mod capture;
mod known;
mod objects;
mod rows;
mod symbols;
mod unwind;

pub(crate) use capture::{are_wanted, begins, ends, want};
pub(crate) use rows::Rows;
