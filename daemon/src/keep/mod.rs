//! What is kept: processes' files, rings, windows and captures.

pub mod disk;
pub mod files;
pub mod large;
pub mod library;
pub mod task;
