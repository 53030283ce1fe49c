//! Whether a library of the program calls CUPTI by the functions that do not go together with ours.

use std::ffi::{CStr, c_char, c_int, c_void};

/// A function that every client of the older way calls and no other.
const OLDER: &CStr = c"cuptiActivityRegisterCallbacks";

/// Tags of an ELF file's dynamic section (elf.h).
const NEEDED: i64 = 1;
const HASH: i64 = 4;
const STRING_TABLE: i64 = 5;
const SYMBOL_TABLE: i64 = 6;
const STRING_BYTES: i64 = 10;
const GNU_HASH: i64 = 0x6fff_fef5;
/// The program header of the dynamic section.
const PT_DYNAMIC: u32 = 2;
/// SHN_UNDEF: a symbol that is used and not defined.
const UNDEFINED: u16 = 0;

/// Elf64_Dyn.
#[repr(C)]
struct Dynamic {
    tag: i64,
    value: u64,
}

/// Elf64_Sym.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    bytes: u64,
}

/// Whether a library needs libcupti and uses the older function, by its dynamic section in memory.
///
/// # Safety
/// `section` is the dynamic section of a loaded library, whose first byte is at `base`.
unsafe fn is_older_client(base: u64, section: *const Dynamic) -> bool {
    let value_of = |tag: i64| {
        // SAFETY: the section ends with tag 0.
        unsafe {
            let mut place = section;
            while (*place).tag != 0 {
                if (*place).tag == tag {
                    return Some((*place).value);
                }
                place = place.add(1);
            }
        }
        None
    };
    // The loader has made addresses of what were offsets in the file, but not in the kernel's own library.
    let address_of = |tag: i64| value_of(tag).filter(|&address| address > base);
    let Some(texts) = address_of(STRING_TABLE) else {
        return false;
    };
    // SAFETY: offsets of a loaded library's own names lead into its string table, and names end with a zero.
    let name = |offset: u64| unsafe { CStr::from_ptr((texts + offset) as *const c_char) };
    // SAFETY: the section ends with tag 0.
    let needs_cupti = unsafe {
        let mut place = section;
        let mut needs = false;
        while (*place).tag != 0 && !needs {
            // Without a name of its own a library is named by the path under which it was linked.
            needs = (*place).tag == NEEDED
                && name((*place).value)
                    .to_bytes()
                    .rsplit(|byte| *byte == b'/')
                    .next()
                    .is_some_and(|file| file.starts_with(b"libcupti"));
            place = place.add(1);
        }
        needs
    };
    if !needs_cupti {
        return false;
    }
    let (Some(symbols), Some(text_bytes)) = (address_of(SYMBOL_TABLE), value_of(STRING_BYTES)) else {
        return false;
    };
    // SAFETY: the second word of either kind of hash section is a number.
    let second =
        |tag: i64| address_of(tag).map(|hash| unsafe { (hash as *const u32).add(1).read() } as usize);
    // Symbols that are only used come before those that a GNU hash section leads to, whose first it names. One that leads to
    // none names the first of all. The older kind of section has the number of symbols; and where neither tells, linkers put
    // the names directly behind the symbols.
    let between = texts.saturating_sub(symbols) as usize / size_of::<Symbol>();
    let count = second(GNU_HASH)
        .filter(|first| *first > 1)
        .or_else(|| second(HASH));
    let symbols = symbols as *const Symbol;
    (1..count.unwrap_or(between)).any(|place| {
        // SAFETY: the symbol table has at least so many entries; what lies between it and the names is the library's too.
        let symbol = unsafe { &*symbols.add(place) };
        symbol.section == UNDEFINED
            && u64::from(symbol.name) < text_bytes
            && name(u64::from(symbol.name)) == OLDER
    })
}

