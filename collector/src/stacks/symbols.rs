//! Names of functions, by the symbol tables of ELF files (System V ABI, chapters 4 and 5).
//!
//! Files are read in pieces and not mapped: a library that is replaced in place while it is read would end the program by SIGBUS.
//! Nothing that a file says is believed: what is not there, or makes no sense, has no name.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::objects::build_id;

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// Its address in the file.
    pub(super) start: u64,
    /// As the linker knows it.
    pub(super) name: String,
}

const HEADER_BYTES: usize = 64;
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
/// Sections and symbols that are looked at, at the most: 4 MiB, and 400 MB in pieces.
const MOST_SECTIONS: usize = 1 << 16;
const MOST_SYMBOLS: u64 = 1 << 24;
/// A piece of a table of symbols.
const PIECE_BYTES: usize = SYMBOL_BYTES << 12;
/// Names are cut here: templates of C++ have no end.
const MOST_NAME_BYTES: usize = 16 << 10;
const MOST_NOTE_BYTES: u64 = 1 << 16;
/// Types of sections: SHT_SYMTAB, SHT_NOTE, SHT_DYNSYM.
const SYMBOLS: u32 = 2;
const NOTES: u32 = 7;
const DYNAMIC_SYMBOLS: u32 = 11;
/// Types of symbols: STT_FUNC, STT_GNU_IFUNC.
const FUNCTIONS: [u8; 2] = [2, 10];

#[derive(Clone, Copy)]
struct Section {
    kind: u32,
    at: u64,
    bytes: u64,
    link: u32,
}

/// A function that was found around an address, by where its name is.
#[derive(Clone, Copy)]
struct Found {
    start: u64,
    /// Of several names for one function, one that others link against.
    is_global: bool,
    name_at: u64,
}

/// The functions around addresses of a file, which come sorted; `None` where there is none. A file with another build id than that,
/// where there is one, is another file by now.
pub(super) fn functions(path: &Path, id: &[u8], addresses: &[u64]) -> Vec<Option<Function>> {
    read(path, id, addresses).unwrap_or_else(|| vec![None; addresses.len()])
}

fn read(path: &Path, id: &[u8], addresses: &[u64]) -> Option<Vec<Option<Function>>> {
    // Whatever lies there by now: opening it waits for nobody.
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let sections = sections(&file)?;
    if !id.is_empty() && !has_id(&file, &sections, id) {
        return None;
    }
    let of_kind = |kind| sections.iter().find(|section| section.kind == kind);
    // A file that was stripped has those alone that others link against.
    let symbols = of_kind(SYMBOLS).or_else(|| of_kind(DYNAMIC_SYMBOLS))?;
    let names = sections.get(symbols.link as usize)?;
    let found = search(&file, symbols, addresses)?;
    let function = |found: Found| {
        Some(Function {
            start: found.start,
            name: name(&file, names, found.name_at)?,
        })
    };
    Some(found.into_iter().map(|found| found.and_then(function)).collect())
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn sections(file: &File) -> Option<Vec<Section>> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0).ok()?;
    // 64 bits, little-endian.
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (at, entry_bytes, count) = (long(&header, 0x28)?, half(&header, 0x3a)?, half(&header, 0x3c)?);
    if usize::from(entry_bytes) != SECTION_BYTES {
        return None;
    }
    let mut count = usize::from(count);
    if count == 0 {
        // More than 16 bits hold: the first section says how many.
        let mut first = [0; SECTION_BYTES];
        file.read_exact_at(&mut first, at).ok()?;
        count = usize::try_from(long(&first, 0x20)?).ok()?;
    }
    if count > MOST_SECTIONS {
        return None;
    }
    let mut table = vec![0; count * SECTION_BYTES];
    file.read_exact_at(&mut table, at).ok()?;
    let section = |entry: &[u8]| {
        Some(Section {
            kind: word(entry, 0x4)?,
            at: long(entry, 0x18)?,
            bytes: long(entry, 0x20)?,
            link: word(entry, 0x28)?,
        })
    };
    table.chunks_exact(SECTION_BYTES).map(section).collect()
}

fn has_id(file: &File, sections: &[Section], id: &[u8]) -> bool {
    sections
        .iter()
        .filter(|section| section.kind == NOTES && section.bytes <= MOST_NOTE_BYTES)
        .any(|section| {
            let mut notes = vec![0; section.bytes as usize];
            file.read_exact_at(&mut notes, section.at).is_ok() && build_id(&notes) == Some(id)
        })
}

