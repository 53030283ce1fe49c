//! The program and the libraries that are loaded: which of them an address lies in.
//!
//! The list is made on a thread of the program, when a stack comes that was not there before. While the loader shows it, it holds a
//! lock that an allocator may wait for, so memory is taken before.

use std::ffi::{CStr, c_int, c_void};

/// Objects that are known, at the most: also those that are gone.
const MOST_OBJECTS: usize = 8192;
/// Bytes of a build id: SHA-1 has 20.
const MOST_ID_BYTES: usize = 32;
/// PT_LOAD, PT_NOTE and NT_GNU_BUILD_ID (elf.h).
const LOAD: u32 = 1;
const NOTE: u32 = 4;
const BUILD_ID: u32 = 3;

/// A program or library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    /// As the loader has it; empty for the program itself.
    pub(super) path: Vec<u8>,
    /// What is added to addresses of its file.
    pub(super) base: usize,
    pub(super) build_id: Vec<u8>,
}

/// Memory of an object.
#[derive(Clone, Copy)]
struct Segment {
    start: usize,
    end: usize,
    object: u32,
}

/// All that were seen.
pub(super) struct Objects {
    list: Vec<Object>,
    /// Of those that are loaded, by start.
    segments: Vec<Segment>,
    /// How many objects the loader had loaded and unloaded.
    counts: (u64, u64),
}

impl Objects {
    pub(super) const fn new() -> Self {
        Self {
            list: Vec::new(),
            segments: Vec::new(),
            counts: (0, 0),
        }
    }

    /// Looks at what is loaded. Gives whether something was unloaded since the last look: its addresses may be another's now.
    pub(super) fn look(&mut self) -> bool {
        let mut size = Size {
            known: self.counts,
            ..Size::default()
        };
        each(count, &raw mut size);
        if size.counts == self.counts {
            return false;
        }
        let mut all = All::with_room(&size);
        each(gather, &raw mut all);
        let was_unloaded = self.counts.1 != size.counts.1 && self.counts.0 != 0;
        // What came between the two looks is there at the next.
        self.counts = size.counts;
        let mut numbers = Vec::with_capacity(all.loaded.len());
        for loaded in &all.loaded {
            let object = Object {
                path: all.texts.get(loaded.path.clone()).unwrap_or_default().to_vec(),
                base: loaded.base,
                build_id: loaded.build_id[..loaded.build_id_bytes].to_vec(),
            };
            numbers.push(self.number(object));
        }
        self.segments.clear();
        self.segments.extend(all.segments.iter().filter_map(|segment| {
            let object = (*numbers.get(segment.object as usize)?)?;
            Some(Segment { object, ..*segment })
        }));
        self.segments.sort_unstable_by_key(|segment| segment.start);
        was_unloaded
    }

    fn number(&mut self, object: Object) -> Option<u32> {
        if let Some(place) = self.list.iter().position(|known| *known == object) {
            return u32::try_from(place).ok();
        }
        if self.list.len() >= MOST_OBJECTS {
            return None;
        }
        self.list.push(object);
        u32::try_from(self.list.len() - 1).ok()
    }

    /// The number of the object that a return address is in.
    pub(super) fn at(&self, address: usize) -> Option<u32> {
        let address = address.wrapping_sub(1);
        let after = self.segments.partition_point(|segment| segment.start <= address);
        let segment = self.segments.get(after.checked_sub(1)?)?;
        (address < segment.end).then_some(segment.object)
    }

    /// Those from this number on.
    pub(super) fn since(&self, number: usize) -> &[Object] {
        self.list.get(number..).unwrap_or_default()
    }
}

type Visit = unsafe extern "C" fn(*mut libc::dl_phdr_info, usize, *mut c_void) -> c_int;

fn each<T>(visit: Visit, argument: *mut T) {
    // SAFETY: the functions that are passed here take what they are passed with, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), argument.cast()) };
}

/// The loader's counts. One without them (glibc before 2.4) shows as one that has loaded nothing.
fn counts(info: &libc::dl_phdr_info, bytes: usize) -> (u64, u64) {
    let has_counts = bytes >= std::mem::offset_of!(libc::dl_phdr_info, dlpi_subs) + size_of::<u64>();
    if has_counts {
        (info.dlpi_adds, info.dlpi_subs)
    } else {
        (0, 0)
    }
}

fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    if info.dlpi_phdr.is_null() {
        return &[];
    }
    // SAFETY: the loader gives so many headers, which stay while it shows the object.
    unsafe { std::slice::from_raw_parts(info.dlpi_phdr.cast(), usize::from(info.dlpi_phnum)) }
}

fn path(info: &libc::dl_phdr_info) -> &[u8] {
    if info.dlpi_name.is_null() {
        return &[];
    }
    // SAFETY: the loader's text, which stays while it shows the object.
    unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes()
}

/// How much there is.
#[derive(Default)]
struct Size {
    known: (u64, u64),
    counts: (u64, u64),
    objects: usize,
    segments: usize,
    text_bytes: usize,
}

unsafe extern "C" fn count(info: *mut libc::dl_phdr_info, bytes: usize, size: *mut c_void) -> c_int {
    // SAFETY: what `each` was called with.
    let (info, size) = unsafe { (&*info, &mut *size.cast::<Size>()) };
    size.counts = counts(info, bytes);
    if size.counts == size.known {
        return 1;
    }
    size.objects += 1;
    size.segments += headers(info)
        .iter()
        .filter(|header| header.p_type == LOAD)
        .count();
    size.text_bytes += path(info).len();
    0
}

