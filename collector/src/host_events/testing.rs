//! For tests of what callbacks pass on: rings are one for the process, so that such tests take turns.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gputrace_trace::manifest::ProcessHeader;
use gputrace_trace::options::{CollectorOptions, Kind, OPTIONS_VARIABLE};
use gputrace_trace::tables::Tables;
use gputrace_trace::writer::ProcessWriter;
use gputrace_trace::{Interner, Recording};

use super::Rows;
use crate::records::RecordSizes;
use crate::windows::Gate;
use crate::{config, header};

/// A test's turn.
pub(crate) struct Turn {
    _lock: MutexGuard<'static, ()>,
}

// SAFETY: of a guard that is only kept, nothing can be done on another thread.
unsafe impl Sync for Turn {}

/// Waits for this test's turn. All kinds are recorded.
pub(crate) fn turn() -> Turn {
    static TURN: Mutex<()> = Mutex::new(());
    let lock = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let options = CollectorOptions {
        kinds: Some(Kind::ALL.map(|kind| kind.name().to_owned()).to_vec()),
        ..CollectorOptions::default()
    };
    // SAFETY: tests that read the environment are those that take turns.
    unsafe {
        std::env::set_var("GPUTRACE_DIR", "/nowhere");
        std::env::set_var(OPTIONS_VARIABLE, options.to_text());
    }
    Turn { _lock: lock }
}

impl Turn {
    /// What the writer makes of all that has come, as a reader finds it.
    pub(crate) fn written(&self) -> (Tables, Interner) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("process");
        let mut writer = ProcessWriter::create(&path).expect("a folder");
        let mut header = ProcessHeader::new();
        let mut rows = Rows::default();
        let mut gate = Gate::new(config::options(), RecordSizes::default(), &[]);
        rows.take(&mut writer, &mut header, &mut gate);
        rows.take(&mut writer, &mut header, &mut gate);
        rows.finish(&mut writer, &mut header, &mut gate);
        assert_eq!(rows.open_ranges(), 0);
        writer.close().expect("written");
        header::write(&gputrace_trace::writer::OwnFiles, &path, &mut header).expect("written");
        let mut recording = Recording::open(folder.path()).expect("opens");
        let tables = recording.processes.remove(0).tables;
        assert_eq!(tables.losses.count.len(), 0);
        (tables, recording.names)
    }
}
