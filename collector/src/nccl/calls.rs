//! The program's calls of NCCL, as NCCL's own NVTX ranges tell of them: domain "NCCL", registered names, and payloads
//! with communicator, bytes and what is reduced how (`src/collectives.cc` and `nvtx_payload_schemas.h` of NCCL).
//!
//! They are all that tells of the name AlltoAll, of reductions, and of communicators of one rank.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::contexts::{is_told, tells_of_launches};
use super::plans::{next_plan, pop_id, push_id};
use super::records::{Call, Communicator, Operation, Source, trimmed};
use super::state::Calls;
use super::types::Function;
use crate::host_events::{Lost, Text, Thread, record};
use crate::nvtx::PayloadData;

/// Calls of one group that are remembered, where NCCL does not say itself which operation is of which call.
const MOST_PENDING: usize = 256;
/// NVTX_PAYLOAD_SCHEMA_ID_STATIC_START: NCCL's schemas are numbered from here.
const FIRST_SCHEMA: u64 = 1 << 24;

/// The domain's number; 0 until NCCL makes it.
static DOMAIN: AtomicU32 = AtomicU32::new(0);
static NEXT_CALL: AtomicU64 = AtomicU64::new(1);

/// A domain was made.
pub(crate) fn learn_domain(name: &str, number: u32) {
    if name == "NCCL" {
        DOMAIN.store(number, Ordering::Relaxed);
    }
}

/// Whether a domain is NCCL's.
#[inline]
pub(crate) fn is_nccl(domain: u32) -> bool {
    domain != 0 && DOMAIN.load(Ordering::Relaxed) == domain
}

/// From here on the launches of a thread carry a plan, unless they do already.
fn begin_plan(calls: &mut Calls, plan: u64) {
    if calls.plan == 0 {
        (calls.plan, calls.plan_depth) = (plan, calls.depth);
        push_id(plan);
    }
}

/// The payload of a call, read with care: it is a struct of the NCCL version that sent it.
fn read(data: &PayloadData) -> Option<Call> {
    let function = Function::from_schema(data.schema.checked_sub(FIRST_SCHEMA)?)?;
    let (longs, shorts) = (
        2,
        usize::from(function.reduces()) + usize::from(function.has_root() || function.has_peer()),
    );
    let whole = (8 * longs + 4 * shorts).next_multiple_of(8);
    if data.payload.is_null() || data.bytes > 64 {
        return None;
    }
    let mut bytes = [0u8; 64];
    // SAFETY: NVTX's contract is that the payload is so long.
    unsafe { std::ptr::copy_nonoverlapping(data.payload.cast::<u8>(), bytes.as_mut_ptr(), data.bytes) };
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
    let short = |at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
    // Before NCCL 2.25 the communicator was not said.
    let (communicator, at) = if data.bytes >= whole { (long(0), 8) } else { (0, 0) };
    if data.bytes >= whole && communicator == 0 {
        // No communicator at all: the call will fail.
        return None;
    }
    let mut next = at + 8;
    let mut end = 0;
    if function.has_root() || function.has_peer() {
        end = short(next);
        next += 4;
    }
    Some(Call {
        number: NEXT_CALL.fetch_add(1, Ordering::Relaxed),
        function,
        communicator,
        bytes: long(at),
        reduction: function
            .reduces()
            .then(|| u8::try_from(short(next)).unwrap_or(u8::MAX).min(5)),
        end,
    })
}

/// A range of NCCL's domain begins.
pub(crate) fn call_begins(thread: &mut Thread, payload: Option<&PayloadData>) {
    let state = &mut thread.nccl.calls;
    state.depth += 1;
    if state.current.is_some() {
        return;
    }
    let Some(call) = payload.and_then(read) else {
        return;
    };
    let told = is_told(call.communicator);
    state.current = Some((call, state.depth, !told));
    if told && tells_of_launches() {
        return;
    }
    if told && state.pending.len() < MOST_PENDING && state.groups > 0 {
        state.pending.push(call);
    }
    if state.groups == 0 {
        let plan = next_plan();
        begin_plan(state, plan);
    }
}

/// A range of NCCL's domain with a name of a group's call begins.
pub(crate) fn group_range(thread: &mut Thread, name: &Text<'_>) {
    if tells_of_launches() {
        return;
    }
    let state = &mut thread.nccl.calls;
    match name.bytes {
        b"ncclGroupStart" => {
            state.groups += 1;
            if state.groups == 1 {
                state.group_plan = next_plan();
            }
        }
        b"ncclGroupEnd" => {
            state.groups = state.groups.saturating_sub(1);
            if state.groups == 0 && state.group_plan != 0 {
                let plan = state.group_plan;
                begin_plan(state, plan);
            }
        }
        _ => {}
    }
}

/// A range of NCCL's domain ends, begun at `start_ns`. `payload`: what is said only now.
pub(crate) fn call_ends(thread: &mut Thread, start_ns: i64, end_ns: i64, payload: Option<&PayloadData>) {
    let state = &mut thread.nccl.calls;
    let depth = state.depth;
    state.depth = depth.saturating_sub(1);
    let plan = state.plan();
    let ended = state.current.filter(|(_, at, _)| *at == depth);
    if state.plan != 0 && state.plan_depth == depth {
        if state.plan == state.group_plan {
            // The group's end.
            state.group_plan = 0;
            state.pending.clear();
        }
        state.plan = 0;
        pop_id();
    }
    if let Some((call, _, alone)) = ended {
        state.current = None;
        if alone {
            operation(thread, &call, start_ns, end_ns, plan);
        }
    }
    if let Some(communicator) = payload.and_then(|payload| created(payload, start_ns)) {
        thread.push(Lost::Operations, record::COMMUNICATOR, &communicator.fields());
    }
}

