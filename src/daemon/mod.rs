//! The daemon's commands: running it, and asking it.

mod client;
mod devices;
mod environment;
mod keep;
mod list;
mod serve;
mod top;
mod triggers;

pub use environment::run as env;
pub use keep::{capture, snapshot};
pub use list::jobs;
pub use serve::run;
pub use top::run as top;
pub use triggers::run as triggers;
