//! NCCL's C interface (nccl.h 2.30): versions, errors, communicators and groups.

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use super::bootstrap::Meeting;
use super::communicator::{self, Creation, Origin};
use super::errors::{self, Failure, Outcome};
use super::nvtx::{self, Named, Range};
use super::operation::Factor;
use super::{collective, group, network, reduce, result};
use crate::config::config;
use crate::driver::{current_context, entry, with_device};
use crate::edge;

/// Runs a function's body: its error is kept for ncclGetLastError, and a panic stays here.
pub(super) fn guarded(body: impl FnOnce() -> Outcome<()>) -> c_int {
    match edge::guarded(body) {
        Some(Ok(())) => result::SUCCESS,
        Some(Err(failure)) => {
            errors::note(&failure);
            failure.code
        }
        None => result::INTERNAL_ERROR,
    }
}

fn put<T>(place: *mut T, value: T) -> Outcome<()> {
    entry::put(place, value).map_err(|_| Failure::argument("a place for the result is null"))
}

/// ncclUniqueId.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    bytes: [u8; 128],
}

/// ncclGetVersion.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetVersion(version: *mut c_int) -> c_int {
    guarded(|| put(version, config().nccl))
}

/// ncclGetUniqueId: this process introduces the ranks to each other.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetUniqueId(id: *mut UniqueId) -> c_int {
    nvtx::initialise();
    guarded(|| {
        put(
            id,
            UniqueId {
                bytes: Meeting::open()?,
            },
        )
    })
}

/// ncclCommInitRank: returns when all ranks have come; in a group, ncclGroupEnd does.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommInitRank(communicator: *mut u64, ranks: c_int, id: UniqueId, rank: c_int) -> c_int {
    init(Named::InitRank, communicator, ranks, &id, rank, std::ptr::null())
}

/// The beginning of ncclConfig_t, up to the member that is used.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    communicator_name: *const c_char,
}

/// The communicator's name, if a configuration gives one.
fn name_of(config: *const Config) -> Option<CString> {
    // SAFETY: null or the caller's ncclConfig_t, whose first member says how long it is.
    let config = unsafe { config.as_ref() }?;
    if config.magic != 0xcafe_beef || config.size < size_of::<Config>() || config.communicator_name.is_null()
    {
        return None;
    }
    // SAFETY: a zero-terminated name by NCCL's contract.
    Some(unsafe { CStr::from_ptr(config.communicator_name) }.to_owned())
}

/// ncclCommInitRankConfig: the communicator's name is kept, the rest changes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommInitRankConfig(
    communicator: *mut u64,
    ranks: c_int,
    id: UniqueId,
    rank: c_int,
    config: *const Config,
) -> c_int {
    init(Named::InitRankConfig, communicator, ranks, &id, rank, config)
}

/// ncclCommInitRankScalable: of several unique ids, which all ranks have, the first is used.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommInitRankScalable(
    communicator: *mut u64,
    ranks: c_int,
    rank: c_int,
    id_count: c_int,
    ids: *const UniqueId,
    config: *const Config,
) -> c_int {
    // SAFETY: null, or as many ids as the count says, at least one.
    match unsafe { ids.as_ref() }.filter(|_| id_count > 0) {
        Some(id) => init(Named::InitRankScalable, communicator, ranks, id, rank, config),
        None => guarded(|| Err(Failure::argument("no unique id was given"))),
    }
}

fn init(
    named: Named,
    communicator: *mut u64,
    ranks: c_int,
    id: &UniqueId,
    rank: c_int,
    config: *const Config,
) -> c_int {
    let mut range = Range::new(named, || (Vec::new(), Vec::new()));
    guarded(|| {
        put(communicator, 0)?;
        let device = current_device()?;
        let numbers = u32::try_from(ranks).ok().zip(u32::try_from(rank).ok());
        let Some((ranks, rank)) = numbers.filter(|(ranks, rank)| rank < ranks) else {
            return Err(Failure::argument(format!(
                "rank {rank} of {ranks} ranks cannot be"
            )));
        };
        let meeting = Meeting::from_id(&id.bytes)
            .ok_or_else(|| Failure::argument("the unique id is none that ncclGetUniqueId made"))?;
        range.tell(
            &[meeting.key],
            &[ranks.cast_signed(), rank.cast_signed(), device.cast_signed()],
        );
        let origin = Origin::Meeting { meeting, rank, ranks };
        group::create(Creation::new(communicator, device, name_of(config), origin))
    })
}

fn current_device() -> Outcome<u32> {
    current_context()
        .map(|context| context.device)
        .map_err(|code| Failure::cuda("finding the current device", code))
}

