//! What tries share: folders, things that are made once, and a server.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use crate::common::http::{self, Viewer};
use crate::common::{expect_status, gputrace};
use crate::compare::{self, Read};
use crate::seeds::{self, Words};

/// Made once, and left as it is.
pub struct World {
    folder: tempfile::TempDir,
    seed: u64,
    whole: OnceLock<(PathBuf, Read)>,
    other: OnceLock<PathBuf>,
    parquet: OnceLock<PathBuf>,
    served: Mutex<Option<Viewer>>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("gputrace-soak-")
            .tempdir()
            .expect("a temporary folder");
        std::fs::create_dir_all(Self::kept()).expect("a folder for what fails");
        Self {
            folder,
            seed,
            whole: OnceLock::new(),
            other: OnceLock::new(),
            parquet: OnceLock::new(),
            served: Mutex::new(None),
        }
    }

    /// Everything is in here.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where the files of failed tries are kept when the soak has ended.
    pub fn kept() -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("soak")
    }

    /// A whole recording of ours.
    pub fn recording(&self) -> &Path {
        &self.whole().0
    }

    /// The same as it reads.
    pub fn read(&self) -> &Read {
        &self.whole().1
    }

    fn whole(&self) -> &(PathBuf, Read) {
        self.whole.get_or_init(|| {
            let path = self.folder().join("recording");
            seeds::recording(&path, self.seed, Words::default());
            let read = compare::read(&path).expect("a whole recording");
            (path, read)
        })
    }

    /// A recording of the same processes at the same times, with other numbers in it.
    pub fn other(&self) -> &Path {
        self.other.get_or_init(|| {
            let path = self.folder().join("other");
            seeds::recording(&path, self.seed.wrapping_add(1), Words::default());
            path
        })
    }

    /// The recording as an export to Parquet.
    pub fn parquet(&self) -> &Path {
        self.parquet.get_or_init(|| {
            let path = self.folder().join("parquet");
            let mut export = gputrace();
            export.arg("export").arg(self.recording());
            expect_status(export.args(["--format", "parquet", "-o"]).arg(&path), 0);
            path
        })
    }

    /// Does something with a server of a folder that has the recording in it.
    pub fn with_server<T>(&self, body: impl FnOnce(&mut Viewer) -> T) -> T {
        let mut served = self
            .served
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let viewer = served.get_or_insert_with(|| {
            let folder = self.folder().join("served");
            if !folder.exists() {
                std::fs::create_dir(&folder).expect("a folder");
                crate::arena::copy(self.recording(), &folder.join("recording"));
            }
            http::serve(&folder)
        });
        body(viewer)
    }
}
