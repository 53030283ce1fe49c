//! Samples of quantities over time: a track for each device, process or thread and quantity.

use std::collections::BTreeMap;
use std::io;

use gputrace_trace::NameId;

use super::packets::Packets;
use super::process::Exporter;
use super::tracks::Track;

/// Endings of counters' names and the units that they stand for. Bytes are Perfetto's own unit.
const UNITS: [(&str, &str); 13] = [
    ("_bytes_per_second", "B/s"),
    ("_bytes_per_s", "B/s"),
    ("_per_second", "1/s"),
    ("_percent", "%"),
    ("_bytes", "B"),
    ("_watts", "W"),
    ("_joules", "J"),
    ("_celsius", "°C"),
    ("_mhz", "MHz"),
    ("_ratio", "ratio"),
    ("_seconds", "s"),
    ("_cores", "cores"),
    ("_ns", "ns"),
];

/// `power_watts` is "power" in "W".
fn name_and_unit(name: &str) -> (String, &'static str) {
    let (stem, unit) = UNITS
        .iter()
        .find_map(|(ending, unit)| Some((name.strip_suffix(ending)?, *unit)))
        .unwrap_or((name, ""));
    (stem.replace('_', " "), unit)
}

/// Whose quantity it is: device, process and thread.
type Owner = (Option<u32>, Option<u32>, Option<u32>);

impl Exporter<'_, '_> {
    /// Writes all samples, track by track.
    pub(super) fn write_counters(&mut self, packets: &mut Packets<'_>) -> io::Result<u64> {
        let counters = &self.layout.process.tables.counters;
        let mut tracks: BTreeMap<(Owner, &str, NameId), Vec<usize>> = BTreeMap::new();
        for row in 0..counters.time_ns.len() {
            let owner = (counters.device[row], counters.pid[row], counters.thread[row]);
            let name = counters.name[row];
            let text = self.layout.recording.names.get(name);
            tracks.entry((owner, text, name)).or_default().push(row);
        }
        let mut place = 0;
        for ((owner, text, _), rows) in &mut tracks {
            rows.sort_by_key(|&row| counters.time_ns[row]);
            place += 1;
            let (name, unit) = name_and_unit(text);
            let name = match *owner {
                (_, None, None) => name,
                (_, Some(pid), None) => format!("{name} (process {pid})"),
                (_, None, Some(thread)) => format!("{name} (thread {thread})"),
                (_, Some(pid), Some(thread)) => format!("{name} (process {pid}, thread {thread})"),
            };
            let parent = self.device_track(owner.0);
            let uuid = self.take_uuid(&format!("counter/{owner:?}/{text}"));
            let track = Track {
                uuid,
                parent: Some(parent),
                name: &name,
                place: super::process::COUNTERS + place,
                description: "",
            };
            track.write_counter(unit, text, packets)?;
            packets.set_track(uuid)?;
            for &row in rows.iter() {
                packets.sample(counters.time_ns[row].0, counters.value[row])?;
            }
        }
        Ok(counters.time_ns.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::name_and_unit;

    #[test]
    fn units_leave_the_names() {
        let of = |name| {
            let (stem, unit) = name_and_unit(name);
            format!("{stem}|{unit}")
        };
        assert_eq!(of("power_watts"), "power|W");
        assert_eq!(of("gpu_utilization_percent"), "gpu utilization|%");
        assert_eq!(of("pcie_bytes_per_s"), "pcie|B/s");
        assert_eq!(of("memory_used_bytes"), "memory used|B");
        assert_eq!(of("of its own"), "of its own|");
    }
}
