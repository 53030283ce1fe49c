//! Functions that this CUPTI does not have: dlsym finds nothing, as in a library that was built without them.
//!
//! One library stands for all versions, so the names that the emulated one lacks are taken out of the symbol table that
//! the loader made of this file, before the first tool looks.

use std::ffi::{CStr, c_char, c_void};

use super::layouts::{FOR_COMFORT, FUNCTIONS_SINCE};
use crate::config::config;

/// Elf64_Sym.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// SHN_UNDEF: a symbol that is used but not defined.
const UNDEFINED: u16 = 0;

fn hidden() -> Vec<&'static CStr> {
    let config = config();
    let newer = FUNCTIONS_SINCE
        .iter()
        .filter(|(_, since)| *since > config.cupti)
        .map(|(name, _)| *name);
    let comfort = config.has_fault("missing-symbols").then_some(FOR_COMFORT);
    newer.chain(comfort.into_iter().flatten().copied()).collect()
}

/// Elf64_Dyn.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

/// struct link_map (link.h), its public part.
#[repr(C)]
struct LinkMap {
    base: u64,
    name: *const c_char,
    dynamic: *const Dynamic,
}

/// The loader's symbol table of this library.
struct Table {
    symbols: *mut Symbol,
    names: *const c_char,
    count: u32,
}

/// Tags of the dynamic section.
const STRING_TABLE: i64 = 5;
const SYMBOL_TABLE: i64 = 6;
const GNU_HASH: i64 = 0x6fff_fef5;

fn table() -> Option<Table> {
    /// RTLD_DI_LINKMAP.
    const LINK_MAP: i32 = 2;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: asks where a function of this library is from; the place is valid.
    if unsafe { libc::dladdr(hide_newer as *const c_void, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: filled by dladdr; its path lives as long as the library.
    let path = unsafe { info.assume_init() }.dli_fname;
    // SAFETY: the path of a library that is loaded; nothing new is.
    let library = unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    let mut map: *const LinkMap = std::ptr::null();
    // SAFETY: an open library, and a place for the pointer.
    if unsafe { libc::dlinfo(library, LINK_MAP, (&raw mut map).cast()) } != 0 || map.is_null() {
        return None;
    }
    let entry = |tag: i64| {
        // SAFETY: the loader's own list of a loaded library, which ends with tag 0.
        unsafe {
            let mut place = (*map).dynamic;
            while (*place).tag != 0 {
                if (*place).tag == tag {
                    return Some((*place).value as usize);
                }
                place = place.add(1);
            }
        }
        None
    };
    Some(Table {
        symbols: entry(SYMBOL_TABLE)? as *mut Symbol,
        names: entry(STRING_TABLE)? as *const c_char,
        count: symbol_count(entry(GNU_HASH)? as *const u32),
    })
}

/// How many symbols the table of a GNU hash section has: its last chain ends with the last symbol.
fn symbol_count(hash: *const u32) -> u32 {
    // SAFETY: a loaded library's hash section: four words, the filter's words of 64 bits, the buckets, the chains.
    unsafe {
        let (buckets, offset, filter) = (*hash, *hash.add(1), *hash.add(2));
        let first_bucket = hash.add(4 + 2 * filter as usize);
        let chains = first_bucket.add(buckets as usize);
        let last = (0..buckets as usize)
            .map(|bucket| *first_bucket.add(bucket))
            .max()
            .unwrap_or(0);
        if last < offset {
            return offset;
        }
        let mut symbol = last;
        // The lowest bit marks a chain's end.
        while *chains.add((symbol - offset) as usize) & 1 == 0 {
            symbol += 1;
        }
        symbol + 1
    }
}

/// Takes out the functions that the emulated version lacks. Called once, before any tool is loaded.
pub(crate) fn hide_newer() {
    let hidden = hidden();
    if hidden.is_empty() {
        return;
    }
    let Some(table) = table() else { return };
    for index in 0..table.count as usize {
        // SAFETY: the table has that many entries, and names are offsets into the string table.
        let (entry, name) = unsafe {
            let entry = table.symbols.add(index);
            (entry, CStr::from_ptr(table.names.add((*entry).name as usize)))
        };
        if !hidden.contains(&name) {
            continue;
        }
        let page = entry as usize & !0xfff;
        // An entry may cross into the next page.
        let bytes = 0x2000;
        // SAFETY: pages of this library's own mapping, private to this process, made writable for the two stores and
        // read-only again, as the loader left them.
        unsafe {
            if libc::mprotect(page as *mut c_void, bytes, libc::PROT_READ | libc::PROT_WRITE) == 0 {
                (*entry).section = UNDEFINED;
                (*entry).value = 0;
                libc::mprotect(page as *mut c_void, bytes, libc::PROT_READ);
            }
        }
    }
}
