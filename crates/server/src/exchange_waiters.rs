//! Requests that wait for responses to worker exchanges, and detection of closed connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass_scheduler::service::SchedulerHandle;
use windlass_types::WorkerId;
use windlass_types::worker_protocol::WorkerExchange;

/// The newest request for each active exchange. A worker without a response repeats its exchange, and the
/// closing of the earlier connection may be noticed only afterwards; it must not discard the response for the
/// later request.
#[derive(Clone, Debug, Default)]
pub struct ExchangeWaiters(Arc<Mutex<NewestWaiters>>);

#[derive(Debug, Default)]
struct NewestWaiters {
    waiters: HashMap<ExchangeKey, u64>,
    next_number: u64,
}

/// Key of an exchange, with the worker's secret: a caller without it cannot replace the waiting request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ExchangeKey {
    worker: WorkerId,
    number: u64,
    secret: String,
}

/// A request that waits for the response to an exchange. If it is dropped before the response, the connection
/// was closed and the scheduler is informed: no jobs are assigned to an exchange without a reader.
#[derive(Debug)]
pub(crate) struct ExchangeWaiter {
    waiters: ExchangeWaiters,
    service: SchedulerHandle,
    exchange: ExchangeKey,
    waiter_number: u64,
    is_answered: bool,
}

impl ExchangeWaiters {
    /// Registers the request; called before the scheduler is.
    pub(crate) fn register(&self, service: &SchedulerHandle, exchange: &WorkerExchange) -> ExchangeWaiter {
        let WorkerExchange { worker, number, secret, .. } = exchange;
        let exchange = ExchangeKey { worker: *worker, number: *number, secret: secret.clone() };
        let mut newest = self.lock_newest();
        newest.next_number += 1;
        let caller = newest.next_number;
        newest.waiters.insert(exchange.clone(), caller);
        ExchangeWaiter {
            waiters: self.clone(),
            service: service.clone(),
            exchange,
            waiter_number: caller,
            is_answered: false,
        }
    }

    fn lock_newest(&self) -> MutexGuard<'_, NewestWaiters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ExchangeWaiter {
    pub(crate) fn mark_answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for ExchangeWaiter {
    fn drop(&mut self) {
        let mut newest = self.waiters.lock_newest();
        if newest.waiters.get(&self.exchange) != Some(&self.waiter_number) {
            return;
        }
        newest.waiters.remove(&self.exchange);
        if !self.is_answered {
            // While the lock is held no new request can register; the scheduler hears of a later one after
            // this.
            let ExchangeKey { worker, number, secret } = self.exchange.clone();
            self.service.cancel_exchange(worker, number, secret);
        }
    }
}
