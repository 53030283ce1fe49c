//! Small C and Python programs (`tests/programs`), run bare and recorded: both ways they must say and give the same.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;

use gputrace_trace::Recording;
use gputrace_trace::recording::Process;

use super::{expect_status, gputrace, stdout};

/// Seconds after which a program counts as hanging.
const PATIENCE: &str = "60";

/// A file of `tests/programs`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
}

/// `tests/programs/NAME.c`, compiled once. Needs a C compiler (`CC`, else gcc).
#[track_caller]
pub fn compiled(name: &str) -> PathBuf {
    compiled_with(name, &[])
}

/// The same with more arguments for the compiler.
#[track_caller]
pub fn compiled_with(name: &str, arguments: &[&str]) -> PathBuf {
    super::schedule::computes();
    let source = source(&format!("{name}.c"));
    // What was compiled of the same is taken again.
    let mut hasher = DefaultHasher::new();
    for file in [&source, &source.with_file_name("gpu.h")] {
        std::fs::read(file).expect("a source").hash(&mut hasher);
    }
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "gcc".into());
    (&compiler, arguments).hash(&mut hasher);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("programs")
        .join(format!("{:016x}", hasher.finish()));
    let program = folder.join(name);
    if program.exists() {
        return program;
    }
    std::fs::create_dir_all(&folder).expect("a folder for programs");
    // Aside and renamed: other tests may do the same at this moment.
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let aside = folder.join(format!("{name}.{}-{number}", std::process::id()));
    let output = Command::new(&compiler)
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&aside)
        .arg(&source)
        .args(arguments)
        .args(["-ldl", "-lpthread"])
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}: these tests need a C compiler", compiler.display()));
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::rename(&aside, &program).expect("the program is put in its place");
    program
}

/// The collector's library beside the program, as the program looks for it.
pub fn collector() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_gputrace"))
        .parent()
        .expect("a folder");
    [folder.to_owned(), folder.join("deps")]
        .into_iter()
        .map(|folder| folder.join("libgputrace_collector.so"))
        .filter(|path| path.exists())
        .max_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok())
        .expect("the collector was built")
}

/// LD_LIBRARY_PATH with the stand-in first, as the recorder sets it.
pub fn library_path() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    super::schedule::computes();
    PATH.get_or_init(|| {
        let (_keep, folder) = super::fresh_folder("recording");
        let mut command = gputrace();
        command
            .args(["record", "--quiet", "--device", "sim", "-o"])
            .arg(folder);
        command.args(["--", "sh", "-c", "echo $LD_LIBRARY_PATH"]);
        stdout(&expect_status(&mut command, 0)).trim().to_owned()
    })
}

/// How a program ended and what it said.
#[derive(Debug, PartialEq)]
pub struct Ended {
    /// As a shell has it: 128 and the signal's number for a signal.
    pub status: i32,
    pub stdout: String,
    /// Without the recorder's own lines.
    pub stderr: String,
}

/// A program's command line and what it runs in.
pub struct Case {
    words: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    /// Words before the program's, on both ways: `prlimit --nofile=20`, `unshare --user`, ...
    inside: Vec<OsString>,
    /// Options of `gputrace record`.
    options: Vec<OsString>,
}

impl Case {
    /// A program with its arguments.
    pub fn new<S: AsRef<OsStr>>(program: impl AsRef<OsStr>, arguments: &[S]) -> Self {
        // Most of them do little, and wait for what they try.
        super::schedule::waits();
        let mut words = vec![program.as_ref().to_owned()];
        words.extend(arguments.iter().map(|word| word.as_ref().to_owned()));
        Self {
            words,
            environment: Vec::new(),
            inside: Vec::new(),
            options: Vec::new(),
        }
    }

    /// `python3 tests/programs/NAME ARGUMENTS`.
    pub fn python(name: &str, arguments: &[&str]) -> Self {
        let mut words = vec![source(name).into_os_string()];
        words.extend(arguments.iter().map(OsString::from));
        Self::new("python3", &words)
    }

    /// With a variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Run by another program, bare and recorded.
    pub fn inside(mut self, words: &[&str]) -> Self {
        self.inside = words.iter().map(OsString::from).collect();
        self
    }

