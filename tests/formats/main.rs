//! Traces of others, and exports: read, written, and judged by programs of others.

#[path = "../common/mod.rs"]
mod common;

mod all_files;
mod bad_input;
mod chrome_files;
mod chrome_hta;
mod clocks;
mod conformance;
mod documents;
mod export_again;
mod export_command;
mod first_minute;
mod fuzz_corpus;
mod imports;
mod kineto;
mod kineto_bad;
mod kineto_by_hand;
mod kineto_odd;
mod measures;
mod operator_memory;
mod operators;
mod parquet;
mod partials;
mod perfetto;
mod python_package;
mod spread;
mod straggler;
mod supply;
mod tensorboard;
mod xplane;
