//! Raw data as CUPTI and NCCL delivered them, for `GPUTRACE_DUMP=DIR`: what one run on a GPU showed can be decoded again on
//! machines that have none.
//!
//! `cupti-VERSION-PID-N.dump` is one buffer: a line of JSON ([`Head`]) and then the bytes. Records hold addresses of names;
//! the head says what stood there, so that a reader can put names of its own in their place. `nccl-PID.jsonl` has one line
//! a call of the profiler plugin.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::complain::complain;
use crate::records::{self, RecordSizes, read};
use crate::{kinds, walk};

/// The first line of a dumped buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// CUPTI's version number.
    pub cupti_version: u32,
    /// Bytes of a record, by kind.
    pub record_bytes: BTreeMap<u32, usize>,
    /// Names of kernels, devices and the like, by the address in the records.
    pub names: BTreeMap<u64, String>,
    /// Names of calls: "KIND:CALLBACK" to name.
    pub calls: BTreeMap<String, String>,
}

impl Head {
    fn sizes(&self) -> RecordSizes {
        RecordSizes::ask(|record_kind| self.record_bytes.get(&record_kind).copied())
    }
}

/// A buffer that was read back: ready for [`crate::decode::Decoder`].
pub struct Dumped {
    /// What its first line says.
    pub head: Head,
    /// The records; their names are at `texts`.
    pub bytes: Vec<u8>,
    /// Keeps the names where the records say.
    _texts: Vec<CString>,
}

/// The folder for dumps, if there is one.
pub(crate) fn folder() -> Option<&'static Path> {
    crate::config::get().dump.as_deref()
}

/// Where in the buffer members of 8 bytes at these offsets of a record stand: those that the record reaches.
fn members<'a>(offsets: &'a [usize], record: &'a Range<usize>) -> impl Iterator<Item = usize> + 'a {
    let places = offsets.iter().map(|offset| record.start + offset);
    places.filter(|place| place + 8 <= record.end)
}

/// The addresses of texts in a record: each with its place in the buffer.
fn addresses(bytes: &[u8], record_kind: u32, record: &Range<usize>) -> Vec<(usize, u64)> {
    let texts = kinds::of(record_kind).map_or(&[][..], |kind| kind.texts);
    members(texts, record)
        .filter_map(|place| {
            let address = u64::from_le_bytes(bytes.get(place..place + 8)?.try_into().ok()?);
            (address != 0).then_some((place, address))
        })
        .collect()
}

/// What a buffer needs to be understood later.
///
/// # Safety
/// Addresses of names in the buffer must be null or lead to zero-terminated text.
unsafe fn head(
    bytes: &[u8],
    sizes: &RecordSizes,
    cupti_version: u32,
    call_name: &dyn Fn(u32, u32) -> Option<String>,
) -> Head {
    let mut head = Head {
        cupti_version,
        record_bytes: sizes.known().collect(),
        ..Head::default()
    };
    for (record_kind, record) in walk::records(bytes, sizes) {
        for (_, address) in addresses(bytes, record_kind, &record) {
            head.names.entry(address).or_insert_with(|| {
                // SAFETY: not null, and text by the caller's promise.
                let text = unsafe { CStr::from_ptr(address as *const c_char) };
                text.to_string_lossy().into_owned()
            });
        }
        if kinds::is_calls(record_kind) {
            let call: records::ApiCall = read(&bytes[record]);
            let key = format!("{}:{}", call.kind, call.callback);
            if !head.calls.contains_key(&key)
                && let Some(name) = call_name(call.kind, call.callback)
            {
                head.calls.insert(key, name);
            }
        }
    }
    head
}

/// Writes one buffer to the folder, if there is one.
///
/// # Safety
/// As [`head`].
pub(crate) unsafe fn buffer(
    bytes: &[u8],
    sizes: &RecordSizes,
    cupti_version: u32,
    call_name: &dyn Fn(u32, u32) -> Option<String>,
) {
    static WRITTEN: Mutex<u64> = Mutex::new(0);
    let Some(folder) = folder() else { return };
    let number = {
        let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        *written += 1;
        *written
    };
    // SAFETY: the caller's promise is handed on.
    let head = unsafe { head(bytes, sizes, cupti_version, call_name) };
    let name = format!("cupti-{cupti_version}-{}-{number}.dump", std::process::id());
    let path = folder.join(name);
    let write = || -> io::Result<()> {
        let mut text = serde_json::to_vec(&head)?;
        text.push(b'\n');
        text.extend_from_slice(bytes);
        std::fs::write(&path, text)
    };
    if let Err(error) = write() {
        complain(&format!("{}: {error}", path.display()));
    }
}

impl Dumped {
    /// Reads a dumped buffer, its names put where its records look for them.
    ///
    /// # Errors
    /// When the file can't be read or is no dump.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = std::fs::read(path)?;
        let wrong = |what: &str| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{}: no dump of a CUPTI buffer: {what}", path.display()),
            )
        };
        let end = file.iter().position(|&byte| byte == b'\n');
        let end = end.ok_or_else(|| wrong("it has no first line"))?;
        let head: Head = serde_json::from_slice(&file[..end]).map_err(|error| wrong(&error.to_string()))?;
        let mut bytes = file[end + 1..].to_vec();
        let mut texts: BTreeMap<u64, CString> = BTreeMap::new();
        for (address, name) in &head.names {
            texts.insert(
                *address,
                CString::new(name.as_str()).map_err(|_| wrong("a name with a zero"))?,
            );
        }
        let places: Vec<(u32, Range<usize>)> = walk::records(&bytes, &head.sizes()).collect();
        for (record_kind, record) in places {
            for (place, address) in addresses(&bytes, record_kind, &record) {
                // A name that the head does not know is none: its address means nothing here.
                let here = texts.get(&address).map_or(0, |text| text.as_ptr() as u64);
                bytes[place..place + 8].copy_from_slice(&here.to_le_bytes());
            }
            // What its reader is to free is nothing that a dump could hold.
            let owned = kinds::of(record_kind).and_then(|kind| kind.owned);
            for place in members(owned.map(|owned| owned.address).as_slice(), &record) {
                bytes[place..place + 8].fill(0);
            }
        }
        Ok(Self {
            head,
            bytes,
            _texts: texts.into_values().collect(),
        })
    }

    /// The sizes of its records.
    #[must_use]
    pub fn sizes(&self) -> RecordSizes {
        self.head.sizes()
    }
}

/// Appends one line to the dump of NCCL's events: `members` is what stands between the braces of a JSON object.
pub(crate) fn nccl_event(members: &serde_json::Value) {
    static FILE: Mutex<Option<std::fs::File>> = Mutex::new(None);
    let Some(folder) = folder() else { return };
    let path = folder.join(format!("nccl-{}.jsonl", std::process::id()));
    let mut file = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    if file.is_none() {
        *file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .ok();
    }
    let written = file
        .as_mut()
        .map(|file| file.write_all(format!("{members}\n").as_bytes()));
    if !matches!(written, Some(Ok(()))) {
        complain(&format!("{}: not written", path.display()));
    }
}
