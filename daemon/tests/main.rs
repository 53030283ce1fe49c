//! The daemon, tried from outside: by its socket alone.

mod fake;
mod hostile;
mod joining;
mod planted;
mod watching;
