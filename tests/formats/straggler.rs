//! Real jobs with stragglers: the graph against the simulator of those who published them, and what is concluded of them without
//! being told what waited for what.
//!
//! `GPUTRACE_STRAGGLER=FOLDER` tries another job of that kind too: a folder with a file a rank, and `expected.json` beside it.

use crate::common;

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::{Path, PathBuf};

use common::gputrace;
use gputrace_analyzer::graph::dag::{Builder, Graph, Node};
use serde_json::Value;

/// The job that is here, and the one that a variable names.
fn jobs() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/straggler/ST");
    std::iter::once(own)
        .chain(std::env::var_os("GPUTRACE_STRAGGLER").map(PathBuf::from))
        .collect()
}

/// What the simulator of those who published the job says, and how near it has to be.
fn expected(job: &Path) -> Value {
    let file = job.parent().expect("a folder").join("expected.json");
    let text = std::fs::read_to_string(&file).expect("the expected values");
    let all: Value = serde_json::from_str(&text).expect("JSON");
    all["traces"][job.file_name().expect("a name").to_string_lossy().as_ref()].clone()
}

/// One operation of one rank.
struct Operation {
    rank: u32,
    stage: i64,
    step: i64,
    kind: String,
    start: i64,
    end: i64,
    /// Its name in its rank and step, and of those that it waits for.
    name: String,
    deps: Vec<String>,
    /// Of communication: its group and number.
    group: Option<(String, i64)>,
}

/// Nanoseconds of a number of microseconds.
fn ns(value: &Value) -> i64 {
    (value.as_f64().expect("a number") * 1000.0).round() as i64
}

fn read(job: &Path) -> (Vec<Operation>, BTreeMap<i64, i64>) {
    let (mut operations, mut steps) = (Vec::new(), BTreeMap::new());
    for file in std::fs::read_dir(job).expect("a folder") {
        let file = file.expect("a file").path();
        let mut text = String::new();
        flate2::read::GzDecoder::new(std::fs::File::open(&file).expect("opens"))
            .read_to_string(&mut text)
            .expect("gzip");
        let trace: Value = serde_json::from_str(&text).expect("JSON");
        let rank = trace["distributedInfo"]["rank"].as_u64().expect("a rank") as u32;
        for event in trace["traceEvents"].as_array().expect("events") {
            let (name, args) = (event["name"].as_str().expect("a name"), &event["args"]);
            if let Some(step) = name.strip_prefix("ProfilerStep#") {
                steps.insert(step.parse().expect("a number"), ns(&event["ts"]));
            }
            if event["cat"] != "kernel" {
                continue;
            }
            let start = ns(&event["ts"]);
            let texts = |list: &Value| -> Vec<String> {
                let list = list.as_array().expect("a list").iter();
                list.map(|text| text.as_str().expect("text").to_owned()).collect()
            };
            operations.push(Operation {
                rank,
                stage: args["stage"].as_i64().expect("a stage"),
                step: args["step"].as_i64().expect("a step"),
                kind: name.trim_start_matches("ncclDevKernel_").to_owned(),
                start,
                end: start + ns(&event["dur"]),
                name: args["op"].as_str().expect("a name").to_owned(),
                deps: texts(&args["deps"]),
                group: args["Process Group Name"]
                    .as_str()
                    .map(|group| (group.to_owned(), args["Seq"].as_i64().expect("a number"))),
            });
        }
    }
    (operations, steps)
}

/// The job's graph, by the published definitions.
struct Job {
    operations: Vec<Operation>,
    graph: Graph,
    /// By operation: its node, and when each step began.
    nodes: Vec<Node>,
    steps: BTreeMap<i64, i64>,
    /// What each takes if nothing is out of order.
    ideal: Vec<i64>,
}

