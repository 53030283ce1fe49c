//! That something goes on, where it takes a while.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Nothing is drawn before this has passed.
const PATIENCE: Duration = Duration::from_millis(700);
/// How often what is drawn changes.
const PERIOD: Duration = Duration::from_millis(100);

/// Does `work` and says so meanwhile, with the bytes that it counts.
pub fn shown<T>(what: &str, output: Option<&Path>, work: impl FnOnce(&AtomicU64) -> T) -> T {
    let (bytes, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let line = match output {
        Some(output) => format!("{what} {} {{bytes}} {{bytes_per_sec}}", output.display()),
        None => what.to_owned(),
    };
    std::thread::scope(|scope| {
        let drawing = scope.spawn(|| draw(&line, &bytes, &done));
        let result = work(&bytes);
        done.store(true, Ordering::Relaxed);
        drawing.thread().unpark();
        result
    })
}

fn draw(line: &str, bytes: &AtomicU64, done: &AtomicBool) {
    std::thread::park_timeout(PATIENCE);
    if done.load(Ordering::Relaxed) {
        return;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(&format!("{{spinner}} {line}")) {
        bar.set_style(style);
    }
    while !done.load(Ordering::Relaxed) {
        bar.set_position(bytes.load(Ordering::Relaxed));
        bar.tick();
        std::thread::park_timeout(PERIOD);
    }
    bar.finish_and_clear();
}

/// Counts what goes through.
pub struct Counted<'w> {
    out: &'w mut dyn Write,
    bytes: &'w AtomicU64,
}

impl<'w> Counted<'w> {
    pub fn new(out: &'w mut dyn Write, bytes: &'w AtomicU64) -> Self {
        Self { out, bytes }
    }
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
