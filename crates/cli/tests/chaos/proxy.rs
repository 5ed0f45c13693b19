//! A proxy to the server that can be cut off.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    is_cut: AtomicBool,
    /// Both ends of every connection.
    streams: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub(crate) fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let served = Arc::clone(&shared);
        // Ends with the test.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                served.join(client, server);
            }
        });
        Self { port, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Drops every connection and accepts none for this time. Returns afterwards.
    pub(crate) fn cut_for(&self, time: Duration) {
        self.shared.is_cut.store(true, Ordering::SeqCst);
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            stream.shutdown(Shutdown::Both).unwrap_or_default();
        }
        thread::sleep(time);
        self.shared.is_cut.store(false, Ordering::SeqCst);
    }
}

impl Shared {
    fn join(&self, client: TcpStream, server: u16) {
        if self.is_cut.load(Ordering::SeqCst) {
            return;
        }
        // While the server is down, the connection is closed at once.
        let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { return };
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap_or_default();
        }
        let mut streams = self.streams.lock().unwrap();
        streams.extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
        drop(streams);
        let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || carry(client, server));
        thread::spawn(move || carry(back.0, back.1));
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(length) = from.read(&mut buffer) {
        if length == 0 || to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    for stream in [&from, &to] {
        stream.shutdown(Shutdown::Both).unwrap_or_default();
    }
}
