//! Recordings that grow, as the library reads them.

use gputrace_trace::json_file::{read_json, write_json};

use gputrace_trace::manifest::{MANIFEST_FILE, Manifest};
use gputrace_trace::tables::{Clock, UntimedOperation};
use gputrace_trace::{Recording, Table as _, TimeNs};

use super::*;
use crate::timeline::tests::STARTED;
use crate::timeline::tests::early::{larger, write};

/// A recording in a folder, and a library that follows it.
struct Followed {
    folder: tempfile::TempDir,
    library: Arc<Library>,
    entry: Arc<Entry>,
}

impl Followed {
    fn new(recording: &Recording) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write(recording, folder.path(), 64);
        assert!(set_state(folder.path(), "complete", "recording"));
        let library = Library::new(vec![vec![folder.path().to_owned()]], None, None);
        library.keep();
        let entry = library.list().remove(0);
        Self {
            folder,
            library,
            entry,
        }
    }

    /// Closes it as a recorder does.
    fn close(&self) {
        assert!(set_state(self.folder.path(), "recording", "complete"));
    }

    /// Lets its files look as if something had been appended.
    fn grow(&self) {
        let file = self.folder.path().join("appended");
        let bytes = std::fs::read(&file).map_or(0, |bytes| bytes.len());
        std::fs::write(file, vec![b'x'; bytes + 1]).unwrap();
    }

    fn is_followed(&self) -> bool {
        lock(&self.entry.following).is_some()
    }

    /// The newest generation, as soon as it is as the test wants it.
    #[track_caller]
    fn until(&self, enough: impl Fn(&Loaded) -> bool) -> Arc<Loaded> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Ok((entry, newest)) = self.library.newest(&self.entry.id, Client::Ourselves) {
                assert_eq!(entry.error(), None);
                if enough(&newest) {
                    return newest;
                }
            }
            assert!(Instant::now() < until, "{:?}", self.entry.listed());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn set_state(folder: &Path, from: &str, to: &str) -> bool {
    let file = folder.join(MANIFEST_FILE);
    let mut manifest = read_json::<Manifest>(&file).unwrap().ok().unwrap();
    let was = std::mem::replace(&mut manifest.state, to.to_owned());
    write_json(&file, &manifest).unwrap();
    was == from
}

fn there(loaded: &Loaded) -> Result<(), Missing> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.unwrap().block_on(loaded.there())
}

#[test]
fn what_cannot_be_followed_is_analysed_and_not_tried_again() {
    let mut set = larger();
    for (passed_ns, by_ns) in [(0, 0), (1_000_000_000, 20_000_000)] {
        set.processes[0].tables.clocks.push(Clock {
            realtime_ns: TimeNs(STARTED + passed_ns + by_ns),
            monotonic_ns: 5000 + passed_ns,
            boottime_ns: 5000 + passed_ns,
            ..Clock::default()
        });
    }
    let mut unfinished = larger();
    unfinished.processes[0]
        .tables
        .untimed_operations
        .push(UntimedOperation {
            kind: 10,
            start_ns: Some(TimeNs(STARTED + 950)),
            ..UntimedOperation::default()
        });
    for (recording, table) in [(set, "clocks"), (unfinished, "untimed_operations")] {
        let followed = Followed::new(&recording);
        let newest = followed.until(|newest| newest.growing && newest.analysed);
        assert!(
            newest.analysis().is_some(),
            "{table}: who asks for the analysis gets it"
        );
        assert!(!followed.is_followed());
        // Nobody tries to follow it before it is closed.
        std::fs::remove_file(followed.folder.path().join(format!("rank0/{table}.arrows"))).unwrap();
        let next = followed.until(|next| next.generation > newest.generation && next.analysed);
        assert!(next.growing && next.analysis().is_some() && !followed.is_followed());
        followed.close();
        let closed = followed.until(|closed| !closed.growing && closed.analysed);
        assert!(closed.analysis().is_some() && lock(&followed.entry.inner).unusual == 0);
    }
}

#[test]
fn a_recording_that_closes_is_read_once_more_and_its_analysis_told() {
    let followed = Followed::new(&larger());
    let first = followed.until(|newest| !newest.timeline.is_waiting() && newest.growing);
    followed.until(|newest| newest.analysed);
    assert!(followed.is_followed());
    followed.close();
    let closed = followed.until(|newest| !newest.growing && newest.analysed);
    assert!(!followed.is_followed());
    for loaded in [&first, &closed] {
        assert!(loaded.analysis().is_some());
    }
    while lock(&followed.entry.inner).reading.is_some() {
        std::thread::sleep(Duration::from_millis(5));
    }
    // As an analysis that ends only now leaves it.
    lock(&followed.entry.inner).again = true;
    let until = Instant::now() + 4 * LOOK;
    while Instant::now() < until {
        let newest = followed.until(|_| true);
        assert_eq!(newest.generation, closed.generation, "it was read again");
        assert!(lock(&followed.entry.inner).reading.is_none());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_was_only_drawn_is_not_taken_for_the_whole() {
    let followed = Followed::new(&larger());
    followed.until(|newest| newest.analysed);
    let generations = lock(&followed.entry.inner).generations.clone();
    let [early, .., newest] = generations.as_slice() else {
        panic!("{} generations", generations.len());
    };
    // Its kernels were not read: those of the next were.
    assert!(
        early.timeline.recording().processes[0]
            .tables
            .kernels
            .start_ns
            .is_empty()
    );
    assert_eq!(there(early), Err(Missing::Gone));
    assert!(
        !newest.timeline.recording().processes[0]
            .tables
            .kernels
            .start_ns
            .is_empty()
    );
    assert_eq!(there(newest), Ok(()));
}

#[test]
fn nobody_goes_on_with_what_a_look_that_failed_left() {
    let followed = Followed::new(&larger());
    let newest = followed.until(|newest| newest.analysed);
    lock(&followed.entry.following).as_mut().unwrap().breaks = true;
    followed.grow();
    let next = followed.until(|next| next.generation > newest.generation && !followed.is_followed());
    assert_eq!(next.timeline.events(), newest.timeline.events());
    followed.grow();
    let next = followed.until(|later| later.generation > next.generation && later.analysed);
    assert!(next.growing && next.analysis().is_some());
}
