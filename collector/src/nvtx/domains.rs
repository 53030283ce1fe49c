//! What programs hold by handle: domains and registered strings. Handles are numbers as pointers, so that one that is
//! wrong means nothing.

use std::collections::HashMap;
use std::ffi::c_void;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::host_events::{BUDGET, Lost, Registered, Text, lose_elsewhere};
use crate::nccl;

/// Domains that programs may make; more are taken for the default one.
const MOST_DOMAINS: usize = 1 << 16;

/// Domains by number; number 0 is the default one, whose name is empty.
struct Domains {
    names: Vec<String>,
    /// With fixed keys of the hash: random ones are a system call.
    numbers: HashMap<String, usize, BuildHasherDefault<DefaultHasher>>,
}

/// The domain in which our package for Python says which functions run (`python/gputrace/functions.py`).
const PYTHON: &str = "gputrace.python";
/// Its number, once a program has made it.
static PYTHON_DOMAIN: AtomicU32 = AtomicU32::new(0);

static DOMAINS: Mutex<Option<Domains>> = Mutex::new(None);
static STRINGS: Registered = Registered::new();

fn domains() -> MutexGuard<'static, Option<Domains>> {
    let mut domains = DOMAINS.lock().unwrap_or_else(PoisonError::into_inner);
    domains.get_or_insert_with(|| Domains {
        names: vec![String::new()],
        numbers: HashMap::default(),
    });
    domains
}

/// The name of a domain's number.
pub(crate) fn domain_name(domain: usize) -> String {
    domains()
        .as_ref()
        .and_then(|domains| domains.names.get(domain).cloned())
        .unwrap_or_default()
}

/// Whether ranges of a domain are functions of Python.
#[inline]
pub(super) fn is_python(domain: u32) -> bool {
    domain != 0 && PYTHON_DOMAIN.load(Ordering::Relaxed) == domain
}

/// A domain's handle is its number plus one; null is the default domain.
#[inline]
pub(super) fn domain_number(handle: *const c_void) -> u32 {
    let number = (handle as usize).saturating_sub(1);
    if number < MOST_DOMAINS { number as u32 } else { 0 }
}

/// A handle for a domain: the same for the same name, since each library with NVTX in it makes its own.
pub(super) fn create_domain(name: &str) -> *const c_void {
    let mut domains = domains();
    let Some(domains) = domains.as_mut() else {
        return std::ptr::null();
    };
    let number = match domains.numbers.get(name) {
        Some(number) => *number,
        None if domains.names.len() < MOST_DOMAINS && BUDGET.take(2 * name.len() + 64) => {
            let number = domains.names.len();
            domains.names.push(name.to_owned());
            domains.numbers.insert(name.to_owned(), number);
            nccl::learn_domain(name, number as u32);
            if name == PYTHON {
                PYTHON_DOMAIN.store(number as u32, Ordering::Relaxed);
            }
            number
        }
        None => {
            lose_elsewhere(Lost::Texts);
            0
        }
    };
    (number + 1) as *const c_void
}

/// Keeps a string for ever: the program holds the handle.
pub(super) fn register_string(text: Text<'_>) -> *const c_void {
    let number = STRINGS.add(text, &BUDGET);
    if number == 0 {
        lose_elsewhere(Lost::Texts);
    }
    number as *const c_void
}

/// The string of a handle.
#[inline]
pub(super) fn registered(handle: *const c_void) -> Text<'static> {
    STRINGS.get(handle as usize)
}
