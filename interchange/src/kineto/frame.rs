//! What stands around `traceEvents`: whose trace it is, on which GPUs, from when on.

use gputrace_trace::manifest::Device;
use serde_json::Value;

use super::gputrace_members::OwnRecording;
use super::number::integer;
use super::scan::{Raw, RawText};
use super::text::{TextTrouble, decode};

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
    /// Of our own export what it says of the recording.
    pub(crate) own: Option<OwnRecording>,
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
    /// Notes a member that can't be used, once.
    fn not_used(&mut self, member: &str) {
        if !self.unread.iter().any(|known| known == member) {
            self.unread.push(member.to_owned());
        }
    }

    /// Takes a member in.
    pub(crate) fn member(&mut self, key: &[u8], value: Raw<'_>, trouble: &mut TextTrouble) {
        let parsed = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
        match (key, value) {
            (b"baseTimeNanoseconds", Raw::Scalar(text) | Raw::Text(RawText { bytes: text, .. })) => {
                // Beyond this no time could be told apart from damage (73 years).
                let possible = -(1 << 61)..1 << 61;
                match integer(text).filter(|base| possible.contains(base)) {
                    Some(base) => self.base_ns = base,
                    None => self.not_used("baseTimeNanoseconds"),
                }
            }
            (b"baseTimeNanoseconds", Raw::Nested(_)) => self.not_used("baseTimeNanoseconds"),
            (b"host_name" | b"hostname", Raw::Text(text)) => {
                self.host = Some(decode(text, trouble).into_owned());
            }
            (b"distributedInfo", Raw::Nested(bytes)) => match parsed(bytes) {
                Some(info) => {
                    let small = |key| number(&info, key).and_then(|value| u32::try_from(value).ok());
                    self.rank = small("rank");
                    self.world_size = small("world_size");
                    let said = |key| info.get(key).is_some_and(|value| !value.is_null());
                    if said("rank") && self.rank.is_none() {
                        self.not_used("the rank in distributedInfo");
                    }
                    if let (Some(rank), Some(size)) = (self.rank, self.world_size)
                        && rank >= size
                    {
                        let member =
                            format!("the world size in distributedInfo ({size}, with rank {rank} in it)");
                        self.not_used(&member);
                        self.world_size = None;
                    }
                }
                None => self.not_used("distributedInfo"),
            },
            (b"distributedInfo", Raw::Text(_)) => self.not_used("distributedInfo"),
            (b"gputrace", Raw::Nested(bytes)) => {
                self.own = parsed(bytes).as_ref().and_then(OwnRecording::read);
            }
            (b"deviceProperties", Raw::Nested(bytes)) => match parsed(bytes) {
                Some(Value::Array(list)) => self.devices = list.iter().map(device).collect(),
                Some(_) => {}
                None => self.not_used("deviceProperties"),
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_say_rank_and_devices() {
        let mut frame = Frame::default();
        let mut member = |key: &[u8], value| frame.member(key, value, &mut TextTrouble::default());
        member(
            b"distributedInfo",
            Raw::Nested(br#"{"backend": "nccl", "rank": 2, "world_size": 8}"#),
        );
        member(
            b"deviceProperties",
            Raw::Nested(br#"[{"id": 0, "name": "Tesla V100", "totalGlobalMem": 34079899648, "computeMajor": 7, "computeMinor": 0, "numSms": 80}]"#),
        );
        member(b"baseTimeNanoseconds", Raw::Scalar(b"1711964646000000000"));
        member(b"distributedInfo", Raw::Nested(b"{\"rank\": NaN}"));
        assert_eq!(
            (frame.rank, frame.world_size, frame.base_ns),
            (Some(2), Some(8), 1_711_964_646_000_000_000)
        );
        assert_eq!(frame.devices[0].1.compute_capability, Some((7, 0)));
        assert_eq!(frame.unread, ["distributedInfo"]);
    }

    #[test]
    fn a_hosts_name_has_no_escapes_left() {
        let (mut frame, mut trouble) = (Frame::default(), TextTrouble::default());
        let text = |bytes| Raw::Text(RawText { bytes, escaped: true });
        frame.member(
            b"host_name",
            text(br"rack\/n\u006fde-7 \ud83d\ude00"),
            &mut trouble,
        );
        assert_eq!(frame.host.as_deref(), Some("rack/node-7 😀"));
        assert_eq!((trouble.bad_escapes, trouble.not_utf8), (0, 0));
        frame.member(b"hostname", text(br"\ud83d"), &mut trouble);
        assert_eq!(
            (frame.host.as_deref(), trouble.bad_escapes),
            (Some("\u{fffd}"), 1)
        );
    }
}
