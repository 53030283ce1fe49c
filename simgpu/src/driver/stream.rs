//! Streams and events.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use super::context::{current_context, default_stream_of, handle_of};
use super::entry::{driver_functions, put};
use super::graph::{NodeWork, capture};
use super::{error, next_handle};
use crate::clock::now_ns;
use crate::cupti::{self, Wait};
use crate::device::{Event, Stream, all_streams, forget_stream, pool, register_stream};

/// CU_STREAM_NON_BLOCKING.
const NON_BLOCKING: c_uint = 1;
/// CU_STREAM_LEGACY and CU_STREAM_PER_THREAD: handles with a meaning of their own.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;

static EVENTS: Mutex<BTreeMap<u64, Arc<Event>>> = Mutex::new(BTreeMap::new());

fn event(handle: u64) -> Result<Arc<Event>, u32> {
    EVENTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&handle)
        .cloned()
        .ok_or(error::INVALID_HANDLE)
}

/// The stream of a handle; the null handle is the current context's default stream.
pub(crate) fn stream_from_handle(handle: u64) -> Result<Arc<Stream>, u32> {
    let handle = match handle {
        // Per-thread default streams are taken for the default stream: they only serialise more.
        0 | LEGACY | PER_THREAD => current_context()?.default_stream,
        handle => handle,
    };
    all_streams()
        .into_iter()
        .find(|(known, _)| *known == handle)
        .map(|(_, stream)| stream)
        .ok_or(error::INVALID_HANDLE)
}

/// CUDA's rule for the legacy default stream: work on it waits for all blocking streams, and theirs for it.
pub(crate) fn order_with_default(stream: &Stream) -> Result<(), u32> {
    if !stream.blocking {
        return Ok(());
    }
    let streams = all_streams();
    let default = default_stream_of(stream.context);
    let is_default = |of: &Stream| {
        let known = streams.iter().find(|(handle, _)| Some(*handle) == default);
        known.is_some_and(|(_, default)| default.id == of.id)
    };
    for (_, other) in &streams {
        let one_is_default = is_default(other) || is_default(stream);
        if other.blocking && other.context == stream.context && other.id != stream.id && one_is_default {
            stream.wait_for(other.record());
        }
    }
    Ok(())
}

fn create(place: *mut u64, flags: c_uint, priority: c_int) -> Result<(), u32> {
    let context = current_context()?;
    let id = cupti::next_stream_id();
    let blocking = flags & NON_BLOCKING == 0;
    let handle = next_handle();
    put(place, handle)?;
    let stream = Stream::start(id, context.id, context.device, blocking, priority)?;
    register_stream(handle, stream);
    cupti::stream_created(&context, handle, id, priority, if blocking { 1 } else { 2 });
    Ok(())
}

