//! The switch of a recording while its command runs: --delay, --duration, and SIGUSR1.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gputrace_trace::control::Control;
use gputrace_trace::manifest;
use gputrace_trace::now;

/// SIGUSR1s that came and were not seen to yet.
static ASKED_TO_SWITCH: AtomicU32 = AtomicU32::new(0);

extern "C" fn note_signal(_signal: libc::c_int) {
    ASKED_TO_SWITCH.fetch_add(1, Ordering::Relaxed);
}

/// The switch, with what it is set by.
pub struct Switch {
    control: Control,
    path: PathBuf,
    failures: Vec<String>,
    on: bool,
    started: Instant,
    delay: Option<Duration>,
    duration: Option<Duration>,
}

impl Switch {
    /// Makes the control file at `path`; the clock of --delay and --duration begins to run.
    ///
    /// # Errors
    /// When the file can't be made.
    pub fn create(path: PathBuf, delay_s: Option<f64>, duration_s: Option<f64>) -> io::Result<Self> {
        let control = Control::create(&path, delay_s.is_none())?;
        let handler: extern "C" fn(libc::c_int) = note_signal;
        // SAFETY: the handler only adds to an atomic, which is allowed in a signal handler.
        unsafe { libc::signal(libc::SIGUSR1, handler as libc::sighandler_t) };
        Ok(Self {
            control,
            path,
            failures: Vec::new(),
            on: delay_s.is_none(),
            started: Instant::now(),
            delay: delay_s.map(Duration::from_secs_f64),
            duration: duration_s.map(Duration::from_secs_f64),
        })
    }

    /// The control file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the collectors are to record.
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// What is to be switched by now, and was.
    pub fn tick(&mut self) -> Vec<manifest::Switch> {
        let mut switched = Vec::new();
        if self.delay.is_some_and(|delay| self.started.elapsed() >= delay) {
            self.delay = None;
            // What --duration counts from.
            self.started = Instant::now();
            if !self.on {
                switched.push(self.set(true, "--delay"));
            }
        }
        if self.delay.is_none()
            && self
                .duration
                .is_some_and(|duration| self.started.elapsed() >= duration)
        {
            self.duration = None;
            if self.on {
                switched.push(self.set(false, "--duration"));
            }
        }
        // An even number of them leaves it as it was.
        for _ in 0..ASKED_TO_SWITCH.swap(0, Ordering::Relaxed) {
            switched.push(self.set(!self.on, "SIGUSR1"));
        }
        switched
    }

    /// Takes the file away at the end: processes that still run stay as they are, and nobody switches any more.
    pub fn remove(&self) {
        // Where it stays, it is a page that readers of the recording pass over.
        drop(std::fs::remove_file(&self.path));
    }

    /// What goes wrong is told at the next look.
    fn set(&mut self, on: bool, by: &str) -> manifest::Switch {
        self.on = on;
        if let Err(error) = self.control.set(on) {
            let path = self.path.display();
            self.failures
                .push(format!("{path}: {error}: not switched by {by}"));
        }
        manifest::Switch {
            time_ns: now().0,
            on,
            by: by.to_owned(),
        }
    }

    /// What could not be switched since the last call.
    pub fn take_failures(&mut self) -> Vec<String> {
        std::mem::take(&mut self.failures)
    }
}

/// What is said when it was switched.
pub fn sentence(switched: &manifest::Switch) -> String {
    let action = if switched.on { "on" } else { "off" };
    let rest = if switched.on { "" } else { "; the command runs on" };
    let time = chrono::DateTime::from_timestamp_nanos(switched.time_ns).with_timezone(&chrono::Local);
    format!(
        "{}: recording is switched {action} ({}){rest}",
        switched.by,
        time.format("%H:%M:%S%.3f")
    )
}

#[cfg(test)]
mod tests {
    use gputrace_trace::control::ControlReader;

    use super::*;

    #[test]
    fn a_delay_and_a_duration_follow_each_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("control");
        let mut switch = Switch::create(path.clone(), Some(3600.0), Some(0.02)).expect("made");
        let mut reader = ControlReader::new(&path);
        let mut seen = || reader.read().map(|()| reader.is_on()).expect("read");
        assert!(!switch.is_on() && !seen());
        assert!(switch.tick().is_empty());
        // However slow the machine is, it had not passed before.
        switch.delay = Some(Duration::from_millis(20));
        let mut switched = Vec::new();
        while switched.len() < 2 {
            std::thread::sleep(Duration::from_millis(5));
            switched.extend(switch.tick());
            assert_eq!(seen(), switch.is_on());
        }
        let told: Vec<(bool, &str)> = switched.iter().map(|one| (one.on, one.by.as_str())).collect();
        assert_eq!(told, [(true, "--delay"), (false, "--duration")]);
        assert!(switched[0].time_ns < switched[1].time_ns);
        switch.remove();
        assert!(!path.exists(), "taken away at the end");
    }
}
