//! NCCL's events on their way to the writer: the fields of their records. Texts are numbers.

use super::types::Function;

/// Who told of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Source {
    /// The plugin, as it was put into a kernel (Coll and P2p).
    Plugin = 0,
    /// The plugin, but only the call (CollApi and P2pApi).
    Call = 1,
    /// The plugin: it is done by copies (CeColl).
    CopyEngine = 2,
    /// NVTX alone.
    Nvtx = 3,
}

fn there(field: u64) -> Option<u64> {
    (field != 0).then_some(field)
}

fn word(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// Leaves off the zeros at the end, which readers fill in.
pub(super) fn trimmed(fields: &[u64]) -> &[u64] {
    let count = fields
        .iter()
        .rposition(|field| *field != 0)
        .map_or(0, |last| last + 1);
    &fields[..count]
}

/// A call of the program's as NVTX tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// A number of its own, from 1 on.
    pub(crate) number: u64,
    pub(crate) function: Function,
    /// 0 where NCCL does not say.
    pub(crate) communicator: u64,
    /// Bytes of the call's count.
    pub(crate) bytes: u64,
    /// ncclRedOp_t; all that programs made themselves are 5.
    pub(crate) reduction: Option<u8>,
    /// Root or peer.
    pub(crate) end: i32,
}

const CALL_FIELDS: usize = 3;

/// The fields of a call, without its communicator; zeros for none.
fn call_fields(call: Option<&Call>) -> [u64; CALL_FIELDS] {
    call.map_or([0; CALL_FIELDS], |call| {
        let reduction = call.reduction.map_or(0, |reduction| u32::from(reduction) + 1);
        let what = u32::from(call.function as u8) | reduction << 8;
        [call.number, word(what, call.end.cast_unsigned()), call.bytes]
    })
}

fn read_call(fields: &[u64], communicator: u64) -> Option<Call> {
    Some(Call {
        number: there(fields[0])?,
        function: Function::from_schema(fields[1] & 0xff)?,
        communicator,
        bytes: fields[2],
        reduction: ((fields[1] >> 8) as u8).checked_sub(1),
        end: ((fields[1] >> 32) as u32).cast_signed(),
    })
}

/// An operation that NCCL has enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) source: Source,
    pub(crate) start_ns: i64,
    pub(crate) duration_ns: i64,
    pub(crate) communicator: u64,
    pub(crate) rank: u32,
    pub(crate) sequence: Option<u64>,
    pub(crate) function: u64,
    pub(crate) datatype: u64,
    pub(crate) count: u64,
    pub(crate) root: Option<i32>,
    pub(crate) peer: Option<i32>,
    pub(crate) algorithm: Option<u64>,
    pub(crate) protocol: Option<u64>,
    pub(crate) variant: Option<u64>,
    pub(crate) channels: u8,
    pub(crate) warps: u8,
    pub(crate) symmetric: bool,
    pub(crate) plan: Option<u64>,
    pub(crate) stream: Option<u64>,
    pub(crate) tag: Option<u64>,
    /// The number of its call's [`Api`].
    pub(crate) api: Option<u64>,
    /// Its own number: that of [`Detail`]s about it.
    pub(crate) number: u64,
    /// Where it has no [`Api`].
    pub(crate) call: Option<Call>,
}

const HAS_SEQUENCE: u64 = 1 << 16;
const HAS_ROOT: u64 = 1 << 17;
const HAS_PEER: u64 = 1 << 18;
const IS_SYMMETRIC: u64 = 1 << 19;

impl Operation {
    pub(super) fn fields(&self) -> [u64; 20] {
        let flag = |flag: bool, bit: u64| if flag { bit } else { 0 };
        let what = word(u32::from(self.channels) | u32::from(self.warps) << 8, self.rank)
            | (self.source as u64) << 24
            | flag(self.sequence.is_some(), HAS_SEQUENCE)
            | flag(self.root.is_some(), HAS_ROOT)
            | flag(self.peer.is_some(), HAS_PEER)
            | flag(self.symmetric, IS_SYMMETRIC);
        let end = self.root.or(self.peer).unwrap_or_default();
        let [call, of_call, bytes] = call_fields(self.call.as_ref());
        [
            what,
            self.start_ns.cast_unsigned(),
            self.duration_ns.cast_unsigned(),
            self.communicator,
            self.sequence.unwrap_or_default(),
            self.function,
            self.datatype,
            self.count,
            u64::from(end.cast_unsigned()),
            self.number,
            // No text that is there has number 0, no plan, no stream but the default one.
            self.plan.unwrap_or_default(),
            self.api.unwrap_or_default(),
            self.algorithm.unwrap_or_default(),
            self.protocol.unwrap_or_default(),
            self.stream.unwrap_or_default(),
            self.tag.unwrap_or_default(),
            self.variant.unwrap_or_default(),
            call,
            of_call,
            bytes,
        ]
    }

