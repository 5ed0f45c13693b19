//! The threads that call the server, one call at a time each, so that the main thread never blocks on a call.

use crate::event::RemoteWorkerEvent;
use crate::options::FindServer;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};
use windlass_client::Client;
use windlass_process::process_identity::boot_time;
use windlass_types::worker_protocol::{WorkerExchange, WorkerRegistration};

#[derive(Debug)]
pub(crate) enum ServerCall {
    Register(Box<WorkerRegistration>),
    Exchange(Box<WorkerExchange>),
}

/// A call, and the registration that it belongs to.
#[derive(Debug)]
pub(crate) struct QueuedCall {
    pub(crate) epoch: u32,
    pub(crate) call: ServerCall,
    /// How long the reply may take, beyond the wait of the call itself.
    pub(crate) timeout: Duration,
}

/// The client for the server. If the server was found by its database, another one may have taken over at
/// another address.
pub(crate) struct ServerConnection {
    client: Mutex<Client>,
    find_server: Option<FindServer>,
}

impl std::fmt::Debug for ServerConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Way").field(&self.client).finish()
    }
}

impl ServerConnection {
    pub(crate) fn new(client: Client, find_server: Option<FindServer>) -> Self {
        // The jobs need the address of the new server.
        let client = if find_server.is_some() { client.without_token_lookup() } else { client };
        Self { client: Mutex::new(client), find_server }
    }

    fn client(&self) -> Client {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Searches the server; a server that is found is used from now on.
    fn find_server_again(&self) -> Option<Client> {
        let found = self.find_server.as_ref()?()?.without_token_lookup();
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = found.clone();
        Some(found)
    }
}

/// A thread that makes calls. It ends when this is dropped, after its current call.
#[derive(Debug)]
pub(crate) struct CallerThread {
    calls: Sender<QueuedCall>,
}

impl CallerThread {
    pub(crate) fn start(
        name: &str,
        way: Arc<ServerConnection>,
        events: Sender<RemoteWorkerEvent>,
    ) -> io::Result<Self> {
        let (orders, inbox) = channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || run_calls(&way, &inbox, &events))?;
        Ok(Self { calls: orders })
    }

    pub(crate) fn enqueue_call(&self, order: QueuedCall) {
        // It ends only with the worker.
        self.calls.send(order).ok();
    }
}

fn run_calls(way: &ServerConnection, inbox: &Receiver<QueuedCall>, events: &Sender<RemoteWorkerEvent>) {
    for QueuedCall { epoch, call, timeout: within } in inbox {
        let (client, sent) = (way.client(), boot_time());
        let (event, is_gone) = match call {
            ServerCall::Register(who) => {
                let result = client.register_worker(&who, within);
                let is_gone = result.as_ref().is_err_and(may_be_elsewhere);
                (RemoteWorkerEvent::Registered { epoch, sent, result }, is_gone)
            }
            ServerCall::Exchange(exchange) => {
                let result = client.exchange(&exchange, within);
                let is_gone = result.as_ref().is_err_and(may_be_elsewhere);
                (RemoteWorkerEvent::Replied { epoch, number: exchange.number, sent, result }, is_gone)
            }
        };
        if events.send(event).is_err() {
            return;
        }
        // The search may take a while, so the result is sent first.
        let found = is_gone.then(|| way.find_server_again()).flatten();
        if let Some(found) = found.filter(|found| !found.is_same_server(&client))
            && events.send(RemoteWorkerEvent::ServerMoved(found)).is_err()
        {
            return;
        }
    }
}

/// Whether the server does not answer, or is not the one with the database.
fn may_be_elsewhere(error: &windlass_client::ClientError) -> bool {
    matches!(error, windlass_client::ClientError::Unreachable { .. })
        || error.is_unknown_token()
        || matches!(error.code(), Some("standby" | "superseded_server"))
}
