//! `gputrace record`: runs a command with the collector injected and closes the recording.

pub mod child;
mod durable;
mod exports;
mod hang;
mod launch;
mod newest;
mod options;
mod output;
mod progress;
mod relay;
mod samples;
mod switch;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use gputrace_analyzer::{ClockChoice, align, clock_estimates};
use gputrace_trace::follow::Counts;
use gputrace_trace::json_file::{write_json, write_json_durably};
use gputrace_trace::manifest::Manifest;
use gputrace_trace::options::{
    CONTROL_VARIABLE, CollectorOptions, FOLDER_VARIABLE, Kind, OPTIONS_VARIABLE, RECORDING_VARIABLE,
};
use gputrace_trace::{Recording, access, now};

use crate::cli::RecordArgs;
use crate::device::{self, Device};
use crate::failure::Failure;
use crate::say::{self, say};
use crate::{analyze, libraries, opening, workload};
use durable::Durable;
use launch::Launch;
use output::Output;
use progress::ProgressLine;
use samples::{Sampler, Wanted};
use switch::Switch;

/// How long to sleep between looks at the command.
const POLL: Duration = Duration::from_millis(20);
/// How long the recorder that speaks for a launch waits for the others at the end.
const OTHERS_PATIENCE: Duration = Duration::from_secs(10);

/// Refuses settings of the simulated GPU that there are not or that cannot be, before anything is made or run.
fn check_simulation(args: &RecordArgs, device: Device) -> Result<(), Failure> {
    let asked = args.simulation.iter();
    let mut settings: Vec<(String, String)> = asked
        .map(|(key, value)| (format!("SIMGPU_{key}"), value.clone()))
        .collect();
    if device == Device::Sim {
        let text = |text: OsString| text.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
        // What is asked for counts before what the environment has.
        settings.splice(..0, variables);
    }
    simgpu::check_settings(&settings).map_err(|wrong| Failure::new(format!("{wrong}; nothing was run")))
}

