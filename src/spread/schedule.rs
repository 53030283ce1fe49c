//! Who does what when: tasks that are given to workers until each has its partial, or is known to have none.
//!
//! Engines only start and stop attempts and say which have ended. Whether a task is done is seen in the folder: its partial is there,
//! or the reason why there is none. So nothing is lost with a worker or with the driver, and an attempt that was made twice does no
//! harm: both write the same file aside, and rename it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::task::{Task, made, refused};
use crate::failure::Failure;

/// A task that has killed so many workers is lost.
const TRIES: u32 = 3;
/// A task that takes so many times the median is given to a second worker...
const SLOW: u32 = 3;
/// ... unless it takes less than this.
const NOT_SLOW: Duration = Duration::from_secs(1);
/// How long a file that a worker has written may be unseen here: file systems of several machines remember what was not there.
const UNSEEN: Duration = Duration::from_secs(30);
/// How often the folder is checked for tasks whose end no engine has reported.
const LOOK: Duration = Duration::from_secs(2);

/// What an engine tells of an attempt.
#[derive(Debug)]
pub enum Event {
    /// It runs since now.
    Began(u64),
    /// It has ended. `None`: as it should. Else how, in a few words.
    Ended(u64, Option<String>),
}

/// Something that runs our program on other machines, or on this one.
pub trait Engine {
    /// How many attempts may be under way at once.
    fn room(&self) -> usize;
    /// Starts attempts at tasks, each with a number of its own.
    fn start(&mut self, attempts: &[(u64, &Task)]) -> Result<(), Failure>;
    /// Waits for at most so long, and says what has happened.
    fn events(&mut self, wait: Duration) -> Result<Vec<Event>, Failure>;
    /// Ends attempts that nobody needs any more. They may have ended already.
    fn stop(&mut self, attempts: &[u64]);
}

/// What became of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its partial is there.
    Made,
    /// Its input can't be used, for this reason.
    Refused(String),
    /// Its workers died, the last one so.
    Died(String),
}

/// How far it is, for whoever watches.
pub trait Watch {
    /// Ranks of tasks that are done, ranks that are lost, and attempts under way.
    fn at(&mut self, done: usize, lost: usize, running: usize);
    /// Whether somebody wants it to end: the signal.
    fn is_over(&self) -> Option<i32>;
}

struct Attempt {
    number: u64,
    began: Option<Instant>,
}

#[derive(Default)]
struct State {
    outcome: Option<Outcome>,
    attempts: Vec<Attempt>,
    died: u32,
    /// Its last attempt ended as it should, and the file is not seen yet.
    unseen_since: Option<Instant>,
}

/// The tasks of one round, and what is known of them.
pub struct Schedule<'a> {
    folder: &'a Path,
    tasks: &'a [Task],
    states: Vec<State>,
    /// How long tasks took.
    took: Vec<Duration>,
    next: u64,
}

impl<'a> Schedule<'a> {
    /// Of tasks whose partials go to a folder. What lies there is taken as it is.
    pub fn new(folder: &'a Path, tasks: &'a [Task]) -> Self {
        let states = tasks.iter().map(|_| State::default());
        let mut schedule = Self {
            folder,
            tasks,
            states: states.collect(),
            took: Vec::new(),
            next: 0,
        };
        (0..tasks.len()).for_each(|place| _ = schedule.look(place));
        schedule
    }

    /// Has all tasks done.
    pub fn run(mut self, engine: &mut dyn Engine, watch: &mut dyn Watch) -> Result<Vec<Outcome>, Failure> {
        let mut looked = Instant::now();
        loop {
            self.say(watch);
            if self.states.iter().all(|state| state.outcome.is_some()) {
                let outcomes = self.states.into_iter().filter_map(|state| state.outcome);
                return Ok(outcomes.collect());
            }
            if let Some(signal) = watch.is_over() {
                let done = self.states.iter().filter(|state| state.outcome.is_some()).count();
                return Err(Failure::new(format!(
                    "ended by signal {signal} with {done} of {} parts done: the same command goes on from there",
                    self.tasks.len()
                ))
                .with_status(128 + signal));
            }
            self.start(engine)?;
            for event in engine.events(Duration::from_millis(200))? {
                match event {
                    Event::Began(number) => self.began(number),
                    Event::Ended(number, how) => self.ended(number, how),
                }
            }
            let all = looked.elapsed() >= LOOK;
            if all {
                looked = Instant::now();
            }
            for place in 0..self.states.len() {
                self.settle(place, all, engine);
            }
        }
    }

    fn say(&self, watch: &mut dyn Watch) {
        let (mut done, mut lost, mut running) = (0, 0, 0);
        for (state, task) in self.states.iter().zip(self.tasks) {
            match state.outcome {
                None => {}
                Some(Outcome::Made) => done += task.ranks.len().max(1),
                Some(_) => lost += task.ranks.len().max(1),
            }
            running += state.attempts.len();
        }
        watch.at(done, lost, running);
    }

