//! Ports for servers that tests start. Other crates include this file by `#[path]`.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// `cargo xtask test` excludes these ports from those that the kernel assigns to connections and to port 0, so that
/// none of them is taken between the choice and the start of the server.
const FIRST: u32 = 17_000;
const COUNT: u32 = 1_400;

/// A free port on loopback. Test processes start their search at different ports.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(8);
    let mut ports = (0..COUNT).map(|_| {
        let offset = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        u16::try_from(FIRST + offset).unwrap()
    });
    ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).expect("no free port")
}
