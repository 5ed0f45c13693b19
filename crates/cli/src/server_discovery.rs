//! Finds the server to use, if any, and its token: a named server, or the one that uses the database here.

use crate::args::GlobalArgs;
use crate::config::{CliConfig, ConfigPaths, SettingOrigin};
use crate::error::CliError;
use serde::Deserialize;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windlass_client::{Client, ClientOptions, Keyring, SavedServer, ServerTrust, TokenLookup, origin};
use windlass_process::agent_mark::is_agent_descendant;
use windlass_process::process_identity::{boot_id, kernel_boot};
use windlass_store::StoreLocation;

/// The location of the data as configured: a database, a server, or nothing. The command line takes precedence
/// over the environment, and that over files; within one layer, the server takes precedence.
pub(crate) fn choose_location(
    globals: &GlobalArgs,
    config: &CliConfig,
) -> Result<(Option<PathBuf>, Option<String>), CliError> {
    let (db, url) = (globals.db.clone(), globals.url.clone());
    let (Some(db), Some(url)) = (&db, &url) else { return Ok((db, url)) };
    let set = |name: &str, now: &str| config.get(name).filter(|value| value.text == now);
    let (db_set, url_set) = (set("db", &db.to_string_lossy()), set("url", url));
    let url_wins = match (db_set, url_set) {
        (None, None) => {
            return Err(CliError::user("--db and --url were both given")
                .with_hint("a command uses either a database or a server; leave out one"));
        }
        (None, Some(_)) => false,
        (Some(_), None) => true,
        (Some(db), Some(url)) => has_precedence(&url.origin, &db.origin),
    };
    Ok(if url_wins { (None, Some(url.clone())) } else { (Some(db.clone()), None) })
}

fn has_precedence(url: &SettingOrigin, db: &SettingOrigin) -> bool {
    !matches!((url, db), (SettingOrigin::File { .. }, SettingOrigin::Environment(_)))
}

/// What a server publishes beside its database, readable only by its owner.
#[derive(Debug, Deserialize)]
struct DiscoveredServer {
    /// The path of this file.
    #[serde(skip)]
    dir: PathBuf,
    url: String,
    pid: u32,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    pin: Option<PathBuf>,
    #[serde(default)]
    socket: Option<PathBuf>,
    #[serde(default)]
    boot_id: Option<String>,
    /// Device and inode of `dir`. Unknown: the server has an older version.
    #[serde(default)]
    directory: Option<(u64, u64)>,
}

impl DiscoveredServer {
    fn is_on_this_machine(&self) -> bool {
        let here = boot_id().ok();
        self.boot_id.is_some() && self.boot_id.as_deref() == here.as_deref().map(kernel_boot)
    }

    /// Whether the server published this, and not for a database of which this one is a copy. Machines that
    /// share a file system number its devices differently.
    fn is_original(&self) -> bool {
        let Some((device, inode)) = self.directory else { return true };
        let is_same = |found: std::fs::Metadata| {
            found.ino() == inode && (found.dev() == device || !self.is_on_this_machine())
        };
        std::fs::metadata(&self.dir).is_ok_and(is_same)
    }

    /// How the server proves that it published this.
    fn trust(&self) -> ServerTrust {
        let socket = self.socket.clone().filter(|_| self.is_on_this_machine());
        ServerTrust { pin_file: self.pin.clone(), socket, ..ServerTrust::default() }
    }
}

/// Connection options for any server.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionSettings {
    pub(crate) trust: ServerTrust,
    pub(crate) insecure_http: bool,
}

impl ConnectionSettings {
    pub(crate) fn new(globals: &GlobalArgs, cwd: &Path) -> Result<Self, CliError> {
        let absolute = |path: &Option<PathBuf>| path.as_ref().map(|path| cwd.join(path));
        if globals.key.is_some() && globals.cert.is_none() {
            return Err(CliError::user("--key without --cert: a key is useless without its certificate")
                .with_hint("give the certificate with --cert or WINDLASS_CERT"));
        }
        let trust = ServerTrust {
            ca_file: absolute(&globals.ca_file),
            pin_file: None,
            socket: None,
            cert: absolute(&globals.cert),
            key: absolute(&globals.key),
        };
        Ok(Self { trust, insecure_http: globals.insecure_http })
    }

