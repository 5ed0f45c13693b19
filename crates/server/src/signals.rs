//! What the server is told from outside: to stop, or to read its files again.

use std::io;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Heard from the first moment on, also while the server stands by.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerSignals {
    pub(crate) stop: CancellationToken,
    pub(crate) reload: Arc<Notify>,
}

impl ServerSignals {
    /// To be called inside of a runtime.
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
