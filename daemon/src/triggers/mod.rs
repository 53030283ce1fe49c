//! What is watched for: state machines over a job's steps, which know no clock and no files.

pub mod fired;
pub mod hang;
mod late;
mod overlap;
pub mod rules;
mod slow;
pub mod watch;

#[cfg(test)]
mod tests;