    /// Given options take precedence over saved ones.
    fn merge_saved_trust(&self, kept: ServerTrust) -> ServerTrust {
        let ServerTrust { ca_file, cert, key, .. } = self.trust.clone();
        let (cert, key) = if cert.is_some() { (cert, key) } else { (kept.cert.clone(), kept.key.clone()) };
        let ServerTrust { pin_file, socket, ca_file: kept_ca, .. } = kept;
        ServerTrust { ca_file: ca_file.or(kept_ca), pin_file, socket, cert, key }
    }
}

/// The server at `url`, or the server that now uses `database`.
pub(crate) fn find_server(
    url: Option<&str>,
    manner: &ConnectionSettings,
    database: Option<&Path>,
) -> Result<Option<Client>, CliError> {
    let announced = database.and_then(load_discovered_server);
    let announced = match (announced, url) {
        (Some(server), None) => is_server_running(&server, manner)?.then_some(server),
        (announced, _) => announced.filter(|server| may_be_running(server, manner)),
    };
    let Some(url) = url.map(str::to_owned).or_else(|| announced.as_ref().map(|server| server.url.clone()))
    else {
        return Ok(None);
    };
    let for_job = saved_login_for_job(&url)?;
    let moved = for_job.as_ref().filter(|kept| !is_same_url(&kept.url, &url)).map(|kept| kept.url.clone());
    let url = moved.unwrap_or(url);
    // A token is sent only to the server that it belongs to.
    let own = announced
        .filter(|server| is_same_url(&server.url, &url))
        .or_else(|| find_server_by_url(&url, manner));
    let proven = own.as_ref().map(DiscoveredServer::trust).unwrap_or_default();
    // Its token is sent where it is certain that this server listens; or to another host, which requires
    // --insecure-http.
    let is_certain = proven.socket.is_some() || proven.pin_file.is_some() || !is_local_address(&url);
    let own = own.filter(|_| is_certain);
    // A login is an explicit choice of a user: it takes precedence over the owner's token.
    let kept = match for_job {
        Some(kept) => Some(kept),
        None => open_keyring_if_exists()?.and_then(|keyring| keyring.find(&url).cloned()),
    };
    let find_token = own.as_ref().filter(|_| kept.is_none()).map(|server| token_finder(&url, server));
    let own = own.and_then(|server| {
        Some(SavedServer { trust: ServerTrust::default(), url: server.url, token: server.token? })
    });
    let kept = kept.or(own);
    let (kept_token, kept_trust) = kept.map_or_else(Default::default, |kept| (Some(kept.token), kept.trust));
    let kept_token = kept_token.filter(|token| !token.is_empty());
    let mut trust = manner.merge_saved_trust(kept_trust);
    trust.pin_file = proven.pin_file.or(trust.pin_file);
    trust.socket = proven.socket.or(trust.socket);
    let named = environment_variable("WINDLASS_TOKEN").or_else(token_from_file);
    // A server that was named explicitly is not replaced by one that is found.
    let mut find_token = find_token.filter(|_| named.is_none());
    let token = if is_agent_descendant() {
        // An agent has its own token, and must not use one that its user has saved.
        trust = ServerTrust { cert: None, key: None, ..trust };
        find_token = None;
        named
    } else {
        // A token given explicitly takes precedence over the one found here: a worker in an allocation must
        // not use the owner's.
        named.or(kept_token)
    };
    let insecure_http = manner.insecure_http;
    let options = ClientOptions {
        url,
        token,
        token_lookup: find_token,
        trust,
        insecure_http,
        ..ClientOptions::default()
    };
    Ok(Some(Client::new(options)?))
}

