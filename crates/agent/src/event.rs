//! What the agent's thread hears of.

use std::time::Duration;
use windlass_client::Client;
use windlass_types::worker_messages::FromWorker;
use windlass_types::worker_protocol::{ActionReport, ExchangeReply, RegistrationReply};

#[derive(Debug)]
pub(crate) enum RemoteWorkerEvent {
    /// From the worker process of this number.
    WorkerMessage(u32, FromWorker),
    /// Its line is closed.
    WorkerGone(u32),
    Registered {
        epoch: u32,
        sent: Duration,
        result: Result<RegistrationReply, windlass_client::ClientError>,
    },
    Replied {
        epoch: u32,
        number: u64,
        sent: Duration,
        result: Result<ExchangeReply, windlass_client::ClientError>,
    },
    /// The server is elsewhere now.
    ServerMoved(Client),
    ActionDone(ActionReport),
    /// A signal, or whoever started this agent, wants it to end.
    Interrupt,
    /// It will have to be gone before long.
    Drain,
    /// Somebody says that the end of its time is near.
    TimeLimitNotice,
    /// It has to be gone at once.
    Stop,
}
