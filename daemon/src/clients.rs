//! What clients ask, and what they are told.

use std::path::PathBuf;

use gputrace_trace::daemon::{Ask, Limits};
use serde_json::json;

use crate::caller::Role;
use crate::documents;
use crate::jobs::saved;
use crate::keep::library::Capture;
use crate::keep::task::{Noted, Task};
use crate::names::is_recording_name;
use crate::peer::Peer;
use crate::state::State;
use crate::windows::Reason;

impl State {
    /// Answers a client, now or once what it asked for is done.
    pub fn heard_client(&mut self, number: u64, ask: Ask) {
        let Some(caller) = self.callers.get_mut(&number) else {
            return;
        };
        caller.role = Role::Client;
        let peer = caller.peer;
        if let Err(why) = self.answer(number, &peer, ask)
            && let Some(caller) = self.callers.get_mut(&number)
        {
            caller.refuse(why);
        }
    }

    fn answer(&mut self, number: u64, peer: &Peer, ask: Ask) -> Result<(), String> {
        let document = match ask {
            Ask::Jobs => documents::jobs(self, peer),
            Ask::Job { job } => {
                let id = self.find(peer, job.as_deref())?;
                documents::job(self, &id)
            }
            Ask::Triggers { job } => {
                let id = match job {
                    Some(job) => Some(self.find(peer, Some(&job))?),
                    None => None,
                };
                documents::triggers(self, peer, id.as_deref())
            }
            Ask::Captures => documents::captures(self, peer),
            Ask::Capture { job, limits, wait } => {
                let id = self.find(peer, job.as_deref())?;
                let reason = reason("capture", &words(&limits), number, wait);
                let name = self.begin_capture(&id, &limits, reason)?;
                if wait {
                    return Ok(());
                }
                begun(&name, &id)
            }
            Ask::Snapshot { job, last_s } => {
                let id = self.find(peer, job.as_deref())?;
                let what = match last_s {
                    Some(seconds) => format!("a snapshot of the last {seconds} s"),
                    None => "a snapshot of the ring".to_owned(),
                };
                self.begin_snapshot(&id, last_s, reason("snapshot", &what, number, true))?;
                return Ok(());
            }
            Ask::Fetch { recording } => {
                let folder = self.recording(peer, &recording)?;
                self.disk.give(Task::List {
                    caller: number,
                    name: recording,
                    folder,
                });
                return Ok(());
            }
            Ask::Pin { recording, pinned } => {
                let found = self
                    .library
                    .get(&recording)
                    .filter(|found| peer.may_see(found.uid));
                let mut found = found
                    .cloned()
                    .ok_or_else(|| self.no_recording(peer, &recording))?;
                found.pinned = pinned;
                self.note_capture(found, Some(number));
                return Ok(());
            }
        };
        if let Some(caller) = self.callers.get_mut(&number) {
            caller.answer(&document);
        }
        Ok(())
    }

    fn no_recording(&self, peer: &Peer, name: &str) -> String {
        let names: Vec<&str> = self
            .library
            .list()
            .into_iter()
            .rev()
            .filter(|capture| peer.may_see(capture.uid))
            .map(|capture| capture.recording.as_str())
            .take(8)
            .collect();
        match names.as_slice() {
            [] => format!("no recording {name}: none was kept yet"),
            names => format!("no recording {name}: the last are {}", names.join(", ")),
        }
    }

    /// The folder of a recording that was kept.
    fn recording(&self, peer: &Peer, name: &str) -> Result<PathBuf, String> {
        let found = is_recording_name(name).then(|| self.library.get(name)).flatten();
        match found.is_some_and(|found| peer.may_see(found.uid)) {
            true => Ok(self.library.path(name)),
            false => Err(self.no_recording(peer, name)),
        }
    }

    /// A recording's files were listed for somebody.
    pub fn was_listed(&mut self, number: u64, result: Result<Vec<(String, PathBuf)>, String>) {
        let Some(caller) = self.callers.get_mut(&number) else {
            return;
        };
        match result {
            Ok(files) => caller.answer_files(files),
            Err(why) => caller.refuse(why),
        }
    }

    /// Has written down what is known of a recording that was kept; `waits`: who is told of it then.
    pub fn note_capture(&mut self, capture: Capture, waits: Option<u64>) {
        let (of, path) = (
            Noted::Capture(capture.recording.clone(), waits),
            self.library.about(&capture.recording),
        );
        let text = saved::text(&capture);
        self.library.put(capture);
        match text {
            Ok(text) => self.disk.give(Task::Note { of, path, text }),
            Err(error) => self.was_noted(of, Err(error.to_string())),
        }
    }

    /// Something was written down, or could not be.
    pub fn was_noted(&mut self, of: Noted, result: Result<(), String>) {
        match of {
            Noted::Job(job) => self.was_saved(&job, result),
            Noted::Capture(_, Some(number)) => {
                let Some(peer) = self.callers.get(&number).map(|caller| caller.peer) else {
                    return;
                };
                let document = result.map(|()| documents::captures(self, &peer));
                if let Some(caller) = self.callers.get_mut(&number) {
                    match document {
                        Ok(document) => caller.answer(&document),
                        Err(why) => caller.refuse(why),
                    }
                }
            }
            Noted::Capture(name, None) => {
                if let Err(why) = result {
                    self.said
                        .push(format!("{name}: {why}: it would not be listed again"));
                }
            }
        }
    }
}

fn reason(trigger: &str, title: &str, caller: u64, waits: bool) -> Reason {
    Reason {
        trigger: trigger.to_owned(),
        title: title.to_owned(),
        caller: waits.then_some(caller),
    }
}

/// What was asked for, in words.
fn words(limits: &Limits) -> String {
    let mut words = "a capture".to_owned();
    match (limits.steps, limits.seconds) {
        (Some(1), _) => words.push_str(" of 1 step"),
        (Some(steps), _) => words.push_str(&format!(" of {steps} steps")),
        (None, Some(seconds)) => words.push_str(&format!(" of {seconds} s")),
        (None, None) => {}
    }
    words
}

fn begun(name: &str, job: &str) -> serde_json::Value {
    json!({
        "schema": "gputrace.capture/1",
        "recording": name,
        "job": job,
        "trigger": "capture",
        "state": "recording",
    })
}
