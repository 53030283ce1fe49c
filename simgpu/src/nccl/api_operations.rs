//! NCCL's C interface (nccl.h 2.30): collectives, and sends and receives.

use std::ffi::{c_int, c_void};

use super::api::guarded;
use super::communicator;
use super::errors::{Failure, Outcome};
use super::model::Function;
use super::nvtx::{Named, Range};
use super::operation::{Factor, Operation, SCALED_SUM, Transfer};
use super::{collective, group, reduce};

/// What all collectives' arguments come to.
struct Arguments {
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: c_int,
    /// Nothing where nothing is reduced.
    reduction: Option<c_int>,
    root: c_int,
}

fn element_bytes(datatype: c_int) -> Outcome<usize> {
    reduce::datatype(datatype)
        .map(|(bytes, ..)| bytes)
        .ok_or_else(|| Failure::argument(format!("{datatype} is no data type")))
}

fn rank(number: c_int) -> Outcome<u32> {
    u32::try_from(number).map_err(|_| Failure::argument(format!("rank {number} cannot be")))
}

/// NCCL's own reductions are 0 to 4; others were made with ncclRedOpCreatePreMulSum.
fn reduction(arguments: &Arguments, handle: u64) -> Outcome<(c_int, Factor)> {
    let none = Factor::Known([0; 8]);
    let Some(reduction) = arguments.reduction else {
        return Ok((0, none));
    };
    if !collective::can_reduce(arguments.datatype) {
        return Err(Failure::argument(format!(
            "data type {} cannot be reduced here",
            arguments.datatype
        )));
    }
    if (0..SCALED_SUM).contains(&reduction) {
        return Ok((reduction, none));
    }
    let (datatype, factor) = communicator::communicator(handle)?.reduction(reduction)?;
    if datatype != arguments.datatype {
        return Err(Failure::argument(
            "the reduction was made for another data type than the operation's",
        ));
    }
    Ok((SCALED_SUM, factor))
}

/// The communicator and the bytes of a call, for its NVTX range; a wrong communicator is number 0 there.
fn called(count: usize, datatype: c_int, handle: u64) -> Vec<u64> {
    let key = communicator::communicator(handle).map_or(0, |communicator| communicator.mesh.key);
    let bytes = reduce::datatype(datatype).map_or(0, |(bytes, ..)| bytes as u64);
    vec![key, bytes.wrapping_mul(count as u64)]
}

fn enqueue(function: Function, arguments: &Arguments, handle: u64, stream: u64) -> c_int {
    let named = match function {
        Function::AllReduce => Named::AllReduce,
        Function::AllGather => Named::AllGather,
        Function::ReduceScatter => Named::ReduceScatter,
        Function::Broadcast => Named::Broadcast,
        Function::Reduce => Named::Reduce,
    };
    let _range = Range::new(named, || {
        let mut short = Vec::new();
        if matches!(function, Function::Broadcast | Function::Reduce) {
            short.push(arguments.root);
        }
        short.extend(arguments.reduction);
        (called(arguments.count, arguments.datatype, handle), short)
    });
    guarded(|| {
        let element_bytes = element_bytes(arguments.datatype)?;
        let (reduction, factor) = reduction(arguments, handle)?;
        let operation = Operation {
            function,
            send: arguments.send as u64,
            receive: arguments.receive as u64,
            count: arguments.count,
            datatype: arguments.datatype,
            element_bytes,
            reduction,
            factor,
            root: rank(arguments.root)?,
            sequence: 0,
        };
        group::collective(handle, operation, stream)
    })
}

/// ncclAllReduce.
#[unsafe(no_mangle)]
pub extern "C" fn ncclAllReduce(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: c_int,
    reduction: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    let arguments = Arguments {
        send,
        receive,
        count,
        datatype,
        reduction: Some(reduction),
        root: 0,
    };
    enqueue(Function::AllReduce, &arguments, communicator, stream)
}

/// ncclReduceScatter.
#[unsafe(no_mangle)]
pub extern "C" fn ncclReduceScatter(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: c_int,
    reduction: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    let arguments = Arguments {
        send,
        receive,
        count,
        datatype,
        reduction: Some(reduction),
        root: 0,
    };
    enqueue(Function::ReduceScatter, &arguments, communicator, stream)
}

/// ncclReduce.
#[unsafe(no_mangle)]
pub extern "C" fn ncclReduce(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: c_int,
    reduction: c_int,
    root: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    let arguments = Arguments {
        send,
        receive,
        count,
        datatype,
        reduction: Some(reduction),
        root,
    };
    enqueue(Function::Reduce, &arguments, communicator, stream)
}