/// The first library of the program that would call CUPTI's older functions.
pub(crate) fn client() -> Option<String> {
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: the loader gives a library's headers, and `client` the place for the answer. A panic must not reach it.
        std::panic::catch_unwind(|| unsafe {
            let info = &*info;
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum));
            let dynamic = headers.iter().find(|header| header.p_type == PT_DYNAMIC);
            let is_client = dynamic.is_some_and(|header| {
                is_older_client(
                    info.dlpi_addr,
                    (info.dlpi_addr + header.p_vaddr) as *const Dynamic,
                )
            });
            if is_client {
                *found.cast::<Option<String>>() = Some(path(info.dlpi_name));
            }
            c_int::from(is_client)
        })
        .unwrap_or(0)
    }
    let mut found: Option<String> = None;
    // SAFETY: the function keeps to the interface of dl_iterate_phdr(3); the libraries stay loaded meanwhile, since the
    // loader's lock is held.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

/// # Safety
/// Null or zero-terminated.
unsafe fn path(path: *const c_char) -> String {
    if path.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned();
    // The program itself has no name here.
    if path.is_empty() {
        "the program".to_owned()
    } else {
        path
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Builds a library of C and loads it.
    fn load(folder: &std::path::Path, name: &str, source: &str, needed: Option<&str>) -> Option<*mut c_void> {
        let (file, library) = (folder.join(format!("{name}.c")), folder.join(name));
        std::fs::write(&file, source).expect("the source");
        let mut compiler = Command::new("gcc");
        compiler
            .args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-o"])
            .arg(&library)
            .arg(&file);
        if let Some(needed) = needed {
            compiler
                .arg(folder.join(needed))
                .arg(format!("-Wl,-rpath,{}", folder.display()));
        }
        if !compiler.status().is_ok_and(|status| status.success()) {
            return None;
        }
        let path = std::ffi::CString::new(library.to_str().expect("a plain path")).expect("no zero");
        // SAFETY: a library made above, whose initialisers call nothing but functions made above.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) };
        (!library.is_null()).then_some(library)
    }

    #[test]
    fn a_library_that_uses_the_older_function_is_found_and_others_are_not() {
        assert_eq!(client(), None);
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let cupti = "int cuptiActivityRegisterCallbacks(void *a, void *b) { return 0; }\n\
                     int cuptiActivityRegisterCallbacks_v2(void *s, void *a, void *b) { return 0; }\n";
        if load(folder, "libcupti.so.13", cupti, None).is_none() {
            assert!(std::env::var_os("CI").is_none(), "needed in CI: gcc");
            eprintln!("SKIPPED: no C compiler");
            return;
        }
        assert_eq!(client(), None, "CUPTI itself is no client");
        let newer = "int cuptiActivityRegisterCallbacks_v2(void *, void *, void *);\n\
                     int use(void) { return cuptiActivityRegisterCallbacks_v2(0, 0, 0); }\n";
        assert!(load(folder, "libnewer.so", newer, Some("libcupti.so.13")).is_some());
        assert_eq!(client(), None);
        // As programs are: nothing of it is looked up by others, so that its hash table leads to no symbol.
        let hidden = "int cuptiActivityRegisterCallbacks(void *, void *);\n\
                      __attribute__((constructor)) static void use(void) { cuptiActivityRegisterCallbacks(0, 0); }\n";
        let hidden = load(folder, "libhidden.so", hidden, Some("libcupti.so.13")).expect("a library");
        assert!(client().is_some_and(|path| path.ends_with("/libhidden.so")));
        // SAFETY: loaded above, and nothing of it is in use.
        unsafe { libc::dlclose(hidden) };
        assert_eq!(client(), None);
        let older = "int cuptiActivityRegisterCallbacks(void *, void *);\n\
                     int use(void) { return cuptiActivityRegisterCallbacks(0, 0); }\n";
        assert!(load(folder, "libolder.so", older, Some("libcupti.so.13")).is_some());
        assert!(client().is_some_and(|path| path.ends_with("/libolder.so")));
    }
}
