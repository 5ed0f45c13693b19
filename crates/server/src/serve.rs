//! A server from its start to its end.

use crate::listen::accept_loop;
use crate::metrics::Metrics;
use crate::options::ServeOptions;
use crate::publisher::Publisher;
use crate::router::router;
use crate::state::AppState;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use windlass_store::Store;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen at {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot start threads: {0}")]
    Runtime(#[source] io::Error),
}

/// Starts servers.
#[derive(Clone, Copy, Debug)]
pub struct Server;

/// A server that runs. Dropped, it stops as it would on SIGTERM.
#[derive(Debug)]
pub struct Running {
    /// `http://127.0.0.1:8080`: without a prefix.
    pub url: String,
    /// Of the owner; may do everything.
    pub token: String,
    stop: CancellationToken,
    runtime: Option<Runtime>,
    served: Option<tokio::task::JoinHandle<()>>,
}

impl Server {
    /// Starts one on threads of its own and comes back when it listens.
    pub fn start(options: ServeOptions, store: Arc<dyn Store>) -> Result<Running, ServeError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("windlass-http")
            .build()
            .map_err(ServeError::Runtime)?;
        let address = options.listen;
        let listener = runtime
            .block_on(TcpListener::bind(address))
            .map_err(|source| ServeError::Listen { address, source })?;
        let address = listener.local_addr().map_err(|source| ServeError::Listen { address, source })?;
        let stop = CancellationToken::new();
        let metrics = Arc::new(Metrics::default());
        let events = {
            let _inside = runtime.enter();
            Publisher::start(Arc::clone(&store), Arc::clone(&metrics), stop.clone())
        };
        let state = AppState { store, events, metrics, options: Arc::new(options) };
        let served = runtime.spawn(accept_loop(listener, router(state), stop.clone()));
        let url = format!("http://{address}");
        Ok(Running { url, token: String::new(), stop, runtime: Some(runtime), served: Some(served) })
    }
}

impl Running {
    /// Stops listening, ends waits and streams, answers what is under way, and comes back when all is on disk.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.cancel();
        if let (Some(runtime), Some(served)) = (self.runtime.take(), self.served.take()) {
            // It only ends early by a panic, which has been told.
            drop(runtime.block_on(served));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Serves until SIGTERM or SIGINT.
pub fn serve(options: ServeOptions, store: Arc<dyn Store>) -> Result<(), ServeError> {
    let running = Server::start(options, store)?;
    if let Some(runtime) = &running.runtime {
        runtime.block_on(stop_signal()).map_err(ServeError::Runtime)?;
    }
    running.stop();
    Ok(())
}

async fn stop_signal() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
