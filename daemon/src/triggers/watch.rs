//! All rules of one job.

/// What a job is watched for, and what is known of it for that.
#[derive(Debug, Default)]
pub struct Watch {}
