//! Clocks that the user knows: a file of hosts with their offsets.

use std::collections::{BTreeMap, BTreeSet};

use gputrace_trace::Recording;
use gputrace_trace::alignment::{Alignment, Course, HostClock, Knot};
use serde::Deserialize;

use crate::clock_groups::Group;

/// How one host's clock stands.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GivenClock {
    /// What it shows beyond the reference.
    pub offset_ns: i64,
    /// By how much that grows, of the time that passes: 1e-6 is a microsecond a second.
    pub drift: f64,
    /// When the clock showed this the offset was so; without it at the host's first stamp.
    pub at_ns: Option<i64>,
    /// The offset is right within this; without it exactly.
    pub half_width_ns: i64,
}

/// Clocks by host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GivenClocks {
    source: String,
    hosts: BTreeMap<String, GivenClock>,
}

impl GivenClocks {
    /// Of a file's text: a JSON object of host names to objects with `offset_ns`, and if known `drift`, `at_ns` and
    /// `half_width_ns`. `source` is the file's name.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str, source: &str) -> Result<Self, String> {
        let hosts: BTreeMap<String, GivenClock> = serde_json::from_str(text).map_err(|error| {
            format!(
                "{source}: is no list of clocks ({error}): write {{\"HOST\": {{\"offset_ns\": 1500, \"drift\": 2e-6}}, ...}}"
            )
        })?;
        for (host, clock) in &hosts {
            if clock.drift.is_nan() || clock.drift.abs() > 0.01 || clock.half_width_ns < 0 {
                return Err(format!(
                    "{source}: {host}: a drift is at most 0.01 either way (1e-6 is a microsecond a second), and half_width_ns no \
                     negative number"
                ));
            }
        }
        Ok(Self {
            source: source.to_owned(),
            hosts,
        })
    }

    /// The clocks of a recording's hosts; those of which nothing is said are islands of their own.
    pub(crate) fn alignment(&self, recording: &Recording) -> Result<(Vec<Group>, Alignment), String> {
        let mut groups: Vec<Group> = Vec::new();
        for (place, process) in recording.processes.iter().enumerate() {
            let host = &process.header.host;
            match groups.iter_mut().find(|group| group.host == *host) {
                Some(group) => group.processes.push(place),
                None => groups.push(Group {
                    host: host.clone(),
                    processes: vec![place],
                }),
            }
        }
        let here: BTreeSet<&str> = groups.iter().map(|group| group.host.as_str()).collect();
        if let Some(stranger) = self.hosts.keys().find(|host| !here.contains(host.as_str())) {
            let here: Vec<&str> = here.into_iter().collect();
            return Err(format!(
                "{}: no rank was recorded on host {stranger:?}: the recording's hosts are {}",
                self.source,
                here.join(", ")
            ));
        }
        // All that are given count from one reference, which need be none of them.
        let first = groups
            .iter()
            .position(|group| self.hosts.contains_key(&group.host));
        let clocks = groups.iter().enumerate().map(|(number, group)| {
            let own = u32::try_from(number).unwrap_or(u32::MAX);
            let Some(given) = self.hosts.get(&group.host) else {
                return HostClock {
                    host: group.host.clone(),
                    reference: own,
                    ..HostClock::default()
                };
            };
            let first_stamp = group.processes.iter().filter_map(|place| {
                let kernels = &recording.processes[*place].tables.kernels;
                kernels.start_ns.iter().min().map(|start| start.0)
            });
            let at_ns = given.at_ns.or_else(|| first_stamp.min()).unwrap_or(0);
            HostClock {
                host: group.host.clone(),
                reference: first.and_then(|first| u32::try_from(first).ok()).unwrap_or(own),
                course: straight(given.offset_ns, given.drift, at_ns, given.half_width_ns),
                from_ns: at_ns,
                to_ns: at_ns,
                ..HostClock::default()
            }
        });
        let alignment = Alignment {
            source: self.source.clone(),
            clocks: clocks.collect(),
        };
        Ok((groups, alignment))
    }
}

/// The course of a clock that is known: ahead by `offset_ns` when it showed `at_ns`, and more by `drift` of the time from there.
fn straight(offset_ns: i64, drift: f64, at_ns: i64, half_width_ns: i64) -> Course {
    // Far enough for any recording: ten days.
    const FAR_NS: i64 = 864_000_000_000_000;
    let knot = |away_ns: i64| Knot {
        local_ns: at_ns.saturating_add(away_ns),
        offset_ns: offset_ns.saturating_add((drift * away_ns as f64).round() as i64),
        half_width_ns,
        jump: false,
    };
    Course {
        knots: vec![knot(-FAR_NS), knot(0), knot(FAR_NS)],
        ..Course::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_clocks() {
        let given = GivenClocks::parse(
            r#"{"b": {"offset_ns": -5, "drift": 1e-6}, "a": {"offset_ns": 0}}"#,
            "f",
        )
        .unwrap();
        assert_eq!(given.hosts["b"].offset_ns, -5);
        for wrong in [
            "[]",
            "{\"a\": 5}",
            "{\"a\": {\"ofset_ns\": 5}}",
            "",
            "{\"a\": {\"drift\": 1.0}}",
        ] {
            let error = GivenClocks::parse(wrong, "clocks.json").unwrap_err();
            assert!(
                error.starts_with("clocks.json: ") && !error.contains('\n'),
                "{error}"
            );
        }
    }
}
