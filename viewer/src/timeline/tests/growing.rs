//! A recording that is followed shows at each look what a fresh reading of the same files shows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gputrace_trace::json_file::{read_json, write_json};

use gputrace_trace::manifest::{HOST_ROLE, MANIFEST_FILE, Manifest};
use gputrace_trace::tables::{Counter, GraphNode, Memset, NcclChannel, Operator, Overhead, PythonFrame};
use proptest::prelude::*;

use super::early::{larger, write};
use super::*;

/// All files below a folder, by their path in it.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_owned();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// The parts of a timeline that are seen, with names instead of numbers.
fn slices_of(timeline: &Timeline, row: u32) -> Vec<(i64, i64, u32, u8, String)> {
    let slices = timeline.slices(row).unwrap();
    (0..slices.len())
        .map(|at| {
            let name = timeline.label(slices.name(at)).unwrap().to_string();
            let kind = names::kind(slices.name(at));
            (
                slices.start(at),
                slices.duration(at),
                slices.source(at),
                kind,
                name,
            )
        })
        .collect()
}

fn assert_same(followed: &Timeline, fresh: &Timeline) {
    // As the server does with each: its parts are those of later looks too.
    followed.summarize();
    assert_eq!(followed.rows(), fresh.rows());
    assert_eq!(
        (
            followed.origin_ns(),
            followed.begin(),
            followed.end(),
            followed.events()
        ),
        (fresh.origin_ns(), fresh.begin(), fresh.end(), fresh.events())
    );
    assert_eq!(followed.bands(), fresh.bands());
    let (from, to) = (fresh.begin() - 10, fresh.end() + 10);
    assert_eq!(followed.overview(from, to, 100), fresh.overview(from, to, 100));
    for row in fresh.rows() {
        if row.row_type != "slices" {
            assert_eq!(
                followed.counters(6, 0, &[row.row]),
                fresh.counters(6, 0, &[row.row])
            );
            continue;
        }
        assert_eq!(
            slices_of(followed, row.row),
            slices_of(fresh, row.row),
            "{}",
            row.key
        );
        // Names have other numbers, and nothing else differs.
        for (level, index) in [(3, 1), (8, 0), (20, 0)] {
            let tile = |timeline: &Timeline| {
                let (words, _) = decoded(&timeline.tile(level, index, &[row.row]));
                let count = words[5] as usize;
                let records = &words[6..];
                let names: Vec<String> = (records[2 * count..3 * count].iter())
                    .map(|name| timeline.label(*name).unwrap().to_string())
                    .collect();
                (
                    records[..2 * count].to_vec(),
                    names,
                    records[3 * count..].to_vec(),
                )
            };
            assert_eq!(tile(followed), tile(fresh));
        }
        for index in (0..row.slices).step_by(13) {
            let without_numbers = |timeline: &Timeline| {
                let slice = serde_json::to_value(timeline.slice(row.row, index).unwrap()).unwrap();
                slice.to_string()
            };
            assert_eq!(without_numbers(followed), without_numbers(fresh));
        }
    }
}

fn analysis_of(timeline: &Timeline) -> (Arc<Recording>, Arc<Analysis>, Details) {
    let recording = timeline.recording();
    let (analysis, details) = analyze_in_detail(&recording, &Options::default());
    (recording, Arc::new(analysis), details)
}

/// Lets a recording grow by cuts of its files (thousandths of each), and follows it. What one look cuts off a file the next
/// may add to.
fn follow(whole: &Path, cuts: &[Vec<u16>]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let files = files(whole);
    let mut shares = vec![0u16; files.len()];
    let mut growing = Growing::new(path);
    let last = vec![1000u16; files.len()];
    for cut in cuts.iter().chain([&last]) {
        for (place, (name, bytes)) in files.iter().enumerate() {
            let path = path.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            if name.ends_with(MANIFEST_FILE) {
                std::fs::write(&path, bytes).unwrap();
                let mut manifest = read_json::<Manifest>(&path).unwrap().ok().unwrap();
                manifest.state = "recording".to_owned();
                write_json(&path, &manifest).unwrap();
            } else if name.extension().is_some_and(|extension| extension == "json") {
                std::fs::write(path, bytes).unwrap();
            } else {
                shares[place] = shares[place].max(cut[place % cut.len()]).min(1000);
                let length = bytes.len() * usize::from(shares[place]) / 1000;
                if length > 0 {
                    std::fs::write(path, &bytes[..length]).unwrap();
                }
            }
        }
        let followed = growing.look().expect("nothing is unusual");
        let fresh = Timeline::build(&Arc::new(Recording::open(path).unwrap()));
        // Later ones have what the analysis before them found.
        if !followed.is_analysed() {
            assert_same(&followed, &fresh);
        }
        let ((recording, analysis, details), (_, expected, fresh_details)) =
            (analysis_of(&followed), analysis_of(&fresh));
        let json = |analysis: &Analysis| {
            let mut json = serde_json::to_value(analysis).unwrap();
            json.as_object_mut().unwrap().remove("losses");
            json
        };
        assert_eq!(json(&analysis), json(&expected));
        // With what was found the next timeline shows what one does that was made with the analysis.
        growing.add(Learned::new(&followed, &recording, analysis, details));
        let followed = growing.look().expect("nothing is unusual");
        let fresh = fresh.with(&expected, &fresh_details, false);
        assert_same(&followed, &fresh);
    }
}

