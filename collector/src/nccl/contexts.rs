//! Communicators as the plugin is told of them, and the masks by which NCCL asks what to tell.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gputrace_trace::now;

use super::context::Context;
use super::records::Communicator;
use super::{asked, entry, raw};
use crate::host_events::{Lost, record, with_thread};

/// The newest interface by which NCCL has told of a communicator; 0 before.
static VERSION: AtomicU32 = AtomicU32::new(0);

/// Communicators of several ranks that the plugin is told of: NCCL tells of their operations. An open hash table that only grows.
static TOLD: [AtomicU64; 512] = [const { AtomicU64::new(0) }; 512];

/// Whether the plugin is told of a communicator's operations. In a table that is full any communicator may be one.
pub(super) fn is_told(communicator: u64) -> bool {
    for step in 0..TOLD.len() {
        match TOLD[(communicator as usize).wrapping_add(step) % TOLD.len()].load(Ordering::Relaxed) {
            0 => return false,
            known if known == communicator => return true,
            _ => {}
        }
    }
    true
}

fn tell(communicator: u64) {
    for step in 0..TOLD.len() {
        let place = &TOLD[(communicator as usize).wrapping_add(step) % TOLD.len()];
        match place.compare_exchange(0, communicator, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(known) if known == communicator => return,
            Err(_) => {}
        }
    }
}

/// Whether NCCL tells of kernel launches (version 5 and later).
pub(super) fn tells_of_launches() -> bool {
    VERSION.load(Ordering::Relaxed) >= 5
}

/// A mask of NCCL's: one for each libnccl in the process, used by all of its communicators.
struct Mask {
    address: usize,
    wanted: c_int,
    communicators: usize,
}

/// Masks while they have communicators: after the last one the library may be unloaded.
static MASKS: Mutex<Vec<Mask>> = Mutex::new(Vec::new());
static RECORDING: AtomicI32 = AtomicI32::new(1);

fn write(mask: &Mask) {
    let value = if RECORDING.load(Ordering::Relaxed) != 0 {
        mask.wanted
    } else {
        0
    };
    // SAFETY: NCCL gave the address of an int that stays while there are communicators, and expects it to change.
    unsafe { (*(mask.address as *const AtomicI32)).store(value, Ordering::Relaxed) };
}

/// Whether NCCL is to tell anything: off between the windows of a recording.
pub(crate) fn set_recording(on: bool) {
    RECORDING.store(i32::from(on), Ordering::Relaxed);
    for mask in MASKS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        write(mask);
    }
}

/// NCCL sets up a communicator.
pub(super) fn begin(
    context: *mut *mut c_void,
    id: u64,
    mask: *mut c_int,
    name: *const c_char,
    counts: [c_int; 3],
    version: u32,
) {
    let [nodes, ranks, rank] = counts.map(c_int::cast_unsigned);
    let made = Context {
        communicator: id,
        rank,
        version,
        mask: mask as usize,
    };
    // SAFETY: NCCL passes a valid place.
    unsafe { *context = std::ptr::from_mut(Box::leak(Box::new(made))).cast() };
    VERSION.fetch_max(version, Ordering::Relaxed);
    raw::init(version, id, counts);
    if ranks > 1 {
        tell(id);
    }
    if !mask.is_null() {
        let mut masks = MASKS.lock().unwrap_or_else(PoisonError::into_inner);
        match masks.iter_mut().find(|known| known.address == mask as usize) {
            Some(known) => known.communicators += 1,
            None => masks.push(Mask {
                address: mask as usize,
                wanted: asked::mask(version) as c_int,
                communicators: 1,
            }),
        }
        masks
            .iter()
            .filter(|known| known.address == mask as usize)
            .for_each(write);
    }
    let created_ns = now().0;
    with_thread(Lost::Operations, |thread| {
        let communicator = Communicator {
            created_ns,
            communicator: id,
            name: (!name.is_null()).then(|| thread.text(entry::text(name))),
            rank,
            ranks,
            nodes,
            profiler_version: version,
        };
        thread.push(Lost::Operations, record::COMMUNICATOR, &communicator.fields());
    });
}

/// NCCL is done with a communicator.
pub(super) fn end(context: &Context) {
    let mut masks = MASKS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = masks.iter().position(|mask| mask.address == context.mask) {
        masks[place].communicators = masks[place].communicators.saturating_sub(1);
        if masks[place].communicators == 0 {
            masks.swap_remove(place);
        }
    }
}