impl Job {
    fn new(folder: &Path) -> Self {
        let (operations, steps) = read(folder);
        let mut builder = Builder::default();
        let begins: HashMap<i64, Node> = steps
            .iter()
            .map(|(step, start)| (*step, builder.add(0, *start)))
            .collect();
        let ends: Vec<Node> = operations
            .iter()
            .map(|one| builder.add(one.end - one.start, 0))
            .collect();
        let by_name: HashMap<(u32, i64, &str), usize> = operations
            .iter()
            .enumerate()
            .map(|(place, one)| ((one.rank, one.step, one.name.as_str()), place))
            .collect();
        let mut groups: BTreeMap<(i64, &String, i64), Vec<usize>> = BTreeMap::new();
        // What begins is the operation, or a rank's arrival.
        let mut arrivals: HashMap<usize, Node> = HashMap::new();
        for (place, one) in operations.iter().enumerate() {
            let begin = match &one.group {
                Some((group, number)) => {
                    groups.entry((one.step, group, *number)).or_default().push(place);
                    let arrival = builder.add(0, 0);
                    arrivals.insert(place, arrival);
                    arrival
                }
                None => ends[place],
            };
            builder.wait(begin, begins[&one.step], 0);
            for dep in &one.deps {
                builder.wait(begin, ends[by_name[&(one.rank, one.step, dep.as_str())]], 0);
            }
        }
        for members in groups.values() {
            let meeting = builder.add(0, 0);
            let last = members
                .iter()
                .map(|place| operations[*place].start)
                .max()
                .expect("members");
            for place in members {
                builder.wait(meeting, arrivals[place], 0);
                builder.wait(ends[*place], meeting, 0);
                let transfer = operations[*place].end - last;
                builder.set(ends[*place], if transfer < -10_000_000 { 0 } else { transfer }, 0);
            }
        }
        let finished = builder.finish(&[]);
        assert!(finished.cut.is_empty(), "no circle");
        let nodes: Vec<Node> = ends.iter().map(|node| finished.number[*node as usize]).collect();
        let work = |place: usize| finished.graph.work[nodes[place] as usize];
        let mut kinds: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, one) in operations.iter().enumerate() {
            kinds.entry(&one.kind).or_default().push(place);
        }
        let mut ideal = vec![0; operations.len()];
        for places in kinds.values() {
            let mut works: Vec<i64> = places.iter().map(|place| work(*place)).collect();
            works.sort_unstable();
            let middle = works.len() / 2;
            // A collective whose group was not recorded is one all the same.
            let first = &operations[places[0]];
            let communicates = first.group.is_some() || first.kind.ends_with("all-reduce");
            let typical = if !communicates {
                works.iter().sum::<i64>() / works.len() as i64
            } else if works.len() % 2 == 1 {
                works[middle]
            } else {
                i64::midpoint(works[middle - 1], works[middle])
            };
            places.iter().for_each(|place| ideal[*place] = typical);
        }
        Self {
            nodes,
            graph: finished.graph,
            steps,
            ideal,
            operations,
        }
    }

    /// The mean step, seconds, where those operations take what they would ideally.
    fn step_s(&self, is_ideal: impl Fn(&Operation) -> bool) -> f64 {
        let mut work = self.graph.work.clone();
        for (place, one) in self.operations.iter().enumerate() {
            if is_ideal(one) {
                work[self.nodes[place] as usize] = self.ideal[place];
            }
        }
        let mut ends = Vec::new();
        self.graph.replay(&work, &self.graph.gap, &mut ends);
        let mut last: BTreeMap<i64, i64> = BTreeMap::new();
        for (place, one) in self
            .operations
            .iter()
            .enumerate()
            .filter(|(_, one)| one.kind == "optimizer")
        {
            let end = last.entry(one.step).or_insert(i64::MIN);
            *end = (*end).max(ends[self.nodes[place] as usize]);
        }
        let total: i64 = last.iter().map(|(step, end)| end - self.steps[step]).sum();
        total as f64 / last.len() as f64 / 1e9
    }
}

