//! Hangs by hand: what some ranks wait in, and what the others did instead.

use crate::support;

use gputrace_analyzer::Facts;
use gputrace_analyzer::hangs::{ProcessState, Situation, evidence, hangs, text};
use gputrace_analyzer::{Options, analyze};
use gputrace_trace::hang::Hang;
use gputrace_trace::tables::{Clock, Collective, Communicator, ExternalCorrelation, Kernel};
use gputrace_trace::{DurationNs, Recording, Table, TimeNs};
use support::Build;

const SECOND: i64 = 1_000_000_000;
/// When all are looked at: nothing here ends after 10 s.
const NOW: i64 = 100 * SECOND;

/// A job of ranks that enqueue operations, one a second of each rank's own time.
struct Job {
    recording: Recording,
    times: Vec<i64>,
    plans: Vec<u64>,
}

/// What a rank enqueues.
#[derive(Clone, Copy)]
struct Call {
    communicator: u64,
    rank: u32,
    function: &'static str,
    sequence: Option<u64>,
    count: u64,
    peer: Option<i32>,
}

const DP: u64 = 0xd;
const TP: u64 = 0x7;

fn reduce(rank: u32, sequence: u64) -> Call {
    Call {
        communicator: DP,
        rank,
        function: "AllReduce",
        sequence: Some(sequence),
        count: 100,
        peer: None,
    }
}

fn transfer(function: &'static str, rank: u32, peer: i32) -> Call {
    Call {
        function,
        sequence: None,
        peer: Some(peer),
        ..reduce(rank, 0)
    }
}

impl Job {
    fn new(ranks: u32) -> Self {
        let mut recording = Build::new(ranks).recording;
        for process in &mut recording.processes {
            process.header.cupti_version = Some(130_000);
            process.header.pid = 4000 + process.header.rank.unwrap_or(0);
            process.tables.clocks.push(Clock {
                realtime_ns: TimeNs(NOW),
                ..Clock::default()
            });
        }
        let mut job = Self {
            recording,
            times: vec![0; ranks as usize],
            plans: vec![0; ranks as usize],
        };
        for rank in 0..ranks {
            job.communicator(rank as usize, DP, rank, ranks);
        }
        job
    }

    fn communicator(&mut self, process: usize, communicator: u64, rank: u32, ranks: u32) {
        let tables = &mut self.recording.processes[process].tables;
        tables.communicators.push(Communicator {
            communicator,
            rank,
            ranks,
            ..Communicator::default()
        });
    }

    /// A process enqueues operations in one kernel, which ends half a second later or not at all.
    fn enqueue(&mut self, process: usize, calls: &[Call], ends: bool) -> &mut Self {
        self.times[process] += SECOND;
        self.plans[process] += 1;
        let (at, plan) = (self.times[process], self.plans[process]);
        let dtype = self.recording.names.intern("ncclFloat32");
        for call in calls {
            let function = self.recording.names.intern(call.function);
            self.recording.processes[process]
                .tables
                .collectives
                .push(Collective {
                    start_ns: TimeNs(at),
                    communicator: call.communicator,
                    rank: call.rank,
                    sequence: call.sequence,
                    function,
                    datatype: dtype,
                    count: call.count,
                    bytes: call.count * 4,
                    peer: call.peer,
                    plan: Some(plan),
                    ..Collective::default()
                });
        }
        let name = self.recording.names.intern("ncclDevKernel_Generic");
        let tables = &mut self.recording.processes[process].tables;
        let correlation = u32::try_from(plan).unwrap();
        tables.external_correlations.push(ExternalCorrelation {
            correlation,
            kind: 5,
            id: plan,
        });
        if ends {
            tables.kernels.push(Kernel {
                start_ns: TimeNs(at),
                duration_ns: DurationNs(SECOND / 2),
                name,
                correlation,
                ..Kernel::default()
            });
        }
        self
    }

    /// The same on every rank, finished.
    fn all(&mut self, sequence: u64) -> &mut Self {
        for process in 0..self.times.len() {
            let rank = u32::try_from(process).unwrap();
            self.enqueue(process, &[reduce(rank, sequence)], true);
        }
        self
    }

