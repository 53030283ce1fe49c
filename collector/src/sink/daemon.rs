//! What the daemon wants of the thread: a place, segments, kernels for a while; and what it is told.

use std::time::{Duration, Instant};

use gputrace_trace::daemon::{Capture, Captured, Totals};
use gputrace_trace::{TimeNs, now};

use super::Sink;
use super::served::{Running, decoder};
use crate::complain::complain;
use crate::cupti::running;
use crate::daemon::{Event, Timed, What};
use crate::windows::{self, HostRows};
use crate::{config, cost, host_events, nccl, power};

/// How long after a capture's end all of it has come from CUPTI.
const SETTLED: Duration = Duration::from_millis(600);

impl Sink {
    /// Whether a daemon is still looked for.
    pub(super) fn is_waiting_for_daemon(&self) -> bool {
        self.served
            .as_ref()
            .is_some_and(|served| !served.link.is_joined())
    }

    /// Does what the daemon wants, and tells it what happened.
    pub(super) fn serve(&mut self) {
        if self.served.is_none() {
            return;
        }
        self.feed();
        while let Some(event) = self
            .served
            .as_mut()
            .and_then(|served| served.link.look(&self.disk.header))
        {
            self.handle(event);
        }
        self.tend_capture();
        self.note_segment();
        if self
            .served
            .as_ref()
            .is_some_and(|served| served.link.is_report_due())
        {
            self.report(false);
        }
    }

    /// What happened since the last look, for those who are told.
    fn feed(&mut self) {
        let Some(served) = &mut self.served else { return };
        for (at, event) in self.gate.take_steps() {
            if let windows::Event::Step { word, number, thread } = event {
                served.live.step(at, word, number, thread);
            }
        }
        for (start_ns, end_ns) in self.host_events.live.ran.drain(..) {
            let what = What::Nccl;
            served.live.ran(Timed {
                what,
                start_ns,
                end_ns,
            });
        }
        for timed in self.decoder.take_timed() {
            served.live.ran(timed);
        }
    }

    pub(super) fn handle(&mut self, event: Event) {
        match event {
            Event::Joined {
                segment,
                recording,
                is_full,
            } => self.join(segment, recording, is_full),
            Event::Lost => self.lose_daemon(),
            Event::Cut => {
                self.release(false);
                self.disk.begin_segment();
                let segment = self.disk.segment();
                if let Some(served) = &self.served {
                    // Where no new one could be begun, the one before is still written.
                    served.link.cut(segment.saturating_sub(1));
                }
            }
            Event::Capture(capture) => self.begin_capture(capture),
        }
    }

    fn join(&mut self, segment: u32, recording: String, is_full: bool) {
        self.disk.header.recording = recording;
        if let Err(error) = self.disk.open(segment) {
            complain(&format!("the daemon gives no place to write to: {error}"));
            if let Some(served) = &mut self.served {
                served.link.hang_up();
            }
            self.lose_daemon();
            return;
        }
        self.note_segment();
        let hidden = self.cupti.as_ref().map_or(&[][..], |cupti| cupti.hidden);
        let sizes = self.decoder.sizes().clone();
        self.gate.set_records(config::options(), sizes, hidden);
        self.gate.set_host_rows(HostRows::All);
        self.host_events.live.is_wanted = true;
        nccl::set_recording(true);
        host_events::want_ranges(true);
        if let Some(served) = &mut self.served {
            served.is_full = is_full;
            if segment == 0 {
                served.live.forget();
            }
        }
        self.record_kernels(is_full, now());
    }

    /// The daemon is gone: everything ends that it has asked for.
    fn lose_daemon(&mut self) {
        if let Some(served) = &mut self.served {
            served.running = None;
        }
        self.record_kernels(false, now());
        self.gate.set_host_rows(HostRows::None);
        nccl::set_recording(false);
        host_events::want_ranges(false);
        self.disk.shut();
    }

    fn note_segment(&mut self) {
        let segment = self.disk.segment();
        if let Some(served) = self.served.as_mut().filter(|served| served.link.is_joined()) {
            served.link.begun_segment(segment);
        }
    }

    /// Records kernels, or no longer; CUPTI is started the first time. Gives whether they are.
    fn record_kernels(&mut self, on: bool, at: TimeNs) -> bool {
        if on {
            if self.cupti.is_none() {
                self.start_cupti();
            }
            power::on();
            self.decoder.keep_times();
        }
        self.gate.switch(on, at);
        let is_on = on && self.cupti.is_some();
        if let Some(served) = &mut self.served {
            served.live.record_kernels(is_on, at.0);
        }
        is_on
    }

