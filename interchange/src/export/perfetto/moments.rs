//! What has no length: marks, allocations, memory pools, and what had not ended.

use std::collections::BTreeMap;
use std::io;

use gputrace_trace::copy_words::memory_name;

use super::arguments::Key;
use super::categories::Category;
use super::names::Wording;
use super::packets::Packets;
use super::process::{Exporter, MEMORY};
use super::tracks::Track;
use crate::export::layout::first_moment_ns;
use crate::export::words;

/// `CUpti_ActivityMemoryOperationType`: released.
const RELEASE: u8 = 2;
/// `CUpti_ActivityMemoryKind`: the first that is not the host's.
const DEVICE_MEMORY: u32 = 3;

impl Exporter<'_, '_> {
    /// Writes all of them, and says how many there were.
    pub(super) fn write_moments(&mut self, packets: &mut Packets<'_>) -> io::Result<u64> {
        Ok(self.write_marks(packets)? + self.write_memory(packets)? + self.write_unfinished(packets)?)
    }

    fn write_marks(&mut self, packets: &mut Packets<'_>) -> io::Result<u64> {
        let markers = &self.layout.process.tables.markers;
        let mut count = 0;
        for index in 0..markers.start_ns.len() {
            if markers.duration_ns[index].is_some() {
                continue;
            }
            let track = self.thread_track(markers.thread[index], packets)?;
            let name = self.names.of(Wording::Plain, markers.name[index], packets)?;
            let time_ns = markers.start_ns[index].0;
            packets.instant(time_ns, Some(track), name, Category::Mark, |arguments| {
                self.marker_arguments(index, arguments);
            })?;
            count += 1;
        }
        Ok(count)
    }

    /// Allocations and pools: an event each, and the device memory that is allocated as a quantity.
    fn write_memory(&mut self, packets: &mut Packets<'_>) -> io::Result<u64> {
        let memory = &self.layout.process.tables.memory;
        let pools = &self.layout.process.tables.memory_pools;
        let mut events: BTreeMap<u32, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        for (row, &device) in memory.device.iter().enumerate() {
            events.entry(device).or_default().0.push(row);
        }
        for (row, &device) in pools.device.iter().enumerate() {
            events.entry(device).or_default().1.push(row);
        }
        for (device, (mut of_memory, of_pools)) in events {
            of_memory.sort_by_key(|&row| memory.time_ns[row]);
            let parent = self.device_track(Some(device));
            let uuid = self.take_uuid(&format!("memory/{device}"));
            let track = Track {
                uuid,
                parent: Some(parent),
                name: "memory",
                place: MEMORY,
                description: "Allocations and releases, and memory pools.",
            };
            track.write(packets)?;
            packets.set_track(uuid)?;
            for &row in &of_memory {
                self.write_allocation(row, packets)?;
            }
            for &row in &of_pools {
                self.write_pool(row, packets)?;
            }
            self.write_allocated(device, parent, &of_memory, packets)?;
        }
        Ok((memory.time_ns.len() + pools.time_ns.len()) as u64)
    }

    fn write_allocation(&mut self, row: usize, packets: &mut Packets<'_>) -> io::Result<()> {
        let strings = &self.layout.recording.names;
        let memory = &self.layout.process.tables.memory;
        let text = match memory.operation[row] {
            RELEASE => "release",
            _ => "allocation",
        };
        let name = self.names.text(text, packets)?;
        packets.instant(memory.time_ns[row].0, None, name, Category::Memory, |arguments| {
            arguments.hexadecimal(Key::Address, memory.address[row]);
            arguments.uint(Key::Bytes, memory.bytes[row]);
            arguments.text(Key::MemoryKind, memory_name(memory.memory_kind[row]));
            arguments.uint(Key::Context, memory.context[row]);
            arguments.maybe_uint(Key::Stream, memory.stream[row]);
            arguments.uint(Key::Correlation, memory.correlation[row]);
            for (name, text) in [(Key::Name, memory.name[row]), (Key::Source, memory.source[row])] {
                if let Some(text) = text {
                    arguments.text(name, strings.get(text));
                }
            }
            if let Some(address) = memory.pool_address[row] {
                arguments.hexadecimal(Key::PoolAddress, address);
            }
            arguments.maybe_uint(Key::PoolBytes, memory.pool_bytes[row]);
            arguments.maybe_uint(Key::PoolUsedBytes, memory.pool_used_bytes[row]);
        })
    }

