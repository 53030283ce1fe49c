//! What stands around `traceEvents`: whose trace it is, on which GPUs, from when on.

use gputrace_trace::manifest::Device;
use serde_json::Value;

use super::number::integer;
use super::scan::Raw;

/// The members of the outermost object that are used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame {
    pub(crate) rank: Option<u32>,
    pub(crate) world_size: Option<u32>,
    pub(crate) host: Option<String>,
    /// Each with the rank that our own export of several ranks says it is of.
    pub(crate) devices: Vec<(Option<u32>, Device)>,
    /// All times count from here, nanoseconds since the epoch.
    pub(crate) base_ns: i64,
    /// `traceEvents` was there.
    pub(crate) has_events: bool,
    /// Members that could not be read.
    pub(crate) unread: Vec<String>,
}

fn number(value: &Value, key: &str) -> Option<u64> {
    value.get(key).and_then(Value::as_u64)
}

fn device(properties: &Value) -> (Option<u32>, Device) {
    let small = |key| number(properties, key).and_then(|value| u32::try_from(value).ok());
    let device = Device {
        index: small("id").unwrap_or(0),
        name: properties
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        compute_capability: small("computeMajor").zip(small("computeMinor")),
        memory_bytes: number(properties, "totalGlobalMem"),
        multiprocessors: small("numSms"),
        ..Device::default()
    };
    (small("process rank"), device)
}

impl Frame {
    /// Takes a member in.
    pub(crate) fn member(&mut self, key: &[u8], value: Raw<'_>) {
        let parsed = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
        match (key, value) {
            (b"baseTimeNanoseconds", Raw::Scalar(text)) => self.base_ns = integer(text).unwrap_or(0),
            (b"host_name" | b"hostname", Raw::Text(text)) => {
                self.host = Some(String::from_utf8_lossy(text.bytes).into_owned());
            }
            (b"distributedInfo", Raw::Nested(bytes)) => match parsed(bytes) {
                Some(info) => {
                    let small = |key| number(&info, key).and_then(|value| u32::try_from(value).ok());
                    self.rank = small("rank");
                    self.world_size = small("world_size");
                }
                None => self.unread.push("distributedInfo".to_owned()),
            },
            (b"deviceProperties", Raw::Nested(bytes)) => match parsed(bytes) {
                Some(Value::Array(list)) => self.devices = list.iter().map(device).collect(),
                Some(_) => {}
                None => self.unread.push("deviceProperties".to_owned()),
            },
            _ => {}
        }
    }
}

/// The rank that a file's name gives: "worker3_step_12.pt.trace.json", "rank-3.json.gz", "trace_rank3.json".
pub(crate) fn rank_in_name(file_name: &str) -> Option<u32> {
    let lower = file_name.to_ascii_lowercase();
    for word in ["rank", "worker", "gpu"] {
        let mut from = 0;
        while let Some(found) = lower[from..].find(word) {
            let after = lower[from + found + word.len()..].trim_start_matches(['_', '-', '.', '=', ' ']);
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            if let Some(rank) = after[..digits].parse().ok().filter(|rank| *rank < 1 << 20) {
                return Some(rank);
            }
            from += found + word.len();
        }
    }
    // TensorBoard's handler writes HOST_PID.TIME.pt.trace.json: no rank in that. "3.json" is one.
    let stem = lower.split('.').next().unwrap_or_default();
    stem.parse().ok().filter(|rank| *rank < 1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_stand_in_names_in_many_ways() {
        for (name, rank) in [
            ("worker3_step_12.1694128201545.pt.trace.json.gz", Some(3)),
            ("rank-12.json", Some(12)),
            ("trace_rank_0_step5.json", Some(0)),
            ("resnet.Rank7.pt.trace.json", Some(7)),
            ("4.json.gz", Some(4)),
            ("gpuhost_1234.1700000000000.pt.trace.json", None),
            ("nccl_data.json.gz", None),
            ("frank.json", None),
            ("trace_20240101.json", None),
        ] {
            assert_eq!(rank_in_name(name), rank, "{name}");
        }
    }

    #[test]
    fn members_say_rank_and_devices() {
        let mut frame = Frame::default();
        frame.member(
            b"distributedInfo",
            Raw::Nested(br#"{"backend": "nccl", "rank": 2, "world_size": 8}"#),
        );
        frame.member(
            b"deviceProperties",
            Raw::Nested(br#"[{"id": 0, "name": "Tesla V100", "totalGlobalMem": 34079899648, "computeMajor": 7, "computeMinor": 0, "numSms": 80}]"#),
        );
        frame.member(b"baseTimeNanoseconds", Raw::Scalar(b"1711964646000000000"));
        assert_eq!(
            (frame.rank, frame.world_size, frame.base_ns),
            (Some(2), Some(8), 1_711_964_646_000_000_000)
        );
        assert_eq!(frame.devices[0].1.compute_capability, Some((7, 0)));
        frame.member(b"distributedInfo", Raw::Nested(b"{\"rank\": NaN}"));
        assert_eq!(frame.unread, ["distributedInfo"]);
    }
}
