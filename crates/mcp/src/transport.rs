//! Transports: the standard streams of this process, and HTTP.

use crate::agent_session::AgentSession;
use crate::handler::McpHandler;
use rmcp::ServiceExt as _;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::fmt::Display;
use std::io;
use std::sync::Arc;

/// Serves requests on standard input until it ends. Blocks.
pub fn serve_stdio(session: AgentSession) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let service = McpHandler(session).serve(rmcp::transport::stdio()).await.map_err(io::Error::other)?;
        service.waiting().await.map_err(io::Error::other)?;
        Ok(())
    })
}

/// Maximum size of a request.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// Answers one request over HTTP in the session of its caller.
///
/// No state is kept between requests: there is no session that could be taken over, and every request has the
/// permissions of its own caller. Authentication and the check of the origin are done before.
pub async fn respond_http<B>(
    session: AgentSession,
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
        // Web pages are rejected, with any host name.
        .enforce_origin_validation();
    let service = StreamableHttpService::new(
        move || Ok(McpHandler(session.clone())),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    service.handle(request).await
}