/// ncclCommInitAll: communicators of several devices of this process.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommInitAll(communicators: *mut u64, count: c_int, devices: *const c_int) -> c_int {
    guarded(|| {
        put(communicators, 0)?;
        let count = u32::try_from(count)
            .ok()
            .filter(|count| *count > 0)
            .ok_or_else(|| Failure::argument(format!("{count} devices")))?;
        let devices: Vec<u32> = (0..count)
            .map(|index| {
                if devices.is_null() {
                    return index;
                }
                // SAFETY: as many devices as the count says.
                let device = unsafe { *devices.add(index as usize) };
                u32::try_from(device).unwrap_or(u32::MAX)
            })
            .collect();
        let key = network::random();
        group::call(|_| {
            for (rank, device) in (0..).zip(&devices) {
                with_device(*device, || ())
                    .map_err(|code| Failure::cuda(&format!("using device {device}"), code))?;
                let origin = Origin::Here {
                    key,
                    rank,
                    devices: devices.clone(),
                };
                let place = communicators.wrapping_add(rank as usize);
                group::create(Creation::new(place, *device, None, origin))?;
            }
            Ok(())
        })
    })
}

/// ncclCommSplit: all ranks call; those of one colour are one new communicator, in the order of their keys.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommSplit(
    parent: u64,
    color: c_int,
    key: c_int,
    communicator: *mut u64,
    config: *const Config,
) -> c_int {
    let mut range = Range::new(Named::Split, || (Vec::new(), Vec::new()));
    guarded(|| {
        put(communicator, 0)?;
        if color < communicator::NO_COLOR {
            return Err(Failure::argument(format!("a split's colour of {color}")));
        }
        let parent = communicator::communicator(parent)?;
        let device = parent.device;
        let parent_key = parent.mesh.key;
        let origin = Origin::Split { parent, color, key };
        group::create(Creation::new(communicator, device, name_of(config), origin))?;
        // In a group it is made later: then the new one is not known yet.
        // SAFETY: a place for the result, which `put` has written to.
        let made = communicator::communicator(unsafe { communicator.read_unaligned() }).ok();
        let number = |value: Option<u32>| value.map_or(0, u32::cast_signed);
        range.tell(
            &[made.as_ref().map_or(0, |made| made.mesh.key), parent_key],
            &[
                number(made.as_ref().map(|made| made.ranks)),
                number(made.as_ref().map(|made| made.rank)),
                device.cast_signed(),
                color,
                key,
            ],
        );
        Ok(())
    })
}

/// What the NVTX range of a communicator's end says.
fn ended(communicator: u64, all: bool) -> (Vec<u64>, Vec<c_int>) {
    let Ok(communicator) = communicator::communicator(communicator) else {
        return (vec![0], vec![0; if all { 3 } else { 0 }]);
    };
    let numbers = [communicator.ranks, communicator.rank, communicator.device].map(u32::cast_signed);
    (
        vec![communicator.mesh.key],
        if all { numbers.to_vec() } else { Vec::new() },
    )
}

/// ncclCommFinalize: waits for the communicator's last kernel.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommFinalize(communicator: u64) -> c_int {
    let _range = Range::new(Named::Finalize, || ended(communicator, false));
    guarded(|| {
        communicator::communicator(communicator)?.flush();
        Ok(())
    })
}

/// ncclCommDestroy: waits for the communicator's last kernel.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDestroy(communicator: u64) -> c_int {
    let _range = Range::new(Named::Destroy, || ended(communicator, true));
    guarded(|| communicator::destroy(communicator))
}

/// ncclCommAbort: kernels that wait end at once.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommAbort(communicator: u64) -> c_int {
    let _range = Range::new(Named::Abort, || ended(communicator, true));
    guarded(|| communicator::abort(communicator))
}

/// ncclCommGetAsyncError.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommGetAsyncError(communicator: u64, error: *mut c_int) -> c_int {
    guarded(|| {
        let failure = communicator::communicator(communicator)?.mesh.inbox.failure();
        if let Some(failure) = &failure {
            errors::note(failure);
        }
        put(error, failure.map_or(result::SUCCESS, |failure| failure.code))
    })
}

/// ncclCommCount.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommCount(communicator: u64, count: *mut c_int) -> c_int {
    guarded(|| {
        put(
            count,
            communicator::communicator(communicator)?.ranks.cast_signed(),
        )
    })
}

