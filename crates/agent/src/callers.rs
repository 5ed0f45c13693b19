//! The threads that call the server, one call at a time each, so that the agent itself never waits for one.

use crate::event::Event;
use crate::options::FindAgain;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};
use windlass_client::Client;
use windlass_proc::identity::boot_time;
use windlass_types::fleet::{Exchange, Introduction};

#[derive(Debug)]
pub(crate) enum Call {
    Introduce(Box<Introduction>),
    Exchange(Box<Exchange>),
}

/// A call, and which life of this worker at the server it belongs to.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) epoch: u32,
    pub(crate) call: Call,
    /// How long the answer may take, beyond what the call itself waits.
    pub(crate) within: Duration,
}

/// The server, as it is called now. Where it was found by its database another one may have taken over, at another place.
pub(crate) struct Way {
    client: Mutex<Client>,
    find_again: Option<FindAgain>,
}

impl std::fmt::Debug for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Way").field(&self.client).finish()
    }
}

impl Way {
    pub(crate) fn new(client: Client, find_again: Option<FindAgain>) -> Self {
        // The jobs have to be told of another server.
        let client = if find_again.is_some() { client.without_finding() } else { client };
        Self { client: Mutex::new(client), find_again }
    }

    fn client(&self) -> Client {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks where the server is now; the one that is there is called from here on.
    fn look_again(&self) -> Option<Client> {
        let found = self.find_again.as_ref()?()?.without_finding();
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = found.clone();
        Some(found)
    }
}

/// A thread that calls. It ends when this is dropped, after the call that it is at.
#[derive(Debug)]
pub(crate) struct Caller {
    orders: Sender<Order>,
}

impl Caller {
    pub(crate) fn start(name: &str, way: Arc<Way>, events: Sender<Event>) -> io::Result<Self> {
        let (orders, inbox) = channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || serve(&way, &inbox, &events))?;
        Ok(Self { orders })
    }

    pub(crate) fn call(&self, order: Order) {
        // It ends only with us.
        self.orders.send(order).ok();
    }
}

fn serve(way: &Way, inbox: &Receiver<Order>, events: &Sender<Event>) {
    for Order { epoch, call, within } in inbox {
        let (client, sent) = (way.client(), boot_time());
        let (event, is_gone) = match call {
            Call::Introduce(who) => {
                let result = client.introduce(&who, within);
                let is_gone = result.as_ref().is_err_and(may_be_elsewhere);
                (Event::Introduced { epoch, sent, result }, is_gone)
            }
            Call::Exchange(exchange) => {
                let result = client.exchange(&exchange, within);
                let is_gone = result.as_ref().is_err_and(may_be_elsewhere);
                (Event::Answered { epoch, number: exchange.number, sent, result }, is_gone)
            }
        };
        if events.send(event).is_err() {
            return;
        }
        // Looking may take a while, so it comes after the news.
        let found = is_gone.then(|| way.look_again()).flatten();
        if let Some(found) = found.filter(|found| !found.is_same_way(&client))
            && events.send(Event::Moved(found)).is_err()
        {
            return;
        }
    }
}

/// It does not answer, or is not the one that has the database.
fn may_be_elsewhere(error: &windlass_client::Error) -> bool {
    matches!(error, windlass_client::Error::Unreachable { .. })
        || error.is_unknown_token()
        || matches!(error.code(), Some("standby" | "superseded_server"))
}
