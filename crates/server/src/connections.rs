//! Open connections: how many there may be, and which one gives way when there are too many.
//!
//! A connection on which no request has been authenticated yet gives way to a new one: the oldest of the network that has
//! most of them. Idle connections of one host therefore cannot lock others out. Connections of authenticated users stay, and
//! one user has at most three quarters of all.

use crate::error::{Answer, ApiError};
use axum::http::StatusCode;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use windlass_auth::network;

/// All connections of a server.
#[derive(Clone, Debug)]
pub(crate) struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    most: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    open: usize,
    next: u64,
    /// Connections without an authenticated request, by age.
    pending: BTreeMap<u64, Pending>,
    /// Connections of authenticated users.
    users: HashMap<Arc<str>, usize>,
}

#[derive(Debug)]
struct Pending {
    network: IpAddr,
    close: CancellationToken,
}

/// One open connection; dropped when it is closed.
#[derive(Debug)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    number: u64,
    /// The user of its first authenticated request.
    user: Mutex<Option<Arc<str>>>,
    close: CancellationToken,
}

impl Connections {
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Shared { most, table: Mutex::default() }))
    }

    /// A place for a new connection; `None` if all places belong to authenticated users.
    pub(crate) fn open(&self, address: IpAddr) -> Option<Arc<Connection>> {
        let mut table = lock(&self.0.table);
        if table.open >= self.0.most && !table.close_one_pending() {
            return None;
        }
        table.open += 1;
        table.next += 1;
        let (number, close) = (table.next, CancellationToken::new());
        table.pending.insert(number, Pending { network: network(address), close: close.clone() });
        drop(table);
        Some(Arc::new(Connection { shared: Arc::clone(&self.0), number, user: Mutex::default(), close }))
    }
}

impl Table {
    fn close_one_pending(&mut self) -> bool {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for pending in self.pending.values() {
            *counts.entry(pending.network).or_default() += 1;
        }
        let Some(most) = counts.values().max().copied() else { return false };
        let oldest = self.pending.iter().find(|(_, pending)| counts[&pending.network] == most);
        let Some(number) = oldest.map(|(number, _)| *number) else { return false };
        if let Some(pending) = self.pending.remove(&number) {
            pending.close.cancel();
        }
        true
    }
}

impl Connection {
    /// Resolves when the connection has to give way.
    pub(crate) async fn closed(&self) {
        self.close.cancelled().await;
    }

    /// To be called for each authenticated request.
    pub(crate) fn authenticated(&self, user: &Arc<str>) -> Answer<()> {
        let mut known = lock(&self.user);
        if known.is_some() {
            return Ok(());
        }
        let mut table = lock(&self.shared.table);
        let most = (self.shared.most * 3 / 4).max(1);
        let count = table.users.entry(Arc::clone(user)).or_default();
        if *count >= most {
            let detail = format!("user {user} has {most} connections, which is the most for one user");
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections", detail);
            return Err(error.retry_after(Duration::from_secs(1)));
        }
        *count += 1;
        table.pending.remove(&self.number);
        *known = Some(Arc::clone(user));
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let user = lock(&self.user).take();
        let mut table = lock(&self.shared.table);
        table.open -= 1;
        table.pending.remove(&self.number);
        if let Some(user) = user
            && let Some(count) = table.users.get_mut(&user)
        {
            *count -= 1;
            if *count == 0 {
                table.users.remove(&user);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn is_closed(connection: &Connection) -> bool {
        connection.close.is_cancelled()
    }

    #[test]
    fn idle_connections_of_one_network_give_way_to_others() {
        let connections = Connections::new(4);
        let open = |from: &str| connections.open(address(from)).unwrap();
        let (ana, eve) = (open("192.0.2.1"), [open("192.0.2.9"), open("192.0.2.9"), open("192.0.2.9")]);
        let bob = open("192.0.2.2");
        assert_eq!([&eve[0], &eve[1], &ana, &bob].map(|c| is_closed(c)), [true, false, false, false]);
    }

    #[test]
    fn authenticated_connections_stay() {
        let connections = Connections::new(2);
        let held: Vec<_> = ["ana", "bob"]
            .into_iter()
            .map(|user| {
                let connection = connections.open(address("192.0.2.1")).unwrap();
                connection.authenticated(&Arc::from(user)).unwrap();
                connection
            })
            .collect();
        assert!(connections.open(address("192.0.2.2")).is_none());
        assert!(!held.iter().any(|connection| is_closed(connection)));
        drop(held);
        assert!(connections.open(address("192.0.2.2")).is_some());
    }

    #[test]
    fn one_user_does_not_take_all_places() {
        let connections = Connections::new(4);
        let user: Arc<str> = Arc::from("eve");
        let open = || connections.open(address("192.0.2.1")).unwrap();
        let held = [open(), open(), open()];
        for connection in &held {
            connection.authenticated(&user).unwrap();
        }
        let more = open();
        more.authenticated(&user).unwrap_err();
        more.authenticated(&Arc::from("ana")).unwrap();
        held[0].authenticated(&user).unwrap();
        drop(held);
        open().authenticated(&user).unwrap();
    }
}
