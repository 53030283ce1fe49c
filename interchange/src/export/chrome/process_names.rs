//! The names and the order of a process's rows.

use std::io;

use super::event::{EventWriter, json_string};
use super::process::Exporter;
use crate::export::ExportSummary;

impl Exporter<'_> {
    /// The name, place and label of one "process".
    fn write_process_name(
        &self,
        pid: u64,
        (name, label, sort): (&str, &str, u64),
        device: Option<u32>,
        writer: &mut EventWriter<'_>,
    ) -> io::Result<()> {
        let header = &self.layout.process.header;
        writer.metadata("process_name", pid, 0);
        writer.text("name", name);
        writer.unsigned("process", self.number);
        writer.maybe("rank", header.rank);
        writer.maybe("world size", header.world_size);
        writer.text("host", &header.host);
        writer.maybe("device", device);
        writer.end()?;
        writer.metadata("process_labels", pid, 0);
        writer.text("labels", label);
        writer.end()?;
        writer.metadata("process_sort_index", pid, 0);
        writer.unsigned("sort_index", sort);
        writer.end()
    }

    /// The names and the order of the "processes", whose each is, and what is true of the process as a whole.
    pub(super) fn write_process_names(&self, writer: &mut EventWriter<'_>) -> io::Result<()> {
        let header = &self.layout.process.header;
        let simulated = if self.layout.recording.is_simulated() {
            " (simulated)"
        } else {
            ""
        };
        let who = match header.rank {
            _ if self.layout.is_host => "samples".to_owned(),
            Some(rank) => format!("rank {rank}"),
            None => self.layout.process.folder.clone(),
        };
        let program = header
            .command
            .first()
            .and_then(|program| program.rsplit('/').next())
            .unwrap_or("process");
        let on_host = if header.host.is_empty() {
            String::new()
        } else {
            format!(" on {}", header.host)
        };
        // Hosts and GPUs alternate: rank 0, its GPUs, rank 1, ...
        let number = self.number;
        let sort = number * 1000;
        let title = format!("{who}: {program} (process {}{on_host}){simulated}", header.pid);
        self.write_process_name(self.host_pid, (&title, "CPU", sort), None, writer)?;
        self.write_own(writer)?;
        for (&device, &pid) in &self.gpu_pids {
            let name = header
                .devices
                .iter()
                .find(|known| known.index == device)
                .map_or_else(String::new, |known| format!(" {}", known.name));
            let title = format!("{who}: GPU {device}{name}{simulated}");
            let label = format!("GPU {device}");
            let place = sort + 1 + u64::from(device);
            self.write_process_name(pid, (&title, &label, place), Some(device), writer)?;
        }
        if let Some(pid) = self.overhead_pid {
            let title = format!("{who}: CUPTI overhead{simulated}");
            let place = 0x1000_0000 + number;
            self.write_process_name(pid, (&title, "overhead", place), None, writer)?;
        }
        Ok(())
    }

    /// The names and the order of the rows.
    pub(super) fn write_row_names(
        &self,
        writer: &mut EventWriter<'_>,
        summary: &mut ExportSummary,
    ) -> io::Result<()> {
        let lanes = self.layout.rows.iter().enumerate();
        let lanes = lanes.flat_map(|(row, lanes)| (0..lanes.lanes).map(move |lane| (row, lane)));
        for (sort, (row, lane)) in lanes.enumerate() {
            let (place, name) = (self.place(row, lane), &self.layout.rows[row].name);
            let name = if lane == 0 {
                name.clone()
            } else {
                summary.lanes_added += 1;
                format!("{name} (lane {})", lane + 1)
            };
            writer.metadata("thread_name", place.pid, place.tid);
            writer.raw("name", &json_string(&name));
            writer.end()?;
            writer.metadata("thread_sort_index", place.pid, place.tid);
            writer.unsigned("sort_index", sort as u64);
            writer.end()?;
        }
        Ok(())
    }
}
