//! Which ranks are there, and how all end when one is lost.
//!
//! Rank 0 decides: it hears first of each rank's end. When ranks end one after the other, some die of the others'
//! end (NCCL gives them an error). So it collects for a moment, names the cause, and tells all others: the verdict.
//! When rank 0 itself is lost, each of the others knows by its own connection.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::members::{self, Member};
use super::verdict::{Ending, Evidence, Verdict, cause};
use super::wire::{Frame, Kind, read_frame, write_frame};
use crate::error::Error;

/// So long rank 0 waits for further ends after the first, before it names the cause.
const WINDOW: Duration = Duration::from_millis(150);
/// So long a rank that failed waits to be told whether it was another's fault.
const VERDICT_PATIENCE: Duration = Duration::from_secs(3);
/// So long rank 0 stays until the others have heard the verdict.
const FAREWELL: Duration = Duration::from_secs(1);
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Absent,
    Here,
    /// Said goodbye.
    Left,
    Lost,
}

struct State {
    members: Vec<Member>,
    standing: Vec<Standing>,
    inbox: Vec<VecDeque<Frame>>,
    evidence: Vec<Evidence>,
    is_judging: bool,
    verdict: Option<Verdict>,
    /// Why the ranks do not fit together, while they meet.
    misfit: Option<String>,
}

/// The connection to one rank.
struct Link {
    writer: Mutex<TcpStream>,
    /// The same connection, to close it while somebody writes.
    handle: TcpStream,
}

/// The connected ranks, as one of them sees them.
pub(super) struct Membership {
    rank: u32,
    ranks: u32,
    state: Mutex<State>,
    changed: Condvar,
    /// By rank. Rank 0 has one to each other rank, those have one to rank 0.
    links: Vec<OnceLock<Link>>,
    ending: Ending,
}

impl Membership {
    pub(super) fn new(own: &Member, ranks: u32, ending: Ending) -> Arc<Self> {
        let rank = own.rank;
        let mut members: Vec<Member> = (0..ranks)
            .map(|rank| Member {
                rank,
                ..Member::default()
            })
            .collect();
        let mut standing = vec![Standing::Absent; ranks as usize];
        members[rank as usize] = own.clone();
        standing[rank as usize] = Standing::Here;
        Arc::new(Self {
            rank,
            ranks,
            state: Mutex::new(State {
                members,
                standing,
                inbox: (0..ranks).map(|_| VecDeque::new()).collect(),
                evidence: Vec::new(),
                is_judging: false,
                verdict: None,
                misfit: None,
            }),
            changed: Condvar::new(),
            links: (0..ranks).map(|_| OnceLock::new()).collect(),
            ending,
        })
    }

    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    pub(super) fn ranks(&self) -> u32 {
        self.ranks
    }

    pub(super) fn name_of(&self, rank: u32) -> String {
        self.state().members[rank as usize].name()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, deadline: Instant) -> MutexGuard<'a, State> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.changed
            .wait_timeout(state, left)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    // ---- Meeting.

    /// A rank is connected. Rank 0 learns here who it is; an error when one of that number has come already.
    pub(super) fn admit(&self, member: Member, stream: &TcpStream) -> Result<(), String> {
        let mut state = self.state();
        let rank = member.rank as usize;
        if state.standing[rank] != Standing::Absent {
            return Err(format!(
                "{} came, but {} is here already: another run on this port? Give each run a MASTER_PORT of its own",
                member.name(),
                state.members[rank].name()
            ));
        }
        let link = (|| {
            Ok::<_, std::io::Error>(Link {
                writer: Mutex::new(stream.try_clone()?),
                handle: stream.try_clone()?,
            })
        })()
        .map_err(|error| error.to_string())?;
        drop(self.links[rank].set(link));
        state.standing[rank] = Standing::Here;
        state.members[rank] = member;
        self.changed.notify_all();
        Ok(())
    }

