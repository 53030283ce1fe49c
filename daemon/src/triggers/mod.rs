//! What is watched for.

pub mod fired;
pub mod rules;
pub mod watch;