    fn hangs(&self) -> Vec<Hang> {
        let situation = Situation {
            now_ns: Some(NOW),
            least_silence_ns: Some(60 * SECOND),
            ..Situation::default()
        };
        hangs(&self.recording, &situation)
    }

    #[track_caller]
    fn hang(&self) -> Hang {
        let mut all = self.hangs();
        assert_eq!(all.len(), 1, "{all:#?}");
        all.remove(0)
    }
}

fn waiting(hang: &Hang) -> Vec<u32> {
    hang.waiting.iter().filter_map(|waiting| waiting.rank).collect()
}

fn absent(hang: &Hang) -> Vec<(u32, &str)> {
    hang.absent
        .iter()
        .map(|absent| (absent.communicator_rank, absent.did.as_str()))
        .collect()
}

#[test]
fn a_rank_that_never_joins_is_named_with_what_it_did_last() {
    let mut job = Job::new(3);
    job.all(0).all(1);
    job.enqueue(0, &[reduce(0, 2)], false)
        .enqueue(2, &[reduce(2, 2)], false)
        .enqueue(0, &[reduce(0, 3)], false);
    let hang = job.hang();
    assert_eq!((hang.name.as_str(), hang.sequence), ("AllReduce", Some(2)));
    assert_eq!(
        (waiting(&hang), absent(&hang)),
        (vec![0, 2], vec![(1, "nothing")])
    );
    assert_eq!(
        (hang.count, hang.bytes, hang.dtype.as_str()),
        (100, 400, "ncclFloat32")
    );
    // The third operation of each was enqueued at 3 s; the last kernel ended at 2.5 s, before that.
    assert_eq!(
        (hang.waiting[0].since_ns, hang.silent_ns),
        (TimeNs(3 * SECOND), 97 * SECOND)
    );
    assert_eq!(
        text(&hang),
        "Hang: AllReduce #2 of communicator 0x000000000000000d was never joined by rank 1"
    );
    let evidence = evidence(&hang);
    assert!(
        evidence.contains("ranks 0 and 2 wait in it for 97.0 s"),
        "{evidence}"
    );
    assert!(
        evidence.contains(
            "rank 1 has not enqueued it: its last on this communicator is AllReduce #1 (100 x ncclFloat32), 98.0 s ago"
        ),
        "{evidence}"
    );
}

#[test]
fn what_goes_on_or_has_ended_is_no_hang() {
    let mut job = Job::new(2);
    job.all(0).all(1);
    assert_eq!(job.hangs(), [], "all is finished");
    job.enqueue(0, &[reduce(0, 2)], false);
    assert_eq!(job.hangs().len(), 1);
    // A long kernel of the other rank that ended a moment ago.
    let name = job.recording.names.intern("a_long_kernel");
    job.recording.processes[1].tables.kernels.push(Kernel {
        start_ns: TimeNs(10 * SECOND),
        duration_ns: DurationNs(NOW - 20 * SECOND),
        name,
        correlation: 77,
        ..Kernel::default()
    });
    assert_eq!(job.hangs(), []);
}

#[test]
fn without_records_of_kernels_nothing_can_be_said() {
    let mut job = Job::new(2);
    job.enqueue(0, &[reduce(0, 0)], false);
    for process in &mut job.recording.processes {
        process.header.cupti_version = None;
    }
    assert_eq!(job.hangs(), []);
}

#[test]
fn another_operation_and_another_size_are_told_apart() {
    let mut job = Job::new(4);
    job.all(0);
    for process in [0, 3] {
        let rank = u32::try_from(process).unwrap();
        job.enqueue(process, &[reduce(rank, 1)], false);
    }
    let gather = Call {
        function: "AllGather",
        ..reduce(1, 0)
    };
    let smaller = Call {
        count: 50,
        ..reduce(2, 1)
    };
    job.enqueue(1, &[gather], false).enqueue(2, &[smaller], false);
    let hang = job.hang();
    assert_eq!(hang.count, 100, "what most ranks called is the operation");
    assert_eq!(waiting(&hang), [0, 3]);
    assert_eq!(absent(&hang), [(1, "other"), (2, "differs")]);
    assert!(text(&hang).contains("ranks 1 and 2 called something else in its place"));
    assert!(hang.absent[0].text.contains("AllGather #0 (100 x ncclFloat32)"));
    assert!(hang.absent[1].text.contains("AllReduce #1 (50 x ncclFloat32)"));
}

