//! Metrics for Prometheus.

pub mod server;
pub mod text;
pub mod times;
