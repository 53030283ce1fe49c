//! What an import and an analysis cost grows with what there is of each thing, and no faster; and what it may cost is limited.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::common::hostile::{BOMBS, FLOODS, Flood, TOO_MANY_NAMES, flood};
use super::common::{expect_status, gputrace, one_line, stdout};

/// What running a command cost.
#[derive(Clone, Copy, Debug)]
struct Cost {
    status: ExitStatus,
    /// Of the process, on all its threads.
    cpu: Duration,
    most_memory_bytes: u64,
}

/// How often the memory of a process is looked at. The system keeps the most that it had, so that what it takes after the last
/// look alone is not seen.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

#[expect(
    clippy::zombie_processes,
    reason = "wait4 waits for it, and says what it cost"
)]
fn cost(command: &mut Command) -> Cost {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let pid = libc::pid_t::try_from(child.id()).expect("a number of a process");
    let mut most_memory_bytes = 0;
    let (status, usage) = loop {
        // What wait4 says of the memory counts that of this process too, as it was when it started the other.
        most_memory_bytes = most_memory(child.id()).unwrap_or(most_memory_bytes);
        let mut status = 0;
        // SAFETY: all zeros are a valid rusage, and both are written before they are read.
        let (ended, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            let ended = libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage);
            (ended, usage)
        };
        if ended != 0 {
            assert_eq!(ended, pid, "it is ours");
            break (status, usage);
        }
        std::thread::sleep(BETWEEN_LOOKS);
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec.cast_unsigned(), time.tv_usec as u32 * 1000);
    Cost {
        status: ExitStatus::from_raw(status),
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        most_memory_bytes,
    }
}

/// The most memory that a process had until now, bytes; `None` of one that has ended.
fn most_memory(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

fn analyze(path: &Path) -> Command {
    let mut command = gputrace();
    command.args(["analyze", "--json"]).arg(path);
    command
}

fn cost_of(flood: &Flood, count: usize, command: &dyn Fn(&Path) -> Command) -> Cost {
    let folder = tempfile::tempdir().expect("a folder");
    let path = flood.write(count, folder.path());
    let cost = cost(&mut command(&path));
    let expected = if flood.is_read { 0 } else { 2 };
    assert_eq!(cost.status.code(), Some(expected), "{} x {count}", flood.name);
    cost
}

/// Starting the program and the like, which do not grow.
const CONSTANT: Duration = Duration::from_millis(60);
const CONSTANT_BYTES: u64 = 40 << 20;
/// What four times as much may cost at most, in times: as much as it is, and what sorting and a cache that is too small add.
const MOST_TIMES: f64 = 8.0;

/// Fails where four times as much costs far more than four times as much, in time or memory.
fn grows_no_faster_than_what_there_is(flood: &Flood, command: &dyn Fn(&Path) -> Command) {
    let (few, many) = (flood.usual, 4 * flood.usual);
    let few = cost_of(flood, few, command);
    let most = (few.cpu + CONSTANT).mul_f64(MOST_TIMES);
    // What else runs on the machine costs time too, and not three times one after another.
    let mut tries = Vec::new();
    for _ in 0..3 {
        let many = cost_of(flood, many, command);
        let most_memory = (few.most_memory_bytes + CONSTANT_BYTES) as f64 * MOST_TIMES;
        assert!(
            (many.most_memory_bytes as f64) < most_memory,
            "{}: {} MiB, and of four times as much {} MiB",
            flood.name,
            few.most_memory_bytes >> 20,
            many.most_memory_bytes >> 20
        );
        println!(
            "{:28} {:6.0} ms {:5} MiB -> {:6.0} ms {:5} MiB",
            flood.name,
            few.cpu.as_secs_f64() * 1e3,
            few.most_memory_bytes >> 20,
            many.cpu.as_secs_f64() * 1e3,
            many.most_memory_bytes >> 20
        );
        tries.push(many.cpu);
        if many.cpu < most {
            return;
        }
    }
    panic!(
        "{}: {:?}, and of four times as much {tries:?}",
        flood.name, few.cpu
    );
}

#[test]
fn an_analysis_costs_no_more_than_its_share_of_anything() {
    for flood in FLOODS {
        grows_no_faster_than_what_there_is(flood, &analyze);
    }
}

#[test]
fn an_export_costs_no_more_than_its_share_of_anything() {
    const SMALLER: usize = 4;
    for format in ["chrome", "perfetto", "tensorboard", "xplane", "parquet", "html"] {
        for name in [
            "devices",
            "streams",
            "threads",
            "names",
            "communicators",
            "collectives",
            "steps",
            "overlapping",
            "equal correlations",
        ] {
            let smaller = flood(name).one_in(SMALLER);
            print!("{format:12} ");
            grows_no_faster_than_what_there_is(&smaller, &|path| {
                let out = path.with_extension("exported");
                // Tried again, it finds what it wrote.
                let mut command = gputrace();
                command
                    .args(["export", "--force", "--format", format, "-o"])
                    .arg(out)
                    .arg(path);
                command
            });
        }
    }
}

#[test]
fn the_tables_of_many_devices_fit_a_screen() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = flood("devices").write(3_000, folder.path());
    let output = expect_status(gputrace().arg("analyze").arg(&path), 0);
    let lines = stdout(&output).lines().count();
    assert!(lines < 600, "{lines} lines");
    assert!(stdout(&output).contains("more"));
}

