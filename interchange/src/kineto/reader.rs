//! One file from its first byte to its last: the frame, the events, and how it ended.

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use super::blocks::Blocks;
use super::event::Event;
use super::frame::Frame;
use super::owners::Owners;
use super::scan::{Cursor, Go, Raw, Skipper, Stop, members};
use super::text::unescaped;
use crate::limits::{self, Memory, Share};

/// An element or a member of more bytes than this is stepped over: a kernel's name has some thousand at most.
const ELEMENT_BYTES: usize = 16 << 20;
/// After so many elements in a row that are no JSON the rest is taken for damaged too.
const DAMAGED_IN_A_ROW: u32 = 1000;

/// Why nothing of a file is of use.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// It can't be read.
    Io(io::Error),
    /// It is something else; the text says what is wrong and what to do.
    NotATrace(String),
    /// It takes more than imports may take; the text says of what.
    TooMuch(String),
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        match limits::is_met(&error) {
            Some(why) => Self::TooMuch(why),
            None => Self::Io(error),
        }
    }
}

/// How reading a file ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With its last bracket.
    Whole,
    /// Before it; why, and the place in the unpacked file.
    Cut(String, u64),
    /// At something that can't stand there; the place in the unpacked file.
    Damaged(u64),
    /// With its last bracket, and so many bytes behind that were not read.
    Followed(u64),
    /// With its last bracket, and packed bytes behind it that can't be unpacked: why.
    FollowedByDamage(String),
    /// With its last bracket, but the packed bytes' checksum does not fit.
    ChecksumDiffers,
}

/// A file, read.
pub(crate) struct ReadFile {
    pub(crate) owners: Owners,
    pub(crate) frame: Frame,
    pub(crate) ending: Ending,
}

/// What is held is looked at after so many bytes that were unpacked, ...
const LOOK_BYTES: u64 = 8 << 20;
/// ... or so many for each process of the file, ...
const LOOK_BYTES_A_PROCESS: u64 = 64 << 10;
/// ... and after each element as long as this: it may stand for many rows and names.
const LONG_ELEMENT: usize = 64 << 10;

/// Why a block is not gone through to its end.
enum Halt {
    /// The list has ended.
    Done,
    /// An element was long.
    Long,
    Stop(Stop),
}

/// Whether a list of elements or members goes on.
enum Step {
    More,
    Done,
}

struct Reader<'p> {
    memory: Share<'p>,
    /// Where in the unpacked file it is looked at next what is held.
    next_look: u64,
    /// Where the tables are made as long as they are going to be.
    next_reserve: u64,
    blocks: Blocks<'p>,
    owners: Owners,
    frame: Frame,
    damaged_in_a_row: u32,
}

/// Why reading ended before the file's last bracket.
enum Early {
    Io(io::Error),
    End,
    Bad(u64),
}