/// Of each address the last function to begin of those around it.
fn search(file: &File, symbols: &Section, addresses: &[u64]) -> Option<Vec<Option<Found>>> {
    let mut found: Vec<Option<Found>> = vec![None; addresses.len()];
    let count = symbols.bytes / SYMBOL_BYTES as u64;
    if count > MOST_SYMBOLS {
        return None;
    }
    let mut piece = vec![0; PIECE_BYTES];
    let (mut at, end) = (symbols.at, symbols.at.checked_add(count * SYMBOL_BYTES as u64)?);
    while at < end {
        let bytes = PIECE_BYTES.min(usize::try_from(end - at).ok()?);
        let piece = &mut piece[..bytes];
        file.read_exact_at(piece, at).ok()?;
        at += bytes as u64;
        for symbol in piece.chunks_exact(SYMBOL_BYTES) {
            let (name_at, start, size) = (word(symbol, 0)?, long(symbol, 8)?, long(symbol, 16)?);
            let (info, section) = (symbol[4], half(symbol, 6)?);
            if section == 0 || name_at == 0 || !FUNCTIONS.contains(&(info & 0xf)) {
                continue;
            }
            let new = Found {
                start,
                is_global: info >> 4 != 0,
                name_at: u64::from(name_at),
            };
            let first = addresses.partition_point(|address| *address < start);
            for (place, address) in found.iter_mut().zip(addresses).skip(first) {
                if *address >= start.saturating_add(size) {
                    break;
                }
                let rank = |found: &Found| (found.start, found.is_global);
                if place.is_none_or(|known| rank(&known) < rank(&new)) {
                    *place = Some(new);
                }
            }
        }
    }
    Some(found)
}

/// A text of a table of texts.
fn name(file: &File, names: &Section, at: u64) -> Option<String> {
    let room = usize::try_from(names.bytes.checked_sub(at)?).ok()?;
    for most in [256, MOST_NAME_BYTES] {
        let mut text = vec![0; room.min(most)];
        file.read_exact_at(&mut text, names.at.checked_add(at)?).ok()?;
        if let Some(end) = text.iter().position(|byte| *byte == 0) {
            text.truncate(end);
        } else if most < MOST_NAME_BYTES {
            continue;
        }
        return Some(String::from_utf8_lossy(&text).into_owned()).filter(|text| !text.is_empty());
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A function of this program, whose file has symbols.
    #[unsafe(no_mangle)]
    extern "C" fn gputrace_test_of_symbols(number: u64) -> u64 {
        number.rotate_left(3)
    }

    fn own(addresses: &[usize]) -> (Vec<u64>, Vec<u8>) {
        let mut objects = super::super::objects::Objects::new();
        objects.look();
        let program = objects.at(addresses[0] + 1).expect("this program") as usize;
        let program = &objects.since(program)[0];
        let addresses = addresses.iter().map(|address| (address - program.base) as u64);
        (addresses.collect(), program.build_id.clone())
    }

    #[test]
    fn a_function_of_this_program_has_its_name_and_what_lies_in_none_has_not() {
        let at = gputrace_test_of_symbols as *const () as usize;
        let (addresses, id) = own(&[at]);
        let path = Path::new("/proc/self/exe");
        let asked = [3, addresses[0], addresses[0] + 1];
        let found = functions(path, &id, &asked);
        let expected = Some(Function {
            start: addresses[0],
            name: "gputrace_test_of_symbols".to_owned(),
        });
        assert_eq!(found, [None, expected.clone(), expected]);
        // Another file than the one that was loaded.
        assert_eq!(functions(path, &[1, 2, 3], &asked), [None, None, None]);
        assert_eq!(functions(Path::new("/nowhere"), &[], &asked), [None, None, None]);
        assert_eq!(functions(Path::new("/dev/zero"), &[], &[5]), [None]);
    }

    proptest! {
        #[test]
        fn a_damaged_file_gives_names_or_none(
            damage in prop::collection::vec((0usize..1 << 14, any::<u8>()), 0..40),
            length in 0usize..1 << 14,
        ) {
            // A small ELF file: header, three sections (none, symbols, texts), symbols, texts.
            let mut bytes = vec![0u8; 1 << 14];
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            bytes[0x28] = 64;
            bytes[0x3a] = 64;
            bytes[0x3c] = 3;
            for (section, kind, at, size, link) in [(1usize, 2u8, 1024u16, 2400u16, 2u8), (2, 3, 8192, 100, 0)] {
                let begin = 64 + 64 * section;
                bytes[begin + 4] = kind;
                bytes[begin + 0x18..begin + 0x1a].copy_from_slice(&at.to_le_bytes());
                bytes[begin + 0x20..begin + 0x22].copy_from_slice(&size.to_le_bytes());
                bytes[begin + 0x28] = link;
            }
            for symbol in 0..100usize {
                let begin = 1024 + 24 * symbol;
                bytes[begin] = 1;
                bytes[begin + 4] = 0x12;
                bytes[begin + 6] = 1;
                bytes[begin + 8..begin + 16].copy_from_slice(&(symbol as u64 * 16).to_le_bytes());
                bytes[begin + 16] = 16;
            }
            bytes[8193..8198].copy_from_slice(b"hello");
            let whole = bytes.clone();
            for (at, byte) in damage {
                bytes[at] ^= byte;
            }
            bytes.truncate(length);
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("file");
            for (bytes, is_whole) in [(&whole, true), (&bytes, false)] {
                std::fs::write(&path, bytes).expect("a file");
                let found = functions(&path, &[], &[0, 17, 1600, u64::MAX]);
                prop_assert_eq!(found.len(), 4);
                if is_whole {
                    let names: Vec<_> = found.into_iter().map(|found| found.map(|one| (one.start, one.name))).collect();
                    let hello = |start| Some((start, "hello".to_owned()));
                    prop_assert_eq!(names, [hello(0), hello(16), None, None]);
                }
            }
        }
    }
}
