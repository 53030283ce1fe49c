//! Trouble that is planted, and what `gputrace analyze` says first of it: whether that is the cause, and whether mending it
//! saves what the run without the trouble lacks. On simulated GPUs.
//!
//!     cargo bench --bench planted
//!
//! Each kind of trouble is recorded on each job it can befall, beside the same job without it, against which the first finding's
//! saving is held. Nothing else may run meanwhile.
//!
//! | variable | what it does |
//! |---|---|
//! | `PLANTED_SEEDS=n` | so many recordings of each; 3 |
//! | `PLANTED_ONLY=TEXT` | kinds and jobs whose name has the text |
//! | `PLANTED_KEEP=FOLDER` | recordings stay there, and those that are there are taken: only the analysis runs again |

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::{json, record, what_if};
use serde_json::Value;

/// How far the mended step may be from the clean one, and what clean runs may be promised of a step.
const MENDED_WITHIN: f64 = 0.10;
const PROMISED_BELOW: f64 = 0.05;
/// A job that is sound: its workload, settings of the stand-in (a scale with which the processor keeps up), how many steps,
/// and what kinds of trouble take from it by name (`{link}`).
struct Job {
    name: &'static str,
    workload: &'static str,
    sim: &'static str,
    steps: u32,
    values: &'static [(&'static str, &'static str)],
}

const JOBS: &[Job] = &[
    Job {
        name: "ddp",
        workload: "ddp --ranks 4 --layers 8 --hidden 256 --batch 768 --bucket-mb 0.25",
        sim: "SCALE=4000",
        steps: 12,
        values: &[("link", "4.5"), ("nic", "1.4"), ("every", "4")],
    },
    Job {
        name: "ddp, transformer",
        workload: "ddp --ranks 2 --model transformer --batch 8 --bucket-mb 0.25",
        sim: "SCALE=4000",
        steps: 16,
        values: &[("link", "4.5"), ("nic", "1.5"), ("every", "4")],
    },
    Job {
        name: "fsdp",
        workload: "fsdp --ranks 4 --layers 8 --hidden 256 --batch 768",
        sim: "SCALE=4000",
        steps: 12,
        values: &[("link", "4"), ("nic", "1.4"), ("every", "3")],
    },
    Job {
        name: "pp",
        workload: "pp --ranks 2 --layers 12 --hidden 256 --batch 128 --microbatches 8",
        sim: "SCALE=4000",
        steps: 12,
        values: &[("link", "20"), ("nic", "2.5"), ("every", "4")],
    },
    Job {
        name: "tp",
        workload: "tp --ranks 2 --layers 4 --hidden 1024 --batch 64",
        sim: "SCALE=4000",
        steps: 20,
        values: &[("link", "8"), ("nic", "2"), ("every", "10")],
    },
    Job {
        name: "ddp of small layers",
        workload: "ddp --ranks 2 --layers 24 --hidden 64 --batch 256 --bucket-mb 0.1",
        sim: "SCALE=500",
        steps: 40,
        values: &[],
    },
    Job {
        name: "ddp of small layers, two nodes",
        workload: "ddp --ranks 2 --layers 24 --hidden 64 --batch 768 --bucket-mb 0.1",
        sim: "SCALE=150 TOPOLOGY=two-nodes",
        steps: 40,
        values: &[],
    },
];

/// The jobs that a kind befalls where it does not say on which.
const USUAL: &[&str] = &["ddp", "ddp, transformer", "fsdp", "pp", "tp"];

/// What a first finding may be.
struct Answer {
    code: &'static str,
    /// `facts.by` of a slow rank; none where that does not matter.
    by: Option<&'static str>,
    /// The rank that it names; none where it is of no rank.
    rank: Option<u32>,
    /// The kind whose trouble is left when this one is mended; none where nothing is.
    left: Option<&'static str>,
}

const fn answer(code: &'static str) -> Answer {
    Answer {
        code,
        by: None,
        rank: None,
        left: None,
    }
}