/// Records, prints what was recorded, and gives the command's exit status.
pub fn run(args: &RecordArgs) -> Result<i32, Failure> {
    child::survive_closed_pipes();
    let bundled = args.command.first().is_some_and(|program| program == "workload");
    if bundled {
        workload::check(&args.command[1..])?;
    }
    let asked = options::collector(args)?;
    if args.writing.follow_umask {
        access::follow_umask();
    }
    exports::check(args)?;
    let collector = libraries::collector()?;
    let device = device::choose(args.device, bundled)?;
    check_simulation(args, device)?;
    let mut command = command_line(args, bundled)?;
    for (key, value) in &args.simulation {
        let key = format!("SIMGPU_{key}");
        if device == Device::Sim {
            // SAFETY: no other thread runs yet. The simulated GPUs that we sample have the settings of the command's.
            unsafe { std::env::set_var(&key, value) };
        }
        command.env(key, value);
    }
    // What the ranks do on the simulated GPUs is published under this name, so that we can sample it.
    const RUN: &str = "SIMGPU_RUN";
    if device == Device::Sim && std::env::var_os(RUN).is_none() {
        let run = format!("{}-{}", std::process::id(), now().0);
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var(RUN, &run) };
        command.env(RUN, run);
    }
    // How the simulated GPUs are spread over nodes depends on how many ranks are here, and ours must be theirs.
    const RANKS_HERE: &str = "LOCAL_WORLD_SIZE";
    if device == Device::Sim
        && bundled
        && std::env::var_os(RANKS_HERE).is_none()
        && let Some(ranks) = workloads::ranks_of(&args.command[1..])
    {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var(RANKS_HERE, ranks.to_string()) };
        command.env_remove(RANKS_HERE);
    }
    command.envs(device.environment()?);

    let name = if bundled {
        args.command.get(1)
    } else {
        args.command.first()
    };
    let name = output::name_of(name.map_or(OsStr::new("run"), OsString::as_os_str));
    let launch = Launch::of(args.join.as_deref(), &|name| std::env::var(name).ok());
    let host = gethostname::gethostname().to_string_lossy().into_owned();
    let wanted = args.output.as_deref();
    let output = Output::create(wanted, args.writing.parents, &name, launch.as_ref(), &host)?;
    let number = output.recording();
    inject(&mut command, &collector, &output.folder, &number);
    command.env(OPTIONS_VARIABLE, asked.to_text());

    // Of the recorders of a launch one speaks for all.
    let speaks = launch.as_ref().is_none_or(|launch| match launch.rank {
        Some(rank) => rank == 0,
        None => output.is_made_by_us,
    });
    let mut manifest = manifest(args, &command, device, asked);
    manifest.recording = number;
    manifest.launch = launch.as_ref().map(|launch| launch.id.clone());
    if !speaks {
        manifest.hang_after_ns = Some(0);
    }
    let cannot = |what: &str, error: &io::Error| {
        output.remove();
        Failure::new(format!(
            "{}: {what}: {error}: nothing was run",
            output.folder.display()
        ))
    };
    write_json_durably(&output.manifest, &manifest).map_err(|error| cannot("cannot be written", &error))?;
    let switch = Switch::create(output.control.clone(), args.delay, args.duration)
        .map_err(|error| cannot("no switch can be made there", &error))?;
    command.env(CONTROL_VARIABLE, switch.path());
    let quiet = args.quiet || !speaks;
    if !quiet {
        say!("{}", announcement(device, args, bundled));
    }

    child::note_signals();
    let progress = ProgressLine::new(&output.folder, quiet, bundled);
    if progress.is_relayed() {
        relay::pipe(&mut command);
    }
    let mut child = match child::start(&mut command, bundled) {
        Ok(child) => child,
        Err(error) => {
            let failure = not_started(&args.command[0], &error);
            output.remove();
            if output.is_shared {
                manifest.notes.push(failure.to_string());
                manifest.exit_status = Some(failure.status());
                manifest.state = "complete".to_owned();
                manifest.ended_ns = Some(now().0);
                keep(&output.manifest, &manifest);
            }
            return Err(failure);
        }
    };
    let relay = relay::Relay::start(&mut child, &progress);
    let leads = output.leads_host();
    let durable = leads.then(|| Durable::start(&output.folder));
    let sampler = leads
        .then(|| start_sampler(&output.folder, &mut manifest, device))
        .flatten();
    let hang_after = manifest.hang_after_ns.filter(|after| *after > 0);
    let hang_after = hang_after.map(|after| Duration::from_nanos(after.cast_unsigned()));
    let newest = args.max_size.filter(|_| leads);
    let newest_host = output.is_shared.then_some(host.as_str());
    let running = Running {
        args,
        bundled,
        quiet,
        speaks,
        launch,
        watch: hang::Watch::new(&output.folder, hang_after),
        exports: exports::Exports::new(
            if speaks { &args.exports } else { &[] },
            &args.writing,
            &output.folder,
            args.schedule.is_some(),
        ),
        newest: newest.map(|bytes| newest::Newest::new(&output.folder, bytes, newest_host)),
        ending: None,
        output,
        manifest,
        switch,
        sampler,
        durable,
        progress,
    };
    running.until_it_ends(child, relay)
}

/// Everything of a recording whose command runs.
struct Running<'a> {
    args: &'a RecordArgs,
    bundled: bool,
    quiet: bool,
    /// Whether we print for all recorders of the launch, and look at the recording as a whole.
    speaks: bool,
    launch: Option<Launch>,
    output: Output,
    manifest: Manifest,
    switch: Switch,
    sampler: Option<Sampler>,
    durable: Option<Durable>,
    newest: Option<newest::Newest>,
    exports: exports::Exports,
    progress: ProgressLine,
    watch: hang::Watch,
    ending: Option<hang::Ending>,
}

