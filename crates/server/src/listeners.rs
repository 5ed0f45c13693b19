//! Who waits for the answers to exchanges, and notices that he has hung up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windlass_engine::service::Service;
use windlass_types::WorkerId;
use windlass_types::fleet::Exchange;

/// The newest caller of each exchange that is under way. A worker that got no answer says the same again, and that the
/// earlier caller is gone may be noticed only afterwards: this must not take the answer from the later one.
#[derive(Clone, Debug, Default)]
pub struct Listeners(Arc<Mutex<Newest>>);

#[derive(Debug, Default)]
struct Newest {
    callers: HashMap<Said, u64>,
    next: u64,
}

/// An exchange, with the secret that came with it: whoever does not know it takes nobody's place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Said {
    worker: WorkerId,
    number: u64,
    secret: String,
}

/// Somebody who waits for the answer to an exchange. Dropped before it is there, he has hung up, and the service is told:
/// nothing more is assigned to an exchange that nobody listens to.
#[derive(Debug)]
pub(crate) struct Listener {
    all: Listeners,
    service: Service,
    exchange: Said,
    caller: u64,
    is_answered: bool,
}

impl Listeners {
    /// To be called before the service is.
    pub(crate) fn listen(&self, service: &Service, exchange: &Exchange) -> Listener {
        let Exchange { worker, number, secret, .. } = exchange;
        let exchange = Said { worker: *worker, number: *number, secret: secret.clone() };
        let mut newest = self.newest();
        newest.next += 1;
        let caller = newest.next;
        newest.callers.insert(exchange.clone(), caller);
        Listener { all: self.clone(), service: service.clone(), exchange, caller, is_answered: false }
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener {
    pub(crate) fn was_answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut newest = self.all.newest();
        if newest.callers.get(&self.exchange) != Some(&self.caller) {
            return;
        }
        newest.callers.remove(&self.exchange);
        if !self.is_answered {
            // While nobody else can begin to listen: whoever comes next is heard of by the service after this.
            let Said { worker, number, secret } = self.exchange.clone();
            self.service.hang_up(worker, number, secret);
        }
    }
}
