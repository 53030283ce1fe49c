//! Chooses tries, watches their time, counts them, and stops at the first that fails.

use std::io::{IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::kinds::{KINDS, Kind};
use crate::random::Random;
use crate::world::World;

/// What is to be run: `SOAK_` variables, which `tests/soak` sets.
pub struct Asked {
    for_how_long: Duration,
    seed: u64,
    only: Option<String>,
    /// One try alone.
    number: Option<u64>,
}

impl Asked {
    /// # Panics
    /// When a variable is wrong: in words for whoever typed it.
    pub fn from_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let number = |name: &str| {
            variable(name).map(|text| {
                text.parse::<f64>()
                    .unwrap_or_else(|_| panic!("{name}={text}: expected a number"))
            })
        };
        let whole = |name: &str| {
            variable(name).map(|text| {
                text.parse::<u64>()
                    .unwrap_or_else(|_| panic!("{name}={text}: expected a whole number"))
            })
        };
        let only = variable("SOAK_ONLY");
        if let Some(only) = &only
            && KINDS.iter().all(|kind| kind.name != only)
        {
            let names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
            panic!(
                "--only {only}: there is no such kind; there are {}",
                names.join(", ")
            );
        }
        Self {
            for_how_long: Duration::from_secs_f64(60.0 * number("SOAK_MINUTES").unwrap_or(1.0).max(0.0)),
            seed: whole("SOAK_SEED").unwrap_or(1),
            only,
            number: whole("SOAK_TRY"),
        }
    }
}

/// What became of a kind.
#[derive(Clone, Default)]
struct Count {
    tries: u64,
    failures: u64,
    spent: Duration,
}

/// The try that runs, for who watches its time: its line, when it has to be done, and how long it had.
static RUNNING: Mutex<Option<(String, Instant, Duration)>> = Mutex::new(None);

fn running() -> std::sync::MutexGuard<'static, Option<(String, Instant, Duration)>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the program when a try takes too long: what hangs in this process can't be stopped otherwise.
fn watch() {
    std::thread::spawn(|| {
        loop {
            std::thread::sleep(Duration::from_millis(200));
            if let Some((line, until, patience)) = &*running()
                && Instant::now() > *until
            {
                eprintln!(
                    "\nsoak: FAILED: hangs: not done in {} s\n{line}",
                    patience.as_secs()
                );
                std::process::exit(101);
            }
        }
    });
}

/// The line that repeats a try.
fn repeat(seed: u64, kind: &str, number: u64) -> String {
    format!("tests/soak --seed {seed} --only {kind} --try {number}")
}

/// The kind whose turn it is: which has had the least of its share.
fn next(kinds: &[&'static Kind], counts: &[Count]) -> usize {
    let had = |place: usize| counts[place].spent.as_secs_f64() / f64::from(kinds[place].share);
    let places = 0..kinds.len();
    // Those that had no turn come first, as they stand in the list.
    places
        .min_by(|a, b| had(*a).total_cmp(&had(*b)))
        .unwrap_or_default()
}

/// Runs one try in a fresh folder; what went wrong, in words.
fn try_once(world: &World, kind: &Kind, seed: u64, number: u64, folder: &Path) -> Result<(), String> {
    drop(std::fs::remove_dir_all(folder));
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let line = repeat(seed, kind.name, number);
    // For the script, should this process be killed.
    let noted = std::fs::write(World::kept().join("running"), &line);
    noted.map_err(|error| format!("{}: {error}", World::kept().display()))?;
    *running() = Some((line, Instant::now() + kind.patience, kind.patience));
    let random = Random::of(seed, kind.name, number);
    let run = catch_unwind(AssertUnwindSafe(|| (kind.run)(world, random, folder)));
    *running() = None;
    run.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.unwrap_or_else(|| "a panic without words".to_owned())
    })
}

