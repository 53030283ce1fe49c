//! Floods of Chrome's trace events.

use std::fmt::Arguments;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// A trace of Chrome's events, written as it is made.
struct Trace {
    out: Box<dyn Write>,
    path: PathBuf,
    any: bool,
}

impl Trace {
    fn new(folder: &Path) -> Self {
        Self::called(folder, "rank0.json")
    }

    fn called(folder: &Path, name: &str) -> Self {
        let path = folder.join(name);
        let out = Box::new(BufWriter::new(File::create(&path).expect("a file")));
        Self::into(out, path)
    }

    fn into(out: Box<dyn Write>, path: PathBuf) -> Self {
        let mut trace = Self {
            out,
            path,
            any: false,
        };
        trace.raw(format_args!("{{\"traceEvents\":["));
        trace
    }

    fn raw(&mut self, text: Arguments<'_>) {
        self.out.write_fmt(text).expect("written");
    }

    fn event(&mut self, members: Arguments<'_>) {
        if std::mem::replace(&mut self.any, true) {
            self.raw(format_args!(",\n"));
        }
        self.raw(format_args!("{{{members}}}"));
    }

    /// A kernel of 5 us each 10 us.
    fn kernel(&mut self, at: usize, name: &str, device: usize, stream: usize) {
        let (ts, correlation) = (at * 10 + 5, at + 1);
        self.event(format_args!(
            r#""ph":"X","cat":"kernel","name":"{name}","pid":{device},"tid":{stream},"ts":{ts},"dur":5,"args":{{"device":{device},"stream":{stream},"correlation":{correlation}}}"#
        ));
    }

    /// The call that launched it.
    fn launch(&mut self, at: usize, pid: usize, thread: usize) {
        let (ts, correlation) = (at * 10, at + 1);
        self.event(format_args!(
            r#""ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":{pid},"tid":{thread},"ts":{ts},"dur":2,"args":{{"correlation":{correlation}}}"#
        ));
    }

    fn range(&mut self, category: &str, name: &str, ts: usize, dur: usize) {
        self.event(format_args!(
            r#""ph":"X","cat":"{category}","name":"{name}","pid":100,"tid":1,"ts":{ts},"dur":{dur}"#
        ));
    }

    /// A kernel of a collective, with more of what is said of it.
    fn collective(&mut self, at: usize, device: usize, more: Arguments<'_>) {
        let (ts, correlation) = (at * 10 + 5, at + 1);
        self.event(format_args!(
            r#""ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_f32_RING_LL","pid":{device},"tid":20,"ts":{ts},"dur":7,"args":{{"device":{device},"stream":20,"correlation":{correlation},"Collective name":"allreduce","In msg nelems":1000,"Out msg nelems":1000,"dtype":"Float","Group size":2,{more}}}"#
        ));
    }

    fn end(mut self) -> PathBuf {
        self.raw(format_args!("]}}"));
        self.out.flush().expect("written");
        self.path
    }
}

fn one_kernel(trace: &mut Trace) {
    trace.kernel(0, "gemm", 0, 7);
}