impl Running<'_> {
    fn until_it_ends(mut self, mut child: Child, relay: relay::Relay) -> Result<i32, Failure> {
        let ended = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => {}
                Err(error) => return Err(Failure::new(format!("lost sight of the command: {error}"))),
            }
            child::pass_signals(&child);
            self.tick(&child);
            std::thread::sleep(POLL);
        };
        if let Some(ending) = &self.ending {
            ending.kill_processes();
        }
        relay.finish();
        let status = child::shell_status(ended);
        let hung = self.ending.is_some();
        self.end(status);
        Ok(if hung { hang::STATUS } else { status })
    }

    /// Whatever is to be done now and then.
    fn tick(&mut self, child: &Child) {
        for switched in self.switch.tick() {
            let sentence = switch::sentence(&switched);
            if !self.args.quiet {
                self.progress.suspend(|| say!("gputrace: {sentence}"));
            }
            self.manifest.notes.push(sentence);
            self.manifest.switches.push(switched);
            keep(&self.output.manifest, &self.manifest);
        }
        for failure in self.switch.take_failures() {
            self.progress.suspend(|| say!("gputrace: {failure}"));
            self.manifest.notes.push(failure);
        }
        if let Some(sampler) = &self.sampler {
            sampler.pause(!self.switch.is_on());
            if let Some(topology) = sampler.take_topology() {
                self.manifest.topology.push(topology);
                keep(&self.output.manifest, &self.manifest);
            }
        }
        if let Some(newest) = &mut self.newest {
            newest.tick();
        }
        for said in self.exports.tick() {
            self.progress.suspend(|| exports::tell(&said, self.quiet));
        }
        // Looking costs more with every process, so that not every recorder of a launch does.
        if self.speaks
            && let Some(counts) = self.progress.tick()
        {
            self.look_for_hangs(child, counts);
        }
        if let Some(ending) = &mut self.ending {
            ending.tick(child);
        }
    }

    fn look_for_hangs(&mut self, child: &Child, counts: Counts) {
        if !self.switch.is_on() {
            // Nothing grows, which says nothing.
            self.watch.rest();
            return;
        }
        match self.watch.look(counts) {
            hang::Seen::Nothing => {}
            hang::Seen::Hang(hangs) => {
                self.progress.suspend(|| hang::tell(&hangs));
                self.manifest.hangs = hangs;
                self.manifest.ended_on_hang = self.bundled || self.args.end_on_hang;
                keep(&self.output.manifest, &self.manifest);
                if self.manifest.ended_on_hang {
                    self.progress.suspend(|| say!("gputrace: ending the command"));
                    self.ending = Some(hang::Ending::begin(child, &self.output.folder));
                }
            }
            hang::Seen::GoesOn(after) => {
                let note = format!("the job stood still for {:.1} s and went on", after.as_secs_f64());
                self.progress.suspend(|| say!("gputrace: {note}"));
                let was = self.manifest.hangs.drain(..).next();
                let was = was.map(|hang| format!(": {}", gputrace_analyzer::hangs::text(&hang)));
                self.manifest
                    .notes
                    .push(format!("{note}{}", was.unwrap_or_default()));
                keep(&self.output.manifest, &self.manifest);
            }
        }
    }

    /// Closes the recording and shows it. Nothing here changes the command's status: a failed recording is said, on stderr.
    fn end(mut self, status: i32) {
        if let Some(sampler) = self.sampler.take() {
            let (topology, refused) = sampler.stop();
            self.manifest.topology.extend(topology);
            if let Some(refused) = refused {
                say!("gputrace: {refused}");
                self.manifest.notes.push(refused);
            }
        }
        if let Some(newest) = &mut self.newest {
            newest.look();
            self.manifest.losses.extend(newest.loss());
            self.manifest.notes.extend(newest.note());
        }
        // Before the manifest says that it is complete.
        let durable = self.durable.take();
        let durable = durable.unwrap_or_else(|| Durable::start(&self.output.folder));
        if let Err(error) = durable.finish() {
            let note = format!("what was recorded may not survive a power loss: {error}");
            anstream::eprintln!("gputrace: {note}");
            self.manifest.notes.push(note);
        }
        self.switch.remove();
        self.output.unmark();
        self.manifest.exit_status = Some(status);
        self.manifest.state = "complete".to_owned();
        self.manifest.ended_ns = Some(now().0);
        if status != 0 {
            say!(
                "gputrace: {} ended with status {status}",
                self.args.command[0].to_string_lossy()
            );
        }
        // Reading a long recording takes a while, and what is known already must not be lost meanwhile.
        if let Err(error) = write_json_durably(&self.output.manifest, &self.manifest) {
            return self.cannot_close(&error);
        }
        if !self.speaks {
            return;
        }
        if let Some(launch) = &self.launch {
            let missing = self.output.wait_for_others(launch.size, OTHERS_PATIENCE);
            if missing > 0 {
                let note =
                    format!("{missing} other recorders of this launch had not ended when this one had");
                say!("gputrace: {note}");
                self.manifest.notes.push(note);
            }
        }
        let last_line = self.progress.finish();
        if !self.quiet {
            say!("recorded: {last_line}");
        }
        let Some(recording) = self.count_rows() else {
            return;
        };
        for said in self.exports.finish(&recording) {
            exports::tell(&said, self.quiet);
        }
        if !self.quiet
            && let Some(Err(failure)) = say::as_far_as_possible(|| show(&self.output.folder, &recording))
        {
            say!("gputrace: {failure}");
        }
    }

    fn cannot_close(&self, error: &io::Error) {
        say!(
            "gputrace: {}: cannot be closed: {error}: what was written until then can be read",
            self.output.folder.display()
        );
    }

    /// Notes how many rows each process wrote. Gives the recording, as it can be read.
    fn count_rows(&mut self) -> Option<Recording> {
        let folder = &self.output.folder;
        let opened = if self.quiet {
            Recording::open(folder).map_err(|error| Failure::new(error.to_string()))
        } else {
            opening::open(std::slice::from_ref(folder))
        };
        // Of several hosts that saw one folder.
        let aligned = opened.and_then(|mut recording| {
            align(&mut recording, &ClockChoice::Estimate).map_err(Failure::new)?;
            Ok(recording)
        });
        let mut recording = match aligned {
            Ok(recording) => recording,
            Err(failure) => {
                say!("gputrace: {failure}");
                return None;
            }
        };
        self.manifest.clocks = clock_estimates(&recording);
        for process in recording.processes.iter().chain(&recording.hosts) {
            let rows = process
                .tables
                .row_counts()
                .into_iter()
                .filter(|(_, rows)| *rows > 0);
            let rows: BTreeMap<String, u64> = rows
                .map(|(table, rows)| (table.to_owned(), rows as u64))
                .collect();
            self.manifest.rows.insert(process.folder.clone(), rows);
        }
        if recording.processes.is_empty() {
            let note = "no process of the command used CUDA".to_owned();
            recording.notes.push(note.clone());
            self.manifest.notes.push(note);
        }
        if let Err(error) = write_json_durably(&self.output.manifest, &self.manifest) {
            self.cannot_close(&error);
        }
        recording.manifest.rows.clone_from(&self.manifest.rows);
        Some(recording)
    }
}

