//! The rules: what is watched for, from when on it counts, what is done then, and how often at most.

use serde::{Deserialize, Serialize};

/// What can be noticed of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Nothing goes on.
    Hang,
    /// Steps take longer than before.
    SlowStep,
    /// The other ranks wait for one.
    LateRank,
    /// More of the communication is exposed than before.
    OverlapLost,
    /// A process died while others of its job live.
    ProcessDead,
    /// The driver told of an error of a GPU.
    Xid,
    /// A GPU's clock is held down by heat or power.
    Throttling,
    /// Rows were lost while recording.
    RowsLost,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Hang,
        Self::SlowStep,
        Self::LateRank,
        Self::OverlapLost,
        Self::ProcessDead,
        Self::Xid,
        Self::Throttling,
        Self::RowsLost,
    ];

    /// Whether all nodes of a job notice it: what steps and progress tell, and not what befell one process or GPU.
    #[must_use]
    pub fn is_of_all_nodes(self) -> bool {
        matches!(
            self,
            Self::Hang | Self::SlowStep | Self::LateRank | Self::OverlapLost
        )
    }

    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hang => "hang",
            Self::SlowStep => "slow-step",
            Self::LateRank => "late-rank",
            Self::OverlapLost => "overlap-lost",
            Self::ProcessDead => "process-dead",
            Self::Xid => "xid",
            Self::Throttling => "throttling",
            Self::RowsLost => "rows-lost",
        }
    }
}

/// What is done when a rule fires. That it fired is always noted in the job's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// What the ring holds is kept as a recording.
    Snapshot,
    /// The kernels of the next steps are recorded.
    Capture,
    /// The finding is sent to the webhook.
    Webhook,
}

/// What is done, and how often at most: the same of each rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hang {
    /// Whether it is watched for.
    pub enabled: bool,
    /// After so many seconds without a step or a finished collective, at least.
    pub after_s: f64,
    /// After so many median steps, at least.
    pub after_steps: f64,
    /// What is done.
    pub actions: Vec<Action>,
    /// Seconds until it may fire again for the same job.
    pub cooldown_s: f64,
}

/// When a step is slow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SlowStep {
    /// Whether it is watched for.
    pub enabled: bool,
    /// So many times the median...
    pub factor: f64,
    /// ... for so many steps in a row,
    pub in_a_row: u32,
    /// or a single step so many times the median.
    pub single_factor: f64,
    /// What is done.
    pub actions: Vec<Action>,
    /// Seconds until it may fire again for the same job.
    pub cooldown_s: f64,
}

/// When a rank is late.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LateRank {
    /// Whether it is watched for.
    pub enabled: bool,
    /// Later than the others by more than this share of the step...
    pub share: f64,
    /// ... in so many steps...
    pub steps: u32,
    /// ... of the last so many.
    pub of: u32,
    /// What is done.
    pub actions: Vec<Action>,
    /// Seconds until it may fire again for the same job and rank.
    pub cooldown_s: f64,
}

/// When overlap is lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OverlapLost {
    /// Whether it is watched for.
    pub enabled: bool,
    /// Exposed communication takes up more of the step than before by this share...
    pub share: f64,
    /// ... in so many steps in a row.
    pub in_a_row: u32,
    /// What is done.
    pub actions: Vec<Action>,
    /// Seconds until it may fire again for the same job.
    pub cooldown_s: f64,
}

/// A rule about something that either is or is not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Event {
    /// Whether it is watched for.
    pub enabled: bool,
    /// What is done.
    pub actions: Vec<Action>,
    /// Seconds until it may fire again for the same job.
    pub cooldown_s: f64,
}

/// When a GPU is throttled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Throttling {
    /// Whether it is watched for.
    pub enabled: bool,
    /// For so many seconds in a row.
    pub for_s: f64,
    /// What is done.
    pub actions: Vec<Action>,
    /// Seconds until it may fire again for the same job.
    pub cooldown_s: f64,
}

/// All rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rules {
    /// See [`Kind::Hang`].
    pub hang: Hang,
    /// See [`Kind::SlowStep`].
    pub slow_step: SlowStep,
    /// See [`Kind::LateRank`].
    pub late_rank: LateRank,
    /// See [`Kind::OverlapLost`].
    pub overlap_lost: OverlapLost,
    /// See [`Kind::ProcessDead`].
    pub process_dead: Event,
    /// See [`Kind::Xid`].
    pub xid: Event,
    /// See [`Kind::Throttling`].
    pub throttling: Throttling,
    /// See [`Kind::RowsLost`].
    pub rows_lost: Event,
    /// Steps that [`Action::Capture`] records.
    pub capture_steps: CaptureSteps,
}

/// A number of steps, 5 unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CaptureSteps(pub u64);

impl Default for CaptureSteps {
    fn default() -> Self {
        Self(5)
    }
}

/// Usual seconds between two of a kind.
const COOLDOWN_S: f64 = 600.0;

fn usual() -> Vec<Action> {
    vec![Action::Snapshot, Action::Webhook]
}

