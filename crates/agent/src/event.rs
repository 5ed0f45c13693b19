//! The events of the worker's main thread.

use std::time::Duration;
use windlass_client::Client;
use windlass_types::worker_messages::FromWorker;
use windlass_types::worker_protocol::{ActionReport, ExchangeReply, RegistrationReply};

#[derive(Debug)]
pub(crate) enum RemoteWorkerEvent {
    /// From the worker process with this number.
    WorkerMessage(u32, FromWorker),
    /// Its link is closed.
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
    /// The server has a new address.
    ServerMoved(Client),
    ActionDone(ActionReport),
    /// A signal, or the program that started this worker, asks it to end.
    Interrupt,
    /// It has to end soon: drain.
    Drain,
    /// A warning that its time limit is near.
    TimeLimitNotice,
    /// It has to end now.
    Stop,
}
