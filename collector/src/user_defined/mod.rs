//! The second way to record with CUPTI: as one of several subscribers, with records of the fields that we need.
//!
//! CUPTI 13.3 and later, with drivers of r610 and later, give each subscriber its own kinds, buffers and ids, so that a
//! profiler inside the program and ours do not disturb each other; and a record then holds the fields that were asked
//! for, and a buffer tells where they are. Here are the subscription, the fields, and what makes the structs of the
//! first way of those records, so that everything behind is the same for both.
//!
//! The older functions fail while the newer ones are in use. So this way is only taken where no library of the program
//! would call the older ones (PyTorch's profiler does).

pub mod abi;
mod callbacks;
pub mod fields;
pub mod layout;
mod older;
mod subscription;
mod told;

pub(crate) use older::client as older_client;
pub(crate) use subscription::{Attempt, Second};
pub(crate) use told::dump;
