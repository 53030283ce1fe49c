//! Comparing runs and holding them against budgets, on recordings that are built by hand.

use gputrace_analyzer::baseline::{Baseline, By, baseline};
use gputrace_analyzer::check::{Budget, Check, Within, propose};
use gputrace_analyzer::diff::{Diff, Row, Verdict, diff};
use gputrace_analyzer::{Options, analyze_in_detail};
use gputrace_trace::Loss;
use proptest::prelude::*;

use crate::support::Build;

/// Steps of a run built by hand.
const STEPS: i64 = 12;

/// A run of one GPU: in each step a `gemm` of `gemm_ns` right behind its launch, an `add` of 500 ns behind it, and idle time up to
/// `period_ns`.
fn run(gemm: &str, gemm_ns: i64, period_ns: i64) -> Baseline {
    let mut job = Build::new(1);
    for step in 0..STEPS {
        let at = step * period_ns;
        let correlation = 2 * step as u32 + 1;
        job.step(step as u64, at, at + period_ns);
        job.call(at + 100, at + 150, correlation);
        job.call(at + 200, at + 250, correlation + 1);
        job.kernel(0, gemm, 7, at + 1000, at + 1000 + gemm_ns, correlation);
        job.kernel(
            0,
            "add",
            7,
            at + 1000 + gemm_ns,
            at + 1500 + gemm_ns,
            correlation + 1,
        );
    }
    let options = Options {
        by_step: true,
        ..Options::default()
    };
    let (analysis, details) = analyze_in_detail(&job.recording, &options);
    baseline(&job.recording, &analysis, &details)
}

fn compared(a: Baseline, b: Baseline) -> Diff {
    diff(&[a], &[b], None)
}

fn row<'a>(found: &'a Diff, by: By, name: &str) -> &'a Row {
    let is = |row: &&Row| row.by == by && row.name == name && row.rank.is_none();
    found
        .rows
        .iter()
        .find(is)
        .unwrap_or_else(|| panic!("no {name} among {:#?}", found.rows))
}

fn sum(parts: &std::collections::BTreeMap<String, i64>) -> i64 {
    parts.values().sum()
}

#[test]
fn a_run_is_what_its_steps_are() {
    let run = run("gemm", 4000, 10_000);
    assert_eq!(run.steps(), 12);
    assert!(run.is_whole());
    // From the first kernel of a step to that of the next; the last ends with its last kernel.
    assert_eq!(run.step_ns[..11], [10_000; 11]);
    assert_eq!(run.step_ns[11], 4500);
    assert_eq!(run.parts["compute"], [4500; 12]);
    // Before the next step's first launch the host is late by 10,000 - 4500 - 900 ns, and launching takes 900.
    assert_eq!(run.parts["idle.host_late"][..11], [4600; 11]);
    assert_eq!(run.parts["idle.launch_latency"][..11], [900; 11]);
    for step in 0..12 {
        let parts: i64 = run.parts.values().map(|values| values[step]).sum();
        assert_eq!(parts, run.step_ns[step], "parts of step {step}");
    }
    let gemm = run.series(By::Kernel, "gemm", None).unwrap();
    assert_eq!(
        (gemm.values.as_slice(), gemm.total_ns, gemm.count),
        (&[4000; 12][..], 48_000, 12)
    );
}

