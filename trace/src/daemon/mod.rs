//! How collectors, the daemon and its clients talk: packets over a Unix socket with a path.
//!
//! A packet is one JSON text with at most one descriptor beside it ([`Connection`]). Who calls is known from the kernel
//! (SO_PEERCRED), never from what is said. A client of the daemon sends one [`Ask`] and reads [`Answer`]s; a collector sends
//! [`FromCollector::Join`] and stays. The daemon opens all files and hands over descriptors: no path of a client's or a job's is
//! ever opened by it. Members that are not known are ignored on both sides.

mod messages;
mod socket;

use std::path::PathBuf;

pub use messages::{
    Answer, Ask, Capture, Captured, FromCollector, Hello, JobKey, Limits, Mode, StepReport, ToCollector,
    Totals,
};
pub use socket::{Connection, MOST_PACKET_BYTES};

/// The variable that names the daemon's socket, where it is not in the usual place. Empty: no daemon is looked for.
pub const SOCKET_VARIABLE: &str = "GPUTRACE_SOCKET";
/// The socket of the machine's daemon.
pub const SYSTEM_SOCKET: &str = "/run/gputrace/daemon.sock";

/// Where a user's own daemon has its socket: in XDG_RUNTIME_DIR, or in a folder of the user's below /tmp where there is none.
/// `runtime`: that variable; `uid`: the user's number.
#[must_use]
pub fn user_socket(runtime: Option<&str>, uid: u32) -> PathBuf {
    match runtime.filter(|folder| folder.starts_with('/')) {
        Some(folder) => PathBuf::from(folder).join("gputrace/daemon.sock"),
        None => PathBuf::from(format!("/tmp/gputrace-{uid}/daemon.sock")),
    }
}

/// Where a daemon is looked for, in this order: by [`SOCKET_VARIABLE`] alone where it is set, else the user's own, else the machine's.
#[must_use]
pub fn sockets(variable: &dyn Fn(&str) -> Option<String>, uid: u32) -> Vec<PathBuf> {
    match variable(SOCKET_VARIABLE) {
        Some(path) if path.is_empty() => Vec::new(),
        Some(path) => vec![PathBuf::from(path)],
        None => vec![
            user_socket(variable("XDG_RUNTIME_DIR").as_deref(), uid),
            PathBuf::from(SYSTEM_SOCKET),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_is_named_is_the_only_one() {
        let found = |set: &'static [(&'static str, &'static str)]| {
            sockets(
                &move |name| {
                    let value = set.iter().find(|(known, _)| *known == name)?.1;
                    Some(value.to_owned())
                },
                7,
            )
        };
        assert_eq!(
            found(&[]),
            [
                PathBuf::from("/tmp/gputrace-7/daemon.sock"),
                PathBuf::from(SYSTEM_SOCKET)
            ]
        );
        assert_eq!(
            found(&[("XDG_RUNTIME_DIR", "/run/user/7")])[0],
            PathBuf::from("/run/user/7/gputrace/daemon.sock")
        );
        assert_eq!(
            found(&[(SOCKET_VARIABLE, "/x"), ("XDG_RUNTIME_DIR", "/run/user/7")]),
            [PathBuf::from("/x")]
        );
        assert!(found(&[(SOCKET_VARIABLE, "")]).is_empty());
    }
}