/// Begins to sample devices and host, where that is asked; without it the rest is recorded all the same.
fn start_sampler(folder: &Path, manifest: &mut Manifest, device: Device) -> Option<Sampler> {
    let asked = &manifest.options;
    let wanted = Wanted {
        hz: manifest.recorder.sample_hz,
        devices: asked.records(Kind::Devices).then_some(device),
        host: asked.records(Kind::Host),
        segment_bytes: asked.segment_bytes,
        keep_arguments: asked.keep_arguments,
    };
    if wanted.hz <= 0.0 || !(wanted.host || wanted.devices.is_some()) {
        return None;
    }
    match Sampler::start(folder, &manifest.host, &manifest.recording, wanted) {
        Ok(sampler) => Some(sampler),
        Err(error) => {
            manifest
                .notes
                .push(format!("no samples of devices and host: {error}"));
            None
        }
    }
}

/// Writes the manifest of a recording that goes on; its closing will tell where that is not possible.
fn keep(path: &Path, manifest: &Manifest) {
    drop(write_json(path, manifest));
}

/// The command to start: our own executable for a bundled workload.
fn command_line(args: &RecordArgs, bundled: bool) -> Result<Command, Failure> {
    let (program, arguments) = args
        .command
        .split_first()
        .ok_or_else(|| Failure::new("no command to record"))?;
    if !bundled {
        let mut command = Command::new(program);
        command.args(arguments);
        return Ok(command);
    }
    let executable = std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot tell where gputrace itself is: {error}")))?;
    let mut command = Command::new(executable);
    command.args(&args.command);
    Ok(command)
}

