//! The way to a server: its address, and the token that was kept for it.

use crate::args::access::ServerArgs;
use crate::config::Paths;
use crate::context::Context;
use crate::error::CliError;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use windlass_client::{Client, ClientOptions, Keyring, origin};

/// What a server says of itself beside its database, to its owner.
#[derive(Debug, Deserialize)]
struct Announcement {
    url: String,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    ca: Option<PathBuf>,
}

/// The server that is meant, ready to be called.
pub(crate) fn client(ctx: &Context, args: &ServerArgs) -> Result<Client, CliError> {
    Ok(Client::new(options(ctx, args)?)?)
}

fn options(ctx: &Context, args: &ServerArgs) -> Result<ClientOptions, CliError> {
    let announced = ctx.served_at().and_then(|dir| read_announcement(&dir));
    let said = args.url.clone().or_else(|| variable("WINDLASS_URL"));
    let Some(url) = said.or_else(|| announced.as_ref().map(|server| server.url.clone())) else {
        return Err(CliError::user("which server?")
            .with_hint("say --url URL, set WINDLASS_URL, or start one here with `windlass serve`"));
    };
    let kept = keyring()?;
    let kept = kept.find(&url);
    // Each token goes to the server that it is of, and to no other.
    let of_owner = announced.filter(|server| same(&server.url, &url));
    let (owner_token, owner_ca) = of_owner.map_or((None, None), |server| (server.token, server.ca));
    let token = variable("WINDLASS_TOKEN").or_else(|| kept.map(|kept| kept.token.clone())).or(owner_token);
    let ca_file = args.ca_file.clone().or_else(|| kept.and_then(|kept| kept.ca_file.clone())).or(owner_ca);
    Ok(ClientOptions { url, token, ca_file, insecure_http: args.insecure_http, ..ClientOptions::default() })
}

/// The same, where somebody has a home to keep them in.
pub(crate) fn keyring_if_any() -> Result<Option<Keyring>, CliError> {
    let has_home = ["HOME", "XDG_CONFIG_HOME"].into_iter().any(|name| variable(name).is_some());
    has_home.then(keyring).transpose()
}

/// Tokens that were kept by `windlass login`.
pub(crate) fn keyring() -> Result<Keyring, CliError> {
    let paths = Paths::new(Path::new("/"), |name| std::env::var(name).ok());
    let dir = paths.user.as_deref().and_then(Path::parent);
    let dir = dir.ok_or_else(|| CliError::io("nobody's home is known").with_hint("set HOME"))?;
    Ok(Keyring::open(dir)?)
}

pub(crate) fn same(one: &str, other: &str) -> bool {
    matches!((origin(one), origin(other)), (Ok(one), Ok(other)) if one == other)
}

fn read_announcement(dir: &Path) -> Option<Announcement> {
    let text = std::fs::read_to_string(dir.join("server.json")).ok()?;
    serde_json::from_str(&text).ok()
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}
