//! A recording that grows, looked at again and again: what a look costs as there is more and more of it.
//!
//! `cargo bench --workspace --bench growing [-- ROWS]`. A training run's rows are written as the collector writes them, and
//! after each hundred thousand somebody looks; between two looks a page asks for a tile, an overview and the details of the
//! operation that is selected. A look should cost what came since the last one, however much there is.

#[path = "../../analyzer/benches/support/resources.rs"]
mod resources;
#[path = "../../trace/tests/support/training.rs"]
mod training;

use std::hint::black_box;
use std::time::Instant;

use gputrace_trace::json_file::write_json;

use gputrace_trace::manifest::{FORMAT, MANIFEST_FILE, Manifest, PROCESS_FILE, ProcessHeader};
use gputrace_trace::writer::ProcessWriter;
use gputrace_viewer::timeline::{Growing, Timeline};
use resources::{cpu_seconds, forget_peak, peak_mib};
use training::Row;

/// Rows between two looks: some of the quarter of a second that passes between two.
const BETWEEN_LOOKS: u64 = 100_000;
/// Looks that make a line.
const LINE: usize = 20;

/// Milliseconds of CPU and of the clock.
#[derive(Default)]
struct Costs {
    cpu: Vec<f64>,
    wall: Vec<f64>,
}

impl Costs {
    fn measure<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (began, cpu) = (Instant::now(), cpu_seconds());
        let done = black_box(work());
        self.cpu.push((cpu_seconds() - cpu) * 1e3);
        self.wall.push(began.elapsed().as_secs_f64() * 1e3);
        done
    }

    /// The mean of the CPU's, which is counted in hundredths of a second, and the most of the clock's.
    fn taken(&mut self) -> (f64, f64) {
        let most = self.wall.iter().copied().fold(0.0, f64::max);
        let mean = self.cpu.iter().sum::<f64>() / self.cpu.len() as f64;
        *self = Self::default();
        (mean, most)
    }
}

/// What a page asks for of each generation.
fn picture(timeline: &Timeline) {
    let rows: Vec<u32> = timeline.rows().iter().map(|row| row.row).collect();
    let (end, level) = (timeline.end(), 20);
    black_box(timeline.tile(level, end as u64 >> (level + 10), &rows));
    black_box(timeline.overview(timeline.begin(), end, 1000));
}

/// The details of an operation that was selected long ago.
fn details(timeline: &Timeline) {
    let row = timeline
        .rows()
        .iter()
        .find(|row| row.what == gputrace_viewer::timeline::What::Stream);
    if let Some(row) = row {
        black_box(timeline.slice(row.row, 1000));
    }
}

fn main() {
    let total: u64 = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(20_000_000);
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("rank0");
    let mut writer = ProcessWriter::create(&own).expect("a folder");
    let mut header = ProcessHeader {
        rank: Some(0),
        ..ProcessHeader::new()
    };
    writer.sign(&mut header);
    write_json(&own.join(PROCESS_FILE), &header).expect("room");
    let manifest = Manifest {
        state: "recording".to_owned(),
        format: FORMAT.to_owned(),
        ..Manifest::new()
    };
    write_json(&folder.path().join(MANIFEST_FILE), &manifest).expect("room");
    let mut growing = Growing::new(folder.path());
    let mut names = std::mem::take(&mut writer.names);
    let (mut looks, mut pictures, mut asked) = (Costs::default(), Costs::default(), Costs::default());
    let mut rows = 0;
    let mut last: Option<Timeline> = None;
    forget_peak();
    println!("      rows        a look            a picture         a slice's details   MiB");
    println!("              CPU ms   most ms   CPU ms   most ms   CPU ms   most ms      peak");
    training::generate(total, &mut names, &mut |row, names| {
        let tables = &mut writer.tables;
        match row {
            Row::Kernel(row) => tables.kernels.push(row),
            Row::ApiCall(row) => tables.api_calls.push(row),
            Row::Copy(row) => tables.copies.push(row),
            Row::Memset(row) => tables.memsets.push(row),
            Row::Collective(row) => tables.collectives.push(row),
            Row::Synchronization(row) => tables.synchronizations.push(row),
            Row::Marker(row) => tables.markers.push(row),
            Row::Memory(row) => tables.memory.push(row),
            Row::Counter(row) => tables.counters.push(row),
            Row::ExternalCorrelation(row) => tables.external_correlations.push(row),
            Row::Clock(row) => tables.clocks.push(row),
        }
        rows += 1;
        if rows % BETWEEN_LOOKS != 0 {
            return;
        }
        writer.names.clone_from(names);
        writer.flush(1).expect("room");
        let timeline = looks.measure(|| growing.look().expect("nothing is unusual"));
        pictures.measure(|| picture(&timeline));
        asked.measure(|| details(&timeline));
        last = Some(timeline);
        if looks.cpu.len() == LINE {
            let [look, picture, details] = [&mut looks, &mut pictures, &mut asked].map(Costs::taken);
            println!(
                "{rows:>10} {:>9.1} {:>9.1} {:>8.1} {:>9.1} {:>8.1} {:>9.1} {:>9.0}",
                look.0,
                look.1,
                picture.0,
                picture.1,
                details.0,
                details.1,
                peak_mib()
            );
        }
    });
    drop(last);
}
