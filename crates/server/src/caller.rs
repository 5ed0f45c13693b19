//! Who calls.

use crate::error::ApiError;
use crate::state::AppState;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::net::SocketAddr;
use std::sync::Arc;

/// The other end of a connection, in the extensions of each of its requests.
#[derive(Clone, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// The certificate it showed, checked against the client CA; DER.
    pub certificate: Option<Arc<[u8]>>,
}

/// Somebody whose credentials were checked. A handler that takes one answers nobody else.
#[derive(Clone, Debug)]
pub struct Caller(pub Principal);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub user: Arc<str>,
}

impl FromRequestParts<AppState> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(_: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        Ok(Self(Principal { user: state.options.owner.as_str().into() }))
    }
}
