//! The live line while a recording grows: ranks, steps, events, lost, elapsed.
//!
//! It must not mix with what the command writes to the same terminal. A bundled workload's output is passed on by us, with
//! the line out of the way. A user's own command has the terminal for itself: there the text stands at the right end of
//! whatever line the cursor is on, and the cursor stays where the command left it.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use gputrace_trace::follow::{Counts, Follower, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::text;

/// How often the recording is looked at: for the line, and where there is none.
const PERIOD: Duration = Duration::from_millis(250);
const UNSEEN_PERIOD: Duration = Duration::from_secs(1);

/// How a line is drawn.
#[derive(Clone)]
pub enum LiveLine {
    /// Not at all: stderr is no terminal, or nothing is to be said.
    Hidden,
    /// A line of its own; all other output passes through [`LiveLine::suspend`].
    Own(ProgressBar),
    /// At the right end of the command's own lines.
    Aside,
}

impl LiveLine {
    fn new(quiet: bool, passed_on: bool) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if quiet || bar.is_hidden() {
            Self::Hidden
        } else if passed_on {
            if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
                bar.set_style(style);
            }
            Self::Own(bar)
        } else {
            Self::Aside
        }
    }

    fn draw(&self, text: String) {
        match self {
            Self::Hidden => {}
            Self::Own(bar) => {
                bar.set_message(text);
                bar.tick();
            }
            Self::Aside => draw_aside(&text),
        }
    }

    fn clear(&self) {
        match self {
            Self::Hidden => {}
            Self::Own(bar) => bar.finish_and_clear(),
            Self::Aside => draw_aside(""),
        }
    }

    /// Prints something with the line out of the way.
    pub fn suspend(&self, print: impl FnOnce()) {
        match self {
            Self::Hidden => print(),
            Self::Own(bar) => bar.suspend(print),
            Self::Aside => {
                draw_aside("");
                print();
            }
        }
    }
}

/// What [`draw_aside`] leaves to the command's own text at least.
const LEFT_COLUMNS: usize = 30;
/// Columns that the text gets: more than it mostly needs, so that a shorter one covers a longer.
const ASIDE_COLUMNS: usize = 64;

/// Draws at the right end of the cursor's line: the cursor is kept (DECSC), moved (CHA) and put back (DECRC).
fn draw_aside(text: &str) {
    let width =
        terminal_size::terminal_size_of(std::io::stderr()).map_or(0, |(width, _)| usize::from(width.0));
    let room = width.saturating_sub(LEFT_COLUMNS).min(ASIDE_COLUMNS);
    if room < text.chars().count() {
        return;
    }
    let column = width - room + 1;
    let drawn = format!("\x1b7\x1b[{column}G\x1b[K{text:>room$}\x1b8");
    // In one piece, and where the terminal is gone there is nobody to tell.
    drop(std::io::stderr().write_all(drawn.trim_end_matches(' ').as_bytes()));
}

/// The progress line.
pub struct ProgressLine {
    live: LiveLine,
    counter: Progress,
    follower: Follower,
    counts: Counts,
    steps: u64,
    lost: u64,
    started: Instant,
    looked: Option<Instant>,
}

impl ProgressLine {
    /// A line about the recording in `folder`. `passed_on`: whether the command's output can pass through us.
    pub fn new(folder: &Path, quiet: bool, passed_on: bool) -> Self {
        Self {
            live: LiveLine::new(quiet, passed_on),
            counter: Progress::new(folder),
            follower: Follower::new(folder, &["markers", "losses"]),
            counts: Counts::default(),
            steps: 0,
            lost: 0,
            started: Instant::now(),
            looked: None,
        }
    }

    /// Whether the command's output must pass through [`LiveLine::suspend`].
    pub fn is_relayed(&self) -> bool {
        matches!(self.live, LiveLine::Own(_))
    }

    /// The line as others see it.
    pub fn live_line(&self) -> LiveLine {
        self.live.clone()
    }

    /// Looks at the recording if it is time, redraws the line, and gives what was counted.
    pub fn tick(&mut self) -> Option<Counts> {
        let period = match self.live {
            LiveLine::Hidden => UNSEEN_PERIOD,
            LiveLine::Own(_) | LiveLine::Aside => PERIOD,
        };
        if self.looked.is_some_and(|looked| looked.elapsed() < period) {
            return None;
        }
        self.look();
        self.live.draw(self.line());
        Some(self.counts)
    }

    /// Prints something with the line out of the way.
    pub fn suspend(&self, print: impl FnOnce()) {
        self.live.suspend(print);
    }

    /// Removes the line and gives its last text.
    pub fn finish(&mut self) -> String {
        self.look();
        self.live.clear();
        self.line()
    }

    fn look(&mut self) {
        self.looked = Some(Instant::now());
        // A folder that can't be read at this moment (just being made, say) is looked at again next time;
        // whether the recording can be read at all is said when it is opened at the end.
        if let Ok(counts) = self.counter.read() {
            self.counts = counts;
        }
        let Ok(growths) = self.follower.read() else { return };
        for growth in growths {
            for &name in &growth.tables.markers.name {
                if let Some(step) = gputrace_analyzer::step_number(self.follower.names.get(name)) {
                    self.steps = self.steps.max(step + 1);
                }
            }
            self.lost += growth.tables.losses.count.iter().sum::<u64>();
        }
    }

    fn line(&self) -> String {
        format!(
            "{} ranks · {} steps · {} events · {} lost · {:.1} s",
            self.counts.processes,
            self.steps,
            text::thousands(self.counts.events),
            text::thousands(self.lost),
            self.started.elapsed().as_secs_f64()
        )
    }
}
