//! Sends and receives by communicator and pair of ranks.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::collectives::{BandwidthRange, Collective};

/// What one rank sent to another on one communicator.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TransferAnalysis {
    /// The communicator's hash, in hexadecimal.
    pub communicator: String,
    /// Its name, where it has one.
    pub communicator_name: Option<String>,
    /// The job's rank that sends; null where that end was not recorded.
    pub sender: Option<u32>,
    /// The job's rank that receives; null where that end was not recorded.
    pub receiver: Option<u32>,
    /// Transfers: a Send with its Recv.
    pub count: usize,
    /// Those of them in a kernel with other operations.
    pub shared: usize,
    /// Bytes of all.
    pub bytes: Option<u64>,
    /// Transfers whose ends' times can be compared.
    pub timed: usize,
    /// Over those: from the sender's kernel's start to the receiver's, where the sender came first.
    pub sender_wait_ns: i64,
    /// Over those: from the receiver's kernel's start to the sender's, where the receiver came first.
    pub receiver_wait_ns: i64,
    /// Over those: from when both were there to the later end of the two kernels.
    pub transfer_ns: i64,
    /// Those of them in which clocks are not exact enough to say which end came first.
    pub undecided: usize,
    /// How far off each of the three times may be because of the clocks (99 %).
    pub clock_error_ns: i64,
    /// What `bandwidth` lies between, where clocks differ by as much as they may.
    pub bandwidth_range: Option<BandwidthRange>,
    /// Bytes of those over `transfer_ns`, GB/s. Where kernels are shared their whole transfer counts: it is at least as much.
    pub bandwidth: Option<f64>,
}

/// Sums that [`TransferAnalysis`] is made of.
#[derive(Default)]
struct Sums {
    found: TransferAnalysis,
    timed_bytes: u64,
}

/// By pair; those that took longest first, with the waiting.
pub(crate) fn transfers(collectives: &[Collective]) -> Vec<TransferAnalysis> {
    let mut pairs: BTreeMap<(&str, Option<u32>, Option<u32>), Sums> = BTreeMap::new();
    for collective in collectives {
        if collective.sender.is_none() && collective.receiver.is_none() {
            continue;
        }
        let key = (
            collective.communicator.as_str(),
            collective.sender,
            collective.receiver,
        );
        let sums = pairs.entry(key).or_insert_with(|| Sums {
            found: TransferAnalysis {
                communicator: collective.communicator.clone(),
                communicator_name: collective.communicator_name.clone(),
                sender: collective.sender,
                receiver: collective.receiver,
                ..TransferAnalysis::default()
            },
            timed_bytes: 0,
        });
        let found = &mut sums.found;
        found.count += 1;
        found.shared += usize::from(collective.shared_kernel > 1);
        if let Some(bytes) = collective.bytes {
            found.bytes = Some(found.bytes.unwrap_or(0).saturating_add(bytes));
        }
        let participants = &collective.timing.participants;
        let Some(longest) = participants.iter().map(|end| end.transfer_ns).max() else {
            continue;
        };
        found.timed += 1;
        found.undecided += usize::from(collective.last_undecided.is_some());
        found.clock_error_ns = found
            .clock_error_ns
            .saturating_add(collective.timing.clock_error_ns);
        found.transfer_ns = found.transfer_ns.saturating_add(longest);
        sums.timed_bytes = sums.timed_bytes.saturating_add(collective.bytes.unwrap_or(0));
        for end in participants {
            let wait = if end.sends {
                &mut found.sender_wait_ns
            } else {
                &mut found.receiver_wait_ns
            };
            *wait = wait.saturating_add(end.wait_ns);
        }
    }
    let mut found: Vec<TransferAnalysis> = pairs
        .into_values()
        .map(|Sums { found, timed_bytes }| TransferAnalysis {
            // Bytes a nanosecond are GB/s.
            bandwidth_range: (timed_bytes > 0 && found.transfer_ns > 0)
                .then(|| BandwidthRange::of(timed_bytes, found.transfer_ns, found.clock_error_ns)),
            bandwidth: (timed_bytes > 0 && found.transfer_ns > 0)
                .then(|| timed_bytes as f64 / found.transfer_ns as f64),
            ..found
        })
        .collect();
    found.sort_by_key(|pair| {
        let waits = pair.sender_wait_ns.saturating_add(pair.receiver_wait_ns);
        std::cmp::Reverse(waits.saturating_add(pair.transfer_ns))
    });
    found
}
