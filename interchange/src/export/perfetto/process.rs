//! One process: its tracks in their order, and on each its slices.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use gputrace_trace::manifest::Device;
use rustc_hash::FxHashMap;

use super::fields::{process, thread, track};
use super::flows::Flows;
use super::hosts::Identity;
use super::names::Names;
use super::packets::Packets;
use super::stages::{Gpus, StageNumbers};
use super::text::without_nul;
use super::tracks::{Track, Uuids};
use crate::export::ExportSummary;
use crate::export::layout::{Layout, Row, RowKey, Slice};

// Places of tracks among their siblings.
const WINDOWS: u32 = 0;
/// Devices, by index.
const DEVICES: u32 = 10;
/// Communicators.
pub(super) const COMMUNICATORS: u32 = 100_000;
/// Whatever else the process has.
const OTHERS: u32 = 200_000;
/// A device's steps and idle times.
pub(super) const ANALYSIS: u32 = 0;
/// A device's streams.
const STREAMS: u32 = 1000;
/// A device's allocations.
pub(super) const MEMORY: u32 = 1_000_000_000;
/// Counters.
pub(super) const COUNTERS: u32 = 1_500_000_000;

/// Writes one process after another.
pub(super) struct Exporter<'l, 'r> {
    pub(super) layout: &'l Layout<'r>,
    pub(super) derived: &'r gputrace_trace::Derived,
    pub(super) identity: Identity,
    pub(super) flows: Flows,
    pub(super) names: &'l mut Names<'r>,
    uuids: &'l mut Uuids,
    /// What the paths of its tracks begin with.
    path: String,
    /// The process's own track.
    pub(super) uuid: u64,
    /// By device index.
    pub(super) devices: BTreeMap<u32, u64>,
    /// Tracks of threads, by id.
    threads: FxHashMap<u32, u64>,
    /// By row of `collectives`: the collective's number over all ranks.
    pub(super) enqueued: FxHashMap<u32, u64>,
    /// Where operations are to be Perfetto's render stages.
    pub(super) stages: Option<(&'l Gpus<'r>, &'l mut StageNumbers)>,
}

impl<'l, 'r> Exporter<'l, 'r> {
    pub(super) fn new(
        layout: &'l Layout<'r>,
        derived: &'r gputrace_trace::Derived,
        identity: Identity,
        (names, uuids): (&'l mut Names<'r>, &'l mut Uuids),
        stages: Option<(&'l Gpus<'r>, &'l mut StageNumbers)>,
        summary: &mut ExportSummary,
    ) -> Self {
        let header = &layout.process.header;
        let path = format!("{}/{}/{}/", header.host, layout.process.folder, identity.pid);
        let uuid = uuids.take(&path);
        let mut enqueued = FxHashMap::default();
        for part in layout.derived.iter().flat_map(|derived| &derived.parts) {
            let collective = derived.collectives.get(part.collective as usize);
            if let (Some(row), Some(collective)) = (part.row, collective) {
                enqueued.entry(row).or_insert(collective.id);
            }
        }
        Self {
            layout,
            derived,
            identity,
            flows: Flows::new(layout, summary),
            names,
            uuids,
            path,
            uuid,
            devices: BTreeMap::new(),
            threads: FxHashMap::default(),
            enqueued,
            stages,
        }
    }

    /// A number for a track of this process.
    pub(super) fn take_uuid(&mut self, path: &str) -> u64 {
        self.uuids.take(&format!("{}{path}", self.path))
    }

    /// The track of a device, or the process's own.
    pub(super) fn device_track(&self, device: Option<u32>) -> u64 {
        device
            .and_then(|device| self.devices.get(&device).copied())
            .unwrap_or(self.uuid)
    }

    /// Writes the whole process.
    pub(super) fn write(&mut self, packets: &mut Packets<'_>, summary: &mut ExportSummary) -> io::Result<()> {
        summary.events_in += self.layout.events();
        summary.durations_clamped += self.layout.durations_clamped;
        self.write_process_track(packets)?;
        self.write_device_tracks(packets)?;
        let layout = self.layout;
        for (place, row) in (0..).zip(&layout.rows) {
            if self.stages.is_some() && matches!(row.key, RowKey::Stream { .. }) {
                self.write_stages(row, packets)?;
            } else {
                let tracks = self.write_row_tracks(row, place, packets)?;
                summary.lanes_added += row.lanes as u64 - 1;
                self.write_row(row, &tracks, packets)?;
            }
            summary.events_out += row.slices.len() as u64;
        }
        self.write_analysis(packets)?;
        summary.events_out += self.write_moments(packets)?;
        summary.events_out += self.write_counters(packets)?;
        Ok(())
    }

    /// "rank 3", or what else is known of the process.
    pub(super) fn process_name(&self) -> String {
        let header = &self.layout.process.header;
        match header.rank {
            _ if self.layout.is_host && header.host.is_empty() => "host".to_owned(),
            _ if self.layout.is_host => format!("host {}", header.host),
            Some(rank) => format!("rank {rank}"),
            None => self.layout.process.folder.clone(),
        }
    }

    fn write_process_track(&self, packets: &mut Packets<'_>) -> io::Result<()> {
        let header = &self.layout.process.header;
        packets.track(|fields| {
            fields.uint(track::UUID, self.uuid);
            fields.message(track::PROCESS, |fields| {
                fields.uint(process::PID, self.identity.pid.into());
                for word in &header.command {
                    fields.text(process::COMMAND, &without_nul(word));
                }
                fields.text(process::NAME, &without_nul(&self.process_name()));
                if self.layout.recording.is_simulated() && !self.layout.is_host {
                    fields.text(process::LABELS, "simulated GPUs");
                }
                if !header.host.is_empty() {
                    fields.text(process::LABELS, &format!("host {}", without_nul(&header.host)));
                }
            });
            fields.uint(track::CHILD_ORDERING, track::EXPLICIT);
            fields.uint(track::SIBLING_ORDER_RANK, self.layout.number as u64);
        })
    }

    /// The devices that anything is about.
    fn known_devices(&self) -> BTreeSet<u32> {
        let tables = &self.layout.process.tables;
        let mut devices: BTreeSet<u32> = self
            .layout
            .rows
            .iter()
            .filter_map(|row| row.key.device())
            .collect();
        devices.extend(tables.counters.device.iter().flatten());
        devices.extend(&tables.memory.device);
        devices.extend(&tables.memory_pools.device);
        devices.extend(tables.untimed_operations.device.iter().flatten());
        if let Some(derived) = self.layout.derived {
            devices.extend(derived.steps.iter().map(|step| step.device));
            devices.extend(derived.gaps.iter().map(|gap| gap.device));
        }
        devices
    }

    /// What the process knows of a device.
    pub(super) fn device(&self, index: u32) -> Option<&'r Device> {
        let devices = &self.layout.process.header.devices;
        devices.iter().find(|device| device.index == index)
    }

    fn write_device_tracks(&mut self, packets: &mut Packets<'_>) -> io::Result<()> {
        let simulated = self.layout.recording.is_simulated();
        for index in self.known_devices() {
            let name = self.device(index).map_or("", |device| device.name.as_str());
            let mut title = format!("GPU {index}");
            if !name.is_empty() {
                title += " ";
                title += name;
            }
            if simulated && !name.to_lowercase().contains("simulated") {
                title += " (simulated)";
            }
            let uuid = self.take_uuid(&format!("device/{index}"));
            self.devices.insert(index, uuid);
            Track {
                uuid,
                parent: Some(self.uuid),
                name: &title,
                place: DEVICES.saturating_add(index),
                description: if simulated {
                    "A simulated GPU: its times are a model's, not a device's."
                } else {
                    ""
                },
            }
            .write(packets)?;
        }
        Ok(())
    }

    /// The track of a host thread; new where there is none.
    pub(super) fn thread_track(&mut self, id: u32, packets: &mut Packets<'_>) -> io::Result<u64> {
        if let Some(&uuid) = self.threads.get(&id) {
            return Ok(uuid);
        }
        self.write_thread_track(id, &format!("thread {id}"), packets)
    }

    fn write_thread_track(&mut self, id: u32, name: &str, packets: &mut Packets<'_>) -> io::Result<u64> {
        let uuid = self.take_uuid(&format!("thread/{id}"));
        self.threads.insert(id, uuid);
        packets.track(|fields| {
            fields.uint(track::UUID, uuid);
            fields.message(track::THREAD, |fields| {
                fields.uint(thread::PID, self.identity.pid.into());
                fields.uint(thread::TID, id.into());
                fields.text(thread::NAME, &without_nul(name));
            });
            fields.uint(track::SIBLING_ORDER_RANK, id.into());
        })?;
        Ok(uuid)
    }

    /// The tracks of a row's lanes.
    fn write_row_tracks(&mut self, row: &Row, place: u32, packets: &mut Packets<'_>) -> io::Result<Vec<u64>> {
        let (parent, first_place) = match row.key {
            RowKey::Windows => (self.uuid, WINDOWS),
            _ if row.key.device().is_some() => (self.device_track(row.key.device()), STREAMS),
            _ => (self.uuid, OTHERS),
        };
        let mut tracks = Vec::with_capacity(row.lanes);
        for lane in 0..row.lanes {
            if let (RowKey::Thread(id), 0) = (row.key, lane) {
                tracks.push(self.write_thread_track(id, &row.name, packets)?);
                continue;
            }
            let uuid = self.take_uuid(&format!("{:?}/{lane}", row.key));
            let mut name = row.name.clone();
            if matches!(row.key, RowKey::Overhead(_)) {
                name = format!("CUPTI overhead: {name}");
            }
            if lane > 0 {
                name += &format!(" (lane {})", lane + 1);
            }
            Track {
                uuid,
                parent: Some(parent),
                name: &name,
                place: first_place.saturating_add(place),
                description: "",
            }
            .write(packets)?;
            tracks.push(uuid);
        }
        Ok(tracks)
    }

    fn write_row(&mut self, row: &Row, tracks: &[u64], packets: &mut Packets<'_>) -> io::Result<()> {
        if let [track] = tracks {
            packets.set_track(*track)?;
            return self.write_lane(row.slices.iter(), packets);
        }
        let mut order: Vec<u32> = (0..u32::try_from(row.slices.len()).unwrap_or(u32::MAX)).collect();
        order.sort_by_key(|&place| row.slices[place as usize].lane());
        for lane in order.chunk_by(|&a, &b| row.slices[a as usize].lane() == row.slices[b as usize].lane()) {
            let slices = lane.iter().map(|&place| &row.slices[place as usize]);
            let number = row.slices[lane[0] as usize].lane();
            packets.set_track(tracks[number])?;
            self.write_lane(slices, packets)?;
        }
        Ok(())
    }

    /// Slices of one track, which are disjoint or within each other.
    fn write_lane<'s>(
        &mut self,
        slices: impl Iterator<Item = &'s Slice>,
        packets: &mut Packets<'_>,
    ) -> io::Result<()> {
        let mut open: Vec<i64> = Vec::new();
        for slice in slices {
            // Before what begins in the same moment, as in time.
            while let Some(&end) = open.last() {
                if end > slice.start_ns {
                    break;
                }
                packets.end(end)?;
                open.pop();
            }
            self.write_begin(slice, packets)?;
            open.push(slice.end_ns);
        }
        while let Some(end) = open.pop() {
            packets.end(end)?;
        }
        Ok(())
    }
}