    /// All are known now, told by rank 0.
    pub(super) fn know(&self, members: Vec<Member>) {
        self.state().members = members;
    }

    pub(super) fn members(&self) -> Vec<Member> {
        self.state().members.clone()
    }

    /// A rank that was started differently has come: the meeting fails.
    pub(super) fn note_misfit(&self, text: String) {
        self.state().misfit.get_or_insert(text);
        self.changed.notify_all();
    }

    /// Waits until all are here. The error says who is missing, or why it cannot be.
    pub(super) fn wait_for_all(&self, deadline: Instant) -> Result<(), Absence> {
        let mut state = self.state();
        loop {
            if let Some(verdict) = &state.verdict {
                return Err(Absence::Lost(verdict.line.clone()));
            }
            if let Some(misfit) = &state.misfit {
                return Err(Absence::Misfit(misfit.clone()));
            }
            let missing: Vec<u32> = (0..self.ranks)
                .filter(|rank| state.standing[*rank as usize] == Standing::Absent)
                .collect();
            if missing.is_empty() && !state.is_judging {
                return Ok(());
            }
            if Instant::now() >= deadline && !state.is_judging {
                return Err(Absence::Missing(missing));
            }
            state = self.wait(state, deadline.max(Instant::now() + WINDOW));
        }
    }

    /// The meeting failed: all that have come end. Rank 0 says why, and they where that is not seen.
    pub(super) fn call_off(&self, reason: &str) {
        let members = self.members();
        for (rank, link) in (0..).zip(&self.links) {
            if let Some(link) = link.get() {
                let speaks = members::speaks(&members, rank, &|_| false);
                self.tell(link, &Verdict::of_rank_0(reason, speaks).to_bytes());
            }
        }
    }

    /// To all that are connected.
    pub(super) fn tell_all(&self, kind: Kind, payload: &[u8]) {
        for link in self.links.iter().filter_map(OnceLock::get) {
            // One that cannot be reached is noticed by its reader.
            drop(write_frame(&*lock(&link.writer), kind, (0, 0), payload));
        }
    }

    // ---- Reading, a thread for each connection.

    /// Takes what rank `peer` sends until it ends.
    pub(super) fn read_from(&self, peer: u32, stream: &TcpStream) {
        loop {
            let Ok(frame) = read_frame(stream, u64::MAX) else {
                return self.connection_ended(peer);
            };
            match frame.kind {
                Kind::Data | Kind::Offer | Kind::Go => {
                    self.state().inbox[peer as usize].push_back(frame);
                    self.changed.notify_all();
                }
                Kind::Goodbye => {
                    self.state().standing[peer as usize] = Standing::Left;
                    self.changed.notify_all();
                }
                Kind::Failed if self.rank == 0 => {
                    let words = String::from_utf8_lossy(&frame.payload).into_owned();
                    self.judge(Evidence {
                        rank: peer,
                        words: Some(words),
                    });
                }
                Kind::Verdict => {
                    if let Some(verdict) = Verdict::from_bytes(&frame.payload) {
                        self.hear(&verdict);
                    }
                }
                // Nothing else comes after the meeting.
                _ => return self.connection_ended(peer),
            }
        }
    }

    fn connection_ended(&self, peer: u32) {
        let verdict = {
            let mut state = self.state();
            let standing = &mut state.standing[peer as usize];
            if *standing == Standing::Left {
                return;
            }
            *standing = Standing::Lost;
            self.changed.notify_all();
            if state.standing[self.rank as usize] == Standing::Left {
                return;
            }
            Verdict {
                rank: peer,
                told: false,
                speaks: members::speaks(&state.members, self.rank, &|rank| rank == peer),
                line: format!("{} died: ending", state.members[peer as usize].name()),
            }
        };
        if self.rank == 0 {
            self.judge(Evidence {
                rank: peer,
                words: None,
            });
        } else {
            self.hear(&verdict);
        }
    }

