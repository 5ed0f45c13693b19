//! The way to a server: which one is meant, if any, and the token that is for it. It is one that was named, or the one
//! that serves the database here.

use crate::args::Globals;
use crate::config::{Config, Origin, Paths};
use crate::error::CliError;
use serde::Deserialize;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use windlass_client::{Client, ClientOptions, Kept, Keyring, origin};
use windlass_store::Location;

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
    let of_owner = announced.filter(|server| same(&server.url, &url)).or_else(|| announced_at(&url));
    let of_owner =
        of_owner.and_then(|server| Some(Kept { url: server.url, token: server.token?, ca_file: server.ca }));
    let kept = match kept_for_job(&url)?.or(of_owner) {
        Some(kept) => Some(kept),
        None => keyring_if_any()?.and_then(|keyring| keyring.find(&url).cloned()),
    };
    let (kept_token, kept_ca) = kept.map_or((None, None), |kept| (Some(kept.token), kept.ca_file));
    let (token, ca_file) = (variable("WINDLASS_TOKEN").or(kept_token), ca_file.or(kept_ca));
    Ok(Some(Client::new(ClientOptions { url, token, ca_file, insecure_http, ..ClientOptions::default() })?))
}

/// What the worker of a server leaves for its jobs, so that they act as whoever it works for.
fn kept_for_job(url: &str) -> Result<Option<Kept>, CliError> {
    let Some(directory) = variable(windlass_agent::KEYRING) else { return Ok(None) };
    Ok(Keyring::open(Path::new(&directory))?.find(url).cloned())
}

/// Tokens that were kept by `windlass login`.
pub(crate) fn keyring() -> Result<Keyring, CliError> {
    let paths = Paths::new(Path::new("/"), |name| std::env::var(name).ok());
    let dir = paths.user.as_deref().and_then(Path::parent);
    let dir = dir.ok_or_else(|| CliError::io("nobody's home is known").with_hint("set HOME"))?;
    Ok(Keyring::open(dir)?)
}

/// The same, where somebody has a home to keep them in.
fn keyring_if_any() -> Result<Option<Keyring>, CliError> {
    let has_home = ["HOME", "XDG_CONFIG_HOME"].into_iter().any(|name| variable(name).is_some());
    has_home.then(keyring).transpose()
}

fn same(one: &str, other: &str) -> bool {
    matches!((origin(one), origin(other)), (Ok(one), Ok(other)) if one == other)
}

/// The directory, its owner's alone, where a server of this database says where it is. Beside the file, where the locks
/// are too; a PostgreSQL database has no place here, so its servers on this machine share one in the home of their owner.
pub(crate) fn run_dir(database: &Path) -> Option<PathBuf> {
    if let Some(url) = database.to_str().filter(|text| Location::is_postgres(text)) {
        return Some(state_dir()?.join("servers").join(file_name_of(&Location::without_password(url))));
    }
    let mut dir = database.canonicalize().unwrap_or_else(|_| database.to_owned()).into_os_string();
    dir.push(".run");
    Some(dir.into())
}

fn state_dir() -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(base.join("windlass"))
}

/// Two texts never give the same name.
fn file_name_of(text: &str) -> String {
    let name = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02x}"),
    });
    name.collect()
}

/// Only if a server is there: what one that was killed left behind is not believed.
fn announcement(database: &Path) -> Option<Announcement> {
    read_announcement(&run_dir(database)?).filter(is_there)
}

/// Of the servers of PostgreSQL databases that one's own user runs here, the one at this address.
fn announced_at(url: &str) -> Option<Announcement> {
    let dirs = std::fs::read_dir(state_dir()?.join("servers")).ok()?;
    let mut servers = dirs.flatten().filter_map(|dir| read_announcement(&dir.path()));
    servers.find(|server| same(&server.url, url)).filter(is_there)
}

fn read_announcement(run_dir: &Path) -> Option<Announcement> {
    let path = run_dir.join("server.json");
    let meta = std::fs::symlink_metadata(&path).ok()?;
    let for_others = meta.mode() & 0o077;
    let private = meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw() && for_others == 0;
    let text = private.then(|| std::fs::read_to_string(&path).ok()).flatten()?;
    serde_json::from_str(&text).ok()
}

fn is_there(server: &Announcement) -> bool {
    let options =
        ClientOptions { url: server.url.clone(), ca_file: server.ca.clone(), ..ClientOptions::default() };
    Client::new(options).is_ok_and(|client| client.health().is_ok())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_name_of_its_own() {
        assert_eq!(file_name_of("postgres://me@db/w"), "postgres%3a%2f%2fme%40db%2fw");
    }

    #[test]
    fn a_file_has_its_directory_beside_it() {
        assert_eq!(run_dir(Path::new("/none/w.db")), Some("/none/w.db.run".into()));
    }
}