const fn slow(rank: u32, by: &'static str) -> Answer {
    Answer {
        by: Some(by),
        rank: Some(rank),
        ..answer("slow_rank")
    }
}

const LINKS: &[Answer] = &[answer("slow_communicator"), answer("exposed_communication")];

/// A kind of trouble. In options `{30%}` is so much of the clean step in milliseconds, `{link}` a value of the job, `{file}`
/// a file that may be written.
struct Kind {
    name: &'static str,
    /// On which jobs.
    jobs: &'static [&'static str],
    /// What the run without the trouble has besides its job: settings of the stand-in, options of the workload.
    base: (&'static str, &'static str),
    /// What makes the trouble.
    trouble: (&'static str, &'static str),
    answers: &'static [Answer],
    /// Where it happens once: milliseconds that the whole run loses, in place of a mended step.
    once_ms: Option<f64>,
}

const fn kind(name: &'static str, trouble: (&'static str, &'static str), answers: &'static [Answer]) -> Kind {
    Kind {
        name,
        jobs: USUAL,
        base: ("", ""),
        trouble,
        answers,
        once_ms: None,
    }
}

const KINDS: &[Kind] = &[
    kind("slow GPU", ("SLOW=rank:1=1.6", ""), &[slow(1, "kernel")]),
    kind(
        "slow kernel on a rank",
        ("SLOW=kernel:*gemm*@1=1.6", ""),
        &[slow(1, "kernel")],
    ),
    kind("slow link", ("SLOW=link:0-1={link}", ""), LINKS),
    Kind {
        base: ("TOPOLOGY=two-nodes", ""),
        ..kind("slow NIC", ("SLOW=nic:1={nic}", ""), LINKS)
    },
    kind(
        "late rank by host work",
        ("", "--delay step:1:{30%}"),
        &[slow(1, "host")],
    ),
    kind(
        "slow loader on a rank",
        ("", "--delay loader:1:{120%}"),
        &[slow(1, "host")],
    ),
    kind(
        "slow loader on all",
        ("", "--loader-delay {120%}"),
        &[answer("host_late")],
    ),
    Kind {
        jobs: &["ddp", "ddp, transformer", "fsdp"],
        ..kind(
            "uneven shares of the batch",
            ("", "--imbalance 2"),
            &[answer("uneven_work")],
        )
    },
    kind(
        "pauses of a host thread",
        ("", "--delay step:1:{120%}:4"),
        &[slow(1, "host"), answer("uneven_steps")],
    ),
    Kind {
        jobs: &["ddp", "fsdp"],
        ..kind(
            "synchronization in the loop",
            ("", "--synchronize"),
            &[answer("synchronization")],
        )
    },
    Kind {
        jobs: &["ddp", "fsdp"],
        ..kind(
            "pageable copies",
            ("", "--no-pin-memory"),
            &[answer("pageable_copies")],
        )
    },
    Kind {
        jobs: &["ddp of small layers", "ddp of small layers, two nodes"],
        ..kind(
            "small buckets",
            ("", "--bucket-mb 0.00001"),
            &[answer("small_collectives")],
        )
    },
    Kind {
        jobs: &["ddp", "ddp, transformer"],
        ..kind(
            "no overlap",
            ("", "--no-overlap"),
            &[answer("exposed_communication")],
        )
    },
    Kind {
        jobs: &["fsdp"],
        ..kind(
            "no prefetch",
            ("", "--prefetch 0"),
            &[answer("exposed_communication")],
        )
    },
    Kind {
        once_ms: Some(1000.0),
        ..kind("late start", ("", "--delay start:1:1000"), &[late_start(1)])
    },
    kind(
        "checkpoints",
        ("", "--save {file} --save-every {every}"),
        &[answer("uneven_steps")],
    ),
    kind(
        "slow GPU and slow loader on another rank",
        ("SLOW=rank:1=1.6", "--delay loader:0:{120%}"),
        &[
            Answer {
                left: Some("slow loader on the first rank"),
                ..slow(1, "kernel")
            },
            Answer {
                left: Some("slow GPU"),
                ..slow(0, "host")
            },
        ],
    ),
    kind(
        "slow loader on the first rank",
        ("", "--delay loader:0:{120%}"),
        &[slow(0, "host")],
    ),
];

