//! What was tried, and what came of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What came of a try: nothing where it could not be tried here.
pub type Tried = Result<bool, String>;

/// Failures whose words are kept.
const MOST_WORDS: usize = 40;

#[derive(Default)]
struct Inner {
    kinds: BTreeMap<String, (u64, u64, u64)>,
    words: Vec<String>,
    sums: BTreeMap<&'static str, u64>,
}

/// See the module's text.
#[derive(Default)]
pub struct Ledger(Mutex<Inner>);

impl Ledger {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a try.
    pub fn count(&self, kind: &str, tried: Tried) {
        let mut inner = self.inner();
        let of = inner.kinds.entry(kind.to_owned()).or_default();
        match tried {
            Ok(true) => of.0 += 1,
            Ok(false) => of.2 += 1,
            Err(why) => {
                of.0 += 1;
                of.1 += 1;
                eprintln!("daemon soak: FAILED: {kind}: {why}");
                if inner.words.len() < MOST_WORDS {
                    inner.words.push(format!("{kind}: {why}"));
                }
            }
        }
    }

    /// Adds to a sum.
    pub fn add(&self, what: &'static str, count: u64) {
        *self.inner().sums.entry(what).or_default() += count;
    }

    /// What failed, in words.
    pub fn failures(&self) -> Vec<String> {
        self.inner().words.clone()
    }

    /// Prints all of it. `cpu`: seconds that the daemon had, of so many.
    pub fn print(&self, seed: u64, last: Duration, cpu: (f64, f64), peak_kib: u64, jobs: u64) {
        let inner = self.inner();
        eprintln!(
            "\n{:<28} {:>7} {:>9} {:>9}",
            "kind", "tries", "failures", "not here"
        );
        let mut all = (0, 0);
        for (kind, (tries, failures, skipped)) in &inner.kinds {
            eprintln!("{kind:<28} {tries:>7} {failures:>9} {skipped:>9}");
            all = (all.0 + tries, all.1 + failures);
        }
        eprintln!("{:<28} {:>7} {:>9}", "all", all.0, all.1);
        for (what, sum) in &inner.sums {
            eprintln!("{what}: {sum}");
        }
        eprintln!(
            "daemon soak: seed {seed}, {:.1} minutes, {jobs} jobs; the daemon: {:.2} % of a core over {:.0} s, {:.1} MiB at most",
            last.as_secs_f64() / 60.0,
            100.0 * cpu.0 / cpu.1.max(1e-9),
            cpu.1,
            peak_kib as f64 / 1024.0
        );
    }
}
