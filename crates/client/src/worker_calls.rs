//! Calls of remote workers.

use crate::{Client, ClientError};
use std::time::Duration;
use windlass_types::worker_protocol::{ExchangeReply, RegistrationReply, WorkerExchange, WorkerRegistration};

impl Client {
    pub fn register_worker(
        &self,
        who: &WorkerRegistration,
        within: Duration,
    ) -> Result<RegistrationReply, ClientError> {
        self.post_within("/api/v1/workers", who, within)
    }

    /// Waits at the server as long as the exchange says; `within` is added to that.
    pub fn exchange(
        &self,
        exchange: &WorkerExchange,
        within: Duration,
    ) -> Result<ExchangeReply, ClientError> {
        let path = format!("/api/v1/workers/{}/exchange", exchange.worker);
        self.post_within(&path, exchange, exchange.wait + within)
    }
}
