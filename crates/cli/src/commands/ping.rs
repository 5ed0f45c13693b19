//! `windlass auth ping`: shows the state of a server and whether the caller is authenticated.

use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use serde::Serialize;
use windlass_client::ServerHealth;

#[derive(Serialize)]
struct PingView<'a> {
    url: &'a str,
    #[serde(flatten)]
    health: &'a ServerHealth,
    /// Whether the caller has access.
    lets_us_in: bool,
}

pub(crate) fn run(ctx: &CliContext) -> Result<CliExit, CliError> {
    let client = ctx.require_server()?;
    let health = client.health()?;
    let entry = ctx.open_read()?.workflows();
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&PingView { url: client.url(), health: &health, lets_us_in: entry.is_ok() })?;
    } else {
        ctx.ui.print_line(&format!(
            "{}: windlass {}, {} ({}), database {}",
            client.url(),
            health.version,
            health.status,
            health.role,
            health.database
        ))?;
    }
    if health.version != env!("CARGO_PKG_VERSION") {
        ctx.ui.print_warning(&format!(
            "this is windlass {}; use the same version on both sides",
            env!("CARGO_PKG_VERSION")
        ));
    }
    entry?;
    Ok(if health.status == "ok" { CliExit::Success } else { CliExit::Environment })
}
