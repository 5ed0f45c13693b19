//! Who waits for the answers to exchanges, and notices that he has hung up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass_scheduler::service::SchedulerHandle;
use windlass_types::WorkerId;
use windlass_types::worker_protocol::WorkerExchange;

/// The newest caller of each exchange that is under way. A worker that got no answer says the same again, and that the
/// earlier caller is gone may be noticed only afterwards: this must not take the answer from the later one.
#[derive(Clone, Debug, Default)]
pub struct ExchangeWaiters(Arc<Mutex<NewestWaiters>>);

#[derive(Debug, Default)]
struct NewestWaiters {
    waiters: HashMap<ExchangeKey, u64>,
    next_number: u64,
}

/// An exchange, with the secret that came with it: whoever does not know it takes nobody's place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ExchangeKey {
    worker: WorkerId,
    number: u64,
    secret: String,
}

/// Somebody who waits for the answer to an exchange. Dropped before it is there, he has hung up, and the service is told:
/// nothing more is assigned to an exchange that nobody listens to.
#[derive(Debug)]
pub(crate) struct ExchangeWaiter {
    waiters: ExchangeWaiters,
    service: SchedulerHandle,
    exchange: ExchangeKey,
    waiter_number: u64,
    is_answered: bool,
}

impl ExchangeWaiters {
    /// To be called before the service is.
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
            // While nobody else can begin to listen: whoever comes next is heard of by the service after this.
            let ExchangeKey { worker, number, secret } = self.exchange.clone();
            self.service.cancel_exchange(worker, number, secret);
        }
    }
}