impl From<io::Error> for Early {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// What takes an element of `traceEvents`, a comma between two, or the end.
type Element = fn(&mut Cursor<'_>, &mut Owners, &mut Frame, &mut u32) -> Result<Step, Stop>;

/// Reads a file of trace events: the outermost value is an object with `traceEvents`, or the array itself.
pub(crate) fn read(path: &Path, done_bytes: &AtomicU64, memory: &Memory) -> Result<ReadFile, Unreadable> {
    read_with(path, done_bytes, memory, Reader::element)
}

/// Cuts every member of every event out and uses none: how many events there are. It compares no event with another.
pub(crate) fn scan(path: &Path) -> Result<u64, Unreadable> {
    let memory = Memory::default();
    let mut file = read_with(
        path,
        &AtomicU64::new(0),
        &memory,
        |cursor, owners, frame, damaged| {
            if cursor.token()? != b'{' {
                return Reader::element(cursor, owners, frame, damaged);
            }
            members(cursor, |_, _| Go::On)?;
            owners.first().counts.events += 1;
            Ok(Step::More)
        },
    )?;
    Ok(file.owners.first().counts.events)
}

fn read_with(
    path: &Path,
    done_bytes: &AtomicU64,
    memory: &Memory,
    element: Element,
) -> Result<ReadFile, Unreadable> {
    let mut reader = Reader {
        memory: memory.share(),
        next_look: LOOK_BYTES,
        next_reserve: LOOK_BYTES,
        blocks: Blocks::open(path, done_bytes)?,
        owners: Owners::default(),
        frame: Frame::default(),
        damaged_in_a_row: 0,
    };
    let first = reader.first_token()?;
    let result = match first {
        b'[' => {
            reader.frame.has_events = true;
            reader.blocks.consume(1);
            reader.each(element)
        }
        _ => {
            reader.blocks.consume(1);
            reader.object(element)
        }
    };
    let offset = reader.blocks.offset();
    let cut = |blocks: &Blocks<'_>| {
        let why = match &blocks.damage {
            Some(damage) => format!("its packed bytes end early ({damage})"),
            None => "it ends in the middle".to_owned(),
        };
        Ending::Cut(why, offset)
    };
    let ending = match result {
        // Chrome's own writers may leave the last bracket of an array out.
        Err(Early::End) if first == b'[' && reader.blocks.damage.is_none() && reader.only_blanks_left() => {
            Ending::Whole
        }
        Err(Early::End) => cut(&reader.blocks),
        Err(Early::Io(error)) => {
            reader.memory.give_back();
            return Err(error.into());
        }
        Err(Early::Bad(at)) => Ending::Damaged(at),
        Ok(()) => {
            // A checksum that does not fit shows behind the last bracket too.
            let mut behind = 0;
            loop {
                let data = reader.blocks.data();
                let blank = data.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                if behind > 0 || blank < data.len() {
                    behind += data.len() as u64;
                }
                let rest = data.len();
                reader.blocks.consume(rest);
                if !reader.blocks.grow()? {
                    break;
                }
            }
            match reader.blocks.damage.take() {
                Some(damage) if damage.contains("checksum") => Ending::ChecksumDiffers,
                _ if behind > 0 => Ending::Followed(behind),
                Some(damage) => Ending::FollowedByDamage(damage),
                None => Ending::Whole,
            }
        }
    };
    if !reader.frame.has_events {
        return Err(Unreadable::NotATrace(match ending {
            Ending::Whole | Ending::Followed(_) | Ending::FollowedByDamage(_) | Ending::ChecksumDiffers => {
                "has no \"traceEvents\": not a Chrome or Kineto trace".to_owned()
            }
            Ending::Cut(why, at) => format!("has no \"traceEvents\" before byte {at}, where {why}"),
            Ending::Damaged(at) => format!("is not JSON from byte {at} on"),
        }));
    }
    Ok(ReadFile {
        owners: reader.owners,
        frame: reader.frame,
        ending,
    })
}

/// What bytes are that are no text, and what to do.
fn not_text(head: &[u8]) -> Option<&'static str> {
    const KNOWN: &[(&[u8], &str)] = &[
        (
            b"\xfd7zXZ\0",
            "is packed with xz, which is not read: unpack it first (xz -d)",
        ),
        (
            b"BZh",
            "is packed with bzip2, which is not read: unpack it first (bzip2 -d)",
        ),
        (
            b"PK\x03\x04",
            "is a zip archive, which is not read: unpack it first (unzip)",
        ),
        (
            b"\x04\x22\x4d\x18",
            "is packed with lz4, which is not read: unpack it first (lz4 -d)",
        ),
        (
            b"\xff\xfe",
            "is UTF-16: convert it first (iconv -f UTF-16 -t UTF-8)",
        ),
        (
            b"\xfe\xff",
            "is UTF-16: convert it first (iconv -f UTF-16 -t UTF-8)",
        ),
        (
            b"SQLite format 3\0",
            "is an SQLite database that is packed or comes through a pipe: write it to a file of its own first",
        ),
        (
            b"\0",
            "begins with zero bytes: was it downloaded or copied whole?",
        ),
    ];
    KNOWN
        .iter()
        .find(|(magic, _)| head.starts_with(magic))
        .map(|(_, what)| *what)
}