/// ncclCommUserRank.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommUserRank(communicator: u64, rank: *mut c_int) -> c_int {
    guarded(|| put(rank, communicator::communicator(communicator)?.rank.cast_signed()))
}

/// ncclCommCuDevice.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommCuDevice(communicator: u64, device: *mut c_int) -> c_int {
    guarded(|| {
        put(
            device,
            communicator::communicator(communicator)?.device.cast_signed(),
        )
    })
}

/// ncclCommRegister: buffers need no registration here; the handle only tells them apart.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommRegister(
    communicator: u64,
    _buffer: *mut c_void,
    _bytes: usize,
    handle: *mut u64,
) -> c_int {
    guarded(|| {
        communicator::communicator(communicator)?;
        put(handle, crate::driver::next_handle())
    })
}

/// ncclCommDeregister.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDeregister(communicator: u64, _handle: u64) -> c_int {
    guarded(|| communicator::communicator(communicator).map(|_| ()))
}

/// ncclMemAlloc: device memory.
#[unsafe(no_mangle)]
pub extern "C" fn ncclMemAlloc(address: *mut u64, bytes: usize) -> c_int {
    unsafe extern "C" {
        fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32;
    }
    guarded(|| {
        let mut allocated = 0;
        // SAFETY: our own function, with a place for its result.
        match unsafe { cuMemAlloc_v2(&raw mut allocated, bytes) } {
            0 => put(address, allocated),
            code => Err(Failure::cuda("cuMemAlloc", code)),
        }
    })
}

/// ncclMemFree.
#[unsafe(no_mangle)]
pub extern "C" fn ncclMemFree(address: u64) -> c_int {
    unsafe extern "C" {
        fn cuMemFree_v2(address: u64) -> u32;
    }
    // SAFETY: our own function; it checks its argument itself.
    guarded(|| match unsafe { cuMemFree_v2(address) } {
        0 => Ok(()),
        code => Err(Failure::cuda("cuMemFree", code)),
    })
}

/// ncclRedOpCreatePreMulSum: a sum whose parts are multiplied first, each rank's by its own factor.
#[unsafe(no_mangle)]
pub extern "C" fn ncclRedOpCreatePreMulSum(
    reduction: *mut c_int,
    scalar: *const c_void,
    datatype: c_int,
    residence: c_int,
    communicator: u64,
) -> c_int {
    /// ncclScalarDevice.
    const ON_DEVICE: c_int = 0;
    guarded(|| {
        let communicator = communicator::communicator(communicator)?;
        let (bytes, ..) = reduce::datatype(datatype)
            .filter(|_| collective::can_reduce(datatype))
            .ok_or_else(|| Failure::argument(format!("data type {datatype} cannot be reduced")))?;
        if scalar.is_null() {
            return Err(Failure::argument("the factor's address is null"));
        }
        let factor = if residence == ON_DEVICE {
            let address = scalar as u64;
            crate::device::memory::device_range(address, bytes)
                .map_err(|_| Failure::argument("the factor is not in device memory"))?;
            Factor::InMemory(address)
        } else {
            let mut factor = [0; 8];
            // SAFETY: not null, and the caller says that a value of the data type is there.
            factor[..bytes].copy_from_slice(unsafe { std::slice::from_raw_parts(scalar.cast(), bytes) });
            Factor::Known(factor)
        };
        put(reduction, communicator.make_reduction(datatype, factor))
    })
}

/// ncclRedOpDestroy.
#[unsafe(no_mangle)]
pub extern "C" fn ncclRedOpDestroy(reduction: c_int, communicator: u64) -> c_int {
    guarded(|| communicator::communicator(communicator)?.forget_reduction(reduction))
}

/// ncclGetErrorString.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    let text: &CStr = match code {
        result::SUCCESS => c"no error",
        result::UNHANDLED_CUDA_ERROR => c"unhandled cuda error",
        result::SYSTEM_ERROR => c"unhandled system error",
        result::INTERNAL_ERROR => c"internal error",
        result::INVALID_ARGUMENT => c"invalid argument",
        result::INVALID_USAGE => c"invalid usage",
        result::REMOTE_ERROR => c"remote process exited or there was a network error",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

/// ncclGetLastError: the text of the newest error in this process; empty if there was none.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(_communicator: u64) -> *const c_char {
    errors::last().as_ptr()
}

/// ncclGroupStart.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> c_int {
    let _range = Range::new(Named::GroupStart, Default::default);
    guarded(|| {
        group::start();
        Ok(())
    })
}

/// ncclGroupEnd.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> c_int {
    let _range = Range::new(Named::GroupEnd, Default::default);
    guarded(group::end)
}