#[test]
fn a_slower_kernel_is_named_with_what_it_adds_to_the_step() {
    let found = compared(run("gemm", 4000, 10_000), run("gemm", 4400, 10_400));
    let step = &found.step;
    assert_eq!((step.a_ns, step.b_ns, step.change_ns), (10_000, 10_400, 400));
    assert_eq!(found.parts["compute"], 400);
    assert_eq!(found.parts["idle.host_late"], 0);
    assert_eq!(sum(&found.parts), 400);
    assert_eq!((sum(&found.parts_a), sum(&found.parts_b)), (10_000, 10_400));
    assert_eq!(step.verdict, Verdict::Slower);
    assert!(step.low_ns.unwrap() > 0 && step.high_ns.unwrap() < 800);
    let gemm = row(&found, By::Kernel, "gemm");
    assert_eq!(
        (gemm.a_ns, gemm.b_ns, gemm.change_ns),
        (Some(4000), Some(4400), 400)
    );
    assert_eq!((gemm.verdict, gemm.count_a), (Verdict::Slower, Some(1.0)));
    assert_eq!(row(&found, By::Kernel, "add").verdict, Verdict::Same);
    assert_eq!(found.part_verdicts["compute"], Verdict::Slower);
    let of_kernels = found.coverage.iter().find(|of| of.by == By::Kernel).unwrap();
    assert_eq!(
        (
            of_kernels.total_a_ns,
            of_kernels.matched_a_ns,
            of_kernels.unmatched_a_ns,
            of_kernels.total_b_ns
        ),
        (12 * 4500, 12 * 4500, 0, 12 * 4900)
    );
    assert!(found.notes.iter().any(|note| note.starts_with("one run a side")));
}

#[test]
fn a_run_is_no_different_from_itself() {
    let found = compared(run("gemm", 4000, 10_000), run("gemm", 4000, 10_000));
    assert_eq!((found.step.change_ns, found.step.verdict), (0, Verdict::Same));
    assert!(
        found
            .rows
            .iter()
            .all(|row| row.verdict == Verdict::Same && row.change_ns == 0)
    );
    assert!(found.parts.values().all(|change| *change == 0));
    assert!(found.renamed.is_empty());
}

#[test]
fn a_renamed_kernel_is_found_by_its_place() {
    let found = compared(
        run("gemm_128x64", 4000, 10_000),
        run("gemm_256x128", 3000, 10_000),
    );
    assert_eq!(row(&found, By::Kernel, "gemm_128x64").verdict, Verdict::Gone);
    let new = row(&found, By::Kernel, "gemm_256x128");
    assert_eq!(
        (new.verdict, new.a_ns, new.b_ns, new.change_ns),
        (Verdict::New, None, Some(3000), 3000)
    );
    let [renamed] = found.renamed.as_slice() else {
        panic!("{:?}", found.renamed);
    };
    assert_eq!(
        (renamed.a.as_slice(), renamed.b.as_slice()),
        (&["gemm_128x64".to_owned()][..], &["gemm_256x128".to_owned()][..])
    );
    assert_eq!(
        (renamed.places, renamed.a_ns, renamed.b_ns, renamed.change_ns),
        (1, 4000, 3000, -1000)
    );
    let kernels = found.coverage.iter().find(|of| of.by == By::Kernel).unwrap();
    assert_eq!((kernels.unmatched_a_ns, kernels.matched_a_ns), (48_000, 6000));
}

#[test]
fn several_runs_a_side_say_how_runs_differ() {
    let side = |times: [i64; 3]| times.map(|time| run("gemm", time, time + 6000));
    let near = diff(&side([4000, 4400, 3600]), &side([4200, 4600, 3800]), None);
    assert_eq!(
        (near.step.change_ns, near.step.verdict),
        (200, Verdict::Same),
        "runs differ by twice that"
    );
    let far = diff(&side([4000, 4010, 3990]), &side([4200, 4210, 4190]), None);
    assert_eq!((far.step.change_ns, far.step.verdict), (200, Verdict::Slower));
    assert_eq!(sum(&far.parts), 200);
    assert!(!far.notes.iter().any(|note| note.starts_with("one run a side")));
}

#[test]
fn sides_that_lack_something_say_so() {
    let mut other = run("gemm", 4000, 10_000);
    other.device = "sim".to_owned();
    other.losses.push(Loss {
        what: "kernels".to_owned(),
        count: Some(3),
        affects: "everything".to_owned(),
    });
    let mut few = run("gemm", 4000, 10_000);
    few.step_ns.truncate(3);
    few.step_names.truncate(3);
    few.parts.values_mut().for_each(|values| values.truncate(3));
    few.series.iter_mut().for_each(|series| series.values.truncate(3));
    let found = compared(few, other);
    let says = |text: &str| {
        assert!(
            found.notes.iter().any(|note| note.contains(text)),
            "{text}: {:?}",
            found.notes
        );
    };
    says("has 3 of the 4 steps");
    says("has losses");
    says("\"cuda\", B of \"sim\"");
    assert_eq!(found.step.verdict, Verdict::Unknown);
    assert_eq!((found.step.low_ns, found.step.least_ns), (None, None));
}

