//! What the agent's thread hears of.

use std::time::Duration;
use windlass_client::Client;
use windlass_types::fleet::{ActionReport, ExchangeAnswer, Welcome};
use windlass_types::work::FromWorker;

#[derive(Debug)]
pub(crate) enum Event {
    /// From the worker process of this number.
    Worker(u32, FromWorker),
    /// Its line is closed.
    WorkerGone(u32),
    Introduced {
        epoch: u32,
        sent: Duration,
        result: Result<Welcome, windlass_client::Error>,
    },
    Answered {
        epoch: u32,
        number: u64,
        sent: Duration,
        result: Result<ExchangeAnswer, windlass_client::Error>,
    },
    /// The server is elsewhere now.
    Moved(Client),
    ActionDone(ActionReport),
    /// A signal, or whoever started this agent, wants it to end.
    Interrupt,
    /// It will have to be gone before long.
    Drain,
    /// Somebody says that the end of its time is near.
    Warn,
    /// It has to be gone at once.
    Stop,
}
