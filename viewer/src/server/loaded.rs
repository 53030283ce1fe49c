//! One state of a recording in memory: what requests of one generation are answered from.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use gputrace_analyzer::baseline::Baseline;
use gputrace_analyzer::graph::Model;
use gputrace_analyzer::partial::others_of;
use gputrace_analyzer::rank_steps::RankSteps;
use gputrace_analyzer::{Analysis, Options, analyze};
use gputrace_trace::time::relative_to;
use gputrace_trace::{Recording, TimeNs};
use serde_json::{Value, json};
use tokio::sync::{OnceCell, watch};

use super::entry::Missing;
use crate::timeline::Timeline;

/// Analyses of chosen steps that are kept.
const KEPT_ANALYSES: usize = 8;
/// Graphs that are kept: of all steps, and of some.
const KEPT_MODELS: usize = 2;

/// The analysis of a whole recording.
pub struct Analysed {
    /// The analysis.
    pub analysis: Arc<Analysis>,
    /// Its JSON, with relative stamps and without collectives.
    pub json: Bytes,
}

impl Analysed {
    /// Makes the JSON too.
    #[must_use]
    pub fn new(mut analysis: Analysis, origin_ns: i64) -> Self {
        let collectives = std::mem::take(&mut analysis.collectives);
        let json = relative_json(&analysis, origin_ns);
        analysis.collectives = collectives;
        Self {
            analysis: Arc::new(analysis),
            json,
        }
    }
}

/// An analysis that has no collectives left, as its JSON with relative stamps.
fn relative_json(analysis: &Analysis, origin_ns: i64) -> Bytes {
    // A value of plain members always serialises.
    let value = relative_to(TimeNs(origin_ns), || serde_json::to_value(analysis));
    let mut value = value.unwrap_or(Value::Null);
    if let Some(members) = value.as_object_mut() {
        members.remove("collectives");
        members.insert("origin_ns".to_owned(), origin_ns.to_string().into());
    }
    Bytes::from(value.to_string())
}

/// What is known of the analysis of a recording: shared by its generations.
#[derive(Clone, Default)]
pub enum Progress {
    /// It is being made.
    #[default]
    Running,
    /// It is there.
    Done(Arc<Analysed>),
    /// It failed: a fault of ours.
    Failed,
    /// There will be none of this generation: it was of what had been read then.
    Replaced,
}

/// What is made when it is first asked for: of the last few questions the answers are kept.
struct Kept<K, V> {
    most: usize,
    answers: Mutex<Vec<(K, Arc<OnceCell<V>>)>>,
}

impl<K: Copy + PartialEq, V> Kept<K, V> {
    fn new(most: usize) -> Self {
        Self {
            most,
            answers: Mutex::default(),
        }
    }

    /// The place where the answer is kept, or will be.
    fn place(&self, question: K) -> Arc<OnceCell<V>> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = answers.iter().position(|(known, _)| *known == question);
        let answer = known.map_or_else(|| (question, Arc::default()), |place| answers.remove(place));
        let place = answer.1.clone();
        answers.push(answer);
        if answers.len() > self.most {
            answers.remove(0);
        }
        place
    }
}

/// The first and the last of some steps.
pub type Steps = (u64, u64);
/// A graph to ask questions of; nothing where there is none of these steps.
pub type KeptModel = Option<Arc<Model>>;

/// One generation.
pub struct Loaded {
    /// Its number: greater than that of any earlier one, of this server or one before.
    pub generation: u64,
    /// The recording's index, and the recording.
    pub timeline: Timeline,
    /// Whether the analysis is in the timeline.
    pub analysed: bool,
    /// The analysis, as soon as it is there.
    pub whole: watch::Receiver<Progress>,
    /// Whether the recording was still growing when it was read.
    pub growing: bool,
    /// Whether only some of the files had been read.
    pub partial: bool,
    /// Whether it is shown by rank, without its rows.
    pub by_rank: bool,
    /// Rows that the collectors say were lost.
    pub lost: u64,
    /// When it was there.
    pub since: Instant,
    parts: Kept<Steps, Bytes>,
    models: Kept<Option<Steps>, KeptModel>,
    baseline: Arc<OnceCell<Arc<Baseline>>>,
    ranks: Arc<OnceCell<Arc<RankSteps>>>,
}