    /// Looks for the files of a task: whether it is done.
    fn look(&mut self, place: usize) -> bool {
        let name = &self.tasks[place].name;
        let outcome = if made(self.folder, name).exists() {
            Some(Outcome::Made)
        } else {
            let why = fs::read_to_string(refused(self.folder, name)).ok();
            why.map(Outcome::Refused)
        };
        let is_done = outcome.is_some();
        if is_done {
            self.states[place].outcome = outcome;
        }
        is_done
    }

    /// Gives tasks that nobody is at to workers; at the end also such as take long.
    fn start(&mut self, engine: &mut dyn Engine) -> Result<(), Failure> {
        let running: usize = self.states.iter().map(|state| state.attempts.len()).sum();
        let room = engine.room().saturating_sub(running);
        let waits = |state: &State| {
            state.outcome.is_none() && state.attempts.is_empty() && state.unseen_since.is_none()
        };
        let places = 0..self.states.len();
        let mut chosen: Vec<usize> = places
            .filter(|place| waits(&self.states[*place]))
            .take(room)
            .collect();
        let room = room - chosen.len();
        chosen.extend(self.slow().into_iter().take(room));
        let tasks = self.tasks;
        let mut attempts = Vec::new();
        for place in chosen {
            let number = self.next;
            self.next += 1;
            self.states[place].attempts.push(Attempt { number, began: None });
            attempts.push((number, &tasks[place]));
        }
        match attempts.is_empty() {
            true => Ok(()),
            false => engine.start(&attempts),
        }
    }

    /// Tasks that are at one worker for too long, once nearly all others are done.
    fn slow(&self) -> Vec<usize> {
        let done = self.states.iter().filter(|state| state.outcome.is_some()).count();
        let is_nearly_over = done * 20 >= self.states.len() * 19 || done + 1 == self.states.len();
        let mut took = self.took.clone();
        took.sort_unstable();
        let Some(median) = took.get(took.len() / 2).filter(|_| is_nearly_over) else {
            return Vec::new();
        };
        let limit = (*median * SLOW).max(NOT_SLOW);
        let is_slow = |state: &State| match state.attempts.as_slice() {
            [one] if state.outcome.is_none() => one.began.is_some_and(|began| began.elapsed() > limit),
            _ => false,
        };
        let places = 0..self.states.len();
        places.filter(|place| is_slow(&self.states[*place])).collect()
    }

    fn began(&mut self, number: u64) {
        let attempts = self.states.iter_mut().flat_map(|state| &mut state.attempts);
        if let Some(attempt) = attempts.into_iter().find(|attempt| attempt.number == number) {
            // One that was put back into the queue begins again.
            attempt.began = Some(Instant::now());
        }
    }

    fn ended(&mut self, number: u64, how: Option<String>) {
        let is_it = |state: &State| state.attempts.iter().any(|attempt| attempt.number == number);
        let Some(place) = self.states.iter().position(is_it) else {
            return;
        };
        let state = &mut self.states[place];
        let began = state.attempts.iter().find(|attempt| attempt.number == number);
        let began = began.and_then(|attempt| attempt.began);
        state.attempts.retain(|attempt| attempt.number != number);
        if self.look(place) {
            self.took.extend(began.map(|began| began.elapsed()));
            return;
        }
        let state = &mut self.states[place];
        match how {
            None => {
                state.unseen_since.get_or_insert_with(Instant::now);
            }
            // Another worker is still at it.
            Some(_) if !state.attempts.is_empty() => {}
            Some(how) => self.died(place, how),
        }
    }

    fn died(&mut self, place: usize, how: String) {
        let state = &mut self.states[place];
        state.died += 1;
        if state.died >= TRIES {
            state.outcome = Some(Outcome::Died(how));
        }
    }

