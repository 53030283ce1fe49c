//! How far workers are: a bar in a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::schedule::Watch;
use crate::record::child;
use crate::text::thousands;

/// How often a line is written where there is no terminal.
const PERIOD: Duration = Duration::from_secs(10);

/// Of one round of tasks.
pub struct Progress {
    what: String,
    unit: &'static str,
    of: usize,
    /// Those that were there already cost nothing.
    before: Option<usize>,
    began: Instant,
    said: Instant,
    bar: ProgressBar,
}

impl Progress {
    /// Of so many ranks or files.
    pub fn new(what: String, unit: &'static str, of: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(of as u64), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar}") {
            bar.set_style(style);
        }
        Self {
            what,
            unit,
            of,
            before: None,
            began: Instant::now(),
            said: Instant::now(),
            bar,
        }
    }
}

/// How long the rest takes, if it goes on as it went.
fn left(done: usize, rest: usize, took: Duration) -> Option<Duration> {
    let each = took.checked_div(u32::try_from(done).ok()?)?;
    each.checked_mul(u32::try_from(rest).ok()?)
}

impl Watch for Progress {
    fn at(&mut self, done: usize, lost: usize, running: usize) {
        let ended = done + lost;
        let before = *self.before.get_or_insert(ended);
        let left = left(
            ended - before,
            self.of.saturating_sub(ended),
            self.began.elapsed(),
        );
        let mut line = format!(
            "{}: {} of {} {}",
            self.what,
            thousands(done as u64),
            thousands(self.of as u64),
            self.unit
        );
        if lost > 0 {
            line += &format!(", {} lost", thousands(lost as u64));
        }
        line += &format!(", {running} under way");
        if let Some(left) = left {
            line += &format!(", about {} s left", left.as_secs() + 1);
        }
        if std::io::stderr().is_terminal() {
            self.bar.set_position(ended as u64);
            self.bar.set_message(line);
        } else if self.said.elapsed() >= PERIOD {
            self.said = Instant::now();
            anstream::eprintln!("{line}");
        }
    }

    fn is_over(&self) -> Option<i32> {
        child::asked_to_end()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_goes_by_what_was_done() {
        let second = Duration::from_secs(1);
        assert_eq!(left(10, 30, 20 * second), Some(60 * second));
        assert_eq!(left(0, 30, 20 * second), None);
    }
}
