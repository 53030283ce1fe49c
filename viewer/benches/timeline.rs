//! Rows, tiles and answers of a recording of ten million slices, against looking at every slice.
//!
//! `cargo bench --workspace --bench timeline`, or with `-- SLICES`. Eight ranks have eight rows each: four streams and four
//! threads whose calls launch what runs on them. Steps are bursts of operations, most of them of microseconds, some of
//! milliseconds, and then nothing.

#[path = "../../tests/common/random.rs"]
mod random;
#[path = "../../analyzer/benches/support/resources.rs"]
mod resources;

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use gputrace_analyzer::{Options, analyze_in_detail};
use gputrace_trace::json_file::write_json;
use gputrace_trace::manifest::{FORMAT, MANIFEST_FILE, Manifest, PROCESS_FILE, VERSION};
use gputrace_trace::tables::{ApiCall, Kernel, Marker, Operator};
use gputrace_trace::writer::{ProcessWriter, WAITING_ROWS};
use gputrace_trace::{DurationNs, Process, Recording, Table, TimeNs, parallel};
use gputrace_viewer::timeline::slices::Slices;
use gputrace_viewer::timeline::{TILE_BINS, Timeline, TreeOf};
use random::Random;
use resources::{cpu_seconds, forget_peak, peak_mib};

const RANKS: u64 = 8;
const STREAMS: u64 = 4;
const STEP_NS: i64 = 250_000_000;
/// Operations of a step on each stream.
const OPERATIONS: u64 = 651;
/// The time of a recording's beginning.
const EPOCH_NS: i64 = 1_700_000_000_000_000_000;

/// Spread over powers of ten as kernels are: a median of 60 us, and few of milliseconds.
fn duration_ns(random: &mut Random) -> i64 {
    let normal: f64 = (0..12).map(|_| random.share()).sum::<f64>() - 6.0;
    (60_000.0 * (normal * 1.2).exp()).clamp(1_500.0, 20_000_000.0) as i64
}

fn process(rank: u64, slices: u64, names: &[gputrace_trace::NameId]) -> Process {
    let mut process = Process {
        folder: format!("rank{rank}"),
        ..Process::default()
    };
    process.header.rank = u32::try_from(rank).ok();
    let tables = &mut process.tables;
    let each = usize::try_from(slices / 2).expect("small");
    tables.kernels.reserve(each);
    tables.api_calls.reserve(each);
    let mut random = Random(rank);
    let mut now = [EPOCH_NS; STREAMS as usize];
    let mut call_ends = [EPOCH_NS - 10_000; STREAMS as usize];
    for (number, correlation) in (0..slices / 2).zip(1..) {
        let stream = number % STREAMS;
        let place = stream as usize;
        let on_stream = number / STREAMS;
        if on_stream.is_multiple_of(OPERATIONS) {
            // A step begins on the grid, if the last one is done.
            let next = EPOCH_NS + (on_stream / OPERATIONS) as i64 * STEP_NS;
            now[place] = now[place].max(next);
        }
        let gap = (random.next() % 4_000) as i64;
        let start = now[place] + gap;
        let duration = duration_ns(&mut random);
        now[place] = start + duration;
        let called = call_ends[place].max(start - 20_000);
        let call_duration = 2_000 + (random.next() % 6_000) as i64;
        call_ends[place] = called + call_duration;
        // On all ranks the same, as programs are.
        let name = names[(Random(number).next() % 64) as usize];
        tables.kernels.push(Kernel {
            start_ns: TimeNs(start),
            duration_ns: DurationNs(duration),
            name,
            device: rank as u32,
            context: 1,
            stream: 7 + stream as u32,
            correlation,
            grid_x: 128,
            grid_y: 1,
            grid_z: 1,
            block_x: 256,
            block_y: 1,
            block_z: 1,
            registers: 64,
            ..Kernel::default()
        });
        tables.api_calls.push(ApiCall {
            start_ns: TimeNs(called),
            duration_ns: DurationNs(call_duration),
            name: names[64],
            kind: 5,
            callback: 211,
            thread: 1000 + stream as u32,
            correlation,
            result: 0,
        });
    }
    process
}

fn recording(slices: u64) -> Recording {
    let mut recording = Recording::default();
    let mut names: Vec<gputrace_trace::NameId> = (0..63)
        .map(|number| {
            recording.names.intern(&format!(
                "void layer{number}::kernel<float, {number}>(float*, int)"
            ))
        })
        .collect();
    names.push(
        recording
            .names
            .intern("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    );
    names.push(recording.names.intern("cudaLaunchKernel"));
    recording.processes = parallel::map(RANKS as usize, |rank| {
        process(rank as u64, slices / RANKS, &names)
    });
    recording
}

/// Milliseconds: median and 99th percentile of calls.
fn percentiles(times: &mut [f64]) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() as f64 * share).ceil() as usize).clamp(1, times.len()) - 1];
    (at(0.5), at(0.99))
}

