//! Where a process's recording goes.

use std::path::PathBuf;
use std::sync::Arc;

use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::writer::{Files, OwnFiles};

use crate::daemon::{Event, Link};

/// The process's folder, who makes its files, and the daemon where one does.
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    pub(crate) files: Arc<dyn Files>,
    pub(super) link: Option<Link>,
    /// The daemon has let the process in.
    pub(super) joined: Option<Event>,
}

impl Place {
    /// A folder that was made in the recorder's.
    pub(crate) fn of_recorder(folder: PathBuf) -> Self {
        Self {
            folder,
            files: OwnFiles::shared(),
            link: None,
            joined: None,
        }
    }

    /// A daemon's, which is looked for.
    pub(crate) fn of_daemon(process: &ProcessHeader, folder: String) -> Self {
        let (link, joined) = Link::begin(process, folder);
        Self {
            folder: link.folder().to_owned(),
            files: link.files(),
            link: Some(link),
            joined,
        }
    }

    /// Whether kernels are recorded from the beginning.
    pub(crate) fn wants_kernels(&self) -> bool {
        self.link.is_none() || matches!(self.joined, Some(Event::Joined { is_full: true, .. }))
    }
}