/// Of everything that a row can be made of something.
fn varied() -> Recording {
    let mut recording = larger();
    let mut names = std::mem::take(&mut recording.names);
    for process in &mut recording.processes {
        for number in 0..300i64 {
            let (start_ns, duration_ns) = at(3000 + number * 150, 3120 + number * 150);
            let tables = &mut process.tables;
            tables.operators.push(Operator {
                start_ns,
                duration_ns,
                name: names.intern("aten::mm"),
                thread: 12,
                ..Operator::default()
            });
            for name in ["train.py(1): main", "nn.Module: Linear_0"] {
                tables.python_frames.push(PythonFrame {
                    start_ns,
                    duration_ns,
                    name: names.intern(name),
                    thread: 12,
                    number: None,
                });
            }
            tables.memsets.push(Memset {
                start_ns,
                duration_ns,
                stream: 7 + number as u32 % 2,
                ..Memset::default()
            });
            tables.overheads.push(Overhead {
                start_ns,
                duration_ns,
                kind: 0x1_0000,
                ..Overhead::default()
            });
            tables.synchronizations.push(Synchronization {
                start_ns,
                duration_ns,
                kind: 3,
                correlation: 100 + number as u32,
                ..Synchronization::default()
            });
            tables.nccl_channels.push(NcclChannel {
                start_ns,
                duration_ns,
                channel: number as u8 % 2,
                ..NcclChannel::default()
            });
            tables.counters.push(Counter {
                time_ns: start_ns,
                name: names.intern("power_watts"),
                value: (number % 17) as f64,
                device: Some(0),
                ..Counter::default()
            });
        }
    }
    recording.names = names;
    recording
}

/// With kernels that no name tells to communicate: their launches do, or the nodes of the graphs that they ran in.
fn told_by_others() -> Recording {
    let mut recording = larger();
    let mut names = std::mem::take(&mut recording.names);
    let (fused, function) = (names.intern("fused_kernel"), names.intern("AllGather"));
    for process in &mut recording.processes {
        let tables = &mut process.tables;
        for number in 0..400u32 {
            let at = 3000 + i64::from(number) * 100;
            // A launch of each three is a collective's; some nodes are.
            let id = 5000 + number;
            kernel(tables, fused, 20 + number % 2, id, at + 60, at + 95);
            tables.kernels.graph_node[tables.kernels.start_ns.len() - 1] =
                (number % 5 == 0).then_some(u64::from(number % 7));
            let plan = u64::from(number) + 1000;
            tables.external_correlations.push(ExternalCorrelation {
                correlation: id,
                kind: 0,
                id: plan,
            });
            if number % 3 == 0 {
                let (start_ns, duration_ns) = super::at(at, at + 5);
                tables.collectives.push(Collective {
                    start_ns,
                    duration_ns,
                    communicator: 0xabc,
                    sequence: Some(u64::from(number)),
                    function,
                    bytes: 1000,
                    plan: Some(plan),
                    thread: 11,
                    ..Collective::default()
                });
            }
        }
        for node in [2, 4] {
            tables.graph_nodes.push(GraphNode {
                node,
                ..GraphNode::default()
            });
        }
    }
    recording.names = names;
    recording
}

