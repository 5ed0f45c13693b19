//! The threads that call the server, one call at a time each, so that the agent itself never waits for one.

use crate::event::Event;
use std::sync::mpsc::{Receiver, Sender, channel};
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

/// A thread that calls. It ends when this is dropped, after the call that it is at.
#[derive(Debug)]
pub(crate) struct Caller {
    orders: Sender<Order>,
}

impl Caller {
    pub(crate) fn start(name: &str, client: Client, events: Sender<Event>) -> io::Result<Self> {
        let (orders, inbox) = channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || serve(&client, &inbox, &events))?;
        Ok(Self { orders })
    }

    pub(crate) fn call(&self, order: Order) {
        // It ends only with us.
        self.orders.send(order).ok();
    }
}

fn serve(client: &Client, inbox: &Receiver<Order>, events: &Sender<Event>) {
    for Order { epoch, call, within } in inbox {
        let sent = boot_time();
        let event = match call {
            Call::Introduce(who) => Event::Introduced { epoch, sent, result: client.introduce(&who, within) },
            Call::Exchange(exchange) => {
                let result = client.exchange(&exchange, within);
                Event::Answered { epoch, number: exchange.number, sent, result }
            }
        };
        if events.send(event).is_err() {
            return;
        }
    }
}
