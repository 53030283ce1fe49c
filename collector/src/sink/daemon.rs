//! What the daemon wants of the thread: a place, segments, kernels for a while; and what it is told.

use std::io;
use std::time::{Duration, Instant};

use gputrace_trace::daemon::{Capture, Captured, Totals};
use gputrace_trace::options::{CollectorOptions, Kind};
use gputrace_trace::{TimeNs, now};

use super::Sink;
use super::served::{Running, Served, capture_options, decoder};
use crate::complain::complain;
use crate::cupti::running;
use crate::daemon::{Event, Timed, What};
use crate::windows::{self, Decide, HostRows};
use crate::{buffers, config, cost, host_events, nccl, power};

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
        if let Some((segment, is_full)) = self.served.as_mut().and_then(|served| served.opening.take()) {
            self.open(segment, is_full);
        }
        while let Some(event) = self
            .served
            .as_mut()
            .and_then(|served| served.link.look(&self.disk.header))
        {
            self.handle(event);
        }
        self.tend_capture();
        self.let_cupti_go();
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
            } => {
                self.disk.header.recording = recording;
                if let Some(served) = self.served.as_mut().filter(|_| segment == 0) {
                    served.live.forget();
                }
                self.open(segment, is_full);
            }
            Event::Lost => self.lose_daemon(),
            Event::Cut => {
                self.release(Decide::Come);
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

    /// The daemon has let this process in: its recording begins when there is a place for it.
    fn open(&mut self, segment: u32, is_full: bool) {
        if let Err(error) = self.disk.open(segment) {
            if error.kind() == io::ErrorKind::TimedOut {
                if let Some(served) = &mut self.served {
                    served.opening = Some((segment, is_full));
                }
                return;
            }
            complain(&format!("the daemon gives no place to write to: {error}"));
            if let Some(served) = &mut self.served {
                served.link.hang_up();
            }
            self.lose_daemon();
            return;
        }
        self.note_segment();
        self.record_kinds(config::options());
        self.gate.set_host_rows(HostRows::All);
        self.host_events.live.is_wanted = true;
        nccl::set_recording(true);
        host_events::want_ranges(true);
        if let Some(served) = &mut self.served {
            served.is_full = is_full;
        }
        self.record_kernels(is_full, now(), config::options());
    }

    /// Makes rows of these kinds from now on. Gives, in words, what CUPTI was not started for.
    fn record_kinds(&mut self, options: &'static CollectorOptions) -> Vec<&'static str> {
        let (hidden, missing) = self
            .cupti
            .map(|cupti| cupti.narrowed(options))
            .unwrap_or_default();
        let sizes = self.decoder.sizes().clone();
        self.gate.set_records(options, sizes, &hidden);
        missing
    }

    /// The daemon is gone: everything ends that it has asked for.
    fn lose_daemon(&mut self) {
        if let Some(served) = &mut self.served {
            served.running = None;
            served.opening = None;
        }
        self.record_kernels(false, now(), config::options());
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

    /// Records kernels, or no longer; CUPTI is started where it is not there. Gives whether they are, and what of the options is not.
    fn record_kernels(
        &mut self,
        on: bool,
        at: TimeNs,
        options: &'static CollectorOptions,
    ) -> (bool, Vec<&'static str>) {
        let mut missing = Vec::new();
        if on {
            if self.cupti.is_none() {
                self.start_cupti(options);
            }
            power::on();
            self.decoder.keep_times();
            missing = self.record_kinds(options);
        }
        if let Some(cupti) = &self.cupti {
            cupti.record_stacks(on && options.records(Kind::Stacks));
        }
        self.gate.switch(on, at);
        let is_on = on && self.cupti.is_some();
        if let Some(served) = &mut self.served {
            served.live.record_kernels(is_on, at.0);
        }
        (is_on, missing)
    }

    fn start_cupti(&mut self, options: &'static CollectorOptions) {
        let noted = self.disk.header.notes.len();
        self.cupti = running::start(options, &mut self.disk.header);
        self.disk.header_changed = true;
        // Each is said once, however often it is tried.
        let notes = self.disk.header.notes.split_off(noted);
        for note in notes {
            if !self.disk.header.notes.contains(&note) {
                complain(&note);
                self.disk.header.notes.push(note);
            }
        }
        let Some(served) = &mut self.served else { return };
        served.options = Some(options);
        if let Some(cupti) = self.cupti
            && !std::mem::replace(&mut served.has_decoder, true)
        {
            self.decoder = decoder(&cupti.record_sizes(), Some(cupti));
        }
    }

    /// Has nothing more to do with CUPTI once a capture is over, so that other profilers can have it.
    fn let_cupti_go(&mut self) {
        let Some(served) = &self.served else { return };
        let is_wanted = served.is_full || served.keeps_cupti || served.running.is_some();
        if self.cupti.is_none() || is_wanted || !power::is_off() {
            return;
        }
        if let Some(cupti) = &self.cupti {
            cupti.flush(true);
        }
        self.take(Duration::from_millis(2));
        self.release(Decide::Come);
        // Buffers that it still has would go to whoever comes next.
        if buffers::outstanding() == 0
            && let Some(options) = self.served.as_ref().and_then(|served| served.options)
        {
            if running::let_go(options) {
                self.cupti = None;
            } else if let Some(served) = &mut self.served {
                served.keeps_cupti = true;
            }
        }
    }

    fn begin_capture(&mut self, capture: Capture) {
        let Some(served) = &self.served else { return };
        let refusal = |why: &str| Captured {
            id: capture.id,
            why: Some(why.to_owned()),
            ..Captured::default()
        };
        let refused = match served {
            Served { running: Some(_), .. } => Some("another capture goes on"),
            Served { opening: Some(_), .. } => Some("it has no files yet"),
            _ => None,
        };
        if let Some(why) = refused {
            served.link.captured(refusal(why));
            return;
        }
        let start_ns = now().0;
        let (begun, _) = served.live.begun();
        let options = match &capture.kinds {
            Some(kinds) => capture_options(kinds, served.options),
            None => config::options(),
        };
        let (is_on, missing) = match served.is_full && self.cupti.is_some() {
            true => (true, Vec::new()),
            false => self.record_kernels(true, now(), options),
        };
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
        served.keeps_cupti = capture.repeats;
        served.running = Some(Running {
            missing: (!missing.is_empty()).then(|| {
                format!(
                    "CUPTI was started without {}, and can't be let go here",
                    missing.join(", ")
                )
            }),
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
                self.release(Decide::Come);
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
            .map(|steps| format!("{whole} of {steps} steps were over when the time was up"))
            .or_else(|| running.missing.clone());
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
            self.record_kernels(false, end, config::options());
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
            steps: 0,
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
        totals.steps = served.live.untold();
        let steps = served.live.take(all);
        served.link.report(steps, totals);
    }

    /// The process ends.
    pub(super) fn leave_daemon(&mut self) {
        if let Some(served) = &mut self.served {
            served.link.call_once_more(&self.disk.header);
            self.feed();
            self.report(true);
        }
        if let Some(served) = &self.served {
            served.link.leave();
        }
    }
}
