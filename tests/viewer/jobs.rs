//! A daemon's page: its jobs, one of them live, and from what was found to what was kept of it.

use crate::common;

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::browser::{self, Browser};
use common::gputrace;
use common::http::{Viewer, small_recording, view};
use serde_json::Value;

/// A daemon of our own with its page, in a folder.
fn daemon(place: &Path) -> Viewer {
    let mut command = gputrace();
    command
        .args(["daemon", "--user", "--port", "0", "--socket"])
        .arg(place.join("daemon.sock"))
        .arg("--state")
        .arg(place.join("state"))
        .stderr(Stdio::null());
    Viewer::start(&mut command)
}

/// A job that goes on until it is dropped.
struct Job(Child);

impl Job {
    fn new(place: &Path) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_gputrace"));
        let folder = program.parent().expect("a folder");
        let collector = ["deps/libgputrace_collector.so", "libgputrace_collector.so"]
            .map(|name| folder.join(name))
            .into_iter()
            .find(|path| path.exists());
        let mut command = gputrace();
        command
            .args(["workload", "ddp", "--ranks", "2", "--steps", "1000000"])
            .args(["--layers", "2", "--hidden", "128", "--batch", "64"])
            .env(
                "CUDA_INJECTION64_PATH",
                collector.expect("the collector was built"),
            )
            .env("GPUTRACE_SOCKET", place.join("daemon.sock"))
            .env("SLURM_JOB_ID", "77")
            .env("SLURM_STEP_ID", "0")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().expect("the job starts"))
    }

    fn signal(&self, pid: u64, signal: i32) {
        let pid = libc::pid_t::try_from(pid).expect("a number");
        // SAFETY: a rank of the job, which lives as long as we have it.
        unsafe { libc::kill(pid, signal) };
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Bundled ranks end with who started them.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[track_caller]
fn when<T>(what: &str, mut there: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = there() {
            return found;
        }
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn job_of(viewer: &Viewer) -> Option<Value> {
    let answer = viewer.get("/api/jobs/slurm-77");
    (answer.status == 200).then(|| answer.json())
}

#[test]
fn a_daemon_s_server_tells_of_jobs_and_others_say_that_they_watch_none() {
    let plain = view(&[small_recording()]);
    assert_eq!(plain.json("/api/recordings")["jobs"], false);
    for path in ["/api/jobs", "/api/jobs/x"] {
        let none = plain.get(path);
        assert_eq!(none.status, 404);
        assert!(none.text().contains("gputrace daemon --port"), "{}", none.text());
    }
    let place = tempfile::tempdir().expect("a folder");
    let viewer = daemon(place.path());
    assert_eq!(viewer.json("/api/recordings")["jobs"], true);
    let jobs = viewer.json("/api/jobs");
    assert_eq!(jobs["schema"], "gputrace.jobs/1");
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(0));
    let none = viewer.get("/api/jobs/nothing");
    assert_eq!(none.status, 404, "{}", none.text());
    assert_eq!(viewer.get("/api/jobs?x=1").status, 400);
}

#[test]
fn a_job_is_followed_and_what_was_found_leads_to_what_was_kept() {
    let Some(program) = browser::program() else { return };
    common::schedule::computes();
    let place = tempfile::tempdir().expect("a folder");
    let viewer = daemon(place.path());
    let job = Job::new(place.path());
    let mut browser = Browser::start(program, 1280, 900);
    browser.open(&viewer.url);
    browser.wait_for("document.querySelector('[aria-label=jobs] tbody .p-open')");
    // By the keyboard alone.
    browser.evaluate("document.querySelector('[aria-label=jobs] tbody .p-open').focus()");
    browser.press("Enter", "");
    browser.wait_for(
        "location.hash === '#job=slurm-77' && document.querySelector('.p-library h1')?.textContent === 'slurm-77'",
    );
    browser.wait_for("document.querySelectorAll('.p-chart .p-line').length >= 3");
    // Steps are on the page two seconds behind their end, as the daemon has them.
    let on_page = "Number(document.querySelector('.p-library > .p-head > p').textContent.match(/([\\d\\s\u{202f}]+) steps/)[1].replace(/\\D/g, ''))";
    let steps = |viewer: &Viewer| {
        job_of(viewer)
            .and_then(|job| job["steps"].as_u64())
            .expect("steps")
    };
    let (at, asked) = (steps(&viewer), Instant::now());
    browser.wait_for(&format!("{on_page} >= {at}"));
    eprintln!(
        "step {at} was on the page {:?} after the daemon had it",
        asked.elapsed()
    );
    // A rank stands still for a moment, now and then, until that is told: a step at a round number may be a checkpoint.
    let kept = when("a finding with its recording", || {
        let job_now = job_of(&viewer)?;
        let found = job_now["findings"].as_array()?.iter();
        let kept = found.rev().find_map(|one| one["recording"].as_str());
        if let Some(kept) = kept {
            return Some(kept.to_owned());
        }
        let rank = job_now["processes"][0]["pid"].as_u64()?;
        if job_now["steps"].as_u64()? > 40 {
            job.signal(rank, libc::SIGSTOP);
            std::thread::sleep(Duration::from_millis(700));
            job.signal(rank, libc::SIGCONT);
            std::thread::sleep(Duration::from_millis(2500));
        }
        None
    });
    browser.wait_for("document.querySelectorAll('.p-chart line.p-mark').length > 0");
    let row = format!(
        "[...document.querySelectorAll('[aria-label=found] tbody tr')].find((row) => row.textContent.includes('{kept}'))"
    );
    browser.wait_for(&row);
    for (theme, width) in [("light", 1280), ("dark", 1280), ("light", 420), ("dark", 420)] {
        browser.prefers(theme);
        browser.resize(width, 900);
        browser.wait_for(&format!("document.documentElement.dataset.theme === '{theme}'"));
        let wider = browser.evaluate("document.documentElement.scrollWidth - innerWidth");
        assert!(
            wider.as_f64().is_some_and(|pixels| pixels <= 0.0),
            "{width}: {wider} px too wide"
        );
    }
    browser.resize(1280, 900);
    // To what was kept, and back.
    browser.click_on(&format!("{row}.querySelector('.p-open')"));
    browser.wait_for(&format!(
        "viewer.state().loaded && document.getElementById('name').textContent === 'captures/{kept}'"
    ));
    assert_eq!(
        viewer.id(&format!("captures/{kept}")),
        browser.evaluate("viewer.page.id")
    );
    browser.evaluate("history.back()");
    browser.wait_for(
        "location.hash === '#job=slurm-77' && document.querySelectorAll('.p-chart .p-line').length >= 3",
    );
    browser.evaluate("history.back()");
    browser.wait_for("document.querySelector('[aria-label=jobs] tbody .p-open')");
    drop(job);
    browser.wait_for("!document.querySelector('[aria-label=jobs] .p-live')");
    assert_eq!(browser.evaluate("viewer.state().errors"), serde_json::json!([]));
    // A recording that is opened is asked for until it has been read.
    let is_read = |complaint: &String| complaint.contains("503 (") && complaint.contains("/info\"");
    browser.complaints.retain(|complaint| !is_read(complaint));
    assert_eq!(browser.complaints, Vec::<String>::new());
}
