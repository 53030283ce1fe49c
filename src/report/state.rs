//! State of devices and host.

use gputrace_analyzer::{Analysis, DeviceState, HostState, Sampled};

use super::cells::or_dash;
use super::table::{Overflow, print_table};
use crate::text::{bytes, gigabytes_per_second, percent};

/// Rows that fit a screen; the JSON has all.
const MOST_ROWS: usize = 16;

fn mean_and_max(sampled: Option<&Sampled>, text: impl Fn(f64) -> String) -> String {
    or_dash(sampled, |sampled| {
        format!("{} (max {})", text(sampled.mean), text(sampled.max))
    })
}

fn device_row(device: &DeviceState, hosts: bool) -> Vec<String> {
    let value = |name: &str| device.values.get(name);
    let ranks: Vec<String> = device.ranks.iter().map(ToString::to_string).collect();
    let gpu = if hosts {
        format!("{} {}", device.host, device.index)
    } else {
        device.index.to_string()
    };
    // What passes over links, both ways together.
    let traffic = |link: &str| {
        let means = ["sent", "received"]
            .map(|way| value(&format!("{link}_{way}_bytes_per_second")).map(|sampled| sampled.mean));
        match means {
            [None, None] => "-".to_owned(),
            means => gigabytes_per_second(means.iter().flatten().sum::<f64>() / 1e9),
        }
    };
    let throttled: Vec<String> = device
        .throttled
        .iter()
        .map(|(why, share)| format!("{why} {:.0} %", share * 100.0))
        .collect();
    vec![
        gpu,
        if ranks.is_empty() {
            "-".to_owned()
        } else {
            ranks.join(", ")
        },
        mean_and_max(value("gpu_utilization_percent"), |share| format!("{share:.0} %")),
        or_dash(value("memory_used_bytes"), |sampled| bytes(sampled.max as u64)),
        mean_and_max(value("power_watts"), |watts| format!("{watts:.0} W")),
        or_dash(value("sm_clock_mhz"), |clock| {
            format!("{:.0} MHz (min {:.0})", clock.mean, clock.min)
        }),
        or_dash(value("temperature_celsius"), |degrees| {
            format!("{:.0} C", degrees.max)
        }),
        traffic("nvlink"),
        traffic("pcie"),
        if throttled.is_empty() {
            "-".to_owned()
        } else {
            throttled.join(", ")
        },
    ]
}

fn host_row(process: &HostState) -> Vec<String> {
    let value = |name: &str| process.values.get(name);
    let launcher = process.threads.iter().find(|thread| thread.launches);
    let of_launcher = |name: &str| launcher.and_then(|thread| thread.values.get(name));
    vec![
        or_dash(process.rank, |rank| rank.to_string()),
        process.pid.to_string(),
        mean_and_max(value("cpu_cores"), |cores| format!("{cores:.2}")),
        or_dash(of_launcher("cpu_cores"), |cpu| percent(Some(cpu.mean))),
        or_dash(of_launcher("run_delay_ratio"), |delay| percent(Some(delay.mean))),
        or_dash(of_launcher("involuntary_switches_per_second"), |switches| {
            format!("{:.0}", switches.mean)
        }),
        or_dash(value("major_faults_per_second"), |faults| {
            format!("{:.1}", faults.mean)
        }),
        or_dash(value("resident_bytes"), |resident| bytes(resident.max as u64)),
    ]
}

/// Prints both, where they were sampled.
pub(super) fn print(analysis: &Analysis) {
    let several_hosts = analysis
        .device_state
        .windows(2)
        .any(|pair| pair[0].host != pair[1].host);
    let rows: Vec<Vec<String>> = analysis
        .device_state
        .iter()
        .take(MOST_ROWS)
        .map(|device| device_row(device, several_hosts))
        .collect();
    if !rows.is_empty() {
        print_table(
            "Devices, as sampled during the run",
            &[
                "GPU",
                "rank",
                "utilisation",
                "memory",
                "power",
                "clock",
                "hottest",
                "NVLink",
                "PCIe",
                "held down by",
            ],
            &rows,
            Overflow::Continue,
        );
    }
    let rows: Vec<Vec<String>> = analysis.host_state.iter().take(MOST_ROWS).map(host_row).collect();
    if !rows.is_empty() {
        print_table(
            "Host, as sampled during the run (of the thread that launches: its CPU, and how long it lacked one)",
            &[
                "rank",
                "process",
                "cores",
                "launcher",
                "lacked CPU",
                "lost CPU/s",
                "disk faults/s",
                "memory",
            ],
            &rows,
            Overflow::Continue,
        );
    }
}
