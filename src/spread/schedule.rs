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
/// How often it is looked at files of tasks whose end nobody has told.
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