    fn start_cupti(&mut self) {
        let noted = self.disk.header.notes.len();
        self.cupti = running::start(config::options(), &mut self.disk.header);
        self.disk.header_changed = true;
        // Each is said once, however often it is tried.
        let notes = self.disk.header.notes.split_off(noted);
        for note in notes {
            if !self.disk.header.notes.contains(&note) {
                complain(&note);
                self.disk.header.notes.push(note);
            }
        }
        if let Some(cupti) = self.cupti {
            let sizes = cupti.record_sizes();
            self.decoder = decoder(&sizes, Some(cupti));
            self.gate.set_records(config::options(), sizes, cupti.hidden);
        }
    }

    fn begin_capture(&mut self, capture: Capture) {
        let Some(served) = &self.served else { return };
        let refusal = |why: &str| Captured {
            id: capture.id,
            why: Some(why.to_owned()),
            ..Captured::default()
        };
        if served.running.is_some() {
            served.link.captured(refusal("another capture goes on"));
            return;
        }
        let start_ns = now().0;
        let (begun, _) = served.live.begun();
        let is_on = served.is_full && self.cupti.is_some() || self.record_kernels(true, now());
        let Some(served) = &mut self.served else { return };
        if !is_on {
            let why = self
                .disk
                .header
                .notes
                .last()
                .map_or("CUPTI does not start", String::as_str);
            served.link.captured(refusal(why));
            return;
        }
        served.running = Some(Running {
            capture,
            since: Instant::now(),
            start_ns,
            begun,
            over: None,
        });
    }

    /// Ends the capture that goes on, when it is time; tells of it when all of it is on the disk.
    fn tend_capture(&mut self) {
        let Some(served) = &mut self.served else { return };
        let Some(running) = &mut served.running else {
            return;
        };
        if let Some((ended, captured)) = &running.over {
            if ended.elapsed() >= SETTLED {
                let captured = captured.clone();
                served.running = None;
                self.flush();
                self.disk.rows_written(0);
                if let Some(served) = &self.served {
                    served.link.captured(captured);
                }
            }
            return;
        }
        let (begun, last_begun) = served.live.begun();
        // The first that begins is the first that is whole, and is so when the next begins.
        let whole = (begun - running.begun).saturating_sub(1);
        let most = Duration::from_nanos(running.capture.most_ns.max(0).cast_unsigned());
        let is_late = running.since.elapsed() >= most;
        if running.capture.steps.is_none_or(|steps| whole < steps) && !is_late {
            return;
        }
        let why = running
            .capture
            .steps
            .filter(|steps| whole < *steps)
            .map(|steps| format!("{whole} of {steps} steps were over when the time was up"));
        // It ends where the step began that is not wanted any more.
        let last_begun = last_begun.filter(|_| !is_late).map(TimeNs);
        let end = last_begun.unwrap_or_else(now);
        let captured = Captured {
            id: running.capture.id,
            steps: whole,
            start_ns: running.start_ns,
            end_ns: end.0,
            why,
        };
        running.over = Some((Instant::now(), captured));
        if !served.is_full {
            self.record_kernels(false, end);
        }
    }

    /// Tells what happened; at the process's end `all` of it, however late something may become known.
    fn report(&mut self, all: bool) {
        let (rows, _) = self.disk.totals();
        let header = &self.disk.header;
        cost::own_thread();
        let mut totals = Totals {
            rank: header.rank,
            world_size: header.world_size,
            devices: header.devices.iter().map(|device| device.index).collect(),
            lost_rows: self.disk.writer.lost(),
            rows,
            cpu_ns: cost::so_far().own_cpu_ns,
            enqueued: self.host_events.live.enqueued,
            finished: self.host_events.live.finished,
            records_kernels: false,
        };
        let Some(served) = &mut self.served else { return };
        totals.records_kernels =
            served.is_full || served.running.as_ref().is_some_and(|one| one.over.is_none());
        totals.lost_rows += served.live.lost();
        let steps = served.live.take(all);
        served.link.report(steps, totals);
    }

    /// The process ends.
    pub(super) fn leave_daemon(&mut self) {
        if self.served.is_some() {
            self.feed();
            self.report(true);
        }
        if let Some(served) = &self.served {
            served.link.leave();
        }
    }
}