/// The operation of a call that NVTX alone tells of.
fn operation(thread: &mut Thread, call: &Call, start_ns: i64, end_ns: i64, plan: u64) {
    let function = thread.text(Text::new(call.function.name().as_bytes()));
    let operation = Operation {
        source: Source::Nvtx,
        start_ns,
        duration_ns: end_ns - start_ns,
        communicator: call.communicator,
        rank: 0,
        sequence: None,
        function,
        datatype: 0,
        count: 0,
        root: call.function.has_root().then_some(call.end),
        peer: call.function.has_peer().then_some(call.end),
        algorithm: None,
        protocol: None,
        variant: None,
        channels: 0,
        warps: 0,
        symmetric: false,
        plan: (plan != 0).then_some(plan),
        stream: None,
        tag: None,
        api: None,
        number: 0,
        call: Some(*call),
    };
    thread.push(Lost::Operations, record::OPERATION, trimmed(&operation.fields()));
}

/// A communicator that NVTX alone tells of: the payload of ncclCommInitRank and its kin, at the end of the call.
fn created(data: &PayloadData, start_ns: i64) -> Option<Communicator> {
    /// ncclCommInitRank, -Config and -Scalable: hash, ranks, rank, device; and ncclCommSplit: hash, parent's, the same.
    const INIT: [(u64, usize); 4] = [(0, 8), (11, 8), (12, 8), (13, 16)];
    let schema = data.schema.checked_sub(FIRST_SCHEMA)?;
    let (_, shorts) = INIT.into_iter().find(|(known, _)| *known == schema)?;
    if data.payload.is_null() || data.bytes < shorts + 12 {
        return None;
    }
    // SAFETY: NVTX's contract is that the payload is as long as it says.
    let (id, ranks, rank) = unsafe {
        let short = |at: usize| data.payload.byte_add(shorts + at).cast::<i32>().read_unaligned();
        (data.payload.cast::<u64>().read_unaligned(), short(0), short(4))
    };
    (id != 0 && ranks > 0 && !is_told(id)).then_some(Communicator {
        created_ns: start_ns,
        communicator: id,
        name: None,
        rank: rank.cast_unsigned(),
        ranks: ranks.cast_unsigned(),
        nodes: 1,
        profiler_version: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(schema: u64, payload: &[u64], bytes: usize) -> PayloadData {
        PayloadData {
            schema: FIRST_SCHEMA + schema,
            bytes,
            payload: payload.as_ptr().cast(),
        }
    }

    #[test]
    fn payloads_are_read_as_each_nccl_lays_them_out() {
        // NCCL 2.25 and later: hash, bytes, and what there is of root and reduction.
        let call = read(&data(5, &[0xabc, 4000, 2], 24)).expect("an all-reduce");
        assert_eq!(
            (call.function, call.communicator, call.bytes, call.reduction),
            (Function::AllReduce, 0xabc, 4000, Some(2))
        );
        let call = read(&data(8, &[7, 8, 3 | 1 << 32], 24)).expect("a reduce");
        assert_eq!((call.end, call.reduction), (3, Some(1)));
        let call = read(&data(10, &[7, 8, 5], 24)).expect("a receive");
        assert_eq!((call.end, call.reduction), (5, None));
        // Reductions that a program made have large numbers.
        let call = read(&data(7, &[7, 8, 1234], 24)).expect("a reduce-scatter");
        assert_eq!(call.reduction, Some(5));
        // Before: bytes and reduction alone.
        let call = read(&data(5, &[4000, 4], 16)).expect("an all-reduce");
        assert_eq!(
            (call.communicator, call.bytes, call.reduction),
            (0, 4000, Some(4))
        );
        let call = read(&data(4, &[4000], 8)).expect("an all-gather");
        assert_eq!((call.communicator, call.bytes), (0, 4000));
        // No communicator, no payload, no operation of ours, far too long.
        assert_eq!(read(&data(5, &[0, 4000, 2], 24)), None);
        assert_eq!(read(&data(0, &[7, 8, 2], 24)), None);
        assert_eq!(read(&data(5, &[7, 8, 2], 24 << 20)), None);
    }

    #[test]
    fn communicators_are_read_from_the_ends_of_their_calls() {
        let made = created(&data(0, &[9, 1, 3], 24), 5).expect("an init");
        assert_eq!((made.communicator, made.ranks, made.rank), (9, 1, 0));
        let made = created(&data(13, &[11, 9, 4 | 2 << 32, 0, 0], 40), 5).expect("a split");
        assert_eq!((made.communicator, made.ranks, made.rank), (11, 4, 2));
        assert_eq!(
            created(&data(13, &[0, 9, 0, 0, 0], 40), 5),
            None,
            "in no part of a split"
        );
        assert_eq!(created(&data(5, &[9, 1, 3], 24), 5), None);
    }
}
