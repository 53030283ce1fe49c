//! What clients ask, and what they are told.

use std::path::PathBuf;

use gputrace_trace::daemon::{Ask, Limits};
use gputrace_trace::recording::process_folders;
use serde_json::json;

use crate::caller::Role;
use crate::documents;
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
                let files = self.files(peer, &recording)?;
                if let Some(caller) = self.callers.get_mut(&number) {
                    caller.answer_files(files);
                }
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
                self.library.put(found).map_err(|error| error.to_string())?;
                documents::captures(self, peer)
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

    /// The files of a recording that was kept: what they are called in it, and where they are.
    fn files(&self, peer: &Peer, name: &str) -> Result<Vec<(String, PathBuf)>, String> {
        let found = is_recording_name(name).then(|| self.library.get(name)).flatten();
        if found.is_none_or(|found| !peer.may_see(found.uid)) {
            return Err(self.no_recording(peer, name));
        }
        let root = self.library.path(name);
        let listed = (|| {
            let mut folders = vec![root.clone()];
            folders.extend(process_folders(&root)?);
            let mut files = Vec::new();
            for folder in folders {
                for entry in std::fs::read_dir(folder)? {
                    let path = entry?.path();
                    if let Ok(within) = path.strip_prefix(&root)
                        && path.is_file()
                    {
                        files.push((within.to_string_lossy().into_owned(), path));
                    }
                }
            }
            // The manifest last: what has it is whole.
            files.sort_by_key(|(name, _)| (!name.contains('/'), name.clone()));
            Ok(files)
        })();
        listed.map_err(|error: std::io::Error| format!("{name}: {error}"))
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
