//! Other people's trace formats, in and out.
//!
//! An exporter takes a [`gputrace_trace::Recording`], what an analysis knows of it, and a writer; it computes no measure
//! itself, and it says how many events it was given and how many it wrote.

mod cells;
pub mod export;
pub mod import;
mod json;
pub mod kineto;
pub mod limits;
pub mod nsight;
pub mod parquet_folder;
mod rank_names;
pub mod tables;