/// Reads the owner's token again after another server with the same proof has taken over. A concurrent call
/// still used the old token.
fn token_finder(url: &str, server: &DiscoveredServer) -> TokenLookup {
    let (url, dir, proof) = (url.to_owned(), server.dir.clone(), server.trust());
    Arc::new(move || {
        let now = read_run_file(&dir)?;
        // Calls continue to use the socket regardless of other addresses; otherwise the address.
        let is_called = now.trust() == proof && (proof.socket.is_some() || is_same_url(&now.url, &url));
        if is_called { now.token } else { None }
    })
}

/// The contents of the file that `WINDLASS_TOKEN_FILE` names: gives a worker in an allocation its token without
/// exposing it in a script or an environment.
fn token_from_file() -> Option<String> {
    let text = std::fs::read_to_string(environment_variable("WINDLASS_TOKEN_FILE")?).ok()?;
    Some(text.trim().to_owned()).filter(|token| !token.is_empty())
}

/// The file in which the worker of a server tells its jobs the address and proof of its server. If that is not
/// the server that the job was started for, another server has taken over.
fn saved_login_for_job(url: &str) -> Result<Option<SavedServer>, CliError> {
    let Some(directory) = environment_variable(windlass_agent::KEYRING_VARIABLE) else { return Ok(None) };
    let keyring = Keyring::open(Path::new(&directory))?;
    let was_told = environment_variable("WINDLASS_URL").is_some_and(|told| is_same_url(&told, url));
    let moved = || keyring.servers().first().filter(|_| was_told);
    Ok(keyring.find(url).or_else(moved).cloned())
}

/// Tokens saved by `windlass auth login`.
pub(crate) fn open_keyring() -> Result<Keyring, CliError> {
    let paths = ConfigPaths::new(Path::new("/"), |name| std::env::var(name).ok());
    let dir = paths.user.as_deref().and_then(Path::parent);
    let dir = dir.ok_or_else(|| CliError::io("the home directory is unknown").with_hint("set HOME"))?;
    Ok(Keyring::open(dir)?)
}

/// The same, if the user has a home directory.
fn open_keyring_if_exists() -> Result<Option<Keyring>, CliError> {
    let has_home = ["HOME", "XDG_CONFIG_HOME"].into_iter().any(|name| environment_variable(name).is_some());
    has_home.then(open_keyring).transpose()
}

/// `localhost` is a name of this machine.
fn is_same_url(one: &str, other: &str) -> bool {
    let place = |url: &str| origin(url).map(|origin| origin.replacen("://localhost", "://127.0.0.1", 1));
    matches!((place(one), place(other)), (Ok(one), Ok(other)) if one == other)
}

/// The private directory in which a server of this database publishes its address: beside the file, like the
/// locks. A PostgreSQL database has no local file, so its servers share a directory in the home of their owner.
pub(crate) fn server_run_dir(database: &Path) -> Option<PathBuf> {
    if let Some(url) = database.to_str().filter(|text| StoreLocation::is_postgres(text)) {
        return Some(
            state_dir()?.join("servers").join(hashed_file_name(&StoreLocation::without_password(url))),
        );
    }
    let mut dir = database.canonicalize().unwrap_or_else(|_| database.to_owned()).into_os_string();
    dir.push(".run");
    Some(dir.into())
}

fn state_dir() -> Option<PathBuf> {
    let absolute = |name| environment_variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(base.join("windlass"))
}

/// An injective file name for a text.
fn hashed_file_name(text: &str) -> String {
    let name = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02x}"),
    });
    name.collect()
}

/// The file of a running server of this database, or of one that was killed.
fn load_discovered_server(database: &Path) -> Option<DiscoveredServer> {
    read_run_file(&server_run_dir(database)?)
}

/// The address of the last server of this database, if it was killed.
pub(crate) fn last_listen_address(database: &Path) -> Option<SocketAddr> {
    load_discovered_server(database)?.url.strip_prefix("http://")?.parse().ok()
}

