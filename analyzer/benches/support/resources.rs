//! What a benchmark cost besides time: read from `/proc`.

/// Peak resident memory of this process since it began or since [`forget_peak`], in MiB.
pub fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap_or_default();
    let kib: f64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok())
        .unwrap_or(0.0);
    kib / 1024.0
}

/// User and system time of this process so far, in seconds.
pub fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> = after
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|number| number.parse().ok())
        .collect();
    ticks.iter().sum::<f64>() / 100.0
}

/// Lets [`peak_mib`] begin anew at what is resident now (`man 5 proc`, `clear_refs`).
#[allow(dead_code, reason = "each benchmark uses a part")]
pub fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").expect("/proc/self/clear_refs");
}