fn budget(lines: &[(&str, &str)]) -> Result<Budget, String> {
    Budget::parse(lines.iter().map(|(name, limit)| {
        let path = name.split('.').map(str::to_owned).collect();
        (path, (*limit).to_owned())
    }))
}

fn verdicts(check: &Check) -> Vec<Within> {
    check.lines.iter().map(|line| line.verdict).collect()
}

#[test]
fn limits_are_held_against_a_run() {
    let lines = [
        ("step.p50", "<= 10us"),
        ("step.p50", "<= 9.9us"),
        ("steps.count", ">= 12"),
        ("idle.host_late", "<= 4.6us"),
        ("idle.host_late.ratio", "<= 0.45"),
        ("kernel.gem*.mean", "<= 4us"),
        ("kernel.gem*.total", "< 4us"),
        ("kernel.none*.mean", "<= 4us"),
        ("overlap.min", ">= 0.5"),
        ("compute", "<= 4500ns"),
        ("lost.rows", "= 0"),
    ];
    let checked = budget(&lines).unwrap().check(&[run("gemm", 4000, 10_000)], &[]);
    use Within::{Over, Unknown, Within as In};
    assert_eq!(
        verdicts(&checked),
        [In, Over, In, In, Over, In, Over, Unknown, Unknown, In, In],
        "{:#?}",
        checked.lines
    );
    assert_eq!(checked.verdict, Over);
    let line = &checked.lines[1];
    assert_eq!(
        (line.value, line.limit_value, line.margin),
        (Some(10_000.0), Some(9900.0), Some(-100.0))
    );
    assert!(line.low.unwrap() < 10_000.0 && line.high.unwrap() > 10_000.0);
    assert!(
        checked.lines[7]
            .why
            .as_ref()
            .unwrap()
            .contains("no kernel matches")
    );
}

#[test]
fn limits_against_a_baseline_are_on_the_change() {
    let lines = [
        ("step.p50", "<= +3%"),
        ("step.p50", "<= +500ns"),
        ("kernel.gemm.total", "<= +5%"),
    ];
    let budget = budget(&lines).unwrap();
    assert!(budget.needs_baseline());
    let checked = budget.check(&[run("gemm", 4400, 10_400)], &[run("gemm", 4000, 10_000)]);
    assert_eq!(verdicts(&checked), [Within::Over, Within::Within, Within::Over]);
    assert_eq!(
        (checked.lines[0].baseline, checked.lines[0].limit_value),
        (Some(10_000.0), Some(10_300.0))
    );
    let alone = budget.check(&[run("gemm", 4400, 10_400)], &[]);
    assert_eq!(alone.verdict, Within::Unknown);
    // Runs that differ by as much as that among themselves: nothing is known of a change.
    let noisy = [
        run("gemm", 4000, 10_000),
        run("gemm", 5000, 11_000),
        run("gemm", 3000, 9000),
    ];
    let more = [
        run("gemm", 4400, 10_400),
        run("gemm", 5400, 11_400),
        run("gemm", 3400, 9400),
    ];
    let checked = budget.check(&more, &noisy);
    assert_eq!(checked.lines[0].verdict, Within::Unknown);
    assert!(checked.lines[0].why.as_ref().unwrap().contains("may be none"));
}

#[test]
fn what_rests_on_losses_can_t_be_judged() {
    let mut lossy = run("gemm", 4000, 10_000);
    lossy.losses.push(Loss {
        what: "kernels that were dropped".to_owned(),
        count: Some(3),
        affects: "everything in its last moments".to_owned(),
    });
    let lines = [
        ("step.p50", "<= 1s"),
        ("lost.rows", "= 0"),
        ("steps.count", ">= 2"),
    ];
    let checked = budget(&lines).unwrap().check(&[lossy], &[]);
    assert_eq!(
        verdicts(&checked),
        [Within::Unknown, Within::Over, Within::Within]
    );
    assert!(
        checked.lines[0]
            .why
            .as_ref()
            .unwrap()
            .contains("kernels that were dropped")
    );
}