impl Loaded {
    /// A generation of a recording.
    #[must_use]
    pub fn new(
        generation: u64,
        timeline: Timeline,
        analysed: bool,
        whole: watch::Receiver<Progress>,
        growing: bool,
    ) -> Self {
        let lost = timeline
            .outline()
            .processes
            .iter()
            .flat_map(|process| &process.tables.losses.count)
            .fold(0u64, |lost, count| lost.saturating_add(*count));
        Self {
            generation,
            timeline,
            analysed,
            whole,
            growing,
            partial: false,
            by_rank: false,
            lost,
            since: Instant::now(),
            parts: Kept::new(KEPT_ANALYSES),
            models: Kept::new(KEPT_MODELS),
            baseline: Arc::default(),
            ranks: Arc::default(),
        }
    }

    /// A generation of a recording that is shown by rank; with `partial` more of it is still to come.
    #[must_use]
    pub fn by_rank(
        generation: u64,
        timeline: Timeline,
        table: RankSteps,
        whole: watch::Receiver<Progress>,
        partial: bool,
    ) -> Self {
        Self {
            by_rank: true,
            partial,
            ranks: Arc::new(OnceCell::from(Arc::new(table))),
            ..Self::new(generation, timeline, !partial, whole, false)
        }
    }

    /// A generation of the files that have been read so far.
    #[must_use]
    pub fn partly(generation: u64, timeline: Timeline, whole: watch::Receiver<Progress>) -> Self {
        Self {
            partial: true,
            ..Self::new(generation, timeline, false, whole, false)
        }
    }

    /// Waits until the whole recording is in memory, where a first look at it is all there is yet.
    ///
    /// # Errors
    /// When it was of some files only, or will not be: another generation has the whole.
    pub async fn there(&self) -> Result<(), Missing> {
        const LOOK: Duration = Duration::from_millis(20);
        while self.timeline.is_waiting() {
            tokio::time::sleep(LOOK).await;
        }
        if self.by_rank && !self.partial {
            return Err(Missing::ByRank);
        }
        // Half of what is asked for would look like all of it.
        if self.partial || self.timeline.is_abandoned() {
            return Err(Missing::Gone);
        }
        Ok(())
    }

    /// The analysis if it is there.
    #[must_use]
    pub fn analysis(&self) -> Option<Arc<Analysed>> {
        match &*self.whole.borrow() {
            Progress::Done(analysed) => Some(analysed.clone()),
            Progress::Running | Progress::Failed | Progress::Replaced => None,
        }
    }

    /// The place where the analysis of some steps is kept, or will be.
    #[must_use]
    pub fn part(&self, steps: Steps) -> Arc<OnceCell<Bytes>> {
        self.parts.place(steps)
    }

    /// The same of the graph of some steps, or of all.
    #[must_use]
    pub fn model(&self, steps: Option<Steps>) -> Arc<OnceCell<KeptModel>> {
        self.models.place(steps)
    }

    /// Makes that graph.
    #[must_use]
    pub fn make_model(&self, steps: Option<Steps>) -> KeptModel {
        gputrace_analyzer::model(&self.timeline.recording(), steps).map(Arc::new)
    }

    /// The place of its table of ranks by steps.
    #[must_use]
    pub fn ranks(&self) -> Arc<OnceCell<Arc<RankSteps>>> {
        self.ranks.clone()
    }

    /// Makes that table of an analysis.
    #[must_use]
    pub fn make_ranks(&self, analysis: &Analysis) -> Arc<RankSteps> {
        let headers = || {
            self.timeline
                .outline()
                .processes
                .iter()
                .map(|process| &process.header)
        };
        let here = headers().filter_map(|header| header.rank);
        let size = headers().filter_map(|header| header.world_size).max();
        Arc::new(RankSteps::of_analysis(
            analysis,
            &others_of(here, std::iter::empty(), size),
        ))
    }

    /// The place of what it is compared by.
    #[must_use]
    pub fn baseline(&self) -> Arc<OnceCell<Arc<Baseline>>> {
        self.baseline.clone()
    }