struct Loaded {
    path: std::ops::Range<usize>,
    base: usize,
    build_id: [u8; MOST_ID_BYTES],
    build_id_bytes: usize,
}

/// What is loaded.
struct All {
    loaded: Vec<Loaded>,
    texts: Vec<u8>,
    segments: Vec<Segment>,
}

impl All {
    /// With room for a little more than there was.
    fn with_room(size: &Size) -> Self {
        let more = |count: usize| count + count / 8 + 8;
        Self {
            loaded: Vec::with_capacity(more(size.objects)),
            texts: Vec::with_capacity(more(size.text_bytes) + 1024),
            segments: Vec::with_capacity(more(size.segments)),
        }
    }
}

unsafe extern "C" fn gather(info: *mut libc::dl_phdr_info, _: usize, all: *mut c_void) -> c_int {
    // SAFETY: what `each` was called with.
    let (info, all) = unsafe { (&*info, &mut *all.cast::<All>()) };
    let (headers, path) = (headers(info), path(info));
    let loads = || headers.iter().filter(|header| header.p_type == LOAD);
    let room = |length: usize, capacity: usize, more: usize| capacity - length >= more;
    // Nothing may be allocated here.
    if !room(all.loaded.len(), all.loaded.capacity(), 1)
        || !room(all.texts.len(), all.texts.capacity(), path.len())
        || !room(all.segments.len(), all.segments.capacity(), loads().count())
    {
        return 1;
    }
    let base = info.dlpi_addr as usize;
    let object = u32::try_from(all.loaded.len()).unwrap_or(u32::MAX);
    let memory = |header: &libc::Elf64_Phdr| {
        let start = base.wrapping_add(header.p_vaddr as usize);
        (start, start.saturating_add(header.p_memsz as usize))
    };
    let first_text = all.texts.len();
    all.texts.extend_from_slice(path);
    all.segments.extend(loads().map(|header| {
        let (start, end) = memory(header);
        Segment { start, end, object }
    }));
    let mut loaded = Loaded {
        path: first_text..all.texts.len(),
        base,
        build_id: [0; MOST_ID_BYTES],
        build_id_bytes: 0,
    };
    for header in headers.iter().filter(|header| header.p_type == NOTE) {
        let (start, end) = memory(header);
        let is_loaded = loads().any(|load| {
            let (from, to) = memory(load);
            from <= start && end <= to && start < end
        });
        if is_loaded {
            // SAFETY: memory that the loader has mapped for this object, which stays while it shows it.
            let notes = unsafe { std::slice::from_raw_parts(start as *const u8, end - start) };
            if let Some(id) = build_id(notes).filter(|id| id.len() <= MOST_ID_BYTES) {
                loaded.build_id[..id.len()].copy_from_slice(id);
                loaded.build_id_bytes = id.len();
            }
        }
    }
    all.loaded.push(loaded);
    0
}

/// The build id among an object's notes: name and content of each behind three words, padded to 4 bytes.
pub(super) fn build_id(notes: &[u8]) -> Option<&[u8]> {
    let padded = |bytes: usize| bytes.checked_next_multiple_of(4);
    let mut rest = notes;
    loop {
        let word = |at: usize| {
            let bytes = rest.get(at..at + 4)?.try_into().ok()?;
            Some(u32::from_le_bytes(bytes))
        };
        let (name_bytes, bytes, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let name = rest.get(12..12usize.checked_add(name_bytes)?)?;
        let content_at = 12usize.checked_add(padded(name_bytes)?)?;
        let content = rest.get(content_at..content_at.checked_add(bytes)?)?;
        if kind == BUILD_ID && name == b"GNU\0" {
            return Some(content);
        }
        rest = rest.get(content_at.checked_add(padded(bytes)?)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_lie_in_the_objects_that_they_are_loaded_from() {
        let mut objects = Objects::new();
        assert!(!objects.look());
        let ours = objects
            .at(build_id as *const () as usize + 1)
            .expect("this program");
        assert_eq!(objects.list[ours as usize].path, b"");
        let libc = objects.at(libc::getpid as *const () as usize + 1).expect("libc");
        let path = String::from_utf8_lossy(&objects.list[libc as usize].path).into_owned();
        assert!(path.contains("libc"), "{path}");
        assert_eq!(objects.at(8), None);
        let known = objects.list.len();
        assert!(!objects.look());
        assert_eq!(objects.list.len(), known);
        assert_eq!(objects.since(known).len(), 0);
    }

    #[test]
    fn a_build_id_is_found_behind_other_notes_and_damage_is_none() {
        let mut notes = Vec::new();
        for (kind, name, content) in [(1u32, &b"GNU\0"[..], &[1u8; 16][..]), (3, b"GNU\0", &[7; 20])] {
            for word in [name.len() as u32, content.len() as u32, kind] {
                notes.extend(word.to_le_bytes());
            }
            notes.extend(name);
            notes.extend(content);
        }
        assert_eq!(build_id(&notes), Some(&[7; 20][..]));
        for length in 0..notes.len() {
            assert_eq!(build_id(&notes[..length]), None);
        }
        notes[..8].fill(0xff);
        assert_eq!(build_id(&notes), None);
    }
}