/// Sends and receives of one direction are one kind in what was published.
fn published_kind(kind: &str) -> &str {
    match kind {
        "forward-send" | "forward-recv" => "forward-pp-comm",
        "backward-send" | "backward-recv" => "backward-pp-comm",
        other => other,
    }
}

#[track_caller]
fn near(what: &str, value: f64, expected: &Value) {
    let expected = expected.as_f64().unwrap_or_else(|| panic!("{what}: {expected}"));
    // Stamps are float32 seconds: shares are good to 1e-4.
    assert!(
        (value - expected).abs() <= 1e-4 * expected.abs().max(1.0),
        "{what}: {value} instead of {expected}"
    );
}

#[test]
fn the_graph_says_what_the_published_simulator_says() {
    common::schedule::computes();
    for folder in jobs() {
        let (job, expected) = (Job::new(&folder), expected(&folder));
        let (simulated, ideal) = (job.step_s(|_| false), job.step_s(|_| true));
        near("step", simulated, &expected["shipped"]["T_sim_no_gaps_mean"]);
        near("ideal step", ideal, &expected["shipped"]["T_ideal_mean"]);
        near("S", simulated / ideal, &expected["shipped"]["S"]);
        for (kind, value) in expected["shipped"]["S_by_optype"].as_object().expect("kinds") {
            near(
                kind,
                job.step_s(|one| published_kind(&one.kind) != kind) / ideal,
                value,
            );
        }
        for (stage, value) in expected["shipped"]["S_by_stage"].as_object().expect("stages") {
            near(
                stage,
                job.step_s(|one| one.stage.to_string() != *stage) / ideal,
                value,
            );
        }
        for (rank, value) in expected["computed"]["seconds_saved_by_worker_exact_remove"]
            .as_object()
            .expect("ranks")
        {
            near(
                rank,
                simulated - job.step_s(|one| one.rank.to_string() == *rank),
                value,
            );
        }
    }
}

#[test]
fn without_being_told_what_waited_for_what_the_slow_stage_is_named() {
    let folder = jobs().remove(0);
    let output = gputrace()
        .args(["analyze", "--json"])
        .arg(&folder)
        .output()
        .expect("starts");
    assert!(output.status.success());
    let analysis: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = analysis["findings"].as_array().expect("findings");
    // Both ranks of the last stage, which has more to do than the others.
    let first = &findings[0];
    assert_eq!(
        (first["code"].as_str(), &first["ranks"]),
        (Some("slow_rank"), &serde_json::json!([6, 7]))
    );
    assert_eq!(first["facts"]["by"], "kernel");
    // By the simulator the step of 2.214 s loses 0.401 s if that stage is as the mean of all stages; the others' median is less.
    let saves = first["saves_per_step_ns"].as_f64().expect("a saving");
    assert!((0.40e9..0.60e9).contains(&saves), "{saves}");
    // Free communication: 5.6 %.
    let of_communication = findings
        .iter()
        .find(|finding| finding["code"] == "exposed_communication");
    let promised = of_communication.map_or(0.0, |finding| {
        finding["saves_per_step_ns"].as_f64().unwrap_or(0.0)
    });
    assert!(promised < 0.1 * 2.214e9, "{promised}");
    // What if that alone were mended, or communication took no time: 0.944 of the step by the simulator.
    let output = gputrace()
        .args(["whatif", "--json", "--set", "communication=none"])
        .arg(&folder)
        .output()
        .expect("starts");
    let what_if: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let ratio = |end: &str| {
        what_if["predicted_step_ns"][end].as_f64().expect("a time")
            / what_if["measured_step_ns"].as_f64().expect("a time")
    };
    assert!(ratio("low") <= 0.9442 && 0.9442 <= ratio("high"), "{what_if}");
    assert!(ratio("high") - ratio("low") < 0.1, "{what_if}");
}
