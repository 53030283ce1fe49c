//! What the exporters have in common.

pub mod protobuf;
