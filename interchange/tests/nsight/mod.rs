//! Exports of Nsight Systems: two real ones, small ones built here in both families of schema, and bad ones.

mod bad;
mod export;
mod ranks;
mod real;
mod tables;