    /// From a record's fields.
    pub(crate) fn read(fields: &[u64]) -> Self {
        let what = fields[0];
        let end = (fields[8] as u32).cast_signed();
        Self {
            source: match (what >> 24) as u8 {
                1 => Source::Call,
                2 => Source::CopyEngine,
                3 => Source::Nvtx,
                _ => Source::Plugin,
            },
            start_ns: fields[1].cast_signed(),
            duration_ns: fields[2].cast_signed(),
            communicator: fields[3],
            rank: (what >> 32) as u32,
            sequence: (what & HAS_SEQUENCE != 0).then_some(fields[4]),
            function: fields[5],
            datatype: fields[6],
            count: fields[7],
            root: (what & HAS_ROOT != 0).then_some(end),
            peer: (what & HAS_PEER != 0).then_some(end),
            number: fields[9],
            plan: there(fields[10]),
            api: there(fields[11]),
            algorithm: there(fields[12]),
            protocol: there(fields[13]),
            stream: there(fields[14]),
            tag: there(fields[15]),
            variant: there(fields[16]),
            channels: what as u8,
            warps: (what >> 8) as u8,
            symmetric: what & IS_SYMMETRIC != 0,
            call: read_call(&fields[17..], fields[3]),
        }
    }
}

/// A call of the program's as the plugin tells of it (CollApi and P2pApi).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Api {
    /// Its own number, from 1 on.
    pub(crate) number: u64,
    /// The group of calls that it belongs to.
    pub(crate) group: u64,
    pub(crate) start_ns: i64,
    pub(crate) communicator: u64,
    pub(crate) rank: u32,
    pub(crate) function: u64,
    pub(crate) datatype: u64,
    pub(crate) count: u64,
    pub(crate) root: Option<i32>,
    pub(crate) is_p2p: bool,
    pub(crate) stream: Option<u64>,
    pub(crate) graph_captured: bool,
    pub(crate) tag: Option<u64>,
    pub(crate) call: Option<Call>,
}

impl Api {
    pub(super) fn fields(&self) -> [u64; 14] {
        let what = u64::from(self.root.is_some())
            | u64::from(self.is_p2p) << 1
            | u64::from(self.graph_captured) << 2
            | u64::from(self.rank) << 32;
        let [call, of_call, bytes] = call_fields(self.call.as_ref());
        [
            what,
            self.number,
            self.group,
            self.start_ns.cast_unsigned(),
            self.communicator,
            self.function,
            self.datatype,
            self.count,
            word(self.root.unwrap_or_default().cast_unsigned(), 0),
            self.stream.unwrap_or_default(),
            call,
            of_call,
            bytes,
            self.tag.unwrap_or_default(),
        ]
    }

    /// From a record's fields.
    pub(crate) fn read(fields: &[u64]) -> Self {
        let what = fields[0];
        Self {
            number: fields[1],
            group: fields[2],
            start_ns: fields[3].cast_signed(),
            communicator: fields[4],
            rank: (what >> 32) as u32,
            function: fields[5],
            datatype: fields[6],
            count: fields[7],
            root: (what & 1 != 0).then_some((fields[8] as u32).cast_signed()),
            is_p2p: what & 2 != 0,
            graph_captured: what & 4 != 0,
            stream: there(fields[9]),
            tag: there(fields[13]),
            call: read_call(&fields[10..], fields[4]),
        }
    }
}

/// A communicator that was set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Communicator {
    pub(crate) created_ns: i64,
    pub(crate) communicator: u64,
    pub(crate) name: Option<u64>,
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
    pub(crate) nodes: u32,
    /// The plugin interface's version by which NCCL told; 0 where NVTX did.
    pub(crate) profiler_version: u32,
}

impl Communicator {
    pub(super) fn fields(&self) -> [u64; 5] {
        [
            self.created_ns.cast_unsigned(),
            self.communicator,
            self.name.unwrap_or_default(),
            word(self.rank, self.ranks),
            word(self.nodes, self.profiler_version),
        ]
    }

