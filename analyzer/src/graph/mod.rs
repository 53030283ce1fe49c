//! One model of all ranks: every operation with what it waited for, replayed with changes.
//!
//! [`dag`] is the graph and its replay and knows no GPU. [`nodes`] says what a job's
//! nodes are, [`process`] makes the nodes of one process by the rules below,
//! [`host`] those of its threads, [`events`] finds what streams wait for, [`meetings`] joins the ranks, and [`job`] puts all of it together for some steps.
//!
//! | rule | what waits | for what |
//! |---|---|---|
//! | launch | an operation | the start of the call that launched it, and a latency that is fitted by device |
//! | stream | an operation | the one before it on its stream |
//! | event | an operation | the last one before the event's recording, on the stream of that |
//! | blocking call | the end of a call that waits for the GPU | the operations that it awaits |
//! | thread | a call | the one before it on its thread, and the host's work between the two |
//! | thread to thread | a call | the last call of another thread, where the two take turns |
//! | collective | a rank's part | the arrival of all ranks; of the root or the peer alone where data goes one way |
//! | in time | an operation whose call is not recorded | the operation of its process that ended last before it began |
//!
//! What no rule explains is an operation's gap: *unexplained*, and counted.

pub(crate) mod blame;
pub(crate) mod candidates;
pub(crate) mod causes;
pub(crate) mod chosen;
pub mod dag;
pub(crate) mod edits;
pub(crate) mod events;
pub(crate) mod hidden;
pub(crate) mod host;
pub(crate) mod job;
pub(crate) mod meetings;
pub(crate) mod nodes;
pub(crate) mod path;
pub(crate) mod peers;
pub(crate) mod piece;
pub(crate) mod process;
pub(crate) mod rank_times;
pub(crate) mod rows;
pub(crate) mod whatif;

pub use edits::{Change, Edit, Target};
pub use path::{CriticalPath, PathPart};
pub use piece::{PathTable, Piece};
pub use rank_times::{RankTime, RankTimes};
pub use whatif::{Interval, Model, Single, StepTimes, WhatIf};
