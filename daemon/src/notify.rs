//! Telling systemd how far we are, where it asked (`Type=notify`): one datagram to the socket that NOTIFY_SOCKET names.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says it, if anybody wants to know: "READY=1", "STOPPING=1".
pub fn notify(state: &str) {
    let Ok(name) = std::env::var("NOTIFY_SOCKET") else {
        return;
    };
    let address = match name.strip_prefix('@') {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name),
        None => SocketAddr::from_pathname(&name),
    };
    // A manager that does not listen ends us when its time is over; there is nobody else to tell.
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        drop(socket.send_to_addr(state.as_bytes(), &address));
    }
}
