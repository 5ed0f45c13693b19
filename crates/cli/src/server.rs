//! Which server a command talks to, if any: one that was named, or the one that serves the database here.

use crate::args::Globals;
use crate::config::{Config, Origin};
use crate::connect;
use crate::error::CliError;
use serde::Deserialize;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use windlass_client::{Client, ClientOptions};

/// What was said about where the books are: a database, a server, or nothing. What was typed wins over what was set, the
/// environment over files, and where both are said in the same place, the server.
pub(crate) fn which(
    globals: &Globals,
    config: &Config,
) -> Result<(Option<PathBuf>, Option<String>), CliError> {
    let (db, url) = (globals.db.clone(), globals.url.clone());
    let (Some(db), Some(url)) = (&db, &url) else { return Ok((db, url)) };
    let set = |name: &str, now: &str| config.get(name).filter(|value| value.text == now);
    let (db_set, url_set) = (set("db", &db.to_string_lossy()), set("url", url));
    let url_wins = match (db_set, url_set) {
        (None, None) => {
            return Err(CliError::user("--db names a database and --url a server")
                .with_hint("a command works on one of them; leave out the other"));
        }
        (None, Some(_)) => false,
        (Some(_), None) => true,
        (Some(db), Some(url)) => is_nearer(&url.origin, &db.origin),
    };
    Ok(if url_wins { (None, Some(url.clone())) } else { (Some(db.clone()), None) })
}

fn is_nearer(url: &Origin, db: &Origin) -> bool {
    !matches!((url, db), (Origin::File { .. }, Origin::Environment(_)))
}

/// What a server says of itself beside its database, to its owner alone.
#[derive(Debug, Deserialize)]
struct Announcement {
    url: String,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    ca: Option<PathBuf>,
}

/// The server at `url`, or the one that serves `database` now.
pub(crate) fn find(
    url: Option<&str>,
    ca_file: Option<PathBuf>,
    insecure_http: bool,
    database: Option<&Path>,
) -> Result<Option<Client>, CliError> {
    let announced = database.and_then(announcement);
    let Some(url) = url.map(str::to_owned).or_else(|| announced.as_ref().map(|server| server.url.clone()))
    else {
        return Ok(None);
    };
    // A token goes to the server that it is of, and to no other.
    let of_owner = announced.filter(|server| connect::same(&server.url, &url));
    let (owner_token, owner_ca) = of_owner.map_or((None, None), |server| (server.token, server.ca));
    let keyring = connect::keyring_if_any()?;
    let kept = keyring.as_ref().and_then(|keyring| keyring.find(&url));
    let token = variable("WINDLASS_TOKEN").or(owner_token).or_else(|| kept.map(|kept| kept.token.clone()));
    let ca_file = ca_file.or(owner_ca).or_else(|| kept.and_then(|kept| kept.ca_file.clone()));
    Ok(Some(Client::new(ClientOptions { url, token, ca_file, insecure_http, ..ClientOptions::default() })?))
}

/// Only if a server is there: what one that was killed left behind is not believed.
fn announcement(database: &Path) -> Option<Announcement> {
    let mut path = database.canonicalize().ok()?.into_os_string();
    path.push(".run/server.json");
    let meta = std::fs::symlink_metadata(&path).ok()?;
    let for_others = meta.mode() & 0o077;
    let private = meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw() && for_others == 0;
    let text = private.then(|| std::fs::read_to_string(&path).ok()).flatten()?;
    let server: Announcement = serde_json::from_str(&text).ok()?;
    let options =
        ClientOptions { url: server.url.clone(), ca_file: server.ca.clone(), ..ClientOptions::default() };
    let is_there = Client::new(options).is_ok_and(|client| client.health().is_ok());
    is_there.then_some(server)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}
