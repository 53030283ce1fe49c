//! The daemon, tried from outside: by its socket alone.

mod fake;
mod hostile;
mod joining;
mod nodes;
mod planted;
mod process;
mod slow_disk;
mod watching;
