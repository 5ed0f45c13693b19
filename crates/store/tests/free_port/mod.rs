//! A port for a server of a test that binds it later, or again after a crash. Other crates use this file by
//! `#[path]`.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the ports that the kernel assigns to outgoing connections. Such a connection could take the port while
/// its server is down; a client that tries to reach that server could even connect to itself. Where the kernel assigns
/// them too, `cargo xtask test` reserves them.
const FIRST: u16 = 20_000;
const COUNT: u32 = 12_000;

/// A port of the loopback interface that no process uses. Concurrent tests, which have neighboring process ids,
/// begin with different ports.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut ports = (0..COUNT).map(|_| {
        let number = std::process::id().wrapping_mul(37).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        FIRST + u16::try_from(number % COUNT).unwrap()
    });
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}