#[test]
fn what_unpacks_to_far_too_much_is_refused_unless_it_is_asked_for() {
    for bomb in BOMBS {
        let folder = tempfile::tempdir().expect("a folder");
        let path = bomb.write(bomb.usual, folder.path());
        let line = one_line(&expect_status(&mut analyze(&path), 2));
        for word in [
            "unpacks to more than",
            "--no-import-limits",
            &path.display().to_string(),
        ] {
            assert!(line.contains(word), "{word:?} is not in: {line}");
        }
        let cost = cost(&mut analyze(&path));
        assert!(
            cost.cpu < Duration::from_secs(60),
            "{}: {:?}",
            bomb.name,
            cost.cpu
        );
        assert!(cost.most_memory_bytes < 512 << 20, "{}: {cost:?}", bomb.name);
        // In a folder it is left out, and the others are read.
        std::fs::write(folder.path().join("rank1.json"), super::trace_of_one_kernel()).expect("a file");
        let output = expect_status(&mut analyze(folder.path()), 0);
        let analysis: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        assert_eq!(analysis["ranks"].as_array().map(Vec::len), Some(1));
        assert!(analysis["losses"].to_string().contains("unpacks to more than"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = BOMBS[0].write(600, folder.path());
    expect_status(&mut analyze(&path), 2);
    expect_status(analyze(&path).arg("--no-import-limits"), 0);
}

#[test]
fn names_that_explode_are_a_loss_and_not_the_end_of_the_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = TOO_MANY_NAMES.write(TOO_MANY_NAMES.usual, folder.path());
    let output = expect_status(&mut analyze(&path), 0);
    assert!(stdout(&output).contains("names for which there was no memory"));
    let cost = cost(&mut analyze(&path));
    assert!(cost.most_memory_bytes < 2 << 30, "{cost:?}");
}

/// An import stays within four times what it unpacks or 2 GiB: here, what a row of the smallest event takes is near.
#[test]
fn millions_of_names_take_less_than_four_times_their_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = flood("names").write(400_000, folder.path());
    let bytes = std::fs::metadata(&path).expect("it is there").len();
    let cost = cost(&mut analyze(&path));
    assert_eq!(cost.status.code(), Some(0));
    let most = 4 * bytes + CONSTANT_BYTES;
    assert!(cost.most_memory_bytes > bytes, "nobody looked: {cost:?}");
    assert!(
        cost.most_memory_bytes < most,
        "{} of {most} bytes",
        cost.most_memory_bytes
    );
}

/// Interrupts a command while it works; how long it took to end.
fn interrupted(command: &mut Command, after: Duration) -> Duration {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    std::thread::sleep(after);
    assert!(
        child.try_wait().expect("it is ours").is_none(),
        "{command:?} ended before {after:?}"
    );
    let begun = Instant::now();
    let pid = libc::pid_t::try_from(child.id()).expect("a number of a process");
    // SAFETY: the process is ours and has not been waited for.
    unsafe { libc::kill(pid, libc::SIGINT) };
    let status = child.wait().expect("it ends");
    assert!(!status.success(), "{command:?}: {status}");
    begun.elapsed()
}

#[test]
fn an_interrupt_ends_everything_at_once_and_leaves_nothing() {
    super::common::schedule::alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (traces, out) = (folder.path().join("traces"), folder.path().join("out"));
    let (read, unpacked) = (traces.join("read"), traces.join("unpacked"));
    for folder in [&read, &unpacked, &out] {
        std::fs::create_dir_all(folder).expect("a folder");
    }
    let names = flood("names").write(400_000, &read);
    let string = flood("gzip bomb of one string").write(450, &unpacked);
    let database = flood("sqlite devices").write(150_000, &read);
    let export = |format: &str| {
        let mut command = gputrace();
        command
            .args(["export", "--format", format, "-o"])
            .arg(out.join(format))
            .arg(&names);
        command
    };
    let mut commands = vec![analyze(&names), analyze(&string), analyze(&database)];
    commands.extend(["chrome", "perfetto", "parquet", "tensorboard", "xplane", "html"].map(export));
    for mut command in commands {
        for after in [50, 300] {
            let took = interrupted(&mut command, Duration::from_millis(after));
            // At once, and what a machine with other things to do takes to notice.
            assert!(took < Duration::from_millis(1000), "{command:?}: {took:?}");
            let left: Vec<_> = std::fs::read_dir(&out).expect("it is there").collect();
            assert!(left.is_empty(), "{command:?} left {left:?}");
        }
    }
}
