//! The viewer: its server, its page in a browser, and the page that stands alone.

#[path = "../common/mod.rs"]
mod common;

mod browser;
mod browser_clocks;
mod browser_habits;
mod browser_rows;
mod chosen_steps;
mod html_report;
mod jobs;
mod operators;
mod ranks;
mod viewer_answers;
mod viewer_library;
mod viewer_parts;
mod viewer_perfetto;
mod viewer_server;
mod why;
