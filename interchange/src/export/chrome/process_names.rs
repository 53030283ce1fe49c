//! The names and the order of a process's rows.

use std::io;

use super::event::{EventWriter, Place, json_string};
use super::process::Exporter;
use crate::export::ExportSummary;

impl Exporter<'_> {
    /// The names and the order of the "processes", and whose each is.
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
        let number = self.layout.number as u64;
        let sort = number * 1000;
        let mut processes = vec![(
            self.host_pid,
            sort,
            format!("{who}: {program} (process {}{on_host}){simulated}", header.pid),
            "CPU".to_owned(),
        )];
        for (&device, &pid) in &self.gpu_pids {
            let name = header
                .devices
                .iter()
                .find(|known| known.index == device)
                .map_or_else(String::new, |known| format!(" {}", known.name));
            let place = sort + 1 + u64::from(device);
            let title = format!("{who}: GPU {device}{name}{simulated}");
            processes.push((pid, place, title, format!("GPU {device}")));
        }
        if let Some(pid) = self.overhead_pid {
            let title = format!("{who}: CUPTI overhead{simulated}");
            processes.push((pid, 0x1000_0000 + number, title, "overhead".to_owned()));
        }
        processes.sort();
        for (pid, sort, name, label) in processes {
            let place = Place { pid, tid: 0 };
            writer.process_name(place, &json_string(&name), |args| {
                args.raw("process", number);
                args.maybe("rank", header.rank);
                args.maybe("world size", header.world_size);
                args.text("host", &header.host);
            })?;
            writer.metadata("process_labels", place, &json_string(&label))?;
            writer.metadata("process_sort_index", place, &sort.to_string())?;
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
            writer.metadata("thread_name", place, &json_string(&name))?;
            writer.metadata("thread_sort_index", place, &sort.to_string())?;
        }
        Ok(())
    }
}