/// All that a device can have, of each.
pub(super) fn devices(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    for at in 0..count {
        trace.launch(2 * at, 100, 1);
        trace.kernel(2 * at, "gemm", at, 7);
        trace.launch(2 * at + 1, 100, 1);
        trace.collective(2 * at + 1, at, format_args!(r#""Process Group Name":"0""#));
        trace.event(format_args!(
            r#""ph":"i","name":"[memory]","pid":100,"tid":1,"ts":{at},"args":{{"Addr":{at},"Bytes":512,"Device Type":1,"Device Id":{at},"Total Allocated":512,"Total Reserved":1024}}"#
        ));
    }
    trace.end()
}

/// Devices that are described, beside their kernels.
pub(super) fn described_devices(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    for at in 0..count {
        trace.kernel(at, "gemm", at, 7);
    }
    trace.raw(format_args!("],\"deviceProperties\":["));
    for at in 0..count {
        let comma = if at > 0 { "," } else { "" };
        trace.raw(format_args!(r#"{comma}{{"id":{at},"name":"H200","numSms":132}}"#));
    }
    trace.end()
}

/// Devices that all wait for all that one thread does: a square, of which only a part can be told.
pub(super) fn devices_that_wait(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    for at in 0..count {
        trace.kernel(0, "gemm", at, 7);
        trace.range("cpu_op", &format!("op{at}"), 100 + at * 10, 8);
    }
    let last = count + 100;
    for device in 0..count {
        trace.launch(last + device, 100, 1);
        trace.kernel(last + device, "gemm", device, 7);
    }
    trace.end()
}

/// As many steps as devices: a square likewise.
pub(super) fn devices_and_steps(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    for at in 0..count {
        trace.range("user_annotation", &format!("ProfilerStep#{at}"), at * 10, 10);
        trace.kernel(at, "gemm", at, 7);
    }
    trace.end()
}

pub(super) fn streams(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    for at in 0..count {
        trace.launch(2 * at, 100, 1);
        trace.kernel(2 * at, "gemm", 0, at);
        trace.kernel(2 * at + 1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, at);
    }
    trace.end()
}

/// Streams with texts for numbers.
pub(super) fn named_streams(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    for at in 0..count {
        trace.event(format_args!(
            r#""ph":"X","cat":"kernel","name":"k","pid":0,"tid":"stream {at} of many","ts":{at},"dur":1,"args":{{"device":0}}"#
        ));
    }
    trace.end()
}

pub(super) fn threads(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    for at in 0..count {
        trace.launch(at, 100, at);
        trace.kernel(at, "gemm", 0, 7);
    }
    trace.end()
}

pub(super) fn processes(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    for at in 0..count {
        trace.launch(at, at, 1);
        trace.kernel(at, "gemm", 0, 7);
    }
    trace.end()
}

/// Processes as our own export of several ranks names them.
pub(super) fn exported_processes(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    for at in 0..count {
        trace.event(format_args!(
            r#""ph":"M","name":"process_name","pid":{at},"args":{{"name":"rank {at}","process":{at},"rank":{at},"world size":{count},"host":"h"}}"#
        ));
        trace.kernel(at, "gemm", at, 7);
    }
    trace.end()
}

pub(super) fn names(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    for at in 0..count {
        trace.kernel(
            at,
            &format!("void at::native::elementwise_kernel<{at}, 4, float>(int)"),
            0,
            7,
        );
    }
    trace.end()
}

/// Names of the host's, with escapes.
pub(super) fn escaped_names(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    one_kernel(&mut trace);
    for at in 0..count {
        trace.range("cpu_op", &format!(r#"op\u00e4 \"{at}\""#), at * 10, 5);
    }
    trace.end()
}

/// A kilobyte each, alike to their last letters, and all at one moment: nothing but the names tells them apart.
pub(super) fn long_names_at_one_time(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    let long = "x".repeat(1000);
    for at in 0..count {
        trace.event(format_args!(
            r#""ph":"X","cat":"kernel","name":"{long}{at}","pid":0,"tid":7,"ts":1,"dur":5,"args":{{"device":0,"stream":7,"correlation":1}}"#
        ));
    }
    trace.end()
}

pub(super) fn communicators(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    for at in 0..count {
        trace.kernel(2 * at, "gemm", 0, 7);
        trace.collective(
            2 * at + 1,
            0,
            format_args!(r#""Process Group Name":"group {at}","Process Group Ranks":"[0, {at}]","Seq":{at}"#),
        );
    }
    trace.end()
}

pub(super) fn collectives(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    for at in 0..count {
        trace.collective(at, 0, format_args!(r#""Process Group Name":"0""#));
    }
    trace.end()
}

/// Of one number, at one time.
pub(super) fn collectives_of_one_number(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    for _ in 0..count {
        trace.collective(0, 0, format_args!(r#""Process Group Name":"0","Seq":1"#));
    }
    trace.end()
}

pub(super) fn steps(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    // One operation that lasts through all of them.
    trace.event(format_args!(
        r#""ph":"X","cat":"kernel","name":"forever","pid":0,"tid":9,"ts":0,"dur":{},"args":{{"device":0,"stream":9}}"#,
        count * 10
    ));
    for at in 0..count {
        trace.range("user_annotation", &format!("ProfilerStep#{at}"), at * 10, 10);
        trace.kernel(at, "gemm", 0, 7);
    }
    trace.end()
}

pub(super) fn nested_ranges(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    trace.kernel(0, "gemm", 0, 7);
    for at in 0..count {
        trace.range(
            "user_annotation",
            &format!("level {at}"),
            100 + at,
            4 * count - 2 * at,
        );
    }
    let last = count / 5 + 20;
    trace.launch(last, 100, 1);
    trace.kernel(last, "gemm", 0, 7);
    trace.end()
}

/// All of one stream at one time.
pub(super) fn overlapping(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    for at in 0..count {
        trace.event(format_args!(
            r#""ph":"X","cat":"kernel","name":"k{}","pid":0,"tid":7,"ts":{at},"dur":{count},"args":{{"device":0,"stream":7}}"#,
            at % 10
        ));
    }
    trace.end()
}

pub(super) fn equal_correlations(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    for at in 0..count {
        trace.event(format_args!(
            r#""ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":100,"tid":1,"ts":{at},"dur":1,"args":{{"correlation":1}}"#
        ));
        trace.event(format_args!(
            r#""ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{at},"dur":1,"args":{{"device":0,"stream":7,"correlation":1}}"#
        ));
    }
    trace.end()
}

pub(super) fn flows(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    one_kernel(&mut trace);
    for at in 0..count {
        for phase in ["s", "f"] {
            trace.event(format_args!(
                r#""ph":"{phase}","id":{at},"pid":{at},"tid":1,"ts":{at},"cat":"ac2g","name":"ac2g""#
            ));
        }
    }
    trace.end()
}

pub(super) fn counters(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    one_kernel(&mut trace);
    for at in 0..count {
        trace.event(format_args!(
            r#""ph":"C","name":"counter {at}","pid":0,"ts":{at},"args":{{"value":{at}}}"#
        ));
    }
    trace.end()
}

/// One event with many values.
pub(super) fn values_of_one_counter(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    one_kernel(&mut trace);
    trace.raw(format_args!(
        ",{{\"ph\":\"C\",\"name\":\"counter\",\"pid\":0,\"ts\":1,\"args\":{{\"a\":0"
    ));
    for at in 0..count {
        trace.raw(format_args!(",\"v{at}\":{at}"));
    }
    trace.raw(format_args!("}}}}"));
    trace.end()
}

/// A short text that stands for gigabytes: each value's name is the counter's and its own.
pub(super) fn counters_that_explode(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    one_kernel(&mut trace);
    let long = "x".repeat(200_000);
    trace.raw(format_args!(
        ",{{\"ph\":\"C\",\"name\":\"{long}\",\"pid\":0,\"ts\":1,\"args\":{{\"a\":0"
    ));
    for at in 0..count {
        trace.raw(format_args!(",\"v{at}\":{at}"));
    }
    trace.raw(format_args!("}}}}"));
    trace.end()
}

pub(super) fn metadata(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    one_kernel(&mut trace);
    for at in 0..count {
        trace.event(format_args!(
            r#""ph":"M","name":"thread_name","pid":{at},"tid":{at},"args":{{"name":"thread {at}"}}"#
        ));
    }
    trace.end()
}

pub(super) fn categories(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    one_kernel(&mut trace);
    for at in 0..count {
        trace.event(format_args!(
            r#""ph":"X","cat":"c{at}","name":"x","pid":0,"tid":1,"ts":{at},"dur":1"#
        ));
        trace.event(format_args!(
            r#""ph":"B","cat":"c{at}_runtime","name":"x","pid":0,"tid":1,"ts":{at}"#
        ));
    }
    trace.end()
}

pub(super) fn python_functions(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    one_kernel(&mut trace);
    for at in 0..count {
        trace.event(format_args!(
            r#""ph":"X","cat":"python_function","name":"f.py({at}): f","pid":100,"tid":1,"ts":{at},"dur":1,"args":{{"Python id":{at}}}"#
        ));
    }
    trace.end()
}

pub(super) fn members_of_one_event(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    one_kernel(&mut trace);
    trace.raw(format_args!(",{{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":1,\"dur\":1,\"args\":{{\"device\":0"));
    for at in 0..count {
        trace.raw(format_args!(",\"stream\":{}", at % 9));
    }
    trace.raw(format_args!("}}}}"));
    trace.end()
}

pub(super) fn nesting(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    one_kernel(&mut trace);
    let (open, close) = ("[".repeat(count), "]".repeat(count));
    trace.raw(format_args!(",{{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"x\",\"pid\":1,\"tid\":1,\"ts\":1,\"dur\":1,\"args\":{{\"a\":"));
    trace.raw(format_args!("{open}{close}}}}}"));
    trace.end()
}

/// One string that is longer than any event may be.
pub(super) fn one_string(count: usize, folder: &Path) -> PathBuf {
    let mut trace = Trace::new(folder);
    one_kernel(&mut trace);
    trace.raw(format_args!(",{{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\""));
    let piece = "y".repeat(1000);
    for _ in 0..count {
        trace.raw(format_args!("{piece}"));
    }
    trace.raw(format_args!("\"}}"));
    trace.end()
}

pub(super) fn files(count: usize, folder: &Path) -> PathBuf {
    for rank in 0..count {
        let mut trace = Trace::called(folder, &format!("rank{rank}.json"));
        trace.kernel(0, "gemm", 0, 7);
        trace.collective(1, 0, format_args!(r#""Process Group Name":"0","Seq":1"#));
        trace.raw(format_args!(
            "],\"distributedInfo\":{{\"rank\":{rank},\"world_size\":{count}}},\"more\":["
        ));
        drop(trace.end());
    }
    folder.to_owned()
}
