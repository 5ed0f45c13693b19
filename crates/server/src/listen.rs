//! Connections: accepted, served, and brought to an end.
//!
//! A loop of our own, because what matters here is what frameworks leave out: the certificate that the other end showed,
//! a limit on connections, time limits for those who say nothing, and an end that waits for what is under way.

use crate::caller::Peer;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

/// Whoever has not sent the head of a request by then is not going to.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// What is wrong with accepting (too many open files) is not over at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop`, then waits for what is under way.
pub(crate) async fn accept_loop(listener: TcpListener, router: Router, stop: CancellationToken) {
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, address)) => {
                drop(stream.set_nodelay(true));
                let peer = Peer { address, certificate: None };
                connections.spawn(serve_connection(stream, peer, router.clone(), stop.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn serve_connection<S>(stream: S, peer: Peer, router: Router, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let address: SocketAddr = peer.address;
    let service = router.map_request(move |mut request: Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(peer.clone());
        request.map(Body::new)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            // What was asked is still answered; then it is closed.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%address, %error, "a connection broke off");
    }
}