fn print_table(kinds: &[&'static Kind], counts: &[Count], begun: Instant) {
    eprintln!(
        "\n{:<12} {:>9} {:>9} {:>8} {:>11}  what",
        "kind", "tries", "failures", "seconds", "tries/min"
    );
    let mut all = Count::default();
    for (kind, count) in kinds.iter().zip(counts) {
        let seconds = count.spent.as_secs_f64();
        let pace = if seconds > 0.0 {
            60.0 * count.tries as f64 / seconds
        } else {
            0.0
        };
        eprintln!(
            "{:<12} {:>9} {:>9} {seconds:>8.1} {pace:>11.0}  {}",
            kind.name, count.tries, count.failures, kind.what
        );
        all.tries += count.tries;
        all.failures += count.failures;
    }
    let seconds = begun.elapsed().as_secs_f64();
    eprintln!(
        "{:<12} {:>9} {:>9} {seconds:>8.1}",
        "all", all.tries, all.failures
    );
}

/// Where a failed try's files are kept.
fn keep(kind: &str, seed: u64, number: u64, folder: &Path) -> PathBuf {
    let kept = World::kept().join(format!("{kind}-{seed}-{number}"));
    drop(std::fs::remove_dir_all(&kept));
    // Links, pipes and all; the temporary folder may be on another disk.
    let moved = Command::new("mv").arg(folder).arg(&kept).status();
    match moved {
        Ok(status) if status.success() => kept,
        _ => folder.to_owned(),
    }
}

/// Runs what was asked for.
///
/// # Errors
/// The line of the first try that failed.
pub fn run(asked: &Asked) -> Result<(), String> {
    let chosen = |kind: &&'static Kind| asked.only.as_ref().is_none_or(|only| kind.name == only);
    let kinds: Vec<&'static Kind> = KINDS.iter().filter(chosen).collect();
    let mut counts = vec![Count::default(); kinds.len()];
    let world = World::new(asked.seed);
    watch();
    eprintln!(
        "soak: {} kinds, seed {}, {:.1} minutes",
        kinds.len(),
        asked.seed,
        asked.for_how_long.as_secs_f64() / 60.0
    );
    let (begun, is_terminal) = (Instant::now(), std::io::stderr().is_terminal());
    let mut told = begun;
    let once = asked.number.is_some();
    let folder = world.folder().join("try");
    // Each kind has one try at least.
    while counts.iter().any(|count| count.tries == 0) || (!once && begun.elapsed() < asked.for_how_long) {
        let place = next(&kinds, &counts);
        let (kind, count) = (kinds[place], &mut counts[place]);
        let turn = Instant::now();
        // A turn of quick tries is a while: then the line below costs nothing.
        while turn.elapsed() < Duration::from_millis(200) {
            let number = asked.number.unwrap_or(count.tries);
            let tried = try_once(&world, kind, asked.seed, number, &folder);
            count.tries += 1;
            if let Err(what) = tried {
                count.failures += 1;
                count.spent += turn.elapsed();
                let kept = keep(kind.name, asked.seed, number, &folder);
                print_table(&kinds, &counts, begun);
                return Err(format!(
                    "soak: FAILED: {}: {what}\nits files: {}\nagain: {}",
                    kind.name,
                    kept.display(),
                    repeat(asked.seed, kind.name, number)
                ));
            }
            if once {
                break;
            }
        }
        count.spent += turn.elapsed();
        let pause = Duration::from_secs(if is_terminal { 1 } else { 30 });
        if told.elapsed() > pause {
            told = Instant::now();
            let tries: u64 = counts.iter().map(|count| count.tries).sum();
            let end = if is_terminal { "\r" } else { "\n" };
            let line = format!(
                "soak: {:.0} s, {tries} tries, 0 failures; {}",
                begun.elapsed().as_secs_f64(),
                kind.name
            );
            eprint!("{line:<70}{end}");
            // A line that is not seen harms nobody.
            drop(std::io::stderr().flush());
        }
    }
    print_table(&kinds, &counts, begun);
    Ok(())
}
