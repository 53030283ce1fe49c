//! Which machine and which process id each process has in the file, and how the machines' clocks stand.
//!
//! Perfetto knows processes by machine and process id. Ids of a recording may be those of several hosts, of several containers
//! of one, or not known at all.

use std::io;

use gputrace_trace::alignment::HostClock;
use gputrace_trace::{Process, Recording};
use rustc_hash::{FxHashMap, FxHashSet};

use super::fields::{clocks, packet, system};
use super::packets::Packets;
use crate::export::layout::first_moment_ns;
use crate::export::protobuf::ProtoBuffer;

/// Where numbers begin for processes whose id is not known or taken: Linux gives none so high.
const FIRST_FREE_PID: u32 = 4_194_305;

/// The number that a process has in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    /// 0 for the first host, of which packets say nothing.
    pub(super) machine: u32,
    /// Unlike all others of the machine.
    pub(super) pid: u32,
}

/// All processes of a recording, the hosts' samples last.
pub(super) fn identities(recording: &Recording) -> Vec<Identity> {
    let mut machines: FxHashMap<&str, u32> = FxHashMap::default();
    let mut taken: FxHashSet<(u32, u32)> = FxHashSet::default();
    let mut next = FIRST_FREE_PID;
    recording
        .processes
        .iter()
        .chain(&recording.hosts)
        .map(|process| {
            let count = u32::try_from(machines.len()).unwrap_or(u32::MAX);
            let machine = *machines.entry(&process.header.host).or_insert(count);
            let mut pid = process.header.pid;
            while pid == 0 || i32::try_from(pid).is_err() || !taken.insert((machine, pid)) {
                pid = next;
                next += 1;
            }
            Identity { machine, pid }
        })
        .collect()
}

/// Says what the clock of a host showed at some moments of the file, before its stamps were moved to the reference's: a clock of its
/// own in Perfetto's table of clock snapshots.
pub(super) fn write_own_clock(
    clock: &HostClock,
    number: u32,
    moments: &[i64],
    shift_ns: i64,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    for moment in moments {
        let pairs = [
            (clocks::REALTIME, moment.saturating_add(shift_ns)),
            (
                clocks::FIRST_OWN + u64::from(number),
                clock.course.local_at(*moment).saturating_add(shift_ns),
            ),
        ];
        packets.packet(packet::NEEDS_STATE, |fields| {
            fields.message(packet::CLOCK_SNAPSHOT, |snapshot| {
                for (id, time) in pairs {
                    write_reading(snapshot, id, time);
                }
                snapshot.uint(clocks::PRIMARY, clocks::REALTIME);
            });
        })?;
    }
    Ok(())
}

/// What one clock shows, in a snapshot; no time is before the epoch.
fn write_reading(snapshot: &mut ProtoBuffer, id: u64, time_ns: i64) {
    snapshot.message(clocks::CLOCKS, |clock| {
        clock.uint(clocks::CLOCK_ID, id);
        clock.uint(clocks::CLOCK_TIMESTAMP, time_ns.max(0).cast_unsigned());
    });
}

/// Says what a machine is called and what its clocks say, on the current sequence. Times of the file are nanoseconds since
/// the epoch.
pub(super) fn write_machine(
    recording: &Recording,
    process: &Process,
    shift_ns: i64,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let readings = &process.tables.clocks;
    packets.packet(packet::NEEDS_STATE, |fields| {
        fields.message(packet::CLOCK_SNAPSHOT, |snapshot| {
            match readings.realtime_ns.first().filter(|_| shift_ns == 0) {
                // The first reading alone: a clock that was set later would contradict it.
                Some(realtime) => {
                    write_reading(snapshot, clocks::REALTIME, realtime.0);
                    write_reading(snapshot, clocks::MONOTONIC, readings.monotonic_ns[0]);
                    write_reading(snapshot, clocks::BOOTTIME, readings.boottime_ns[0]);
                }
                None => {
                    let first = first_moment_ns(recording).unwrap_or(0);
                    write_reading(snapshot, clocks::REALTIME, first.saturating_add(shift_ns));
                }
            }
            snapshot.uint(clocks::PRIMARY, clocks::REALTIME);
        });
    })?;
    let host = &process.header.host;
    if host.is_empty() {
        return Ok(());
    }
    packets.packet(packet::NEEDS_STATE, |fields| {
        fields.message(packet::SYSTEM_INFO, |info| {
            info.message(system::UTSNAME, |name| name.text(system::SYSNAME, "Linux"));
            info.text(system::MACHINE_NAME, host);
        });
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_processes_of_a_machine_have_one_number() {
        let process = |host: &str, pid| {
            let mut process = Process::default();
            process.header.host = host.to_owned();
            process.header.pid = pid;
            process
        };
        let recording = Recording {
            processes: vec![
                process("a", 7),
                process("b", 7),
                process("a", 7),
                process("a", 0),
                process("b", u32::MAX),
            ],
            hosts: vec![process("b", 9)],
            ..Recording::default()
        };
        let found: Vec<(u32, u32)> = identities(&recording)
            .iter()
            .map(|identity| (identity.machine, identity.pid))
            .collect();
        assert_eq!(
            found,
            [
                (0, 7),
                (1, 7),
                (0, FIRST_FREE_PID),
                (0, FIRST_FREE_PID + 1),
                (1, FIRST_FREE_PID + 2),
                (1, 9)
            ]
        );
    }
}