#[test]
fn a_receive_without_its_send_names_the_sender() {
    let mut job = Job::new(2);
    for _ in 0..3 {
        job.enqueue(0, &[transfer("Send", 0, 1)], true)
            .enqueue(1, &[transfer("Recv", 1, 0)], true);
    }
    job.enqueue(0, &[transfer("Send", 0, 1)], false);
    let hang = job.hang();
    assert_eq!((hang.name.as_str(), hang.sequence), ("Send", Some(3)));
    assert_eq!((waiting(&hang), absent(&hang)), (vec![0], vec![(1, "nothing")]));
    assert_eq!(
        text(&hang),
        "Hang: Send #3 of rank 0 to rank 1 on communicator 0x000000000000000d: rank 1 has enqueued no Recv from rank 0"
    );
    // And with a receive of another size.
    let longer = Call {
        count: 200,
        ..transfer("Recv", 1, 0)
    };
    job.enqueue(1, &[longer], false);
    assert_eq!(absent(&job.hang()), [(1, "differs")]);
}

#[test]
fn sends_that_wait_for_each_other_are_an_order_to_change() {
    let mut job = Job::new(2);
    for (process, rank, peer) in [(0, 0, 1), (1, 1, 0)] {
        job.enqueue(process, &[transfer("Send", rank, peer)], false);
        job.enqueue(process, &[transfer("Recv", rank, peer)], false);
    }
    let all = job.hangs();
    assert_eq!(all.len(), 2, "{all:#?}");
    for (hang, (waits, behind)) in all.iter().zip([(0, 1), (1, 0)]) {
        assert_eq!(
            (waiting(hang), absent(hang)),
            (vec![waits], vec![(behind, "behind")])
        );
        assert!(!hang.follows);
        assert!(text(hang).contains("in one group"));
    }
    // In one group each they are one kernel, and both have all that they need: something else is wrong.
    let mut job = Job::new(2);
    for (process, rank, peer) in [(0, 0, 1), (1, 1, 0)] {
        let both = [transfer("Send", rank, peer), transfer("Recv", rank, peer)];
        job.enqueue(process, &both, false);
    }
    let hang = job.hang();
    assert!(hang.absent.is_empty());
    assert!(text(&hang).contains("was joined by all of its ranks and does not end"));
}

#[test]
fn a_hang_that_follows_from_another_comes_after_it() {
    // Ranks 0 and 1 share one communicator, ranks 0 and 2 another: 2 waits for 0, which waits for 1.
    const PAIR: u64 = 0x2;
    let mut job = Job::new(3);
    job.communicator(0, TP, 0, 2);
    job.communicator(1, TP, 1, 2);
    job.communicator(0, PAIR, 0, 2);
    job.communicator(2, PAIR, 1, 2);
    job.all(0);
    let of = |communicator, rank| Call {
        communicator,
        ..reduce(rank, 0)
    };
    job.enqueue(2, &[of(PAIR, 1)], false)
        .enqueue(0, &[of(TP, 0)], false);
    let all = job.hangs();
    let told: Vec<_> = all
        .iter()
        .map(|hang| (hang.communicator.as_str(), hang.follows, absent(hang)))
        .collect();
    assert_eq!(
        told,
        [
            ("0x0000000000000007", false, vec![(1, "nothing")]),
            ("0x0000000000000002", true, vec![(0, "waits")])
        ]
    );
    let text = &all[1].absent[0].text;
    let waits = "waits in AllReduce #0 (100 x ncclFloat32) of communicator 0x0000000000000007 instead";
    assert!(text.contains(waits), "{text}");
    let analysis = analyze(&job.recording, &Options::default());
    let findings = analysis.findings.iter();
    assert_eq!(
        findings
            .filter(|finding| matches!(finding.facts, Facts::Hang { .. }))
            .count(),
        1
    );
    assert!(matches!(
        analysis.findings[0].facts,
        Facts::Hang { followed_by: 1, .. }
    ));
    // What all have joined behind a hang is no hang of its own either.
    job.enqueue(0, &[of(PAIR, 0)], false);
    let all = job.hangs();
    assert_eq!((all.len(), all[0].follows, all[1].follows), (2, false, true));
    assert!(all[1].absent.is_empty());
}

