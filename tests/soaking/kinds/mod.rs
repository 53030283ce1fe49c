//! The kinds of tries: one list, which everything goes by.

mod damage;
mod foreign;
mod kills;
mod links;
mod names;
mod overwrite;
mod programs;
mod requests;

use std::path::Path;
use std::time::Duration;

use crate::random::Random;
use crate::world::World;

/// What tries of one kind are.
pub struct Kind {
    /// As `--only` takes it.
    pub name: &'static str,
    /// For the table.
    pub what: &'static str,
    /// Of the time, beside those of the others.
    pub share: u32,
    /// After so long a try hangs.
    pub patience: Duration,
    /// One try with its numbers, in an empty folder of its own. It fails by a panic.
    pub run: fn(&World, Random, &Path),
}

const SECONDS: Duration = Duration::from_secs(1);

/// All kinds.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "truncations",
        what: "a file of a recording cut at any byte",
        share: 2,
        patience: SECONDS.saturating_mul(20),
        run: damage::truncate,
    },
    Kind {
        name: "flips",
        what: "bits, bytes and holes in a file of a recording",
        share: 3,
        patience: SECONDS.saturating_mul(20),
        run: damage::flip,
    },
    Kind {
        name: "swaps",
        what: "files of a recording that are another process's or recording's, twice there or gone",
        share: 1,
        patience: SECONDS.saturating_mul(20),
        run: damage::swap,
    },
    Kind {
        name: "traces",
        what: "hostile and mutated JSON traces, plain and packed",
        share: 4,
        patience: SECONDS.saturating_mul(30),
        run: foreign::trace,
    },
    Kind {
        name: "runs",
        what: "the same of several ranks, analysed and exported again",
        share: 2,
        patience: SECONDS.saturating_mul(30),
        run: foreign::run_of_several,
    },
    Kind {
        name: "databases",
        what: "damaged and mutated SQLite exports",
        share: 2,
        patience: SECONDS.saturating_mul(30),
        run: foreign::database,
    },
    Kind {
        name: "tables",
        what: "tables, headers and manifests of any bytes, opened and followed",
        share: 2,
        patience: SECONDS.saturating_mul(30),
        run: foreign::table,
    },
    Kind {
        name: "parquet",
        what: "damaged exports to Parquet",
        share: 2,
        patience: SECONDS.saturating_mul(30),
        run: foreign::parquet,
    },
    Kind {
        name: "names",
        what: "scripts and control characters in every name, in the page that stands alone and the served API",
        share: 1,
        patience: SECONDS.saturating_mul(60),
        run: names::scripts,
    },
    Kind {
        name: "requests",
        what: "hostile requests: smuggling, rebinding, traversal, floods, noise",
        share: 3,
        patience: SECONDS.saturating_mul(60),
        run: requests::hostile,
    },
    Kind {
        name: "links",
        what: "links, pipes and devices in a served recording",
        share: 2,
        patience: SECONDS.saturating_mul(90),
        run: links::lead_outside,
    },
    Kind {
        name: "overwrite",
        what: "--force and -o at what is not ours",
        share: 2,
        patience: SECONDS.saturating_mul(60),
        run: overwrite::somebody_elses,
    },
    Kind {
        name: "kills",
        what: "ranks and recorders killed at any moment",
        share: 4,
        patience: SECONDS.saturating_mul(90),
        run: kills::at_any_moment,
    },
    Kind {
        name: "programs",
        what: "hostile programs with little to live on, recorded and not",
        share: 3,
        patience: SECONDS.saturating_mul(200),
        run: programs::hostile,
    },
];