/// The server at this address among the user's servers on this machine.
fn find_server_by_url(url: &str, manner: &ConnectionSettings) -> Option<DiscoveredServer> {
    let dirs = std::fs::read_dir(state_dir()?.join("servers")).ok()?;
    let servers = dirs.flatten().filter_map(|dir| read_run_file(&dir.path()));
    // A server that was killed leaves its file, and another one may have its address now.
    let mut found = servers.filter(|server| is_same_url(&server.url, url));
    found.find(|server| may_be_running(server, manner))
}

/// Makes a server findable by its address from any directory: links its run directory, unless it is there already.
pub(crate) fn link_run_dir(database: &Path, run_dir: &Path) -> std::io::Result<()> {
    let Some(servers) = state_dir().map(|dir| dir.join("servers")).filter(|dir| !run_dir.starts_with(dir))
    else {
        return Ok(());
    };
    std::fs::create_dir_all(&servers)?;
    let name = windlass_types::digest_bytes(database.as_os_str().as_encoded_bytes());
    match std::os::unix::fs::symlink(run_dir, servers.join(name)) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Whether this database was copied while a server used it.
pub(crate) fn is_copied(database: &Path) -> bool {
    let server = server_run_dir(database).and_then(|dir| read_any_run_file(&dir));
    server.is_some_and(|server| !server.is_original())
}

fn read_run_file(run_dir: &Path) -> Option<DiscoveredServer> {
    read_any_run_file(run_dir).filter(DiscoveredServer::is_original)
}

/// The file may also be a copy of that of another database.
fn read_any_run_file(run_dir: &Path) -> Option<DiscoveredServer> {
    let path = run_dir.join("server.json");
    let meta = std::fs::symlink_metadata(&path).ok()?;
    let for_others = meta.mode() & 0o077;
    let private = meta.is_file() && meta.uid() == rustix::process::geteuid().as_raw() && for_others == 0;
    let text = private.then(|| std::fs::read_to_string(&path).ok()).flatten()?;
    let server: DiscoveredServer = serde_json::from_str(&text).ok()?;
    Some(DiscoveredServer { dir: run_dir.to_owned(), ..server })
}

/// Ignores files of servers that were killed. A running but unreachable server is an error: it holds the
/// database.
fn is_server_running(server: &DiscoveredServer, manner: &ConnectionSettings) -> Result<bool, CliError> {
    let ServerTrust { pin_file, socket, .. } = server.trust();
    let trust = ServerTrust { pin_file, socket, ..manner.trust.clone() };
    let options = ClientOptions { url: server.url.clone(), trust, ..ClientOptions::default() };
    match Client::new(options).and_then(|client| client.health()) {
        Ok(_) => Ok(true),
        Err(error) if error.is_server_absent() || !is_process_alive(server.pid) => Ok(false),
        Err(error) => {
            let hint = error.hint();
            let error = CliError::io(format!(
                "process {} is the server of this database, but is unreachable: {error}",
                server.pid
            ));
            Err(match hint {
                Some(hint) => error.with_hint(hint),
                None => error,
            })
        }
    }
}

/// Whether this is an address of this machine, where any local user can listen.
fn is_local_address(url: &str) -> bool {
    origin(url).is_ok_and(|origin| {
        let host = origin.split_once("://").map_or("", |(_, rest)| rest);
        host.starts_with("127.") || host.starts_with("localhost") || host.starts_with("[::1]")
    })
}

/// Credentials for a stopped server are never sent to a process that may have taken its port.
fn may_be_running(server: &DiscoveredServer, manner: &ConnectionSettings) -> bool {
    is_server_running(server, manner).unwrap_or(true)
}

fn is_process_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

fn environment_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_url_is_escaped_in_file_name() {
        assert_eq!(hashed_file_name("postgres://me@db/w"), "postgres%3a%2f%2fme%40db%2fw");
    }

    #[test]
    fn server_run_directory_is_beside_database_file() {
        assert_eq!(server_run_dir(Path::new("/none/w.db")), Some("/none/w.db.run".into()));
    }
}