    /// From a record's fields.
    pub(crate) fn read(fields: &[u64]) -> Self {
        Self {
            created_ns: fields[0].cast_signed(),
            communicator: fields[1],
            name: there(fields[2]),
            rank: fields[3] as u32,
            ranks: (fields[3] >> 32) as u32,
            nodes: fields[4] as u32,
            profiler_version: (fields[4] >> 32) as u32,
        }
    }
}

/// What a [`Detail`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum DetailKind {
    /// What the proxy does for one channel of an operation: `values` are channel, peer, steps and bytes of a chunk; sign
    /// of sending in bit 8 of the channel's.
    ProxyOperation = 1,
    /// One step of that: the step's number.
    ProxyStep = 2,
    /// The kernel on one channel: channel and the device's time.
    Channel = 3,
    /// A phase of that: channel, the device's time, the phase's name.
    Phase = 4,
}

/// The beginning of something within an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Detail {
    pub(crate) kind: DetailKind,
    pub(crate) number: u64,
    /// The operation's number, or of a step that of what the proxy does; 0 if another process's.
    pub(crate) parent: u64,
    pub(crate) start_ns: i64,
    pub(crate) communicator: u64,
    pub(crate) rank: u32,
    pub(crate) values: [u64; 4],
}

impl Detail {
    pub(super) fn fields(&self) -> [u64; 9] {
        let [a, b, c, d] = self.values;
        let what = word(self.kind as u32, self.rank);
        let start = self.start_ns.cast_unsigned();
        [
            what,
            self.number,
            self.parent,
            start,
            self.communicator,
            a,
            b,
            c,
            d,
        ]
    }

    /// From a record's fields.
    pub(crate) fn read(fields: &[u64]) -> Option<Self> {
        Some(Self {
            kind: match fields[0] as u8 {
                1 => DetailKind::ProxyOperation,
                2 => DetailKind::ProxyStep,
                3 => DetailKind::Channel,
                4 => DetailKind::Phase,
                _ => return None,
            },
            number: fields[1],
            parent: fields[2],
            start_ns: fields[3].cast_signed(),
            communicator: fields[4],
            rank: (fields[0] >> 32) as u32,
            values: [fields[5], fields[6], fields[7], fields[8]],
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::host_events::MOST_FIELDS;

    fn read_back(fields: &[u64]) -> [u64; MOST_FIELDS] {
        let mut read = [0; MOST_FIELDS];
        let fields = trimmed(fields);
        read[..fields.len()].copy_from_slice(fields);
        read
    }

    fn some(value: u64) -> Option<u64> {
        Some(value).filter(|value| *value != 0)
    }

    proptest! {
        #[test]
        fn operations_and_calls_come_back_as_they_were(
            (a, b, c, d) in (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()),
            (small, end, flags) in (any::<u8>(), any::<i32>(), any::<u8>()),
        ) {
            let bit = |bit: u8| flags & 1 << bit != 0;
            let call = bit(0).then_some(Call {
                number: a.max(1),
                function: Function::Reduce,
                communicator: b,
                bytes: c,
                reduction: bit(1).then_some(small % 6),
                end,
            });
            let operation = Operation {
                source: [Source::Plugin, Source::Call, Source::CopyEngine, Source::Nvtx][usize::from(small % 4)],
                start_ns: a.cast_signed(),
                duration_ns: b.cast_signed(),
                communicator: b,
                rank: c as u32,
                sequence: bit(2).then_some(d),
                function: d,
                datatype: c,
                count: b,
                root: bit(3).then_some(end),
                peer: (!bit(3) && bit(4)).then_some(end),
                algorithm: some(a),
                protocol: some(b),
                variant: some(c),
                channels: small,
                warps: small / 2,
                symmetric: bit(5),
                plan: some(d),
                stream: some(c),
                tag: some(b),
                api: some(a),
                number: d,
                call,
            };
            prop_assert_eq!(Operation::read(&read_back(&operation.fields())), operation);
            let api = Api {
                number: a,
                group: d,
                start_ns: c.cast_signed(),
                communicator: b,
                rank: d as u32,
                function: a,
                datatype: b,
                count: c,
                root: bit(6).then_some(end),
                is_p2p: bit(7),
                stream: some(d),
                graph_captured: bit(2),
                tag: some(a),
                call,
            };
            prop_assert_eq!(Api::read(&read_back(&api.fields())), api);
            let detail = Detail {
                kind: DetailKind::Phase,
                number: a,
                parent: b,
                start_ns: c.cast_signed(),
                communicator: d,
                rank: a as u32,
                values: [a, b, c, d],
            };
            prop_assert_eq!(Detail::read(&read_back(&detail.fields())), Some(detail));
        }
    }
}