#[test]
fn a_kernel_is_drawn_as_what_a_late_launch_tells_it_to_be() {
    let whole = tempfile::tempdir().unwrap();
    write(&told_by_others(), whole.path(), 16);
    let files = files(whole.path());
    let place_of = |table: &str| -> Vec<usize> {
        let name = |path: &Path| path.file_name().is_some_and(|name| name == table);
        (files.keys().enumerate())
            .filter(|(_, path)| name(path))
            .map(|(place, _)| place)
            .collect()
    };
    let late = [
        place_of("collectives.arrows"),
        place_of("external_correlations.arrows"),
        place_of("graph_nodes.arrows"),
    ];
    assert!(late.iter().all(|places| places.len() == 2));
    // All is there but what tells of the launches, of the nodes, or of both; then they come one after another.
    let without = |which: &[usize]| {
        let mut cut = vec![1000u16; files.len()];
        for place in which.iter().flat_map(|which| &late[*which]) {
            cut[*place] = 0;
        }
        cut
    };
    follow(
        whole.path(),
        &[without(&[0, 1, 2]), without(&[0, 1]), without(&[0])],
    );
    follow(
        whole.path(),
        &[without(&[0, 1, 2]), without(&[1, 2]), without(&[2])],
    );
}

#[test]
fn each_look_shows_what_a_fresh_reading_shows() {
    let whole = tempfile::tempdir().unwrap();
    write(&varied(), whole.path(), 37);
    let cut = |cuts: &[u16]| cuts.to_vec();
    follow(
        whole.path(),
        &[cut(&[0]), cut(&[200]), cut(&[200]), cut(&[650]), cut(&[999])],
    );
    // Tables are out of step.
    follow(
        whole.path(),
        &[cut(&[100, 700, 30]), cut(&[500, 900, 31, 900]), cut(&[900, 300])],
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn wherever_files_are_cut(
        cuts in proptest::collection::vec(proptest::collection::vec(0u16..1001, 1..9), 1..6),
        rows in prop_oneof![Just(1usize), Just(5), Just(64)],
    ) {
        let whole = tempfile::tempdir().unwrap();
        write(&told_by_others(), whole.path(), rows);
        follow(whole.path(), &cuts);
    }
}

#[test]
fn what_is_unusual_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    write(&larger(), folder.path(), 64);
    let mut growing = Growing::new(folder.path());
    let learned = |timeline: &Timeline| {
        let (recording, analysis, details) = analysis_of(timeline);
        Learned::new(timeline, &recording, analysis, details)
    };
    let before = learned(&growing.look().unwrap());
    // A process that comes before others: everything is read anew.
    let (one, other) = (folder.path().join("rank0"), folder.path().join("rank00"));
    std::fs::create_dir(&other).unwrap();
    for file in std::fs::read_dir(&one).unwrap() {
        let file = file.unwrap().path();
        std::fs::copy(&file, other.join(file.file_name().unwrap())).unwrap();
    }
    let fresh = || Timeline::build(&Arc::new(Recording::open(folder.path()).unwrap()));
    assert_same(&growing.look().unwrap(), &fresh());
    // What an analysis found before speaks of other rows and names.
    growing.add(before);
    let followed = growing.look().unwrap();
    assert!(!followed.is_analysed());
    assert_same(&followed, &fresh());
    let after = learned(&followed);
    // So is what lost a part.
    std::fs::remove_dir_all(&one).unwrap();
    assert_same(&growing.look().unwrap(), &fresh());
    growing.add(after);
    let followed = growing.look().unwrap();
    assert_same(&followed, &fresh());
    growing.add(learned(&followed));
    assert!(growing.look().unwrap().is_analysed());
    let file = other.join("kernels.arrows");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 600].fill(0x5a);
    std::fs::write(&file, bytes).unwrap();
    assert!(Growing::new(folder.path()).look().is_none());
}

#[test]
fn a_part_of_a_host_that_is_removed_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let mut recording = varied();
    let mut names = std::mem::take(&mut recording.names);
    let power = names.intern("host_power_watts");
    for part in ["host-a", "host-a.1"] {
        let mut host = Process {
            folder: part.to_owned(),
            ..Process::default()
        };
        host.header.role = HOST_ROLE.to_owned();
        host.header.host = "a".to_owned();
        for number in 0..20 {
            host.tables.counters.push(Counter {
                time_ns: at(3000 + number * 150, 3001).0,
                name: power,
                value: number as f64,
                ..Counter::default()
            });
        }
        recording.processes.push(host);
    }
    recording.names = names;
    write(&recording, folder.path(), 64);
    let fresh = || Timeline::build(&Arc::new(Recording::open(folder.path()).unwrap()));
    let mut growing = Growing::new(folder.path());
    assert_same(&growing.look().unwrap(), &fresh());
    std::fs::remove_dir_all(folder.path().join("host-a")).unwrap();
    assert_same(&growing.look().unwrap(), &fresh());
}