/// The variables by which the driver, NVTX and NCCL load the collector, and by which it knows where to write.
fn inject(command: &mut Command, collector: &Path, folder: &Path, recording: &str) {
    command
        .env("CUDA_INJECTION64_PATH", collector)
        .env("NVTX_INJECTION64_PATH", collector)
        .env("NCCL_PROFILER_PLUGIN", collector)
        .env(FOLDER_VARIABLE, folder)
        .env(RECORDING_VARIABLE, recording);
}

fn manifest(args: &RecordArgs, command: &Command, device: Device, asked: CollectorOptions) -> Manifest {
    let mut environment: BTreeMap<String, String> = std::env::vars_os()
        .chain(
            command
                .get_envs()
                .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))),
        )
        .map(|(key, value)| {
            (
                key.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        })
        .collect();
    environment.retain(|key, _| {
        ["NCCL_", "CUDA_", "SIMGPU_"]
            .iter()
            .any(|prefix| key.starts_with(prefix))
    });
    let mut manifest = Manifest {
        gputrace: env!("CARGO_PKG_VERSION").to_owned(),
        state: "recording".to_owned(),
        device: device.name().to_owned(),
        command: args
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        host: gethostname::gethostname().to_string_lossy().into_owned(),
        started_ns: now().0,
        hang_after_ns: Some(match args.hang_after {
            Some(seconds) if options::shows_hangs(&asked) => (seconds * 1e9) as i64,
            _ => 0,
        }),
        recorder: options::recorder(args, &asked),
        options: asked,
        environment,
        ..Manifest::new()
    };
    manifest.redact();
    manifest
}

fn announcement(device: Device, args: &RecordArgs, bundled: bool) -> String {
    match device {
        Device::Cuda => "recording on the GPUs of this machine".to_owned(),
        Device::Sim if bundled && args.device == crate::cli::DeviceChoice::Auto => {
            "no GPU found here: recording on simulated GPUs (--device cuda insists on real ones)".to_owned()
        }
        Device::Sim => "recording on simulated GPUs".to_owned(),
    }
}

fn not_started(program: &OsStr, error: &io::Error) -> Failure {
    let program = program.to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(format!(
            "{program}: command not found: check its spelling and PATH; nothing was recorded"
        ))
        .with_status(127),
        io::ErrorKind::PermissionDenied => Failure::new(format!(
            "{program}: cannot be run: {error}: is it executable? nothing was recorded"
        ))
        .with_status(126),
        _ => Failure::new(format!(
            "{program}: cannot be started: {error}; nothing was recorded"
        ))
        .with_status(126),
    }
}

/// Prints the tables, where the recording is, and what to do next.
fn show(folder: &Path, recording: &Recording) -> Result<(), Failure> {
    analyze::print_tables(recording)?;
    let here: PathBuf = std::env::current_dir()
        .ok()
        .and_then(|current| folder.strip_prefix(current).ok().map(Path::to_owned))
        .unwrap_or_else(|| folder.to_owned());
    let here = here.display();
    anstream::println!("\nRecording: {here}");
    anstream::println!("Next:      gputrace view {here}   (in a browser)");
    anstream::println!("           gputrace analyze {here} --json");
    anstream::println!(
        "           gputrace export {here} --format chrome -o trace.json.gz   (open at ui.perfetto.dev)"
    );
    Ok(())
}
