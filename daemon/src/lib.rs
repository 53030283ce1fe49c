//! The jobs of a machine: joining, rings, live sums, triggers, metrics.
//!
//! Collectors in training processes call over a socket with a path (`trace::daemon` has what is said). The daemon decides which
//! processes are one job, opens their files and hands over descriptors, keeps the last moments of each, matches their steps, and
//! keeps a window as a recording of its own when somebody asks or a rule fires. It knows no page and no command line.

mod alive;
mod caller;
mod clients;
pub mod clock;
mod collectors;
pub mod devices;
mod documents;
pub mod history;
mod jobs;
mod keep;
mod listening;
mod metrics;
mod names;
pub mod nodes;
pub mod notify;
pub mod peer;
mod posts;
mod rings;
mod server;
pub mod settings;
mod state;
mod tls;
pub mod triggers;
mod watching;
pub mod webhook;
mod windows;

pub use server::{Daemon, Handle};
