//! Noticing that the recorded job hangs: nothing finishes on any GPU though collectives are enqueued.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use gputrace_analyzer::hangs::{self, ProcessState, Situation};
use gputrace_trace::follow::Counts;
use gputrace_trace::hang::Hang;
use gputrace_trace::{Recording, now};

use crate::say::say;

/// The exit status of a recording whose command was ended because it hung: as timeout(1)'s.
pub const STATUS: i32 = 124;
/// How long a command has to end itself after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(5);
/// Hangs that are printed; the manifest has all.
const MOST_PRINTED: usize = 4;

/// What a look at the recording showed.
pub enum Seen {
    /// Nothing new.
    Nothing,
    /// It hangs.
    Hang(Vec<Hang>),
    /// It hung, was told so, and goes on; for so long it had stood still.
    GoesOn(Duration),
}

/// Watches how the recording grows.
pub struct Watch {
    folder: PathBuf,
    /// How long it may stand still; `None` for ever.
    after: Option<Duration>,
    /// Finished operations and enqueued collectives when it last grew, and when that was.
    seen: (u64, u64),
    grew: Instant,
    /// When it was last looked at in detail since.
    examined: Option<Instant>,
    /// How the processes were then.
    states: BTreeMap<String, ProcessState>,
    told: bool,
}

impl Watch {
    /// Watches the recording in `folder`.
    pub fn new(folder: &Path, after: Option<Duration>) -> Self {
        Self {
            folder: folder.to_owned(),
            after,
            seen: (0, 0),
            grew: Instant::now(),
            examined: None,
            states: BTreeMap::new(),
            told: false,
        }
    }

    /// Takes in how far the recording is now.
    pub fn look(&mut self, counts: Counts) -> Seen {
        let Some(after) = self.after else {
            return Seen::Nothing;
        };
        let finished = counts.operations != self.seen.0;
        if finished || counts.collectives != self.seen.1 {
            let still = self.grew.elapsed();
            self.seen = (counts.operations, counts.collectives);
            self.grew = Instant::now();
            self.examined = None;
            if finished && std::mem::take(&mut self.told) {
                return Seen::GoesOn(still);
            }
            return Seen::Nothing;
        }
        let still = self.examined.unwrap_or(self.grew).elapsed();
        if self.told || counts.collectives == 0 || still < after {
            return Seen::Nothing;
        }
        self.examined = Some(Instant::now());
        let found = self.examine(after);
        if found.is_empty() {
            return Seen::Nothing;
        }
        self.told = true;
        Seen::Hang(found)
    }

    /// Nothing is recorded for a while: standing still then means nothing.
    pub fn rest(&mut self) {
        self.grew = Instant::now();
        self.examined = None;
    }

    /// Reads what is written so far; a recording that can't be read at this moment shows nothing.
    fn examine(&mut self, after: Duration) -> Vec<Hang> {
        let Ok(recording) = Recording::open_tables(&self.folder, hangs::TABLES) else {
            return Vec::new();
        };
        let states = states(&recording);
        let before = std::mem::replace(&mut self.states, states.clone());
        if goes_on(&before, &states) {
            self.rest();
            return Vec::new();
        }
        let situation = Situation {
            now_ns: Some(now().0),
            least_silence_ns: Some(i64::try_from(after.as_nanos()).unwrap_or(i64::MAX)),
            states,
        };
        hangs::hangs(&recording, &situation)
    }
}

/// Whether a process that was stopped runs again: what it and those that wait for it have not written yet says nothing.
fn goes_on(before: &BTreeMap<String, ProcessState>, now: &BTreeMap<String, ProcessState>) -> bool {
    before.iter().any(|(folder, state)| {
        *state == ProcessState::Stopped && now.get(folder) == Some(&ProcessState::Running)
    })
}

/// How the recording's processes on this host are, by folder.
fn states(recording: &Recording) -> BTreeMap<String, ProcessState> {
    let host = gethostname::gethostname();
    recording
        .processes
        .iter()
        .filter(|process| host == process.header.host.as_str())
        .map(|process| (process.folder.clone(), state(process.header.pid)))
        .collect()
}

fn state(pid: u32) -> ProcessState {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return ProcessState::Ended;
    };
    // The name before it may hold anything, brackets too.
    let letter = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next())
        .unwrap_or('?');
    match letter {
        'T' | 't' => ProcessState::Stopped,
        'Z' | 'X' => ProcessState::Ended,
        _ => ProcessState::Running,
    }
}

/// Says on stderr what hangs.
pub fn tell(hangs: &[Hang]) {
    let own: Vec<&Hang> = hangs.iter().filter(|hang| !hang.follows).collect();
    for hang in own.iter().take(MOST_PRINTED) {
        say!("gputrace: {}: {}", hangs::text(hang), hangs::evidence(hang));
    }
    let more = hangs.len() - own.len().min(MOST_PRINTED);
    if more > 0 {
        say!("gputrace: and {more} more, which the recording has too");
    }
}

/// Ending a command that hangs: asked first, then killed.
pub struct Ending {
    folder: PathBuf,
    asked: Instant,
    killed: bool,
}

impl Ending {
    /// Asks the command to end.
    pub fn begin(child: &Child, folder: &Path) -> Self {
        send(child.id(), libc::SIGTERM);
        Self {
            folder: folder.to_owned(),
            asked: Instant::now(),
            killed: false,
        }
    }

    /// Kills it, with all processes that were recorded, when it has had time enough.
    pub fn tick(&mut self, child: &Child) {
        if self.killed || self.asked.elapsed() < PATIENCE {
            return;
        }
        self.killed = true;
        self.kill_processes();
        send(child.id(), libc::SIGKILL);
    }

    /// Kills the recorded processes that are still there: a launcher may be gone and have left them.
    pub fn kill_processes(&self) {
        let Ok(recording) = Recording::open_tables(&self.folder, &[]) else {
            return;
        };
        let host = gethostname::gethostname();
        let here = recording
            .processes
            .iter()
            .filter(|process| host == process.header.host.as_str());
        for pid in here.map(|process| process.header.pid) {
            if self.is_recorded_here(pid) {
                send(pid, libc::SIGKILL);
            }
        }
    }

    /// Whether a process writes into our recording: a number can have come to another one.
    fn is_recorded_here(&self, pid: u32) -> bool {
        let variable = [b"GPUTRACE_DIR=", self.folder.as_os_str().as_encoded_bytes()].concat();
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|variables| variables.split(|&byte| byte == 0).any(|one| one == variable))
    }
}

fn send(pid: u32, signal: libc::c_int) {
    // 0 and -1 would be groups of processes, and all of them.
    if let Ok(pid @ 2..) = i32::try_from(pid) {
        // SAFETY: sends a signal to a child that was not waited for yet, or to a process that was just looked at.
        unsafe { libc::kill(pid, signal) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_just_went_on_gets_its_time_anew() {
        use ProcessState::{Ended, Running, Stopped};
        let states =
            |first, second| BTreeMap::from([("rank0".to_owned(), first), ("rank1".to_owned(), second)]);
        assert!(goes_on(&states(Stopped, Stopped), &states(Running, Stopped)));
        assert!(goes_on(&states(Running, Stopped), &states(Running, Running)));
        assert!(!goes_on(&states(Stopped, Stopped), &states(Stopped, Ended)));
        assert!(!goes_on(&states(Running, Running), &states(Running, Stopped)));
        assert!(!goes_on(&BTreeMap::new(), &states(Running, Stopped)));
    }
}
