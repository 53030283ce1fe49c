//! What the analysis adds: steps and idle times of each device, and what each communicator did.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

use gputrace_trace::derived::DerivedPart;

use super::arguments::{Arguments, Key};
use super::categories::Category;
use super::fields::event;
use super::packets::Packets;
use super::process::{ANALYSIS, COMMUNICATORS, Exporter};
use super::tracks::Track;
use crate::export::lanes::Lanes;

/// A part in a collective, when its kernel ran.
struct Part {
    start_ns: i64,
    end_ns: i64,
    part: DerivedPart,
}

impl Exporter<'_, '_> {
    pub(super) fn write_analysis(&mut self, packets: &mut Packets<'_>) -> io::Result<()> {
        if self.layout.derived.is_none() {
            return Ok(());
        }
        self.write_steps(packets)?;
        self.write_gaps(packets)?;
        self.write_communicators(packets)
    }

    /// Writes a track for each lane that spans need, and calls `begin` for each span on its track. Spans are sorted first.
    fn write_spans<T>(
        &mut self,
        track: &Track<'_>,
        path: &str,
        spans: &mut [T],
        times: impl Fn(&T) -> (i64, i64),
        packets: &mut Packets<'_>,
        mut write: impl FnMut(&mut Self, &T, &mut Packets<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        spans.sort_by_key(|span| {
            let (start, end) = times(span);
            (start, Reverse(end))
        });
        let mut lanes = Lanes::new(false);
        let mut of_lanes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (place, span) in spans.iter().enumerate() {
            let (start, end) = times(span);
            of_lanes.entry(lanes.place(start, end)).or_default().push(place);
        }
        for (lane, places) in of_lanes {
            let uuid = match lane {
                0 => track.uuid,
                _ => self.take_uuid(&format!("{path}/{lane}")),
            };
            let name = match lane {
                0 => track.name.to_owned(),
                _ => format!("{} (lane {})", track.name, lane + 1),
            };
            Track {
                uuid,
                parent: track.parent,
                name: &name,
                place: track.place,
                description: track.description,
            }
            .write(packets)?;
            packets.set_track(uuid)?;
            for place in places {
                write(self, &spans[place], packets)?;
            }
        }
        Ok(())
    }

    fn write_steps(&mut self, packets: &mut Packets<'_>) -> io::Result<()> {
        let Some(derived) = self.layout.derived else {
            return Ok(());
        };
        for of_device in derived.steps.chunk_by(|a, b| a.device == b.device) {
            let device = of_device[0].device;
            let path = format!("steps/{device}");
            let uuid = self.take_uuid(&path);
            let track = Track {
                uuid,
                parent: Some(self.device_track(Some(device))),
                name: "steps",
                place: ANALYSIS,
                description: "Training steps: from the first operation that was launched in one to the first of the next.",
            };
            let mut steps: Vec<_> = of_device.iter().collect();
            self.write_spans(
                &track,
                &path,
                &mut steps,
                |step| (step.start_ns, step.end_ns.max(step.start_ns)),
                packets,
                |this, step, packets| {
                    let name = this.names.text(&step.name, packets)?;
                    let has_arguments = packets.has_arguments();
                    packets.begin(step.start_ns, name, Category::Step, |fields| {
                        if !has_arguments {
                            return;
                        }
                        let mut arguments = Arguments::new(fields);
                        arguments.maybe_uint(Key::Number, step.number);
                        arguments.flag(Key::Detected, step.detected);
                        arguments.flag(Key::Outlier, step.outlier);
                        let on_host = step.host_ns.map(|(start, end)| end.saturating_sub(start));
                        arguments.maybe_int(Key::HostDuration, on_host);
                        arguments.measures(&step.measures);
                    })?;
                    packets.end(step.end_ns.max(step.start_ns))
                },
            )?;
        }
        Ok(())
    }

    fn write_gaps(&mut self, packets: &mut Packets<'_>) -> io::Result<()> {
        let Some(derived) = self.layout.derived else {
            return Ok(());
        };
        for of_device in derived.gaps.chunk_by(|a, b| a.device == b.device) {
            let device = of_device[0].device;
            let path = format!("idle/{device}");
            let uuid = self.take_uuid(&path);
            let track = Track {
                uuid,
                parent: Some(self.device_track(Some(device))),
                name: "idle: causes",
                place: ANALYSIS + 1,
                description: "When the device executed nothing, by the cause of the longest part of it.",
            };
            let mut gaps: Vec<_> = of_device.iter().collect();
            self.write_spans(
                &track,
                &path,
                &mut gaps,
                |gap| (gap.start_ns, gap.end_ns.max(gap.start_ns)),
                packets,
                |this, gap, packets| {
                    let name = this.names.text(gap.cause, packets)?;
                    packets.begin(gap.start_ns, name, Category::Idle, |_| {})?;
                    packets.end(gap.end_ns.max(gap.start_ns))
                },
            )?;
        }
        Ok(())
    }

    /// A track for each communicator, with its collectives as their kernels ran: waiting for other ranks, and transferring.
    fn write_communicators(&mut self, packets: &mut Packets<'_>) -> io::Result<()> {
        let Some(derived) = self.layout.derived else {
            return Ok(());
        };
        let kernels = &self.layout.process.tables.kernels;
        let mut communicators: BTreeMap<&str, Vec<Part>> = BTreeMap::new();
        for part in &derived.parts {
            let kernel = part.kernel.map(|kernel| kernel as usize);
            let Some((kernel, collective)) = kernel
                .filter(|&kernel| kernel < kernels.start_ns.len())
                .zip(self.derived.collectives.get(part.collective as usize))
            else {
                continue;
            };
            let start_ns = kernels.start_ns[kernel].0;
            communicators
                .entry(&collective.communicator)
                .or_default()
                .push(Part {
                    start_ns,
                    end_ns: start_ns.saturating_add(kernels.duration_ns[kernel].0.max(0)),
                    part: *part,
                });
        }
        if communicators.is_empty() {
            return Ok(());
        }
        let group = self.take_uuid("communicators");
        Track {
            uuid: group,
            parent: Some(self.uuid),
            name: "communicators",
            place: COMMUNICATORS,
            description: "Collectives of this rank, by communicator.",
        }
        .write(packets)?;
        for (place, (communicator, mut parts)) in (0..).zip(communicators) {
            let path = format!("communicator/{communicator}");
            let uuid = self.take_uuid(&path);
            let known = parts.iter().find_map(|part| self.collective(&part.part));
            let name = match known.and_then(|collective| collective.communicator_name.as_deref()) {
                Some(name) if !name.is_empty() => format!("{name} ({communicator})"),
                _ => format!("communicator {communicator}"),
            };
            let track = Track {
                uuid,
                parent: Some(group),
                name: &name,
                place,
                description: "",
            };
            self.write_spans(
                &track,
                &path,
                &mut parts,
                |part| (part.start_ns, part.end_ns),
                packets,
                Self::write_part,
            )?;
        }
        Ok(())
    }

    fn write_part(&mut self, part: &Part, packets: &mut Packets<'_>) -> io::Result<()> {
        let collective = self.collective(&part.part);
        let (name, id) = match collective {
            Some(collective) => (collective.name.clone(), collective.id),
            None => return Ok(()),
        };
        let name = self.names.text(&name, packets)?;
        let has_arguments = packets.has_arguments();
        packets.begin(part.start_ns, name, Category::Collective, |fields| {
            fields.uint(event::CORRELATION_ID, id);
            if has_arguments {
                self.part_arguments(&part.part, &mut Arguments::new(fields));
            }
        })?;
        if let Some(wait_ns) = part.part.wait_ns {
            let begun_ns = part.start_ns.saturating_add(wait_ns.max(0)).min(part.end_ns);
            for (text, from_ns, to_ns) in [
                ("wait", part.start_ns, begun_ns),
                ("transfer", begun_ns, part.end_ns),
            ] {
                if to_ns > from_ns {
                    let name = self.names.text(text, packets)?;
                    packets.begin(from_ns, name, Category::CollectivePhase, |fields| {
                        fields.uint(event::CORRELATION_ID, id);
                    })?;
                    packets.end(to_ns)?;
                }
            }
        }
        packets.end(part.end_ns)
    }
}