    /// Makes that.
    #[must_use]
    pub fn make_baseline(&self) -> Arc<Baseline> {
        Arc::new(gputrace_analyzer::by_step(&self.timeline.recording(), None).1)
    }

    /// Analyses some steps; nothing where the recording has none of them.
    #[must_use]
    pub fn analyse_steps(&self, steps: Steps) -> Option<Bytes> {
        let options = Options {
            steps: Some(steps),
            ..Options::default()
        };
        let mut analysis = analyze(&self.timeline.recording(), &options);
        analysis.collectives.clear();
        (!analysis.ranks.is_empty()).then(|| relative_json(&analysis, self.timeline.origin_ns()))
    }

    /// How far behind the newest event is, milliseconds; nothing of a recording that is whole, or has none.
    #[must_use]
    pub fn lag_ms(&self) -> Option<i64> {
        let end = self.timeline.origin_ns().saturating_add(self.timeline.end());
        (self.growing && self.timeline.events() > 0)
            .then(|| (gputrace_trace::now().0.saturating_sub(end) / 1_000_000).max(0))
    }

    /// What the page needs first.
    #[must_use]
    pub fn info(&self, id: &str, name: &str) -> Value {
        let (recording, timeline) = (self.timeline.outline(), &self.timeline);
        let whole = self.analysis();
        let analysis = whole.as_ref().map(|whole| &whole.analysis);
        let origin_ns = timeline.origin_ns();
        let steps: Vec<Value> = analysis
            .and_then(|analysis| analysis.ranks.iter().find(|rank| !rank.steps.is_empty()))
            .map(|rank| rank.steps.iter())
            .into_iter()
            .flatten()
            .map(|step| {
                json!({
                    "number": gputrace_analyzer::step_number(step.name.trim_end_matches(" (detected)")),
                    "name": step.name,
                    "begin": step.start_ns.0 - origin_ns,
                    "end": step.end_ns.0 - origin_ns,
                    "host_begin": step.host_start_ns.map(|start| start.0 - origin_ns),
                    "host_end": step
                        .host_start_ns
                        .zip(step.host_duration_ns)
                        .map(|(start, duration)| start.0 - origin_ns + duration),
                    "detected": step.detected,
                    "outlier": step.outlier,
                })
            })
            .collect();
        let mut hosts: Vec<&str> = recording
            .processes
            .iter()
            .chain(&recording.hosts)
            .map(|process| process.header.host.as_str())
            .filter(|host| !host.is_empty())
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        let (losses, mut notes) = analysis.map_or_else(
            || (recording.losses.clone(), recording.notes.clone()),
            |analysis| (analysis.losses.clone(), analysis.notes.clone()),
        );
        notes.extend_from_slice(timeline.notes());
        let events = timeline.events();
        json!({
            "id": id,
            "name": name,
            "source": recording.path.display().to_string(),
            "command": recording.manifest.command,
            "device": device(recording),
            "simulated": recording.is_simulated(),
            "imported": recording.manifest.device == "imported",
            "growing": self.growing,
            "analysed": self.analysed,
            "generation": self.generation,
            "origin_ns": origin_ns.to_string(),
            "begin": timeline.begin(),
            "end": timeline.end(),
            "events": events,
            "total_events": events.saturating_add(self.lost),
            "ranks": recording.processes.len(),
            "by_rank": self.by_rank,
            "kinds": crate::timeline::kinds::NAMES,
            "hosts": hosts,
            "bands": timeline.bands(),
            "steps": steps,
            "losses": losses,
            "notes": notes,
            "gaps": timeline.gaps(),
            "clock": analysis.map(|analysis| &analysis.clock),
            "exit_status": recording.manifest.exit_status,
            "topology": recording.manifest.topology,
            "capabilities": {
                "exports": if self.by_rank { &[] } else { super::exports::FORMATS },
                "tables": analysis.filter(|_| !self.by_rank).map(|_| super::exports::TABLES).unwrap_or_default(),
            },
        })
    }
}

/// "cuda", "sim" or "imported".
#[must_use]
pub fn device(recording: &Recording) -> String {
    if recording.is_simulated() {
        "sim".to_owned()
    } else {
        recording.manifest.device.clone()
    }
}
