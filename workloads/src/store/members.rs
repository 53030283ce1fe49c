//! Who the ranks are: what each says of itself when it comes, and who of them speaks when all end.

use std::os::unix::fs::MetadataExt;

use super::wire::{Fields, Reader};
use crate::rank::Rank;

/// The first word of every greeting: another program that listens on the port says something else.
const MAGIC: &str = "gpu workload store 1";
/// So much of a command line goes into messages.
const SHOWN_CHARACTERS: usize = 200;

/// One rank's process.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Member {
    pub(super) rank: u32,
    pub(super) pid: u32,
    pub(super) host: String,
    /// What its stderr is: equal for two ranks whose messages come to the same place.
    pub(super) output: String,
}

impl Member {
    /// This process.
    pub(super) fn own(rank: &Rank) -> Self {
        let host = host_name();
        Self {
            rank: rank.rank,
            pid: std::process::id(),
            output: output(rank, &host),
            host,
        }
    }

    /// As messages name it.
    pub(super) fn name(&self) -> String {
        format!("rank {} (pid {} on host {})", self.rank, self.pid, self.host)
    }

    fn write(&self, fields: Fields) -> Fields {
        fields
            .number(self.rank)
            .number(self.pid)
            .text(&self.host)
            .text(&self.output)
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            rank: reader.number()?,
            pid: reader.number()?,
            host: reader.text()?,
            output: reader.text()?,
        })
    }
}

/// What a rank says when it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// Which run it belongs to, as far as whoever started it tells; empty when nothing does.
    pub(super) run: String,
    pub(super) ranks: u32,
    pub(super) member: Member,
    /// Its command line without the program, which may lie elsewhere on another host.
    pub(super) arguments: String,
}

impl Hello {
    pub(super) fn own(rank: &Rank) -> Self {
        let arguments: Vec<_> = std::env::args_os()
            .skip(1)
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        Self {
            run: rank.run.clone(),
            ranks: rank.ranks,
            member: Member::own(rank),
            arguments: arguments.join(" "),
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let fields = Fields::default().text(MAGIC).text(&self.run).number(self.ranks);
        self.member.write(fields).text(&self.arguments).into_bytes()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        (reader.text()? == MAGIC).then_some(())?;
        Some(Self {
            run: reader.text()?,
            ranks: reader.number()?,
            member: Member::read(&mut reader)?,
            arguments: reader.text()?,
        })
    }

    /// Why `guest` is not a rank of our run, if it is not, by what it was started with.
    pub(super) fn misfit(&self, guest: &Self) -> Option<String> {
        let name = guest.member.name();
        let advice = "all ranks of a run need the same; if it belongs to another run, give each run a \
                      MASTER_PORT of its own";
        if guest.ranks != self.ranks {
            return Some(format!(
                "{name} is one of {} ranks, but rank 0 of {}: {advice}",
                guest.ranks, self.ranks
            ));
        }
        if guest.arguments != self.arguments {
            return Some(format!(
                "{name} was started with \"{}\", but rank 0 with \"{}\": {advice}",
                shown(&guest.arguments),
                shown(&self.arguments)
            ));
        }
        (guest.member.rank == 0 || guest.member.rank >= self.ranks).then(|| {
            format!(
                "{name} cannot be: there are ranks 0 to {} and rank 0 is here",
                self.ranks - 1
            )
        })
    }
}

fn shown(arguments: &str) -> String {
    if arguments.chars().count() <= SHOWN_CHARACTERS {
        return arguments.to_owned();
    }
    arguments
        .chars()
        .take(SHOWN_CHARACTERS)
        .chain("...".chars())
        .collect()
}

/// All members as a payload, and back.
pub(super) fn to_bytes(members: &[Member]) -> Vec<u8> {
    members
        .iter()
        .fold(Fields::default(), |fields, member| member.write(fields))
        .into_bytes()
}

/// As many members as there are ranks, by rank.
pub(super) fn from_bytes(bytes: &[u8], ranks: u32) -> Option<Vec<Member>> {
    let mut reader = Reader(bytes);
    (0..ranks)
        .map(|rank| Member::read(&mut reader).filter(|member| member.rank == rank))
        .collect()
}

/// Whether `me` tells why all end: the first of those who write to the same place, and are there to write.
pub(super) fn speaks(members: &[Member], me: u32, is_gone: &dyn Fn(u32) -> bool) -> bool {
    let Some(own) = members.get(me as usize) else {
        return true;
    };
    !members[..me as usize]
        .iter()
        .any(|member| member.output == own.output && !is_gone(member.rank))
}

/// The name of this host, as others know it.
pub(crate) fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer has the length that is said, and its last byte stays 0.
    let code = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    if code != 0 || end == 0 {
        return "localhost".to_owned();
    }
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// What stderr is. srun and mpirun bring what all ranks write to one place, through a pipe for each.
fn output(rank: &Rank, host: &str) -> String {
    if rank.outputs_joined {
        return "joined".to_owned();
    }
    std::fs::metadata("/proc/self/fd/2").map_or_else(
        |_| format!("{host} {}", std::process::id()),
        |file| format!("{host} {} {}", file.dev(), file.ino()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(rank: u32, output: &str) -> Member {
        Member {
            rank,
            pid: 100 + rank,
            host: "a".to_owned(),
            output: output.to_owned(),
        }
    }

    fn hello() -> Hello {
        Hello {
            run: "run".to_owned(),
            ranks: 4,
            member: member(2, "tty"),
            arguments: "ddp --ranks 4".to_owned(),
        }
    }

    #[test]
    fn greetings_and_members_come_back_as_they_were() {
        assert_eq!(Hello::from_bytes(&hello().to_bytes()), Some(hello()));
        let members = [member(0, "x"), member(1, "y")];
        assert_eq!(from_bytes(&to_bytes(&members), 2).as_deref(), Some(&members[..]));
        assert_eq!(from_bytes(&to_bytes(&members), 3), None);
    }

    #[test]
    fn each_difference_is_named() {
        let ours = hello();
        assert_eq!(ours.misfit(&hello()), None);
        let other_size = Hello { ranks: 5, ..hello() };
        assert!(
            ours.misfit(&other_size)
                .is_some_and(|text| text.contains("one of 5 ranks"))
        );
        let other_words = Hello {
            arguments: "ddp --steps 3".to_owned(),
            ..hello()
        };
        assert!(
            ours.misfit(&other_words)
                .is_some_and(|text| text.contains("ddp --steps 3"))
        );
        let none = Hello {
            member: member(4, "tty"),
            ..hello()
        };
        assert!(ours.misfit(&none).is_some_and(|text| text.contains("rank 4")));
    }

    #[test]
    fn one_rank_speaks_in_each_place() {
        let members = [member(0, "x"), member(1, "x"), member(2, "y"), member(3, "y")];
        let speakers = |gone: u32| -> Vec<u32> {
            (0..4)
                .filter(|&rank| rank != gone && speaks(&members, rank, &|other| other == gone))
                .collect()
        };
        assert_eq!(speakers(0), [1, 2]);
        assert_eq!(speakers(1), [0, 2]);
        assert_eq!(speakers(2), [0, 3]);
    }
}