fn timed<T>(count: usize, mut each: impl FnMut(usize) -> T) -> (f64, f64) {
    let mut times: Vec<f64> = (0..count)
        .map(|number| {
            let began = Instant::now();
            black_box(each(number));
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    percentiles(&mut times)
}

/// What a tile costs that looks at every slice in it: a rectangle each, as bytes.
fn naive_tile(rows: &[&Slices], start: i64, level: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let end = start + (TILE_BINS << level);
    let width = (1i64 << level) as f64;
    for slices in rows {
        for place in slices.within(start, end) {
            for x in [slices.start(place), slices.end_of(place)] {
                bytes.extend_from_slice(&(((x - start) as f64 / width) as f32).to_le_bytes());
            }
            bytes.extend_from_slice(&slices.name(place).to_le_bytes());
            bytes.extend_from_slice(&255u32.to_le_bytes());
            bytes.extend_from_slice(&(place as u32).to_le_bytes());
        }
    }
    bytes
}

fn resident_mib() -> f64 {
    forget_peak();
    peak_mib()
}

/// Writes a recording as a collector does.
fn write(recording: &Recording, folder: &Path) {
    parallel::map(recording.processes.len(), |place| {
        let process = &recording.processes[place];
        let own = folder.join(&process.folder);
        let mut writer = ProcessWriter::create(&own).expect("a folder");
        writer.names = recording.names.clone();
        let (kernels, calls) = (&process.tables.kernels, &process.tables.api_calls);
        for row in 0..kernels.len().max(calls.len()) {
            if row < kernels.len() {
                writer.tables.kernels.push(kernels.row(row));
            }
            if row < calls.len() {
                writer.tables.api_calls.push(calls.row(row));
            }
            if (row + 1).is_multiple_of(WAITING_ROWS) {
                writer.flush(1).expect("room");
            }
        }
        writer.close().expect("room");
        let mut header = process.header.clone();
        header.ended_ns = Some(i64::MAX / 4);
        header.version = VERSION;
        writer.sign(&mut header);
        write_json(&own.join(PROCESS_FILE), &header).expect("room");
    });
    let manifest = Manifest {
        state: "complete".to_owned(),
        format: FORMAT.to_owned(),
        ..Manifest::new()
    };
    write_json(&folder.join(MANIFEST_FILE), &manifest).expect("room");
}

/// From a recording's files to its first picture, and to the picture with its analysis.
fn opening(recording: &Recording) {
    let folder = tempfile::tempdir().expect("a folder");
    write(recording, folder.path());
    let clock = || (Instant::now(), cpu_seconds());
    let since = |(began, cpu): (Instant, f64)| (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let began = clock();
    let read = Recording::open(folder.path()).expect("it was written");
    let whole = Timeline::build(&Arc::new(read));
    let (seconds, cpu) = since(began);
    let events = whole.events();
    drop(whole);
    let began = clock();
    let (look, promise) = Timeline::first_look(folder.path(), false).expect("as our own writer leaves it");
    let (look_seconds, look_cpu) = since(began);
    assert_eq!(look.events(), events);
    println!(
        "first look           {look_seconds:>8.3} s  {look_cpu:.2} s of CPU; reading all columns first takes {:.1} times as long, {:.1} times the CPU",
        seconds / look_seconds,
        cpu / look_cpu
    );
    let began = clock();
    let read = Recording::open(folder.path()).expect("it was written");
    let (reading, _) = since(began);
    let recording = promise.keep(read).expect("the same rows");
    let began = clock();
    let (analysis, details) = analyze_in_detail(&recording, &Options::default());
    let (analysing, analysing_cpu) = since(began);
    drop(recording);
    let began = clock();
    drop(black_box(look.with_analysis(&Arc::new(analysis), &details)));
    let (taking, taking_cpu) = since(began);
    println!(
        "then until analysed  {:>8.3} s  reading {reading:.3}, analysing {analysing:.3}, taking it in {taking:.3}: {:.2} times the CPU of analysing",
        reading + analysing + taking,
        taking_cpu / analysing_cpu
    );
}

/// What a host thread is in, seven deep: ranges, operators in them, and calls in those.
fn deep(slices: u64) -> Recording {
    const DEPTH: usize = 6;
    let mut recording = Recording::default();
    let names: Vec<gputrace_trace::NameId> = (0..200)
        .map(|number| recording.names.intern(&format!("part {number} of the model")))
        .collect();
    let mut random = Random(3);
    let mut process = Process {
        folder: "rank0".to_owned(),
        ..Process::default()
    };
    let tables = &mut process.tables;
    let (mut now, mut rows) = (EPOCH_NS, 0);
    let mut begun: Vec<(i64, gputrace_trace::NameId)> = Vec::new();
    while rows < slices {
        // Down to a few calls, and up again by some: most of it happens far inside.
        while begun.len() < DEPTH {
            let name = names[(begun.len() * 30) + (random.next() % 20) as usize];
            now += 300;
            begun.push((now, name));
        }
        for _ in 0..1 + random.next() % 4 {
            let duration = 2_000 + (random.next() % 6_000) as i64;
            tables.api_calls.push(ApiCall {
                start_ns: TimeNs(now + 400),
                duration_ns: DurationNs(duration),
                name: names[190 + (random.next() % 8) as usize],
                kind: 5,
                thread: 77,
                ..ApiCall::default()
            });
            now += 400 + duration;
            rows += 1;
        }
        let up = 1 + (random.next() % 64).trailing_zeros().min(5) as usize;
        for _ in 0..up {
            let Some((start, name)) = begun.pop() else { break };
            now += 200;
            let (start_ns, duration_ns) = (TimeNs(start), DurationNs(now - start));
            rows += 1;
            if begun.len() < 3 {
                tables.markers.push(Marker {
                    start_ns,
                    duration_ns: Some(duration_ns),
                    name,
                    thread: 77,
                    ..Marker::default()
                });
            } else {
                tables.operators.push(Operator {
                    start_ns,
                    duration_ns,
                    name,
                    thread: 77,
                    ..Operator::default()
                });
            }
        }
    }
    recording.processes.push(process);
    recording
}

/// A flame graph of everything that one thread was in.
fn flame(slices: u64) {
    let timeline = Timeline::build(&Arc::new(deep(slices)));
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let tree = timeline.tree(TreeOf::Threads, timeline.begin(), timeline.end(), None, true);
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let events = timeline.events();
    println!(
        "flame graph          {:>9.3} s of {events} slices of one thread on {} rows, {:.1} ns of CPU each; {} nodes and {} more",
        seconds,
        timeline.rows().len(),
        cpu * 1e9 / events as f64,
        tree.nodes.len(),
        tree.more
    );
}

fn main() {
    let slices: u64 = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(10_000_000);
    let recording = Arc::new(recording(slices));
    forget_peak();
    let before_mib = peak_mib();
    let mut builds: Vec<(f64, f64)> = (0..3)
        .map(|_| {
            let (began, cpu) = (Instant::now(), cpu_seconds());
            drop(black_box(Timeline::build(&recording)));
            (began.elapsed().as_secs_f64(), cpu_seconds() - cpu)
        })
        .collect();
    builds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (build, cpu) = builds[0];
    let timeline = Timeline::build(&recording);
    let rows: Vec<u32> = (0..64).collect();
    let lanes: Vec<&Slices> = rows.iter().filter_map(|row| timeline.slices(*row)).collect();
    let count: usize = lanes.iter().map(|slices| slices.len()).sum();
    assert_eq!((lanes.len(), count as u64), (64, slices / RANKS / 2 * 2 * RANKS));
    println!(
        "{count} slices on {} rows, {:.1} s",
        lanes.len(),
        timeline.end() as f64 / 1e9
    );
    println!(
        "index                {build:>8.3} s  {:>6.1} ns a slice, {cpu:.2} s of CPU, median {:.3} s; peak {:.0} MiB beside the recording's {before_mib:.0}",
        build * 1e9 / count as f64,
        builds[1].0,
        peak_mib() - before_mib
    );
    // What nothing can do without: reading every stamp and writing it once.
    let began = Instant::now();
    let copied: usize = recording
        .processes
        .iter()
        .map(|process| {
            let copy = |starts: &[TimeNs], durations: &[DurationNs]| {
                let pairs: Vec<(i64, i64)> = starts.iter().zip(durations).map(|(a, b)| (a.0, b.0)).collect();
                black_box(pairs).len()
            };
            let (kernels, calls) = (&process.tables.kernels, &process.tables.api_calls);
            copy(&kernels.start_ns, &kernels.duration_ns) + copy(&calls.start_ns, &calls.duration_ns)
        })
        .sum();
    assert_eq!(copied, count);
    let copying = began.elapsed().as_secs_f64();
    println!(
        "copying all stamps   {copying:>8.3} s  the index takes {:.1} times as long",
        build / copying
    );
    let bytes = timeline.bytes();
    println!(
        "memory               {:>8.1} bytes a slice, rows and index alone",
        bytes as f64 / count as f64
    );
    let (began, cpu) = (Instant::now(), cpu_seconds());
    timeline.summarize();
    println!(
        "sums of bins         {:>8.3} s  {:.2} s of CPU, behind the first picture; {:.2} bytes a slice",
        began.elapsed().as_secs_f64(),
        cpu_seconds() - cpu,
        (timeline.bytes() - bytes) as f64 / count as f64
    );

    // More would fill a disk.
    if count <= 20_000_000 {
        opening(&recording);
    }

    println!(
        "\ntiles of 64 rows; ms, median and 99th percentile          one row              every slice by itself"
    );
    let (begin, end) = (timeline.begin(), timeline.end());
    for level in (0..=32).rev().step_by(2) {
        let tile_ns = TILE_BINS << level;
        let tiles = ((end - begin) / tile_ns + 1) as u64;
        let mut random = Random(level.into());
        let indices: Vec<u64> = (0..200)
            .map(|_| begin as u64 / tile_ns as u64 + random.next() % tiles)
            .collect();
        let mut bytes = 0;
        let (p50, p99) = timed(indices.len(), |at| {
            bytes += timeline.tile(level, indices[at], &rows).len();
        });
        let (one50, one99) = timed(indices.len(), |at| {
            timeline
                .tile(level, indices[at], &rows[at % 64..at % 64 + 1])
                .len()
        });
        let few = if level > 20 { 5 } else { 40 };
        let origin = timeline.origin_ns();
        let each = (level <= 26).then(|| {
            timed(few, |at| {
                naive_tile(&lanes, origin + indices[at] as i64 * tile_ns, level).len()
            })
        });
        let each = each.map_or_else(String::new, |(naive50, _)| {
            format!("{naive50:>9.3}  {:>8.1} times", naive50 / p50)
        });
        println!(
            "2^{level:<2} ns a bin  {p50:>9.3} {p99:>9.3}  {:>7} bytes  {one50:>9.4} {one99:>8.4}   {each}",
            bytes / indices.len(),
        );
    }
    println!();
    let began = Instant::now();
    black_box(timeline.overview(begin, end, 1000));
    println!(
        "overview, first      {:>9.1} ms",
        began.elapsed().as_secs_f64() * 1e3
    );
    let show = |what: &str, (p50, p99): (f64, f64)| println!("{what:<20} {p50:>9.3} ms {p99:>9.3} ms");
    show(
        "overview, 2000 bins",
        timed(50, |_| timeline.overview(begin, end, 2000)),
    );
    let mut random = Random(7);
    let counts: Vec<u32> = timeline.rows().iter().map(|row| row.slices).collect();
    let mut any = || {
        let row = (random.next() % 64) as usize;
        let index = random.next() % u64::from(counts[row]);
        (row as u32, index as u32)
    };
    let chosen: Vec<(u32, u32)> = (0..500).map(|_| any()).collect();
    black_box(timeline.slice(chosen[0].0, chosen[0].1));
    show(
        "a slice's details",
        timed(500, |at| timeline.slice(chosen[at].0, chosen[at].1)),
    );
    let pattern = regex::Regex::new("layer17").expect("plain");
    let began = Instant::now();
    black_box(timeline.search(&pattern, 100, 0));
    println!(
        "search, first        {:>9.1} ms",
        began.elapsed().as_secs_f64() * 1e3
    );
    show("search", timed(20, |_| timeline.search(&pattern, 100, 0)));
    show(
        "area of everything",
        timed(3, |_| timeline.area(begin, end, None)),
    );
    let middle = begin + (end - begin) / 2;
    show(
        "area of a second",
        timed(20, |_| timeline.area(middle, middle + 1_000_000_000, None)),
    );
    drop(timeline);
    {
        let began = Instant::now();
        let (analysis, details) = analyze_in_detail(&recording, &Options::default());
        let analysing = began.elapsed().as_secs_f64();
        let analysis = Arc::new(analysis);
        let timeline = Timeline::build(&recording);
        let (began, cpu) = (Instant::now(), cpu_seconds());
        let whole = timeline.with_analysis(&analysis, &details);
        drop(details);
        println!(
            "analysis             {analysing:>9.3} s; taking it in {:.3} s, {:.2} s of CPU",
            began.elapsed().as_secs_f64(),
            cpu_seconds() - cpu
        );
        drop(timeline);
        let chosen: Vec<(u32, u32)> = (0..500).map(|_| any()).collect();
        drop(black_box(whole.slice(chosen[0].0, chosen[0].1)));
        show(
            "details, packed",
            timed(500, |at| whole.slice(chosen[at].0, chosen[at].1)),
        );
        let per_slice = whole.bytes() as f64 / count as f64;
        println!("memory               {per_slice:>9.1} bytes a slice, with the recording packed");
        drop(recording);
        println!(
            "resident             {:>9.1} bytes a slice",
            resident_mib() * 1048576.0 / count as f64
        );
    }
    flame(slices);
}