const fn late_start(rank: u32) -> Answer {
    Answer {
        rank: Some(rank),
        ..answer("late_start")
    }
}

/// The recordings, where they are and what they were made with.
struct Recordings {
    folder: PathBuf,
    /// Clean steps in milliseconds, by what was recorded.
    clean: BTreeMap<String, f64>,
}

impl Recordings {
    /// A job with some settings and options: taken where a recording is there that was made with the same, else made.
    fn get(&self, name: &str, (job, seed): (&Job, u32), parts: &[(&str, &str)], clean: f64) -> PathBuf {
        let file = self.folder.join("checkpoint");
        let fill = |clean: Option<f64>| {
            let file = file.clone();
            move |text: &str| fill(text, job, clean, &file)
        };
        let folder = self.folder.join(name.replace(' ', "-"));
        let made_with = folder.with_extension("txt");
        // Without shares of the clean step: that another analysis measures another one is no reason to record again.
        let (sim, workload) = settings(job, seed, parts, &fill(None));
        let wanted = format!("{}\n{}\n", sim.join(" "), workload.join(" "));
        let is_there = std::fs::read_to_string(&made_with).is_ok_and(|found| found == wanted);
        if !is_there {
            drop(std::fs::remove_dir_all(&folder));
            let (sim, workload) = settings(job, seed, parts, &fill(Some(clean)));
            record(&folder, &sim, &workload);
            std::fs::write(&made_with, wanted).expect("written");
        }
        folder
    }

    /// A job with a kind's base, without its trouble.
    fn clean(&mut self, job: &Job, base: (&str, &str), seed: u32) -> (PathBuf, f64) {
        let name = format!("{}, clean {}{}, seed {seed}", job.name, base.0, base.1);
        let folder = self.get(&name, (job, seed), &[base], 0.0);
        let step = *self.clean.entry(name).or_insert_with(|| what_if(&folder, &[]).0);
        (folder, step)
    }

    /// The same with the trouble.
    fn troubled(&mut self, job: &Job, kind: &Kind, seed: u32) -> PathBuf {
        let (_, clean) = self.clean(job, kind.base, seed);
        let name = format!("{}, {}, seed {seed}", job.name, kind.name);
        self.get(&name, (job, seed), &[kind.base, kind.trouble], clean)
    }
}

/// Settings of the stand-in and words of the workload.
fn settings(
    job: &Job,
    seed: u32,
    parts: &[(&str, &str)],
    fill: &dyn Fn(&str) -> String,
) -> (Vec<String>, Vec<String>) {
    let mut sim: Vec<String> = job.sim.split_whitespace().map(str::to_owned).collect();
    sim.push(format!("SEED={seed}"));
    let mut workload: Vec<String> = job.workload.split_whitespace().map(str::to_owned).collect();
    workload.extend(["--steps".to_owned(), job.steps.to_string()]);
    for (settings, options) in parts {
        sim.extend(settings.split_whitespace().map(fill));
        for word in options.split_whitespace().map(fill) {
            // What the kind sets too is the kind's alone.
            if let Some(place) = workload
                .iter()
                .position(|known| word.starts_with("--") && *known == word && word != "--delay")
            {
                workload.drain(place..place + 2);
            }
            workload.push(word);
        }
    }
    (sim, workload)
}

