//! The limit on open connections, and which connection is closed when it is reached.
//!
//! A connection without an authenticated request is closed in favor of a new one: the oldest from the network
//! with the most such connections. Idle connections of one host therefore cannot lock others out. Connections
//! of authenticated users stay, and one user may hold at most 75 % of all.

use crate::error::{ApiError, ApiResult};
use axum::http::StatusCode;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use windlass_auth::client_network;

/// The open connections of a server.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimiter(Arc<ConnectionLimiterState>);

#[derive(Debug)]
struct ConnectionLimiterState {
    max_connections: usize,
    table: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    open_count: usize,
    next_number: u64,
    /// Connections without an authenticated request, by age.
    pending: BTreeMap<u64, PendingConnection>,
    /// Connections of authenticated users.
    users: HashMap<Arc<str>, usize>,
}

#[derive(Debug)]
struct PendingConnection {
    network: IpAddr,
    close_token: CancellationToken,
}

/// One open connection; removed from the table when dropped.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    shared: Arc<ConnectionLimiterState>,
    number: u64,
    /// The user of its first authenticated request.
    user: Mutex<Option<Arc<str>>>,
    close_token: CancellationToken,
}

impl ConnectionLimiter {
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(ConnectionLimiterState { max_connections: most, table: Mutex::default() }))
    }

    /// Registers a new connection; `None` if all connections belong to authenticated users.
    pub(crate) fn open(&self, address: IpAddr) -> Option<Arc<ClientConnection>> {
        let mut table = lock(&self.0.table);
        if table.open_count >= self.0.max_connections && !table.evict_pending() {
            return None;
        }
        table.open_count += 1;
        table.next_number += 1;
        let (number, close) = (table.next_number, CancellationToken::new());
        table.pending.insert(
            number,
            PendingConnection { network: client_network(address), close_token: close.clone() },
        );
        drop(table);
        Some(Arc::new(ClientConnection {
            shared: Arc::clone(&self.0),
            number,
            user: Mutex::default(),
            close_token: close,
        }))
    }
}

impl ConnectionTable {
    fn evict_pending(&mut self) -> bool {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for pending in self.pending.values() {
            *counts.entry(pending.network).or_default() += 1;
        }
        let Some(most) = counts.values().max().copied() else { return false };
        let oldest = self.pending.iter().find(|(_, pending)| counts[&pending.network] == most);
        let Some(number) = oldest.map(|(number, _)| *number) else { return false };
        if let Some(pending) = self.pending.remove(&number) {
            pending.close_token.cancel();
        }
        true
    }
}

impl ClientConnection {
    /// Resolves when the connection has to be closed.
    pub(crate) async fn closed(&self) {
        self.close_token.cancelled().await;
    }

    /// Assigns the connection to a user; called for each authenticated request.
    pub(crate) fn assign_user(&self, user: &Arc<str>) -> ApiResult<()> {
        let mut known = lock(&self.user);
        if known.is_some() {
            return Ok(());
        }
        let mut table = lock(&self.shared.table);
        let most = (self.shared.max_connections * 3 / 4).max(1);
        let count = table.users.entry(Arc::clone(user)).or_default();
        if *count >= most {
            let detail = format!("user {user} has {most} connections, the limit per user");
            let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections", detail);
            return Err(error.with_retry_after(Duration::from_secs(1)));
        }
        *count += 1;
        table.pending.remove(&self.number);
        *known = Some(Arc::clone(user));
        Ok(())
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        let user = lock(&self.user).take();
        let mut table = lock(&self.shared.table);
        table.open_count -= 1;
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

    fn is_closed(connection: &ClientConnection) -> bool {
        connection.close_token.is_cancelled()
    }

    #[test]
    fn idle_connections_of_one_network_give_way_to_others() {
        let connections = ConnectionLimiter::new(4);
        let open = |from: &str| connections.open(address(from)).unwrap();
        let (ana, eve) = (open("192.0.2.1"), [open("192.0.2.9"), open("192.0.2.9"), open("192.0.2.9")]);
        let bob = open("192.0.2.2");
        assert_eq!([&eve[0], &eve[1], &ana, &bob].map(|c| is_closed(c)), [true, false, false, false]);
    }

    #[test]
    fn authenticated_connections_are_kept() {
        let connections = ConnectionLimiter::new(2);
        let held: Vec<_> = ["ana", "bob"]
            .into_iter()
            .map(|user| {
                let connection = connections.open(address("192.0.2.1")).unwrap();
                connection.assign_user(&Arc::from(user)).unwrap();
                connection
            })
            .collect();
        assert!(connections.open(address("192.0.2.2")).is_none());
        assert!(!held.iter().any(|connection| is_closed(connection)));
        drop(held);
        assert!(connections.open(address("192.0.2.2")).is_some());
    }

    #[test]
    fn connections_of_one_user_are_limited() {
        let connections = ConnectionLimiter::new(4);
        let user: Arc<str> = Arc::from("eve");
        let open = || connections.open(address("192.0.2.1")).unwrap();
        let held = [open(), open(), open()];
        for connection in &held {
            connection.assign_user(&user).unwrap();
        }
        let more = open();
        more.assign_user(&user).unwrap_err();
        more.assign_user(&Arc::from("ana")).unwrap();
        held[0].assign_user(&user).unwrap();
        drop(held);
        open().assign_user(&user).unwrap();
    }
}
