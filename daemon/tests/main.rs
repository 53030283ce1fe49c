//! The daemon, tried from outside: by its socket alone.

mod fake;
mod joining;