/// What stands in braces, replaced; shares of the clean step stay as they are where that is not given.
fn fill(text: &str, job: &Job, clean: Option<f64>, file: &Path) -> String {
    let Some((before, rest)) = text.split_once('{') else {
        return text.to_owned();
    };
    let (name, after) = rest.split_once('}').expect("a closing brace");
    let value = if let Some(share) = name.strip_suffix('%') {
        let Some(clean) = clean else {
            return text.to_owned();
        };
        format!("{:.1}", clean * share.parse::<f64>().expect("a number") / 100.0)
    } else if name == "file" {
        file.display().to_string()
    } else {
        let value = job.values.iter().find(|(known, _)| *known == name);
        value
            .unwrap_or_else(|| panic!("{}: no {name}", job.name))
            .1
            .to_owned()
    };
    format!("{before}{value}{after}")
}

/// The first finding that says it saves anything.
fn first(analysis: &Value) -> Option<&Value> {
    let findings = analysis["findings"].as_array().expect("findings");
    findings
        .iter()
        .find(|finding| finding["saves_ns"].as_i64().is_some_and(|saves| saves > 0))
}

fn ranks(finding: &Value) -> Vec<u64> {
    match finding["rank"].as_u64() {
        Some(rank) => vec![rank],
        None => {
            let several = finding["ranks"].as_array().into_iter().flatten();
            several.filter_map(Value::as_u64).collect()
        }
    }
}

/// The answer that a finding is, if it is one of those expected.
fn answer_of<'a>(finding: &Value, answers: &'a [Answer]) -> Option<&'a Answer> {
    answers.iter().find(|answer| {
        finding["code"] == answer.code
            && answer.by.is_none_or(|by| finding["facts"]["by"] == by)
            && answer.rank.is_none_or(|rank| ranks(finding) == [u64::from(rank)])
    })
}

