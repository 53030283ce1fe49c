//! What happens within NCCL's operations, on request: steps of the proxy threads, and kernels by channel.

use std::collections::HashMap;

use gputrace_trace::tables::{NcclChannel, NcclProxyStep};
use gputrace_trace::{DurationNs, TimeNs};

use super::operations::Names;
use crate::nccl::{Detail, DetailKind};

/// What may be open at once; more are lost and counted.
const MOST_OPEN: usize = 1 << 16;

/// ncclProfilerEventState_v5_t of a proxy's step, and of a kernel's channel and phase.
const SEND_GPU_WAIT: u64 = 8;
const SEND_WAIT: u64 = 9;
const RECEIVE_WAIT: u64 = 10;
const RECEIVE_FLUSH_WAIT: u64 = 11;
const RECEIVE_GPU_WAIT: u64 = 12;
const SEND_PEER_WAIT: u64 = 20;
const KERNEL_CHANNEL_STOP: u64 = 22;
const KERNEL_PHASE_STOP: u64 = 31;

/// Something that has begun.
struct Open {
    detail: Detail,
    /// The state that it is in, and since when.
    state: Option<(u64, i64)>,
    /// Time in each of gpu, peer, network, flush.
    spent_ns: [Option<i64>; 4],
    /// Bytes of a step, or the device's time at the end.
    value: Option<u64>,
}

/// Which of [`Open::spent_ns`] a state counts for.
fn place(state: u64) -> Option<usize> {
    match state {
        SEND_GPU_WAIT | RECEIVE_GPU_WAIT => Some(0),
        SEND_PEER_WAIT => Some(1),
        SEND_WAIT | RECEIVE_WAIT => Some(2),
        RECEIVE_FLUSH_WAIT => Some(3),
        _ => None,
    }
}

impl Open {
    /// The state that it was in ends.
    fn leave(&mut self, time_ns: i64) {
        if let Some((state, since)) = self.state.take()
            && let Some(place) = place(state)
        {
            *self.spent_ns[place].get_or_insert(0) += time_ns - since;
        }
    }
}

/// What is open.
#[derive(Default)]
pub(super) struct Details {
    open: HashMap<u64, Open>,
    pub(super) lost: u64,
    /// Rows that are done.
    pub(super) channels: Vec<NcclChannel>,
    pub(super) proxy: Vec<NcclProxyStep>,
}

impl Details {
    pub(super) fn begin(&mut self, fields: &[u64]) {
        let Some(mut detail) = Detail::read(fields) else {
            return;
        };
        if self.open.len() >= MOST_OPEN {
            self.lost += 1;
            return;
        }
        // A phase is of an operation, or of its kernel on the channel.
        if detail.kind == DetailKind::Phase
            && let Some(channel) = self.open.get(&detail.parent)
        {
            detail.parent = channel.detail.parent;
        }
        let open = Open {
            detail,
            state: None,
            spent_ns: [None; 4],
            value: None,
        };
        self.open.insert(detail.number, open);
    }

    pub(super) fn change(&mut self, fields: &[u64]) {
        let [number, state, time_ns, value] = [fields[0], fields[1], fields[2], fields[3]];
        let Some(open) = self.open.get_mut(&number) else {
            return;
        };
        open.leave(time_ns.cast_signed());
        open.state = Some((state, time_ns.cast_signed()));
        match state {
            KERNEL_CHANNEL_STOP | KERNEL_PHASE_STOP => open.value = Some(value),
            SEND_WAIT | RECEIVE_WAIT | RECEIVE_FLUSH_WAIT if value > 0 => open.value = Some(value),
            _ => {}
        }
    }

    pub(super) fn end(&mut self, fields: &[u64], thread: u32, names: &Names<'_>) {
        let (number, end_ns) = (fields[0], fields[1].cast_signed());
        let Some(mut open) = self.open.remove(&number) else {
            return;
        };
        open.leave(end_ns);
        let detail = open.detail;
        let start_ns = TimeNs(detail.start_ns);
        let duration_ns = DurationNs(end_ns - detail.start_ns);
        let [first, second, third, fourth] = detail.values;
        let parent = (detail.parent != 0).then_some(detail.parent);
        let spent = |place: usize| open.spent_ns[place].map(DurationNs);
        match detail.kind {
            DetailKind::Channel | DetailKind::Phase => self.channels.push(NcclChannel {
                start_ns,
                duration_ns,
                operation: parent,
                communicator: detail.communicator,
                rank: detail.rank,
                channel: first as u8,
                phase: (detail.kind == DetailKind::Phase).then(|| names.get(third)),
                device_start_ns: second,
                device_end_ns: open.value,
            }),
            DetailKind::ProxyOperation => self.proxy.push(NcclProxyStep {
                start_ns,
                duration_ns,
                number,
                parent,
                communicator: detail.communicator,
                rank: detail.rank,
                thread,
                step: None,
                channel: Some(first as u8),
                sends: Some((first >> 8) as u8),
                peer: Some((second as u32).cast_signed()),
                steps: Some(third as u32),
                bytes: Some(fourth),
                ..NcclProxyStep::default()
            }),
            DetailKind::ProxyStep => self.proxy.push(NcclProxyStep {
                start_ns,
                duration_ns,
                number,
                parent,
                communicator: detail.communicator,
                rank: detail.rank,
                thread,
                step: Some(first as u32),
                bytes: open.value,
                gpu_wait_ns: spent(0),
                peer_wait_ns: spent(1),
                network_ns: spent(2),
                flush_ns: spent(3),
                ..NcclProxyStep::default()
            }),
        }
    }
}
