//! What a worker elsewhere says to the server.

use crate::{Client, Error};
use std::time::Duration;
use windlass_types::fleet::{Exchange, ExchangeAnswer, Introduction, Welcome};

impl Client {
    pub fn introduce(&self, who: &Introduction, within: Duration) -> Result<Welcome, Error> {
        self.post_within("/api/v1/workers", who, within)
    }

    /// Waits at the server as long as the exchange says; `within` is on top of that.
    pub fn exchange(&self, exchange: &Exchange, within: Duration) -> Result<ExchangeAnswer, Error> {
        let path = format!("/api/v1/workers/{}/exchange", exchange.worker);
        self.post_within(&path, exchange, exchange.wait + within)
    }
}