fn milliseconds(value: &Value) -> Option<f64> {
    value.as_f64().map(|ns| ns / 1e6)
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

#[derive(Default)]
struct Totals {
    rows: usize,
    right: usize,
    mended: usize,
    both: usize,
}

impl Totals {
    fn add(&mut self, right: bool, mended: bool) {
        self.rows += 1;
        self.right += usize::from(right);
        self.mended += usize::from(mended);
        self.both += usize::from(right && mended);
    }

    fn line(&self, of: &str) -> String {
        let share = |count: usize| 100.0 * count as f64 / self.rows.max(1) as f64;
        format!(
            "| {of} | {} | {:.0} % | {:.0} % | {:.0} % |",
            self.rows,
            share(self.right),
            share(self.mended),
            share(self.both)
        )
    }
}

/// One row of the table: gives whether cause and rank are right, and whether the mended step is.
fn row(recordings: &mut Recordings, job: &Job, kind: &Kind, seed: u32) -> (bool, bool) {
    let (_, clean) = recordings.clean(job, kind.base, seed);
    let troubled = recordings.troubled(job, kind, seed);
    let (step, ..) = what_if(&troubled, &[]);
    let analysis = json(&troubled, &["analyze"]);
    let found = first(&analysis);
    let answer = found.and_then(|found| answer_of(found, kind.answers));
    let (mut said, mut whose, mut saves, mut off) =
        ("nothing".to_owned(), String::new(), String::new(), f64::INFINITY);
    if let Some(found) = found {
        said = found["code"].as_str().expect("a code").to_owned();
        if let Some(by) = found["facts"]["by"].as_str() {
            said += &format!(" ({by})");
        }
        let all: Vec<String> = ranks(found).iter().map(u64::to_string).collect();
        whose = all.join(", ");
        let a_step = milliseconds(&found["saves_per_step_ns"]).unwrap_or(0.0);
        saves = format!("{a_step:.1} ms");
        if let (Some(low), Some(high)) = (
            milliseconds(&found["saves_low_ns"]),
            milliseconds(&found["saves_high_ns"]),
        ) {
            saves += &format!(" ({low:.1} to {high:.1})");
        }
        off = if let Some(once) = kind.once_ms {
            let all = milliseconds(&found["saves_ns"]).unwrap_or(0.0);
            saves = format!("{all:.0} ms of the run");
            all / once - 1.0
        } else {
            let left = answer.and_then(|answer| answer.left);
            let without = if let Some(left) = left {
                let kind = KINDS.iter().find(|kind| kind.name == left).expect("a kind");
                what_if(&recordings.troubled(job, kind, seed), &[]).0
            } else {
                clean
            };
            (step - a_step) / without - 1.0
        };
    }
    let (right, mended) = (answer.is_some(), off.abs() <= MENDED_WITHIN);
    println!(
        "| {} | {} | {seed} | {clean:.1} ms | {step:.1} ms | {said} | {whose} | {saves} | {} | {} | {} |",
        job.name,
        kind.name,
        yes(right),
        if off.is_finite() {
            format!("{:+.1} %", 100.0 * off)
        } else {
            String::new()
        },
        yes(mended),
    );
    (right, mended)
}

/// One row of the table of clean runs: gives whether little is promised.
fn clean_row(recordings: &mut Recordings, job: &Job, seed: u32) -> bool {
    let (folder, step) = recordings.clean(job, ("", ""), seed);
    let analysis = json(&folder, &["analyze"]);
    let findings = analysis["findings"].as_array().expect("findings");
    let promised = findings
        .iter()
        .filter_map(|finding| Some((milliseconds(&finding["saves_low_ns"])?, &finding["code"])))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let (most, code) = promised.map_or((0.0, "nothing"), |(low, code)| {
        (low, code.as_str().unwrap_or_default())
    });
    let little = most < PROMISED_BELOW * step;
    println!(
        "| {} | {seed} | {step:.1} ms | {code} | {most:.1} ms | {:.1} % | {} |",
        job.name,
        100.0 * most / step,
        yes(little)
    );
    little
}

fn main() {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let seeds: u32 =
        variable("PLANTED_SEEDS").map_or(3, |seeds| seeds.parse().expect("PLANTED_SEEDS: a number"));
    let only = variable("PLANTED_ONLY");
    let is_wanted = |kind: &str, job: &str| {
        only.as_ref()
            .is_none_or(|only| kind.contains(only) || job.contains(only))
    };
    let (_gone_at_the_end, folder) = match variable("PLANTED_KEEP") {
        Some(folder) => {
            std::fs::create_dir_all(&folder).expect("a folder");
            (None, PathBuf::from(folder))
        }
        None => {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().to_owned();
            (Some(folder), path)
        }
    };
    let mut recordings = Recordings {
        folder,
        clean: BTreeMap::new(),
    };
    let mut all = Totals::default();
    let mut by_kind = Vec::new();
    println!(
        "| job | trouble | seed | clean step | step | first finding | rank | saves a step | cause and rank right | mended off by | within 10 % |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for kind in KINDS {
        let mut of_kind = Totals::default();
        let jobs = JOBS.iter().filter(|job| kind.jobs.contains(&job.name));
        for job in jobs.filter(|job| is_wanted(kind.name, job.name)) {
            for seed in 1..=seeds {
                let (right, mended) = row(&mut recordings, job, kind, seed);
                of_kind.add(right, mended);
                all.add(right, mended);
            }
        }
        by_kind.push((kind.name, of_kind));
    }
    println!("\nRuns without trouble:\n");
    println!("| job | seed | step | promises most | saves at least | of a step | below 5 % |");
    println!("|---|---|---|---|---|---|---|");
    let (mut clean, mut quiet) = (0_u32, 0_u32);
    for job in JOBS.iter().filter(|job| is_wanted("", job.name)) {
        for seed in 1..=seeds {
            clean += 1;
            quiet += u32::from(clean_row(&mut recordings, job, seed));
        }
    }
    println!("\n| trouble | rows | cause and rank right | mended within 10 % | both |");
    println!("|---|---|---|---|---|");
    for (name, totals) in by_kind.iter().filter(|(_, totals)| totals.rows > 0) {
        println!("{}", totals.line(name));
    }
    println!("{}", all.line("all"));
    if clean > 0 {
        println!(
            "\n{clean} clean runs: {:.0} % are promised less than 5 % of a step.",
            100.0 * f64::from(quiet) / f64::from(clean)
        );
    }
}
