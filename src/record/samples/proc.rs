//! Reading /proc: a process, a thread, the machine.

use std::fs;

use gputrace_trace::time::process_cpu_ns;

/// What the kernel has counted of a process until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessReading {
    /// CPU time of all its threads, those that have ended among them.
    pub cpu_ns: u64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Page faults that did.
    pub major_faults: u64,
    /// Memory in RAM now.
    pub resident_bytes: u64,
}

/// Reads a process; `None` when it is gone.
pub fn process(pid: u32) -> Option<ProcessReading> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&text, page_bytes()).map(|reading| ProcessReading {
        // To the nanosecond, where the file has hundredths of a second.
        cpu_ns: process_cpu_ns(pid).unwrap_or(reading.cpu_ns),
        ..reading
    })
}

fn page_bytes() -> u64 {
    // SAFETY: only asks.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The line of /proc/PID/stat; the command's name in it may hold anything.
fn parse_stat(text: &str, page_bytes: u64) -> Option<ProcessReading> {
    /// USER_HZ, which is 100 on every architecture.
    const TICK_NS: u64 = 10_000_000;
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // proc(5) numbers from 1 with pid and name before these: field n is at n - 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(ProcessReading {
        cpu_ns: (field(14)? + field(15)?).saturating_mul(TICK_NS),
        minor_faults: field(10)?,
        major_faults: field(12)?,
        resident_bytes: field(24)?.saturating_mul(page_bytes),
    })
}

/// What the kernel has counted of a thread until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadReading {
    /// Time on a processor.
    pub cpu_ns: u64,
    /// Time in which it could have run and had no processor.
    pub delay_ns: u64,
    /// How often it gave the processor up by itself.
    pub voluntary_switches: u64,
    /// How often it was taken away.
    pub involuntary_switches: u64,
}

/// Times of a thread, without its switches; `None` when it is gone or the kernel keeps no count.
pub fn thread_times(pid: u32, thread: u32) -> Option<ThreadReading> {
    parse_schedstat(&fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?)
}

fn parse_schedstat(text: &str) -> Option<ThreadReading> {
    let mut numbers = text.split_whitespace().map(str::parse);
    Some(ThreadReading {
        cpu_ns: numbers.next()?.ok()?,
        delay_ns: numbers.next()?.ok()?,
        ..ThreadReading::default()
    })
}

/// All of a thread.
pub fn thread(pid: u32, thread: u32) -> Option<ThreadReading> {
    let times = thread_times(pid, thread)?;
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).ok()?;
    Some(ThreadReading {
        voluntary_switches: labelled(&text, "voluntary_ctxt_switches:")?,
        involuntary_switches: labelled(&text, "nonvoluntary_ctxt_switches:")?,
        ..times
    })
}

/// The number behind a label at the start of a line.
fn labelled(text: &str, label: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Numbers of a process's threads.
pub fn threads(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect()
}

/// A thread's name.
pub fn thread_name(pid: u32, thread: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// The machine's processors until now: busy and all, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineReading {
    /// Ticks of all processors that were not idle.
    pub busy: u64,
    /// Ticks of all processors.
    pub all: u64,
}

/// Reads the first line of /proc/stat.
pub fn machine() -> Option<MachineReading> {
    parse_machine(&fs::read_to_string("/proc/stat").ok()?)
}

fn parse_machine(text: &str) -> Option<MachineReading> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already.
    let ticks: Vec<u64> = line
        .split_whitespace()
        .take(8)
        .filter_map(|word| word.parse().ok())
        .collect();
    let all = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some(MachineReading {
        busy: all - idle,
        all,
    })
}

/// The load average over a minute.
pub fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Memory that programs could still have.
pub fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    Some(labelled(&text, "MemAvailable:")? * 1024)
}

/// The value of a variable in a process's environment as it was when it began.
pub fn variable(pid: u32, name: &str) -> Option<Vec<u8>> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let prefix = [name.as_bytes(), b"="].concat();
    environment
        .split(|&byte| byte == 0)
        .find_map(|variable| variable.strip_prefix(prefix.as_slice()))
        .map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let text = "42 (a) b (c) S 1 42 42 0 -1 4194304 77 5 3 1 120 30 0 0 20 0 9 0 1234 99999 250 0\n";
        let expected = ProcessReading {
            cpu_ns: 1_500_000_000,
            minor_faults: 77,
            major_faults: 3,
            resident_bytes: 250 * 4096,
        };
        assert_eq!(parse_stat(text, 4096), Some(expected));
        assert_eq!(parse_stat("42 (short) S 1", 4096), None);
    }

    #[test]
    fn threads_and_machine_are_read() {
        let times = parse_schedstat("123456 789 12\n").expect("times");
        assert_eq!((times.cpu_ns, times.delay_ns), (123_456, 789));
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t9\n";
        assert_eq!(labelled(status, "voluntary_ctxt_switches:"), Some(7));
        assert_eq!(labelled(status, "nonvoluntary_ctxt_switches:"), Some(9));
        let machine = parse_machine("cpu  10 0 5 80 5 0 0 0 0 0\ncpu0 1 2 3\n");
        assert_eq!(machine, Some(MachineReading { busy: 15, all: 100 }));
    }

    #[test]
    fn we_see_ourselves() {
        let own = std::process::id();
        let before = process(own).expect("our own process");
        assert!(before.resident_bytes > 0);
        // Some work, so that there is something to count.
        let mut sum = 0u64;
        while process_cpu_ns(own).expect("our own time") < before.cpu_ns + 2_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let after = process(own).expect("our own process");
        assert!(after.cpu_ns >= before.cpu_ns + 2_000_000, "{before:?} {after:?}");
        assert!(threads(own).contains(&own));
        assert!(!thread_name(own, own).is_empty());
    }
}