impl Reader<'_> {
    /// The bracket that the file begins with.
    fn first_token(&mut self) -> Result<u8, Unreadable> {
        loop {
            let data = self.blocks.data();
            let blank = data
                .iter()
                .take_while(|byte| byte.is_ascii_whitespace() || [0xef, 0xbb, 0xbf].contains(*byte))
                .count();
            match data.get(blank).copied() {
                Some(first @ (b'{' | b'[')) => {
                    self.blocks.consume(blank);
                    return Ok(first);
                }
                Some(_) => {
                    // More of it, to show how it begins.
                    if data.len() < 64 && self.blocks.grow()? {
                        continue;
                    }
                    let data = self.blocks.data();
                    if let Some(packed) = not_text(&data[blank..]) {
                        return Err(Unreadable::NotATrace(packed.to_owned()));
                    }
                    let head: String = String::from_utf8_lossy(&data[blank..data.len().min(blank + 24)])
                        .chars()
                        .filter(|letter| !letter.is_control())
                        .collect();
                    return Err(Unreadable::NotATrace(format!(
                        "is not JSON, not a gputrace recording and not an Nsight Systems export (it begins with {head:?}): \
                         was it downloaded or copied whole?"
                    )));
                }
                None => {
                    self.blocks.consume(blank);
                    if !self.blocks.grow()? {
                        let why = match &self.blocks.damage {
                            Some(damage) => format!("can't be unpacked: {damage}"),
                            None => "is empty".to_owned(),
                        };
                        return Err(Unreadable::NotATrace(why));
                    }
                }
            }
        }
    }

    /// Leaves blanks behind: there may be more of them than an element may be long. Whether there were any.
    fn skip_blanks(&mut self) -> bool {
        let data = self.blocks.data();
        let blank = data.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.blocks.consume(blank);
        blank > 0
    }

    fn only_blanks_left(&self) -> bool {
        let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
        self.blocks.data().iter().all(blank)
    }

    /// Takes elements from the blocks until the list ends.
    ///
    /// `one` takes a separator or one element at the cursor. When the bytes end inside an element, more are read and the
    /// element is tried again from its start.
    fn each(&mut self, one: Element) -> Result<(), Early> {
        loop {
            let mut cursor = Cursor::new(self.blocks.data());
            let mut whole = 0;
            let halt = loop {
                match one(
                    &mut cursor,
                    &mut self.owners,
                    &mut self.frame,
                    &mut self.damaged_in_a_row,
                ) {
                    Ok(Step::More) => {
                        let length = cursor.at() - std::mem::replace(&mut whole, cursor.at());
                        if length > LONG_ELEMENT {
                            break Halt::Long;
                        }
                    }
                    Ok(Step::Done) => {
                        whole = cursor.at();
                        break Halt::Done;
                    }
                    Err(stop) => break Halt::Stop(stop),
                }
            };
            let offset = self.blocks.offset();
            self.blocks.consume(whole);
            let is_long = matches!(halt, Halt::Long);
            if is_long || self.blocks.offset() >= self.next_look {
                self.look()?;
            }
            match halt {
                Halt::Done => return Ok(()),
                Halt::Long => {}
                Halt::Stop(Stop::Bad(at)) => return Err(Early::Bad(offset + at as u64)),
                Halt::Stop(Stop::End) if self.skip_blanks() => {}
                Halt::Stop(Stop::End) if self.blocks.data().len() > ELEMENT_BYTES => self.skip_element()?,
                Halt::Stop(Stop::End) => {
                    if !self.blocks.grow_much()? {
                        return Err(Early::End);
                    }
                }
            }
        }
    }

    /// Looks whether what is held may be held, and lets names take no more than what may still come.
    fn look(&mut self) -> io::Result<()> {
        let held = self.owners.bytes() as u64;
        let room = self.memory.check(held, self.blocks.offset())?;
        self.owners
            .limit_names(usize::try_from(room).unwrap_or(usize::MAX));
        if self.blocks.offset() >= self.next_reserve {
            self.owners.reserve(self.blocks.to_come());
            // Files hold events of one kind after those of another: what was expected is mended a few times.
            self.next_reserve = 2 * self.blocks.offset();
        }
        let processes = self.owners.all.len() as u64;
        self.next_look = self.blocks.offset() + LOOK_BYTES.max(processes * LOOK_BYTES_A_PROCESS);
        Ok(())
    }

    /// Steps over the element that the blocks begin with, however long.
    fn skip_element(&mut self) -> Result<(), Early> {
        self.owners.first().counts.too_long += 1;
        let mut skipper = Skipper::default();
        loop {
            let data = self.blocks.data();
            if let Some(length) = skipper.feed(data) {
                self.blocks.consume(length);
                return Ok(());
            }
            let length = data.len();
            self.blocks.consume(length);
            if !self.blocks.grow()? {
                return Err(Early::End);
            }
        }
    }

    /// An element of `traceEvents`, a comma between two, or the end.
    #[inline]
    fn element(
        cursor: &mut Cursor<'_>,
        owners: &mut Owners,
        _: &mut Frame,
        damaged_in_a_row: &mut u32,
    ) -> Result<Step, Stop> {
        match cursor.token()? {
            b'{' => {
                if let Some(length) = owners.repeated(cursor.rest()) {
                    cursor.step_over(length);
                    *damaged_in_a_row = 0;
                    return Ok(Step::More);
                }
                let start = cursor.clone();
                match Event::read(cursor) {
                    Ok(event) => {
                        *damaged_in_a_row = 0;
                        owners.event(&event, &start.rest()[..cursor.at() - start.at()]);
                    }
                    Err(Stop::End) => return Err(Stop::End),
                    Err(bad) => {
                        // One event that a writer spoilt is no reason to lose all others, if its brackets are whole.
                        *cursor = start;
                        cursor.skip_nested()?;
                        owners.first().counts.damaged += 1;
                        *damaged_in_a_row += 1;
                        if *damaged_in_a_row > DAMAGED_IN_A_ROW {
                            return Err(bad);
                        }
                    }
                }
                Ok(Step::More)
            }
            b',' => {
                cursor.advance();
                Ok(Step::More)
            }
            b']' => {
                cursor.advance();
                Ok(Step::Done)
            }
            _ => {
                cursor.value()?;
                owners.first().counts.not_events += 1;
                Ok(Step::More)
            }
        }
    }

    /// The members of the outermost object.
    fn object(&mut self, element: Element) -> Result<(), Early> {
        loop {
            // A member at a time: the one with the events is walked through, not cut out.
            self.each(Self::key)?;
            let mut cursor = Cursor::new(self.blocks.data());
            match cursor.token() {
                Ok(b'}') => {
                    self.blocks.consume(cursor.at() + 1);
                    return Ok(());
                }
                Ok(b'[') => {
                    self.blocks.consume(cursor.at() + 1);
                    self.owners.first().counts.more_lists += u64::from(self.frame.has_events);
                    self.frame.has_events = true;
                    self.each(element)?;
                }
                _ => return Err(Early::Bad(self.blocks.offset())),
            }
        }
    }

    /// A member of the outermost object, up to the array of events or the end.
    fn key(
        cursor: &mut Cursor<'_>,
        owners: &mut Owners,
        frame: &mut Frame,
        _: &mut u32,
    ) -> Result<Step, Stop> {
        match cursor.token()? {
            b',' => {
                cursor.advance();
                Ok(Step::More)
            }
            b'}' => Ok(Step::Done),
            _ => {
                let key = cursor.text()?;
                cursor.expect(b':')?;
                if *unescaped(key) == *b"traceEvents" && cursor.token()? == b'[' {
                    return Ok(Step::Done);
                }
                let value: Raw<'_> = cursor.value()?;
                frame.member(&unescaped(key), value, &mut owners.first().names.trouble);
                Ok(Step::More)
            }
        }
    }
}