#[test]
fn wrong_names_get_the_nearest_one() {
    let refused = |name| budget(&[(name, "<= 1ms")]).unwrap_err();
    assert!(refused("step.p5O").contains("did you mean step.p50?"));
    assert!(refused("exposed_comunication").contains("did you mean exposed_communication?"));
    assert!(refused("idle.host_lat").contains("did you mean idle.host_late?"));
    assert!(refused("zzz").contains("there is no measure zzz"));
    assert!(budget(&[]).is_err());
}

#[test]
fn a_run_is_within_the_budget_that_it_proposes() {
    let run = run("gemm", 4000, 10_000);
    let text = propose(std::slice::from_ref(&run));
    let lines: Vec<(&str, &str)> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, limit)| (name, limit.trim_matches('"')))
        .collect();
    assert!(lines.len() >= 3, "{text}");
    let checked = budget(&lines).unwrap().check(&[run], &[]);
    assert_eq!(checked.verdict, Within::Within, "{text}\n{:#?}", checked.lines);
}

/// A run of random steps and parts, as a file could have it.
fn any_run() -> impl Strategy<Value = Baseline> {
    let step = proptest::collection::vec(0i64..1_000_000, 3);
    (proptest::collection::vec(step, 1..30), 1i64..50_000).prop_map(|(steps, gemm)| {
        let mut made = run("gemm", gemm, gemm + 2000);
        let count = steps.len();
        made.step_names = (0..count).map(|step| format!("step {step}")).collect();
        made.step_ns = steps.iter().map(|parts| parts.iter().sum()).collect();
        let names = ["compute", "exposed", "idle.host_late"];
        made.parts = (0..3)
            .map(|part| {
                (
                    names[part].to_owned(),
                    steps.iter().map(|step| step[part]).collect(),
                )
            })
            .collect();
        for series in &mut made.series {
            series.values = steps.iter().map(|step| step[0]).collect();
            series.total_ns = series.values.iter().sum();
        }
        made
    })
}

proptest! {
    #[test]
    fn parts_sum_to_the_step_and_to_its_change(a in proptest::collection::vec(any_run(), 1..4), b in proptest::collection::vec(any_run(), 1..4)) {
        let found = diff(&a, &b, None);
        prop_assert_eq!(sum(&found.parts_a), found.step.a_ns);
        prop_assert_eq!(sum(&found.parts_b), found.step.b_ns);
        prop_assert_eq!(sum(&found.parts), found.step.change_ns);
        prop_assert_eq!(found.step.change_ns, found.step.b_ns - found.step.a_ns);
        for of in &found.coverage {
            prop_assert_eq!(of.matched_a_ns + of.unmatched_a_ns, of.total_a_ns);
            prop_assert_eq!(of.matched_b_ns + of.unmatched_b_ns, of.total_b_ns);
        }
        for row in &found.rows {
            prop_assert_eq!(row.change_ns, row.b_ns.unwrap_or(0) - row.a_ns.unwrap_or(0));
            if let (Some(low), Some(high)) = (row.low_ns, row.high_ns) {
                prop_assert!(low <= row.change_ns && row.change_ns <= high);
            }
        }
        // The other way round everything is the other way round.
        let back = diff(&b, &a, None);
        prop_assert_eq!(back.step.change_ns, -found.step.change_ns);
    }

    #[test]
    fn a_baseline_is_the_same_when_it_is_read_again(run in any_run()) {
        let text = serde_json::to_string(&run).unwrap();
        let again: Baseline = serde_json::from_str(&text).unwrap();
        prop_assert!(again.is_whole());
        prop_assert_eq!(&again, &run);
        let small = run.clone().small();
        prop_assert!(small.is_whole());
        prop_assert_eq!(small, run, "nothing of a small one is left out");
    }
}