#[test]
fn communicators_used_in_another_order_wait_for_each_other() {
    let mut job = Job::new(2);
    job.communicator(0, TP, 0, 2);
    job.communicator(1, TP, 1, 2);
    let tensors = Call {
        communicator: TP,
        ..reduce(0, 0)
    };
    job.enqueue(0, &[tensors], false)
        .enqueue(1, &[reduce(1, 0)], false);
    let all = job.hangs();
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|hang| !hang.follows), "neither explains the other");
    assert_eq!(
        (absent(&all[0]), absent(&all[1])),
        (vec![(1, "waits")], vec![(0, "waits")])
    );
}

#[test]
fn ranks_of_a_split_are_counted_within_it() {
    // Ranks 2 and 3 of the job are 0 and 1 of their pair.
    let mut job = Job::new(4);
    job.communicator(2, TP, 0, 2);
    job.communicator(3, TP, 1, 2);
    let tensors = Call {
        communicator: TP,
        ..reduce(0, 0)
    };
    job.enqueue(2, &[tensors], false);
    let hang = job.hang();
    assert_eq!((waiting(&hang), hang.communicator_ranks), (vec![2], Some(2)));
    assert_eq!(
        (hang.absent[0].rank, hang.absent[0].communicator_rank),
        (Some(3), 1)
    );
    assert!(text(&hang).ends_with("was never joined by rank 3"));
}

#[test]
fn records_that_are_kept_back_do_not_hide_who_is_missing() {
    // All joined numbers 1 and 2, of which no kernel is recorded; only rank 0 enqueued number 3.
    let mut job = Job::new(2);
    job.all(0);
    for (process, rank) in [(0, 0), (1, 1)] {
        job.enqueue(process, &[reduce(rank, 1)], false);
        job.enqueue(process, &[reduce(rank, 2)], false);
    }
    job.enqueue(0, &[reduce(0, 3)], false);
    let hang = job.hang();
    assert_eq!((hang.sequence, hang.unfinished_before), (Some(3), 2));
    assert_eq!(absent(&hang), [(1, "nothing")]);
}

#[test]
fn ranks_that_are_not_recorded_are_said_to_be_so() {
    let mut job = Job::new(2);
    for process in &mut job.recording.processes {
        process.tables.communicators.ranks = vec![4];
    }
    for (process, rank) in [(0, 0), (1, 1)] {
        job.enqueue(process, &[reduce(rank, 0)], false);
    }
    let hang = job.hang();
    assert_eq!(absent(&hang), [(2, "not recorded"), (3, "not recorded")]);
    assert!(text(&hang).contains("all of its ranks that are recorded"));
}

