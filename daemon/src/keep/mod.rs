//! What is kept: rings, windows and captures.

pub mod disk;
pub mod library;
