//! Accepting, securing, serving and closing connections.
//!
//! The accept loop is our own because frameworks lack what is needed here: the client certificate, a limit on
//! connections, timeouts for silent clients, and a shutdown that waits for active requests.
//!
//! A closed connection is noticed at once, also while its request is processed: the handler is then dropped at
//! its next `await`.

use crate::caller::ConnectionPeer;
use crate::connections::ConnectionLimiter;
use crate::metrics::{GaugeGuard, RejectionReason, ServerMetrics};
use crate::peer_certificate;
use crate::swappable_router::SwappableRouter;
use crate::tls::ServerTls;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time limit for the TLS handshake, and for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a request head.
const MAX_HEAD: usize = 64 << 10;
/// Pause after an error of `accept` (too many open files), which rarely passes at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A source of connections.
pub(crate) enum ListenSocket {
    Tcp(TcpListener),
    /// A socket that only the owner of the server can connect to.
    Unix(UnixListener),
}

enum AcceptedStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl ListenSocket {
    async fn accept(&self) -> io::Result<(AcceptedStream, SocketAddr)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok((AcceptedStream::Tcp(stream), address))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((AcceptedStream::Unix(stream), SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))
            }
        }
    }
}

/// State shared by all connections.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionServer {
    pub(crate) router: SwappableRouter,
    pub(crate) tls: Option<Arc<ServerTls>>,
    pub(crate) metrics: Arc<ServerMetrics>,
    pub(crate) max_connections: usize,
    pub(crate) stop: CancellationToken,
}

impl ConnectionServer {
    /// Serves until shutdown, then waits up to `grace` for active requests and aborts the rest.
    pub(crate) async fn run(self, listener: ListenSocket, grace: Duration) {
        let connections = TaskTracker::new();
        let places = ConnectionLimiter::new(self.max_connections);
        let abort = CancellationToken::new();
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(place) = places.open(address.ip()) else {
                // Close without a response: sending one would cost as much as a connection.
                self.metrics.record_rejection(RejectionReason::Connections);
                continue;
            };
            let this = self.clone();
            let abort = abort.clone();
            connections.spawn(async move {
                let peer =
                    ConnectionPeer { address, certificate: None, connection: Some(Arc::clone(&place)) };
                let metrics = Arc::clone(&this.metrics);
                tokio::select! {
                    () = this.serve_connection(stream, peer) => {}
                    () = abort.cancelled() => {}
                    () = place.closed() => metrics.record_rejection(RejectionReason::Connections),
                }
            });
        }
        drop(listener);
        connections.close();
        if tokio::time::timeout(grace, connections.wait()).await.is_err() {
            tracing::warn!(
                left = connections.len(),
                "aborted requests that did not end within the shutdown grace period"
            );
            abort.cancel();
            connections.wait().await;
        }
    }

    async fn serve_connection(self, stream: AcceptedStream, mut peer: ConnectionPeer) {
        let _counted = GaugeGuard::new(&self.metrics.connections);
        let stream = match stream {
            AcceptedStream::Tcp(stream) => stream,
            AcceptedStream::Unix(stream) => return self.serve_stream(stream, peer).await,
        };
        // Responses are small and latency matters.
        drop(stream.set_nodelay(true));
        let Some(tls) = &self.tls else { return self.serve_stream(stream, peer).await };
        let secured = tokio::select! {
            secured = tokio::time::timeout(HEAD_TIMEOUT, tls.acceptor().accept(stream)) => secured,
            () = self.stop.cancelled() => return,
        };
        match secured {
            Ok(Ok(stream)) => {
                if let Some(chain) = stream.get_ref().1.peer_certificates()
                    && let Some(shown) = chain.first()
                {
                    peer.certificate = Some(Arc::new(peer_certificate::parse_peer_certificate(
                        shown,
                        tls.accepted_issuers(chain),
                    )));
                }
                self.serve_stream(stream, peer).await;
            }
            Ok(Err(error)) => tracing::debug!(address = %peer.address, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(address = %peer.address, "TLS handshake timed out"),
        }
    }

    async fn serve_stream<S>(&self, stream: S, peer: ConnectionPeer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let address = peer.address;
        let service = service_fn(|request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer.clone());
            self.router.serve_request(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stop.cancelled() => {
                // Requests already received are answered before the connection is closed.
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%address, %error, "connection aborted");
        }
    }
}
