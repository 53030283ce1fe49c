//! The machine's GPUs, as somebody who asks NVML tells of them.

use std::collections::BTreeMap;

use crate::clock::duration;
use crate::triggers::rules::{Kind, Rules};

/// What was seen of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its number, as NVML counts.
    pub device: u32,
    /// Its UUID, as NVML has it.
    pub uuid: Option<String>,
    /// The clock of its multiprocessors, MHz.
    pub clock_mhz: Option<u32>,
    /// Why that is held down by heat or power, if it is.
    pub throttled: Option<String>,
    /// An error that the driver told of.
    pub xid: Option<Xid>,
}

/// An error of the driver's: its number, where the driver says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xid(pub Option<u64>);

/// A GPU.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// What was seen last.
    pub last: Seen,
    /// Since when it is throttled, nanoseconds since 1970.
    throttled_ns: Option<i64>,
    has_told: bool,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    all: BTreeMap<u32, Device>,
}

impl Devices {
    /// Takes what was seen of one, and says what is wrong with it.
    pub fn take(&mut self, seen: &Seen, rules: &Rules, now_ns: i64) -> Option<(Kind, String)> {
        let device = self.all.entry(seen.device).or_default();
        if let Some(Xid(number)) = seen.xid {
            let which = number.map_or_else(
                || "an Xid whose number it does not say".to_owned(),
                |number| format!("Xid {number}"),
            );
            let title = format!("GPU {}: the driver told of {which}", seen.device);
            return Some((Kind::Xid, title));
        }
        device.last = seen.clone();
        let Some(why) = &seen.throttled else {
            device.throttled_ns = None;
            device.has_told = false;
            return None;
        };
        let since_ns = *device.throttled_ns.get_or_insert(now_ns);
        let for_ns = now_ns.saturating_sub(since_ns);
        if device.has_told || for_ns < (rules.throttling.for_s * 1e9) as i64 {
            return None;
        }
        device.has_told = true;
        let clock = seen.clock_mhz.map(|clock| format!(", at {clock} MHz"));
        Some((
            Kind::Throttling,
            format!(
                "GPU {} is throttled ({why}) for {}{}",
                seen.device,
                duration(for_ns),
                clock.unwrap_or_default()
            ),
        ))
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, device: u32) -> Option<&Device> {
        self.all.get(&device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttling_is_told_once_and_after_a_while() {
        let (mut devices, rules) = (Devices::default(), Rules::default());
        let second = 1_000_000_000;
        let seen = |throttled: bool| Seen {
            device: 3,
            clock_mhz: Some(900),
            throttled: throttled.then(|| "power brake".to_owned()),
            ..Seen::default()
        };
        let told = |devices: &mut Devices, range: std::ops::Range<i64>, on: bool| -> Vec<String> {
            range
                .filter_map(|at| devices.take(&seen(on), &rules, at * second))
                .map(|(_, title)| title)
                .collect()
        };
        let first = told(&mut devices, 0..60, true);
        assert_eq!(first, ["GPU 3 is throttled (power brake) for 5.0 s, at 900 MHz"]);
        assert!(told(&mut devices, 60..61, false).is_empty());
        // Moments of it are usual.
        for at in 0..30 {
            assert!(told(&mut devices, 70 + at * 10..74 + at * 10, true).is_empty());
            assert!(told(&mut devices, 74 + at * 10..75 + at * 10, false).is_empty());
        }
        let xid = Seen {
            xid: Some(Xid(Some(79))),
            ..seen(false)
        };
        let (kind, title) = devices.take(&xid, &rules, 0).expect("told");
        assert_eq!(
            (kind, title.as_str()),
            (Kind::Xid, "GPU 3: the driver told of Xid 79")
        );
        let unknown = Seen {
            xid: Some(Xid(None)),
            ..seen(false)
        };
        let (kind, title) = devices.take(&unknown, &rules, 0).expect("told");
        assert_eq!(
            (kind, title.as_str()),
            (
                Kind::Xid,
                "GPU 3: the driver told of an Xid whose number it does not say"
            )
        );
    }
}