#[test]
fn a_stopped_and_a_dead_process_are_told() {
    let mut job = Job::new(3);
    job.all(0).enqueue(0, &[reduce(0, 1)], false);
    let mut situation = Situation {
        now_ns: Some(NOW),
        least_silence_ns: Some(60 * SECOND),
        ..Situation::default()
    };
    situation.states.insert("rank1".to_owned(), ProcessState::Stopped);
    situation.states.insert("rank2".to_owned(), ProcessState::Ended);
    let hang = &hangs(&job.recording, &situation)[0];
    let states: Vec<&str> = hang.absent.iter().map(|absent| absent.process.as_str()).collect();
    assert_eq!(states, ["stopped", "ended"]);
    assert!(
        hang.absent[0]
            .text
            .starts_with("is stopped by a signal (process 4001;")
    );
    assert!(hang.absent[1].text.starts_with("has ended (process 4002)"));
    // What it had enqueued before it was stopped is not waiting, and its missing end is no hang of its own.
    let mut halted = Job::new(2);
    halted
        .enqueue(0, &[reduce(0, 0)], true)
        .enqueue(1, &[reduce(1, 0)], false);
    situation.states.insert("rank1".to_owned(), ProcessState::Stopped);
    assert_eq!(hangs(&halted.recording, &situation), []);
    halted
        .enqueue(0, &[reduce(0, 1)], false)
        .enqueue(1, &[reduce(1, 1)], false);
    let hang = &hangs(&halted.recording, &situation)[0];
    assert_eq!((waiting(hang), hang.sequence), (vec![0], Some(1)));
    assert_eq!(absent(hang), [(1, "enqueued")]);
    assert!(text(hang).ends_with("waits for rank 1, whose process does not run"));
    // Of a recording alone: the last reading of the clocks is much older than the others'.
    job.recording.processes[1].tables.clocks.realtime_ns[0] = TimeNs(NOW - 50 * SECOND);
    let hang = &hangs(&job.recording, &Situation::default())[0];
    assert_eq!(hang.absent[0].process, "silent");
    assert!(hang.absent[0].text.contains("written nothing for 50.0 s"));
    assert_eq!(hang.absent[1].process, "running");
}

#[test]
fn the_analysis_of_what_is_left_says_it_first() {
    let mut job = Job::new(2);
    job.all(0).all(1).enqueue(0, &[reduce(0, 2)], false);
    let analysis = analyze(&job.recording, &Options::default());
    let finding = &analysis.findings[0];
    let Facts::Hang {
        operation,
        sequence,
        waiting,
        absent,
        ..
    } = &finding.facts
    else {
        panic!("{finding:?}")
    };
    assert_eq!((operation.as_str(), *sequence), ("AllReduce", Some(2)));
    assert_eq!((waiting.as_slice(), absent.as_slice()), (&[0][..], &[1][..]));
    assert_eq!((finding.rank, finding.saves_ns), (Some(1), None));
    assert_eq!(analysis.hangs.len(), 1);
    assert!(
        analysis
            .losses
            .iter()
            .any(|loss| loss.what.contains("the job hung"))
    );
    // The one that never ended has no times, and is in no mean.
    let last = analysis.collectives.last().unwrap();
    assert_eq!(
        (last.sequence, last.longest_kernel_ns, last.algbw),
        (Some(2), None, None)
    );
    let counted: usize = analysis.collective_sizes.iter().map(|size| size.count).sum();
    assert_eq!(
        counted, 1,
        "the first is the warm-up, the last no operation that ended"
    );
    // What the recorder noticed counts before what is left shows.
    let mut noticed = analysis.hangs[0].clone();
    noticed.absent[0].process = "stopped".to_owned();
    job.recording.manifest.hangs = vec![noticed.clone()];
    assert_eq!(analyze(&job.recording, &Options::default()).hangs, [noticed]);
    // And a command that ended well did not hang.
    job.recording.manifest.hangs.clear();
    let mut of_ended_with = |status| {
        job.recording.manifest.exit_status = status;
        analyze(&job.recording, &Options::default())
    };
    let ended_well = of_ended_with(Some(0));
    assert_eq!(
        (ended_well.hangs.as_slice(), ended_well.exit_status),
        (&[][..], Some(0))
    );
    // How it ended is said where it did not end well.
    let says_so = |notes: &[String]| notes.iter().any(|note| note.contains("ended with status 137"));
    assert!(!says_so(&ended_well.notes));
    let killed = of_ended_with(Some(137));
    assert!(killed.exit_status == Some(137) && says_so(&killed.notes));
    let unknown = of_ended_with(None);
    assert!(unknown.exit_status.is_none() && !unknown.notes.iter().any(|note| note.contains("ended with")));
}

#[test]
fn what_was_cut_off_in_full_flight_is_no_hang() {
    let mut job = Job::new(2);
    job.all(0).enqueue(0, &[reduce(0, 1)], false);
    for process in &mut job.recording.processes {
        process.tables.clocks.realtime_ns[0] = TimeNs(4 * SECOND);
    }
    assert_eq!(analyze(&job.recording, &Options::default()).hangs, []);
}