    /// With options of the recorder.
    pub fn options(mut self, words: &[&str]) -> Self {
        self.options = words.iter().map(OsString::from).collect();
        self
    }

    /// The program and its arguments.
    pub fn words(&self) -> &[OsString] {
        &self.words
    }

    fn run(&self, mut command: Command) -> Ended {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // Into files: a pipe would wait for children that were left behind.
        let file = |name: &str| File::create(folder.path().join(name)).expect("a file");
        command.args(&self.inside).args(&self.words);
        command.envs(self.environment.iter().cloned());
        command.stdout(file("stdout")).stderr(file("stderr"));
        let status = command.status().expect("timeout (coreutils) starts");
        let text = |name: &str| {
            let bytes = std::fs::read(folder.path().join(name)).expect("what it said");
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let stderr = text("stderr");
        let theirs: Vec<&str> = stderr
            .split_inclusive('\n')
            .filter(|line| !line.starts_with("gputrace: "))
            .collect();
        let ended = Ended {
            status: shell_status(status),
            stdout: text("stdout"),
            stderr: theirs.concat(),
        };
        assert_ne!(ended.status, 124, "{:?} hangs: {ended:?}", self.words);
        ended
    }

    /// Runs it without a recorder.
    pub fn bare(&self) -> Ended {
        let mut command = clean_timeout();
        command
            .env("LD_LIBRARY_PATH", library_path())
            .env("GPUTRACE_DEVICE", "sim");
        self.run(command)
    }

    /// Runs it recorded, into `folder`.
    pub fn recorded(&self, folder: &Path) -> Ended {
        let mut command = clean_timeout();
        command
            .arg(env!("CARGO_BIN_EXE_gputrace"))
            .args(["record", "--quiet", "--device", "sim", "-o"])
            .arg(folder)
            .args(&self.options)
            .arg("--");
        self.run(command)
    }

    /// Runs it both ways, which must be the same to the program, and opens the recording.
    #[track_caller]
    pub fn check(&self, status: i32) -> Recorded {
        let bare = self.bare();
        assert_eq!(bare.status, status, "{:?} unrecorded: {bare:?}", self.words);
        let (keep, folder) = super::fresh_folder("recording");
        let ended = self.recorded(&folder);
        assert_eq!(ended, bare, "{:?}, recorded (left) and not (right)", self.words);
        let recording = Recording::open(&folder).unwrap_or_else(|error| panic!("{:?}: {error}", self.words));
        Recorded {
            ended,
            recording,
            folder,
            _keep: keep,
        }
    }
}

/// A program that was recorded, to the same end as without.
pub struct Recorded {
    pub ended: Ended,
    pub recording: Recording,
    pub folder: PathBuf,
    _keep: tempfile::TempDir,
}

impl Recorded {
    /// The one process that was recorded.
    #[track_caller]
    pub fn process(&self) -> &Process {
        let [process] = &self.recording.processes[..] else {
            panic!(
                "one process was expected: {:?}",
                self.recording
                    .processes
                    .iter()
                    .map(|process| &process.folder)
                    .collect::<Vec<_>>()
            );
        };
        process
    }

    /// Kernels in all.
    pub fn kernels(&self) -> usize {
        self.recording.processes.iter().map(kernels).sum()
    }

    /// Whether something lost is told in words that contain `part`.
    pub fn tells(&self, part: &str) -> bool {
        self.recording.losses.iter().any(|loss| loss.what.contains(part))
            || self.recording.notes.iter().any(|note| note.contains(part))
    }

    /// Everything that is told, for messages.
    pub fn told(&self) -> String {
        format!("{:?} {:?}", self.recording.losses, self.recording.notes)
    }
}

/// Kernels of one process.
pub fn kernels(process: &Process) -> usize {
    process.tables.kernels.start_ns.len()
}

fn shell_status(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// `timeout SECONDS`, in the environment that [`gputrace`] has.
fn clean_timeout() -> Command {
    let mut command = Command::new("timeout");
    for (name, _) in gputrace().get_envs().filter(|(_, value)| value.is_none()) {
        command.env_remove(name);
    }
    command.args(["-k", "1", PATIENCE]);
    command
}
