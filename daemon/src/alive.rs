//! Whether a process lives, whatever became of its connection.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// `SO_PEERPIDFD` of Linux 6.5, which libc does not have yet: the same number on x86-64 and arm64.
const SO_PEERPIDFD: libc::c_int = 77;

/// What a process is known by as long as it lives.
#[derive(Debug, Default)]
pub struct Alive {
    /// The kernel's own word for it. It works where the process has no number that we can see, as in a container.
    descriptor: Option<OwnedFd>,
    /// Its number, and when it was started, in ticks since the machine was: a number that is given again is of another process.
    started: Option<(u32, u64)>,
}

impl Alive {
    /// The process at the other end of a connection; `pid`: its number as we see it, 0 where we don't.
    #[must_use]
    pub fn of(socket: RawFd, pid: u32) -> Self {
        Self {
            descriptor: peer(socket).or_else(|_| by_number(pid)).ok(),
            started: ticks(pid).map(|ticks| (pid, ticks)),
        }
    }

    /// One that was written down: see [`Self::started`].
    #[must_use]
    pub fn written(pid: u32, started: Option<u64>) -> Self {
        Self {
            descriptor: None,
            started: started.map(|ticks| (pid, ticks)),
        }
    }

    /// When it was started, in ticks since the machine was.
    #[must_use]
    pub fn started(&self) -> Option<u64> {
        self.started.map(|(_, ticks)| ticks)
    }

    /// Whether it lives; null where that can't be known. One that has ended and was not waited for yet is dead.
    #[must_use]
    pub fn lives(&self) -> Option<bool> {
        if let Some(descriptor) = &self.descriptor {
            let mut entry = libc::pollfd {
                fd: descriptor.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one entry, as said; it does not wait.
            return match unsafe { libc::poll(&raw mut entry, 1, 0) } {
                0.. => Some(entry.revents == 0),
                _ => None,
            };
        }
        let (pid, started) = self.started?;
        Some(ticks(pid) == Some(started))
    }
}

/// The kernel's descriptor of the process at the other end.
fn peer(socket: RawFd) -> io::Result<OwnedFd> {
    let mut found: RawFd = -1;
    let mut bytes = libc::socklen_t::try_from(size_of::<RawFd>()).unwrap_or(0);
    // SAFETY: the place is as large as `bytes` says; a number that is no socket's is an error.
    let result = unsafe {
        libc::getsockopt(
            socket,
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut found).cast(),
            &raw mut bytes,
        )
    };
    match result {
        // SAFETY: the kernel has just made it for us.
        0 if found >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(found) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The kernel's descriptor of a process that we see; of Linux 5.3.
fn by_number(pid: u32) -> io::Result<OwnedFd> {
    if pid == 0 {
        return Err(io::ErrorKind::NotFound.into());
    }
    // SAFETY: plain numbers; what it gives is a new descriptor.
    let found = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match RawFd::try_from(found) {
        // SAFETY: as above.
        Ok(found @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(found) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// When a process was started, in ticks since the machine was; nothing where it has ended.
fn ticks(pid: u32) -> Option<u64> {
    if pid == 0 {
        return None;
    }
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may have blanks and brackets in it.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    // The 22nd of all, where the state is the third.
    let started = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(started)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_process_lives_until_it_has_ended_and_its_number_is_not_enough() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("begun");
        let started = ticks(child.id()).expect("it lives");
        let alive = Alive::written(child.id(), Some(started));
        assert_eq!(alive.lives(), Some(true));
        assert_eq!(Alive::written(child.id(), Some(started + 1)).lives(), Some(false));
        assert_eq!(Alive::written(child.id(), None).lives(), None);
        child.kill().expect("killed");
        let until = Instant::now() + Duration::from_secs(10);
        // Before it was waited for.
        while alive.lives() != Some(false) {
            assert!(Instant::now() < until, "{alive:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait().expect("ended");
        assert_eq!(alive.lives(), Some(false));
    }

    #[test]
    fn the_other_end_of_a_connection_is_known_by_its_number_or_by_the_kernel() {
        let (one, _other) = UnixStream::pair().expect("a pair");
        let own = std::process::id();
        assert!(by_number(0).is_err());
        if let Ok(descriptor) = by_number(own) {
            let (descriptor, started) = (Some(descriptor), None);
            assert_eq!(Alive { descriptor, started }.lives(), Some(true));
        }
        assert_eq!(Alive::of(one.as_raw_fd(), own).lives(), Some(true));
        let unseen = Alive::of(one.as_raw_fd(), 0);
        // Linux 6.5 knows it all the same.
        assert_eq!(unseen.lives(), unseen.descriptor.as_ref().map(|_| true));
        assert_eq!(Alive::of(-1, 0).lives(), None);
    }
}
