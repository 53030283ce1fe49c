//! Opening what the user names, with a progress bar where it takes a while.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gputrace_analyzer::{ClockChoice, align};
use gputrace_interchange::import::{self, Progress};
use gputrace_trace::{Recording, beneath};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;

/// Nothing is drawn before this has passed.
pub const PATIENCE: Duration = Duration::from_millis(700);
/// How often the bar moves.
pub const PERIOD: Duration = Duration::from_millis(100);

/// Opens paths as one run, with the clocks of its hosts aligned.
pub fn open(paths: &[PathBuf]) -> Result<Recording, Failure> {
    open_with_clocks(paths, &ClockChoice::default())
}

/// The same, with what is to be done about clocks.
pub fn open_with_clocks(paths: &[PathBuf], clocks: &ClockChoice) -> Result<Recording, Failure> {
    let mut recording = read(paths)?;
    align(&mut recording, clocks).map_err(Failure::new)?;
    Ok(recording)
}

/// The same, with its clocks as they are.
pub fn read(paths: &[PathBuf]) -> Result<Recording, Failure> {
    // All of them first: links in one may lead into another.
    paths.iter().for_each(|path| beneath::name(path));
    let progress = Progress::default();
    let done = AtomicBool::new(false);
    let opened = std::thread::scope(|scope| {
        let drawing = scope.spawn(|| draw(&progress, &done));
        let opened = import::open(paths, &progress);
        done.store(true, Ordering::Relaxed);
        drawing.thread().unpark();
        opened
    });
    opened.map_err(|error| Failure::new(error.to_string()))
}

fn draw(progress: &Progress, done: &AtomicBool) {
    std::thread::park_timeout(PATIENCE);
    if done.load(Ordering::Relaxed) {
        return;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) =
        ProgressStyle::with_template("reading {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}")
    {
        bar.set_style(style);
    }
    while !done.load(Ordering::Relaxed) {
        bar.set_length(progress.total_bytes.load(Ordering::Relaxed));
        bar.set_position(progress.done_bytes.load(Ordering::Relaxed));
        std::thread::park_timeout(PERIOD);
    }
    bar.finish_and_clear();
}

/// Says on stderr which of the job's ranks a recording lacks: what is computed from it is of the others.
pub fn say_who_is_missing(recording: &Recording) {
    if let Some(sentence) = gputrace_analyzer::ranks_of_job(recording).sentence() {
        anstream::eprintln!("{sentence}");
    }
}