driver_functions! {
    /// cuStreamCreate.
    fn cuStreamCreate = CUPTI_DRIVER_TRACE_CBID_cuStreamCreate(stream: *mut u64, flags: c_uint) |_| {
        create(stream, flags, 0)
    }

    /// cuStreamCreateWithPriority.
    fn cuStreamCreateWithPriority = CUPTI_DRIVER_TRACE_CBID_cuStreamCreateWithPriority(stream: *mut u64, flags: c_uint, priority: c_int) |_| {
        create(stream, flags, priority)
    }

    /// cuStreamGetPriority.
    fn cuStreamGetPriority = CUPTI_DRIVER_TRACE_CBID_cuStreamGetPriority(stream: u64, priority: *mut c_int) |_| {
        put(priority, stream_from_handle(stream)?.priority)
    }

    /// cuCtxGetStreamPriorityRange.
    fn cuCtxGetStreamPriorityRange = CUPTI_DRIVER_TRACE_CBID_cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) |_| {
        put(least, 0)?;
        put(greatest, -5)
    }

    /// cuStreamDestroy_v2: returns at once; the stream's work goes on to its end.
    fn cuStreamDestroy_v2 = CUPTI_DRIVER_TRACE_CBID_cuStreamDestroy_v2(stream: u64) |_| {
        let known = stream_from_handle(stream)?;
        cupti::stream_ending(handle_of(known.context), stream);
        forget_stream(stream).ok_or(error::INVALID_HANDLE)?.end();
        Ok(())
    }

    /// cuStreamSynchronize.
    fn cuStreamSynchronize = CUPTI_DRIVER_TRACE_CBID_cuStreamSynchronize(stream: u64) |call| {
        let handle = stream;
        let stream = stream_from_handle(stream)?;
        capture::forbid(&stream)?;
        order_with_default(&stream)?;
        let start_ns = now_ns();
        stream.synchronize();
        pool::synchronised(stream.device);
        let (context, stream) = (stream.context, stream.id);
        cupti::synchronized(&Wait { what: 3, context, stream, event: u32::MAX, recording: 0, correlation: call.correlation, start_ns });
        cupti::stream_synchronized(handle_of(context), handle);
        Ok(())
    }

    /// cuStreamQuery.
    fn cuStreamQuery = CUPTI_DRIVER_TRACE_CBID_cuStreamQuery(stream: u64) |_| {
        let stream = stream_from_handle(stream)?;
        capture::forbid(&stream)?;
        if stream.is_idle() { Ok(()) } else { Err(error::NOT_READY) }
    }

    /// cuStreamWaitEvent: waits for the recording that is the newest now, not for later ones.
    fn cuStreamWaitEvent = CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent(stream: u64, waited: u64, _flags: c_uint) |call| {
        let stream = stream_from_handle(stream)?;
        let waited = event(waited)?;
        if capture::wait(waited.id, &stream)? {
            return Ok(());
        }
        let start_ns = now_ns();
        let mut recording = 0;
        if let Some(record) = waited.current() {
            recording = record.number;
            stream.wait_for(record);
        }
        let (context, stream) = (stream.context, stream.id);
        cupti::synchronized(&Wait { what: 2, context, stream, event: waited.id, recording, correlation: call.correlation, start_ns });
        Ok(())
    }

    /// cuLaunchHostFunc.
    fn cuLaunchHostFunc = CUPTI_DRIVER_TRACE_CBID_cuLaunchHostFunc(stream: u64, function: Option<extern "C" fn(*mut c_void)>, data: *mut c_void) |_| {
        let function = function.ok_or(error::INVALID_VALUE)?;
        let data = data as usize;
        let stream = stream_from_handle(stream)?;
        if capture::is_capturing(&stream) {
            let work = NodeWork::Host(Arc::new(move || function(data as *mut c_void)));
            return capture::append(&stream, work, &[]);
        }
        stream.call(Box::new(move || function(data as *mut c_void)));
        Ok(())
    }

    /// cuEventCreate.
    fn cuEventCreate = CUPTI_DRIVER_TRACE_CBID_cuEventCreate(place: *mut u64, _flags: c_uint) |_| {
        let context = current_context()?;
        let handle = next_handle();
        put(place, handle)?;
        let event = Event { id: cupti::next_event_id(), context: context.id, device: context.device, ..Event::default() };
        EVENTS.lock().unwrap_or_else(PoisonError::into_inner).insert(handle, Arc::new(event));
        Ok(())
    }

    /// cuEventDestroy_v2.
    fn cuEventDestroy_v2 = CUPTI_DRIVER_TRACE_CBID_cuEventDestroy_v2(handle: u64) |_| {
        let removed = EVENTS.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle);
        removed.map(|_| ()).ok_or(error::INVALID_HANDLE)
    }

    /// cuEventRecord: on a stream of the event's own context.
    fn cuEventRecord = CUPTI_DRIVER_TRACE_CBID_cuEventRecord(handle: u64, stream: u64) |call| {
        let event = event(handle)?;
        let stream = stream_from_handle(stream)?;
        if event.context != stream.context {
            return Err(error::INVALID_HANDLE);
        }
        if capture::record(event.id, &stream) {
            return Ok(());
        }
        order_with_default(&stream)?;
        let record = stream.record();
        cupti::event_recorded(event.id, record.number, &stream, call.correlation);
        *event.record.lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
        Ok(())
    }

    /// cuEventSynchronize.
    fn cuEventSynchronize = CUPTI_DRIVER_TRACE_CBID_cuEventSynchronize(handle: u64) |call| {
        let event = event(handle)?;
        if capture::is_captured(event.id) {
            return Err(error::CAPTURED_EVENT);
        }
        let start_ns = now_ns();
        let mut recording = 0;
        if let Some(record) = event.current() {
            recording = record.number;
            record.wait();
            pool::synchronised(event.device);
        }
        let context = current_context().map_or(u32::MAX, |context| context.id);
        let (event, correlation) = (event.id, call.correlation);
        cupti::synchronized(&Wait { what: 1, context, stream: u32::MAX, event, recording, correlation, start_ns });
        Ok(())
    }

    /// cuEventQuery.
    fn cuEventQuery = CUPTI_DRIVER_TRACE_CBID_cuEventQuery(handle: u64) |_| {
        match event(handle)?.current() {
            Some(record) if !record.is_done() => Err(error::NOT_READY),
            _ => Ok(()),
        }
    }

    /// cuEventElapsedTime_v2.
    fn cuEventElapsedTime_v2 = CUPTI_DRIVER_TRACE_CBID_cuEventElapsedTime_v2(milliseconds: *mut f32, start: u64, end: u64) |_| {
        elapsed(milliseconds, start, end)
    }

    /// cuEventElapsedTime.
    fn cuEventElapsedTime = CUPTI_DRIVER_TRACE_CBID_cuEventElapsedTime(milliseconds: *mut f32, start: u64, end: u64) |_| {
        elapsed(milliseconds, start, end)
    }
}

fn elapsed(milliseconds: *mut f32, start: u64, end: u64) -> Result<(), u32> {
    let moment = |handle| {
        let record = event(handle)?.current().ok_or(error::INVALID_HANDLE)?;
        record.moment_ns().ok_or(error::NOT_READY)
    };
    put(milliseconds, (moment(end)? - moment(start)?) as f32 / 1e6)
}
