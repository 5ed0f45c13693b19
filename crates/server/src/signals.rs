//! Signals to the server: stop, or reload files.

use std::io;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Signals are handled from the start, also while the server stands by.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerSignals {
    pub(crate) stop: CancellationToken,
    pub(crate) reload: Arc<Notify>,
}

impl ServerSignals {
    /// Must be called inside a runtime.
    pub(crate) fn listen() -> io::Result<Self> {
        let this = Self::default();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let hang_up = signal(SignalKind::hangup())?;
        tokio::spawn(this.clone().handle_signals(terminate, interrupt, hang_up));
        Ok(this)
    }

    async fn handle_signals(self, mut terminate: Signal, mut interrupt: Signal, mut hang_up: Signal) {
        loop {
            tokio::select! {
                _ = terminate.recv() => self.stop.cancel(),
                _ = interrupt.recv() => self.stop.cancel(),
                _ = hang_up.recv() => self.reload.notify_one(),
            }
        }
    }
}
