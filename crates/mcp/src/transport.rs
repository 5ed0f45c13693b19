//! How an agent is spoken to: over the standard streams of this process, or over HTTP.

use crate::agent_session::AgentSession;
use crate::handler::McpHandler;
use rmcp::ServiceExt as _;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::fmt::Display;
use std::io;
use std::sync::Arc;

/// Answers what comes in on standard input until it ends. Blocks.
pub fn serve_stdio(desk: AgentSession) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let service = McpHandler(desk).serve(rmcp::transport::stdio()).await.map_err(io::Error::other)?;
        service.waiting().await.map_err(io::Error::other)?;
        Ok(())
    })
}

/// Requests larger than this are no requests of an agent.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// Answers one request over HTTP, at the desk of whoever sent it.
///
/// Nothing is kept between two requests: there is no session that somebody else could take over, and every request is
/// answered with the rights of its own sender. Who that is, and from which pages it may come, the caller has looked at.
pub async fn respond_http<B>(
    desk: AgentSession,
    request: http::Request<B>,
) -> http::Response<
    impl http_body::Body<Data = bytes::Bytes, Error = std::convert::Infallible> + Send + 'static,
>
where
    B: http_body::Body + Send + 'static,
    B::Error: Display,
{
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(MAX_REQUEST_BYTES)
        .disable_allowed_hosts()
        // Web pages have no business here, whatever name they came by.
        .enforce_origin_validation();
    let service = StreamableHttpService::new(
        move || Ok(McpHandler(desk.clone())),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    service.handle(request).await
}
