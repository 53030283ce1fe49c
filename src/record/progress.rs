//! The live line while a recording grows: ranks, steps, events, lost, elapsed.

use std::path::Path;
use std::time::{Duration, Instant};

use gputrace_trace::follow::{Counts, Follower, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::text;

/// How often the recording is looked at.
const PERIOD: Duration = Duration::from_millis(250);

/// The progress line. Nothing is drawn where stderr is no terminal.
pub struct ProgressLine {
    bar: ProgressBar,
    counter: Progress,
    follower: Follower,
    counts: Counts,
    steps: u64,
    lost: u64,
    started: Instant,
    looked: Option<Instant>,
}

impl ProgressLine {
    /// A line about the recording in `folder`.
    pub fn new(folder: &Path, quiet: bool) -> Self {
        let target = if quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            counter: Progress::new(folder),
            follower: Follower::new(folder, &["markers", "losses"]),
            counts: Counts::default(),
            steps: 0,
            lost: 0,
            started: Instant::now(),
            looked: None,
        }
    }

    /// Looks at the recording if a quarter of a second has passed, and redraws the line.
    pub fn tick(&mut self) {
        if self.bar.is_hidden() || self.looked.is_some_and(|looked| looked.elapsed() < PERIOD) {
            return;
        }
        self.look();
        self.bar.set_message(self.line());
        self.bar.tick();
    }

    /// Removes the line and gives its last text.
    pub fn finish(mut self) -> String {
        self.look();
        self.bar.finish_and_clear();
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
