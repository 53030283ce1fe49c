//! Exports of Nsight Systems: two real ones, small ones built here in both families of schema, and bad ones.

#[path = "nsight/bad.rs"]
mod bad;
#[path = "nsight/export.rs"]
mod export;
#[path = "nsight/ranks.rs"]
mod ranks;
#[path = "nsight/real.rs"]
mod real;
#[path = "nsight/tables.rs"]
mod tables;