/// ncclBroadcast.
#[unsafe(no_mangle)]
pub extern "C" fn ncclBroadcast(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    let arguments = Arguments {
        send,
        receive,
        count,
        datatype,
        reduction: None,
        root,
    };
    enqueue(Function::Broadcast, &arguments, communicator, stream)
}

/// ncclBcast: in place.
#[unsafe(no_mangle)]
pub extern "C" fn ncclBcast(
    buffer: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    ncclBroadcast(buffer, buffer, count, datatype, root, communicator, stream)
}

/// ncclAllGather.
#[unsafe(no_mangle)]
pub extern "C" fn ncclAllGather(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    let arguments = Arguments {
        send,
        receive,
        count,
        datatype,
        reduction: None,
        root: 0,
    };
    enqueue(Function::AllGather, &arguments, communicator, stream)
}

/// Sends and receives of `count` elements each, as call `named` with its peer or root: whether it sends, the peer, and which of the buffer's parts.
fn transfer(
    (named, of): (Named, Option<c_int>),
    datatype: c_int,
    count: usize,
    communicator: u64,
    stream: u64,
    parts: impl FnOnce(u32, u32) -> Outcome<Vec<(bool, u32, u64, usize)>>,
) -> c_int {
    let _range = Range::new(named, || {
        (called(count, datatype, communicator), of.into_iter().collect())
    });
    guarded(|| {
        let members = communicator::communicator(communicator)?;
        let bytes = element_bytes(datatype)?
            .checked_mul(count)
            .and_then(|bytes| bytes.checked_mul(members.ranks as usize).map(|_| bytes))
            .ok_or_else(|| Failure::argument(format!("a count of {count} is too great")))?;
        let transfers: Vec<Transfer> = parts(members.rank, members.ranks)?
            .into_iter()
            .map(|(sends, peer, buffer, part)| Transfer {
                sends,
                peer,
                address: buffer + (part * bytes) as u64,
                count,
                datatype,
                bytes,
            })
            .collect();
        group::transfers(communicator, &transfers, stream)
    })
}

/// ncclSend.
#[unsafe(no_mangle)]
pub extern "C" fn ncclSend(
    send: *const c_void,
    count: usize,
    datatype: c_int,
    peer: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    let call = (Named::Send, Some(peer));
    transfer(call, datatype, count, communicator, stream, |_, _| {
        Ok(vec![(true, rank(peer)?, send as u64, 0)])
    })
}

/// ncclRecv.
#[unsafe(no_mangle)]
pub extern "C" fn ncclRecv(
    receive: *mut c_void,
    count: usize,
    datatype: c_int,
    peer: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    let call = (Named::Recv, Some(peer));
    transfer(call, datatype, count, communicator, stream, |_, _| {
        Ok(vec![(false, rank(peer)?, receive as u64, 0)])
    })
}

/// ncclAlltoAll: a send to and a receive from every rank, this one too.
#[unsafe(no_mangle)]
pub extern "C" fn ncclAlltoAll(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    let call = (Named::AlltoAll, None);
    transfer(call, datatype, count, communicator, stream, |_, ranks| {
        let both = |peer: u32| {
            [
                (true, peer, send as u64, peer as usize),
                (false, peer, receive as u64, peer as usize),
            ]
        };
        Ok((0..ranks).flat_map(both).collect())
    })
}

fn checked_root(root: c_int, ranks: u32) -> Outcome<u32> {
    let number = rank(root)?;
    if number < ranks {
        return Ok(number);
    }
    Err(Failure::argument(format!(
        "root {root} in a communicator of {ranks} ranks"
    )))
}

/// ncclGather: every rank sends to the root, the root too.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGather(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    let call = (Named::Gather, Some(root));
    transfer(call, datatype, count, communicator, stream, |own, ranks| {
        let root = checked_root(root, ranks)?;
        let mut parts = vec![(true, root, send as u64, 0)];
        if own == root {
            parts.extend((0..ranks).map(|peer| (false, peer, receive as u64, peer as usize)));
        }
        Ok(parts)
    })
}

/// ncclScatter: the root sends to every rank, itself too.
#[unsafe(no_mangle)]
pub extern "C" fn ncclScatter(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: c_int,
    root: c_int,
    communicator: u64,
    stream: u64,
) -> c_int {
    let call = (Named::Scatter, Some(root));
    transfer(call, datatype, count, communicator, stream, |own, ranks| {
        let root = checked_root(root, ranks)?;
        let mut parts = vec![(false, root, receive as u64, 0)];
        if own == root {
            parts.extend((0..ranks).map(|peer| (true, peer, send as u64, peer as usize)));
        }
        Ok(parts)
    })
}