impl Default for Hang {
    fn default() -> Self {
        Self {
            enabled: true,
            after_s: 12.0,
            after_steps: 10.0,
            actions: usual(),
            cooldown_s: COOLDOWN_S,
        }
    }
}

impl Default for SlowStep {
    fn default() -> Self {
        Self {
            enabled: true,
            factor: 1.25,
            in_a_row: 3,
            single_factor: 3.0,
            actions: usual(),
            cooldown_s: COOLDOWN_S,
        }
    }
}

impl Default for LateRank {
    fn default() -> Self {
        Self {
            enabled: true,
            share: 0.1,
            steps: 5,
            of: 8,
            actions: usual(),
            cooldown_s: COOLDOWN_S,
        }
    }
}

impl Default for OverlapLost {
    fn default() -> Self {
        Self {
            enabled: true,
            share: 0.1,
            in_a_row: 3,
            actions: usual(),
            cooldown_s: COOLDOWN_S,
        }
    }
}

impl Default for Event {
    fn default() -> Self {
        Self {
            enabled: true,
            actions: usual(),
            cooldown_s: COOLDOWN_S,
        }
    }
}

impl Default for Throttling {
    fn default() -> Self {
        Self {
            enabled: true,
            for_s: 5.0,
            actions: usual(),
            cooldown_s: COOLDOWN_S,
        }
    }
}

impl Rules {
    /// What is done when one fires.
    #[must_use]
    pub fn actions(&self, kind: Kind) -> &[Action] {
        match kind {
            Kind::Hang => &self.hang.actions,
            Kind::SlowStep => &self.slow_step.actions,
            Kind::LateRank => &self.late_rank.actions,
            Kind::OverlapLost => &self.overlap_lost.actions,
            Kind::ProcessDead => &self.process_dead.actions,
            Kind::Xid => &self.xid.actions,
            Kind::Throttling => &self.throttling.actions,
            Kind::RowsLost => &self.rows_lost.actions,
        }
    }

    /// Whether one is watched for.
    #[must_use]
    pub fn is_enabled(&self, kind: Kind) -> bool {
        match kind {
            Kind::Hang => self.hang.enabled,
            Kind::SlowStep => self.slow_step.enabled,
            Kind::LateRank => self.late_rank.enabled,
            Kind::OverlapLost => self.overlap_lost.enabled,
            Kind::ProcessDead => self.process_dead.enabled,
            Kind::Xid => self.xid.enabled,
            Kind::Throttling => self.throttling.enabled,
            Kind::RowsLost => self.rows_lost.enabled,
        }
    }

    /// How long it is quiet after it has fired, nanoseconds.
    #[must_use]
    pub fn cooldown_ns(&self, kind: Kind) -> i64 {
        (self.cooldown_s(kind) * 1e9) as i64
    }

    fn cooldown_s(&self, kind: Kind) -> f64 {
        match kind {
            Kind::Hang => self.hang.cooldown_s,
            Kind::SlowStep => self.slow_step.cooldown_s,
            Kind::LateRank => self.late_rank.cooldown_s,
            Kind::OverlapLost => self.overlap_lost.cooldown_s,
            Kind::ProcessDead => self.process_dead.cooldown_s,
            Kind::Xid => self.xid.cooldown_s,
            Kind::Throttling => self.throttling.cooldown_s,
            Kind::RowsLost => self.rows_lost.cooldown_s,
        }
    }

    /// Whether the numbers are ones that a rule can go by.
    ///
    /// # Errors
    /// Which is not.
    pub fn check(&self) -> Result<(), String> {
        let within = |what: &str, value: f64, least: f64, most: f64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(format!("trigger.{what}: expected {least} to {most}, not {value}")),
        };
        within("hang.after_s", self.hang.after_s, 0.1, 86_400.0)?;
        within("hang.after_steps", self.hang.after_steps, 1.0, 1e6)?;
        within("slow-step.factor", self.slow_step.factor, 1.01, 1e3)?;
        within(
            "slow-step.in_a_row",
            f64::from(self.slow_step.in_a_row),
            1.0,
            16.0,
        )?;
        within("slow-step.single_factor", self.slow_step.single_factor, 1.01, 1e6)?;
        within("late-rank.share", self.late_rank.share, 0.001, 1.0)?;
        within("late-rank.of", f64::from(self.late_rank.of), 1.0, 64.0)?;
        within(
            "late-rank.steps",
            f64::from(self.late_rank.steps),
            1.0,
            f64::from(self.late_rank.of),
        )?;
        within("overlap-lost.share", self.overlap_lost.share, 0.001, 1.0)?;
        within(
            "overlap-lost.in_a_row",
            f64::from(self.overlap_lost.in_a_row),
            1.0,
            16.0,
        )?;
        within("throttling.for_s", self.throttling.for_s, 0.0, 86_400.0)?;
        within("capture-steps", self.capture_steps.0 as f64, 1.0, 1e5)?;
        for kind in Kind::ALL {
            let cooldown_s = self.cooldown_s(kind);
            within(&format!("{}.cooldown_s", kind.name()), cooldown_s, 0.0, 1e7)?;
        }
        Ok(())
    }
}