    /// Looks whether a task is done: one that has ended unseen, with `all` any; and ends what is still at it then.
    fn settle(&mut self, place: usize, all: bool, engine: &mut dyn Engine) {
        let state = &self.states[place];
        let is_at_work = all && !state.attempts.is_empty();
        if state.outcome.is_none() && (state.unseen_since.is_some() || is_at_work) {
            let unseen = state.unseen_since;
            let began = state.attempts.first().and_then(|attempt| attempt.began);
            if self.look(place) {
                self.took.extend(began.map(|began| began.elapsed()));
            } else if unseen.is_some_and(|since| since.elapsed() > UNSEEN) {
                self.states[place].unseen_since = None;
                self.died(place, "it ended well and wrote nothing".to_owned());
            }
        }
        let state = &mut self.states[place];
        if state.outcome.is_some() && !state.attempts.is_empty() {
            let others: Vec<u64> = state.attempts.drain(..).map(|attempt| attempt.number).collect();
            engine.stop(&others);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Workers that die at random, or always at some tasks.
    struct Fake<'a> {
        folder: &'a Path,
        seed: u64,
        running: BTreeMap<u64, String>,
        started: BTreeMap<String, u32>,
        killed: BTreeMap<String, u32>,
        most: usize,
    }

    impl Fake<'_> {
        fn below(&mut self, count: usize) -> usize {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.seed >> 33) as usize % count
        }
    }

    impl Engine for Fake<'_> {
        fn room(&self) -> usize {
            3
        }

        fn start(&mut self, attempts: &[(u64, &Task)]) -> Result<(), Failure> {
            for (number, task) in attempts {
                self.running.insert(*number, task.name.clone());
                *self.started.entry(task.name.clone()).or_default() += 1;
            }
            self.most = self.most.max(self.running.len());
            Ok(())
        }

        fn events(&mut self, _wait: Duration) -> Result<Vec<Event>, Failure> {
            let place = self.below(self.running.len().max(1));
            let Some((number, name)) = self.running.iter().nth(place) else {
                return Ok(Vec::new());
            };
            let (number, name) = (*number, name.clone());
            self.running.remove(&number);
            if name.starts_with("kills") || self.below(3) == 0 {
                *self.killed.entry(name).or_default() += 1;
                return Ok(vec![
                    Event::Began(number),
                    Event::Ended(number, Some("killed".to_owned())),
                ]);
            }
            let file = match name.starts_with("damaged") {
                true => refused(self.folder, &name),
                false => made(self.folder, &name),
            };
            fs::write(file, "it is cut off").expect("written");
            let how = name.starts_with("damaged").then(|| "exit status 2".to_owned());
            Ok(vec![Event::Began(number), Event::Ended(number, how)])
        }

        fn stop(&mut self, attempts: &[u64]) {
            attempts.iter().for_each(|number| _ = self.running.remove(number));
        }
    }

    struct Until(usize);

    impl Watch for Until {
        fn at(&mut self, done: usize, _lost: usize, _running: usize) {
            self.0 = self.0.saturating_sub(usize::from(done > 0));
        }

        fn is_over(&self) -> Option<i32> {
            (self.0 == 0).then_some(15)
        }
    }

    fn tasks() -> Vec<Task> {
        let name = |number: u32| match number {
            7 => "kills".to_owned(),
            11 => "damaged".to_owned(),
            number => format!("task-{number}"),
        };
        let task = |number| Task {
            name: name(number),
            arguments: Vec::new(),
            ranks: vec![number],
        };
        (0..20).map(task).collect()
    }

    fn fake(folder: &Path, seed: u64) -> Fake<'_> {
        Fake {
            folder,
            seed,
            running: BTreeMap::new(),
            started: BTreeMap::new(),
            killed: BTreeMap::new(),
            most: 0,
        }
    }

    #[test]
    fn what_dies_is_tried_three_times_and_what_is_damaged_once() {
        let tasks = tasks();
        for seed in 0..50 {
            let folder = tempfile::tempdir().expect("a folder");
            let mut engine = fake(folder.path(), seed);
            let all = Schedule::new(folder.path(), &tasks).run(&mut engine, &mut Until(usize::MAX));
            let all = all.unwrap_or_else(|failure| panic!("{failure}"));
            assert_eq!(all.len(), tasks.len());
            assert!(engine.most <= 3 && engine.running.is_empty());
            for (task, outcome) in tasks.iter().zip(all) {
                let killed = engine.killed.get(&task.name).copied().unwrap_or(0);
                let started = engine.started[&task.name];
                match outcome {
                    Outcome::Died(how) => assert_eq!((killed, started, how.as_str()), (3, 3, "killed")),
                    Outcome::Refused(why) => {
                        assert_eq!((task.name.as_str(), why.as_str()), ("damaged", "it is cut off"));
                        assert_eq!(started, killed + 1);
                    }
                    Outcome::Made => {
                        assert!(killed < 3 && started == killed + 1, "{started} {killed}");
                        assert!(!task.name.starts_with("kills"));
                    }
                }
            }
        }
    }

    #[test]
    fn it_goes_on_where_it_was() {
        let tasks = tasks();
        let folder = tempfile::tempdir().expect("a folder");
        let mut engine = fake(folder.path(), 5);
        let ended = Schedule::new(folder.path(), &tasks).run(&mut engine, &mut Until(9));
        let failure = ended.expect_err("it was ended");
        assert_eq!(failure.status(), 143);
        let there: Vec<&Task> = tasks
            .iter()
            .filter(|task| made(folder.path(), &task.name).exists())
            .collect();
        assert!(!there.is_empty() && there.len() < 18, "{}", there.len());
        let mut engine = fake(folder.path(), 6);
        let all = Schedule::new(folder.path(), &tasks).run(&mut engine, &mut Until(usize::MAX));
        assert!(all.is_ok());
        assert!(there.iter().all(|task| !engine.started.contains_key(&task.name)));
    }
}