    // ---- Ending.

    /// On rank 0: something ended. The first to come here waits for what else ends, names the cause and tells all.
    fn judge(&self, evidence: Evidence) {
        {
            let mut state = self.state();
            state.evidence.push(evidence);
            if std::mem::replace(&mut state.is_judging, true) {
                return;
            }
        }
        std::thread::sleep(WINDOW);
        let (verdict, verdicts) = {
            let state = self.state();
            let Some(cause) = cause(&state.evidence) else {
                return;
            };
            let name = state.members[cause.rank as usize].name();
            let verdict = Verdict {
                rank: cause.rank,
                told: cause.words.is_some(),
                speaks: true,
                line: match cause.words {
                    Some(_) => format!("{name} failed: ending"),
                    None => format!("{name} died: ending"),
                },
            };
            let is_gone = |rank: u32| rank == cause.rank || state.standing[rank as usize] != Standing::Here;
            let verdicts: Vec<Verdict> = (0..self.ranks)
                .map(|rank| Verdict {
                    speaks: members::speaks(&state.members, rank, &is_gone),
                    ..verdict.clone()
                })
                .collect();
            (verdict, verdicts)
        };
        for (rank, verdict) in verdicts.iter().enumerate() {
            if let Some(link) = self.links[rank].get() {
                self.tell(link, &verdict.to_bytes());
            }
        }
        if verdict.rank != 0 {
            self.wait_until_others_ended(verdict.rank);
        }
        self.hear(verdicts.first().unwrap_or(&verdict));
    }

