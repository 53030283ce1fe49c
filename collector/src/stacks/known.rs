//! The stacks that are known, each with a number.
//!
//! Threads look a stack up without a lock, by a hash of its addresses: of 16,384 stacks two have the same 64 bits once in 10^11
//! programs. A new one is put in under a lock that nobody waits for: a thread that does not get it leaves its launch without a
//! stack, which is counted, and the next launch from there tries again.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::objects::{Object, Objects};
use super::unwind::Stack;

/// Stacks that are known at once, at the most.
const MOST_STACKS: u32 = 1 << 14;
/// Twice as many places, so that looking is short.
const PLACES: usize = 2 * MOST_STACKS as usize;
/// Places that are looked at.
const PROBES: usize = 64;
/// Numbers that are given in all; libraries that come and go use them up.
pub(super) const MOST_NUMBERS: u32 = 1 << 18;
/// Addresses that wait for the writer, at the most: 6 MiB.
const MOST_WAITING: usize = 1 << 18;
/// How often the lock is tried, some 20 us at the most. It is held for less, but where libraries were just loaded.
const TRIES: u32 = 1000;

struct Place {
    /// 0: free.
    hash: AtomicU64,
    number: AtomicU32,
}

static PLACES_OF_STACKS: [Place; PLACES] = [const {
    Place {
        hash: AtomicU64::new(0),
        number: AtomicU32::new(0),
    }
}; PLACES];

static NEW: Mutex<New> = Mutex::new(New {
    objects: Objects::new(),
    waiting: Vec::new(),
    addresses: Vec::new(),
    known: 0,
    next: 0,
});

struct New {
    objects: Objects,
    waiting: Vec<NewStack>,
    addresses: Vec<Address>,
    /// Stacks in [`PLACES_OF_STACKS`].
    known: u32,
    /// The next number.
    next: u32,
}

/// A return address.
#[derive(Clone, Copy)]
pub(super) struct Address {
    pub(super) address: usize,
    /// The number of the object that it lay in.
    pub(super) object: Option<u32>,
}

/// A stack that the writer has not seen.
pub(super) struct NewStack {
    pub(super) number: u32,
    /// How many of the addresses are its.
    pub(super) frames: usize,
    pub(super) is_cut: bool,
}

/// What the writer gets.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) stacks: Vec<NewStack>,
    /// One stack's behind the other's, each innermost first.
    pub(super) addresses: Vec<Address>,
    /// The objects that were not known before.
    pub(super) objects: Vec<Object>,
}

/// Why a stack has no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Others are being put in.
    Busy,
    /// There are too many.
    Full,
}

fn hash(stack: &Stack) -> u64 {
    const MIX: u64 = 0xa076_1d64_78bd_642f;
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(MIX);
        (product as u64) ^ (product >> 64) as u64
    };
    let begin = if stack.is_cut { !MIX } else { MIX };
    let addresses = stack.addresses().iter();
    addresses
        .fold(begin, |hash, address| mix(hash, *address as u64).rotate_left(23))
        .max(1)
}

fn places(hash: u64) -> impl Iterator<Item = &'static Place> {
    let first = hash as usize;
    (0..PROBES).map(move |step| &PLACES_OF_STACKS[first.wrapping_add(step) % PLACES])
}

fn find(hash: u64) -> Option<u32> {
    for place in places(hash) {
        match place.hash.load(Ordering::Acquire) {
            0 => return None,
            of_place if of_place == hash => return Some(place.number.load(Ordering::Relaxed)),
            _ => {}
        }
    }
    None
}

/// The number of a stack.
#[inline]
pub(super) fn number(stack: &Stack) -> Result<u32, Refused> {
    let hash = hash(stack);
    match find(hash) {
        Some(number) => Ok(number),
        None => add(hash, stack),
    }
}

fn try_lock() -> Option<MutexGuard<'static, New>> {
    for _ in 0..TRIES {
        match NEW.try_lock() {
            Ok(new) => return Some(new),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
        }
    }
    None
}

#[cold]
fn add(hash: u64, stack: &Stack) -> Result<u32, Refused> {
    let mut new = try_lock().ok_or(Refused::Busy)?;
    let new = &mut *new;
    if new.objects.look() {
        forget(new);
    } else if let Some(number) = find(hash) {
        // Another thread was faster.
        return Ok(number);
    }
    if new.addresses.len() + stack.addresses().len() > MOST_WAITING {
        return Err(Refused::Busy);
    }
    if new.known >= MOST_STACKS || new.next >= MOST_NUMBERS {
        return Err(Refused::Full);
    }
    let place = places(hash)
        .find(|place| place.hash.load(Ordering::Relaxed) == 0)
        .ok_or(Refused::Full)?;
    let number = new.next;
    let objects = &new.objects;
    new.addresses
        .extend(stack.addresses().iter().map(|address| Address {
            address: *address,
            object: objects.at(*address),
        }));
    new.waiting.push(NewStack {
        number,
        frames: stack.addresses().len(),
        is_cut: stack.is_cut,
    });
    new.known += 1;
    new.next += 1;
    place.number.store(number, Ordering::Relaxed);
    place.hash.store(hash, Ordering::Release);
    Ok(number)
}

/// No stack is known any more: addresses may mean something else now.
fn forget(new: &mut New) {
    new.known = 0;
    for place in &PLACES_OF_STACKS {
        place.hash.store(0, Ordering::Relaxed);
    }
}

/// What came since the last call. `known_objects`: how many the writer has. Called by the writer, which also sees here that a library
/// was unloaded.
pub(super) fn take(known_objects: usize) -> Taken {
    // Our own thread may wait, for microseconds.
    let mut new = NEW.lock().unwrap_or_else(PoisonError::into_inner);
    if new.objects.look() {
        forget(&mut new);
    }
    Taken {
        stacks: std::mem::take(&mut new.waiting),
        addresses: std::mem::take(&mut new.addresses),
        objects: new.objects.since(known_objects).to_vec(),
    }
}
