//! What the fuzz targets share: files in memory for readers that take paths, what must hold of whatever a reader hands
//! over, and a second opinion on what a trace says.

pub mod again;
pub mod analyses;
pub mod expected;
pub mod exports;
pub mod members;
pub mod recordings;
pub mod scratch;