    fn write_pool(&mut self, row: usize, packets: &mut Packets<'_>) -> io::Result<()> {
        let pools = &self.layout.process.tables.memory_pools;
        let text = words::pool_operation_name(pools.operation[row]);
        let name = self.names.text(text, packets)?;
        packets.instant(
            pools.time_ns[row].0,
            None,
            name,
            Category::MemoryPool,
            |arguments| {
                arguments.hexadecimal(Key::PoolAddress, pools.address[row]);
                arguments.uint(Key::PoolBytes, pools.bytes[row]);
                arguments.uint(Key::PoolUsedBytes, pools.used_bytes[row]);
                arguments.uint(Key::ReleaseThreshold, pools.release_threshold_bytes[row]);
                arguments.maybe_uint(Key::LeastKept, pools.least_bytes_kept[row]);
                arguments.uint(Key::Correlation, pools.correlation[row]);
            },
        )
    }

    /// The sum of a device's allocations over time.
    fn write_allocated(
        &mut self,
        device: u32,
        parent: u64,
        rows: &[usize],
        packets: &mut Packets<'_>,
    ) -> io::Result<()> {
        let memory = &self.layout.process.tables.memory;
        let mut on_device = rows
            .iter()
            .filter(|&&row| memory.memory_kind[row] >= DEVICE_MEMORY)
            .peekable();
        if on_device.peek().is_none() {
            return Ok(());
        }
        let uuid = self.take_uuid(&format!("allocated/{device}"));
        let track = Track {
            uuid,
            parent: Some(parent),
            name: "memory allocated",
            place: MEMORY + 1,
            description: "Sum of the allocations that were recorded.",
        };
        track.write_counter("B", "memory allocated", packets)?;
        packets.set_track(uuid)?;
        let mut total = 0i128;
        for &row in on_device {
            let bytes = i128::from(memory.bytes[row]);
            total += if memory.operation[row] == RELEASE {
                -bytes
            } else {
                bytes
            };
            packets.sample(memory.time_ns[row].0, total as f64)?;
        }
        Ok(())
    }

    /// Operations without an end, as moments at their starts; without a start, at the first moment of the recording.
    fn write_unfinished(&mut self, packets: &mut Packets<'_>) -> io::Result<u64> {
        let strings = &self.layout.recording.names;
        let untimed = &self.layout.process.tables.untimed_operations;
        if untimed.start_ns.is_empty() {
            return Ok(0);
        }
        let first_ns = first_moment_ns(self.layout.recording).unwrap_or(0);
        let mut tracks: BTreeMap<u32, u64> = BTreeMap::new();
        for index in 0..untimed.start_ns.len() {
            let track = match (untimed.thread[index], untimed.device[index]) {
                (Some(thread), _) => self.thread_track(thread, packets)?,
                (None, None) => self.uuid,
                (None, Some(device)) => match tracks.get(&device) {
                    Some(&track) => track,
                    None => {
                        let uuid = self.take_uuid(&format!("unfinished/{device}"));
                        let track = Track {
                            uuid,
                            parent: Some(self.device_track(Some(device))),
                            name: "unfinished",
                            place: MEMORY - 1,
                            description: "Operations of which no end was recorded.",
                        };
                        track.write(packets)?;
                        tracks.insert(device, uuid);
                        uuid
                    }
                },
            };
            let kind = words::activity_name(untimed.kind[index]);
            let text = untimed.name[index].map_or("", |name| strings.get(name));
            let text = if text.is_empty() {
                kind.to_owned()
            } else {
                words::kernel_name(text)
            };
            let name = self.names.text(&format!("unfinished {text}"), packets)?;
            let time_ns = untimed.start_ns[index].map_or(first_ns, |start| start.0);
            packets.instant(time_ns, Some(track), name, Category::Unfinished, |arguments| {
                arguments.text(Key::Kind, kind);
                if untimed.start_ns[index].is_none() {
                    arguments.uint(Key::StartKnown, 0u8);
                }
                arguments.maybe_uint(Key::Device, untimed.device[index]);
                arguments.maybe_uint(Key::Context, untimed.context[index]);
                arguments.maybe_uint(Key::Stream, untimed.stream[index]);
                arguments.uint(Key::Correlation, untimed.correlation[index]);
                arguments.maybe_uint(Key::Bytes, untimed.bytes[index]);
                arguments.maybe_uint(Key::Graph, untimed.graph[index]);
                arguments.maybe_uint(Key::GraphNode, untimed.graph_node[index]);
            })?;
        }
        Ok(untimed.start_ns.len() as u64)
    }
}
