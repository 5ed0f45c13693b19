//! Notifies systemd that the server is ready, reloads or stops, without a library: it is one datagram.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a notification if the service manager asked for it; otherwise does nothing.
pub(crate) fn notify_systemd(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send_datagram(&socket.to_string_lossy(), state) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

fn send_datagram(socket: &str, state: &str) -> io::Result<()> {
    let address = match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_receives_the_state() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let systemd = UnixDatagram::bind(&path).unwrap();
        send_datagram(path.to_str().unwrap(), "READY=1").unwrap();
        let mut text = [0; 64];
        let length = systemd.recv(&mut text).unwrap();
        assert_eq!(&text[..length], b"READY=1");
    }
}