    /// The verdict, to one rank. Where a write to it is stuck the connection is closed: that tells it too.
    fn tell(&self, link: &Link, verdict: &[u8]) {
        let deadline = Instant::now() + WINDOW;
        loop {
            if let Ok(writer) = link.writer.try_lock() {
                drop(writer.set_write_timeout(Some(FAREWELL)));
                drop(write_frame(&*writer, Kind::Verdict, (0, 0), verdict));
                return;
            }
            if Instant::now() > deadline {
                drop(link.handle.shutdown(Shutdown::Both));
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Rank 0's end closes the connections: it comes last, so that nobody takes it for the cause.
    fn wait_until_others_ended(&self, cause: u32) {
        let deadline = Instant::now() + FAREWELL;
        let mut state = self.state();
        while Instant::now() < deadline
            && (1..self.ranks).any(|rank| rank != cause && state.standing[rank as usize] == Standing::Here)
        {
            state = self.wait(state, deadline.min(Instant::now() + WINDOW));
        }
    }

    /// A verdict holds from here on. Ends the process, unless it is about this rank, which is ending itself.
    pub(super) fn hear(&self, verdict: &Verdict) {
        let ends = {
            let mut state = self.state();
            if state.verdict.is_some() || state.standing[self.rank as usize] == Standing::Left {
                return;
            }
            state.verdict = Some(verdict.clone());
            self.changed.notify_all();
            verdict.rank != self.rank
        };
        if ends {
            self.ending.with(verdict);
        }
    }

    /// This rank ends well. Rank 0 waits for the others to say so too.
    pub(super) fn say_goodbye(&self, deadline: Instant) -> Result<(), Error> {
        let mut state = self.state();
        if self.rank == 0 {
            loop {
                if let Some(verdict) = &state.verdict {
                    return Err(Error::new(verdict.line.clone()));
                }
                let staying: Vec<u32> = (1..self.ranks)
                    .filter(|rank| state.standing[*rank as usize] != Standing::Left)
                    .collect();
                if staying.is_empty() && !state.is_judging {
                    break;
                }
                if Instant::now() >= deadline && !state.is_judging {
                    return Err(Error::new(format!("{} did not end", listed(&staying))));
                }
                state = self.wait(state, deadline.max(Instant::now() + WINDOW));
            }
        }
        state.standing[self.rank as usize] = Standing::Left;
        drop(state);
        self.tell_all(Kind::Goodbye, &[]);
        Ok(())
    }

    /// This rank has failed. Comes back when that is what all end of; else the process ends as the verdict says.
    pub(super) fn say_failed(&self, words: &str) -> Result<(), Error> {
        if self.ranks == 1 {
            return Ok(());
        }
        if self.rank == 0 {
            self.judge(Evidence {
                rank: 0,
                words: Some(words.to_owned()),
            });
        } else {
            self.tell_all(Kind::Failed, words.as_bytes());
        }
        let deadline = Instant::now() + VERDICT_PATIENCE;
        let mut state = self.state();
        loop {
            match &state.verdict {
                // The thread that heard it ends the process.
                Some(verdict) if verdict.rank != self.rank => {
                    let line = verdict.line.clone();
                    drop(state);
                    std::thread::sleep(VERDICT_PATIENCE);
                    return Err(Error::new(line));
                }
                Some(_) => return Ok(()),
                None if Instant::now() >= deadline => return Ok(()),
                None => state = self.wait(state, deadline),
            }
        }
    }

    /// Closes the connections. Who has not said goodbye is lost to the others.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.standing[self.rank as usize] = Standing::Left;
        for link in self.links.iter().filter_map(OnceLock::get) {
            drop(link.handle.shutdown(Shutdown::Both));
        }
    }

    // ---- Frames of operations.

    pub(super) fn write(
        &self,
        peer: u32,
        kind: Kind,
        operation: (u8, u32),
        payload: &[u8],
    ) -> Result<(), Error> {
        let link = self.links[peer as usize]
            .get()
            .ok_or_else(|| Error::new(format!("rank {peer} is not connected")))?;
        let written = write_frame(&*lock(&link.writer), kind, operation, payload);
        written.map_err(|error| {
            // The reader of that connection sees the same, and its verdict is the better explanation.
            let state = self.wait(self.state(), Instant::now() + WINDOW);
            let name = state.members[peer as usize].name();
            Error::new(format!("{name} cannot be reached: {error}"))
        })
    }

    /// The next frame that rank `peer` sent for an operation.
    pub(super) fn next_frame(
        &self,
        peer: u32,
        deadline: Instant,
        late: &dyn Fn(&str) -> String,
    ) -> Result<Frame, Error> {
        let mut state = self.state();
        loop {
            if let Some(verdict) = &state.verdict {
                return Err(Error::new(verdict.line.clone()));
            }
            if let Some(frame) = state.inbox[peer as usize].pop_front() {
                return Ok(frame);
            }
            let name = || state.members[peer as usize].name();
            if state.standing[peer as usize] == Standing::Left {
                return Err(Error::new(format!("{} ended earlier than this rank", name())));
            }
            if Instant::now() >= deadline {
                return Err(Error::new(late(&name())));
            }
            state = self.wait(state, deadline);
        }
    }
}

/// Why a meeting failed.
pub(super) enum Absence {
    Missing(Vec<u32>),
    Misfit(String),
    Lost(String),
}

/// "rank 3" or "ranks 1, 2, 5 ...".
pub(super) fn listed(ranks: &[u32]) -> String {
    const MOST: usize = 8;
    let numbers: Vec<String> = ranks.iter().take(MOST).map(u32::to_string).collect();
    let more = if ranks.len() > MOST { ", ..." } else { "" };
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}{more}", numbers.join(", "))
}

fn lock(writer: &Mutex<TcpStream>) -> MutexGuard<'_, TcpStream> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ranks_are_listed_in_short() {
        assert_eq!(listed(&[3]), "rank 3");
        assert_eq!(listed(&[1, 2]), "ranks 1, 2");
        assert_eq!(
            listed(&(0..20).collect::<Vec<_>>()),
            "ranks 0, 1, 2, 3, 4, 5, 6, 7, ..."
        );
    }
}
