//! Files by which clients of the same owner find the server and its token.
//!
//! They are in a directory that only the owner can write, each readable by the owner only: `owner.token`, new
//! for each server; `server.json`, which exists while the server runs; with TLS `server.pem`, the server's
//! certificate; and without TLS `server.sock`, the socket that clients of the same owner on this machine use. A
//! TCP port proves nothing: when the server is gone, any user can listen there and receive the token.

use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

pub const SERVER_FILE: &str = "server.json";
/// File with the owner's token; it grants full access as the owner.
pub const TOKEN_FILE: &str = "owner.token";
const PIN_FILE: &str = "server.pem";
const SOCKET_FILE: &str = "server.sock";

/// The content of `server.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerDiscovery {
    /// URL without a path prefix: `http://127.0.0.1:8080`.
    pub url: String,
    pub pid: u32,
    pub version: String,
    /// The owner's token, with full access. Absent with `--no-auth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Without TLS: the socket for clients on the machine with this boot id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// Device and inode of the directory of this file: a copy beside a copy of the database is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<(u64, u64)>,
    /// With TLS: a file with the exact certificate of the server. A client that trusts it needs neither its CA
    /// nor a matching host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<PathBuf>,
}

/// The directory or its files are not private to the owner.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    #[error("cannot use {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} is accessible to other users", path.display())]
    NotPrivate { path: PathBuf },
}

/// `server.json` and the socket; removed when dropped.
#[derive(Debug)]
pub(crate) struct DiscoveryFiles {
    path: PathBuf,
    socket: Option<PathBuf>,
}

impl Drop for DiscoveryFiles {
    fn drop(&mut self) {
        // Clients that read the file later get a clear error.
        drop(std::fs::remove_file(&self.path));
        if let Some(socket) = &self.socket {
            drop(std::fs::remove_file(socket));
        }
    }
}

/// Writes the owner token that this server accepts. The token of an earlier server becomes invalid.
pub(crate) fn store_owner_token(dir: &Path, token: &str) -> Result<(), DiscoveryError> {
    make_directory_private(dir)?;
    write_private_file(dir, TOKEN_FILE, token.as_bytes()).map(drop)
}

/// Writes a file; the file and its directory are private to the owner.
pub(crate) fn store_private_file(dir: &Path, name: &str, text: &str) -> Result<PathBuf, DiscoveryError> {
    make_directory_private(dir)?;
    write_private_file(dir, name, text.as_bytes())
}

/// A private socket that already listens but is not at its final path yet: clients that know an earlier server
/// at the same path cannot reach this one before its token is written.
#[derive(Debug)]
pub(crate) struct PrivateSocket {
    listener: UnixListener,
    /// Path where it was created, in a directory that others cannot enter.
    draft_path: PathBuf,
    pub(crate) path: PathBuf,
}

impl PrivateSocket {
    /// Moves it to its final path.
    pub(crate) fn publish(self) -> Result<UnixListener, DiscoveryError> {
        std::fs::rename(self.draft_path.join(DRAFT_SOCKET_NAME), &self.path)
            .map_err(|e| file_error(&self.path, e))?;
        drop(std::fs::remove_dir_all(&self.draft_path));
        Ok(self.listener)
    }
}

/// Listens on a socket that only the owner can connect to. If the file system of the directory does not support
/// sockets (some network file systems), uses a directory of this machine.
pub(crate) fn listen_private_socket(dir: &Path) -> Result<PrivateSocket, DiscoveryError> {
    make_directory_private(dir)?;
    match bind_private_socket(dir, SOCKET_FILE) {
        Ok(socket) => return Ok(socket),
        Err(error) => {
            tracing::debug!(%error, path = %dir.join(SOCKET_FILE).display(), "cannot create a socket here");
        }
    }
    let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let own = format!("windlass-{}", rustix::process::geteuid().as_raw());
    let dir = base.unwrap_or_else(std::env::temp_dir).join(own);
    make_directory_private(&dir)?;
    let name = format!("{}.sock", std::process::id());
    bind_private_socket(&dir, &name).map_err(|source| file_error(&dir.join(&name), source))
}

/// File name of a socket before it is moved to its final path.
const DRAFT_SOCKET_NAME: &str = "s";

/// Creates the socket in a private directory; it is moved once its permissions are set.
fn bind_private_socket(dir: &Path, name: &str) -> io::Result<PrivateSocket> {
    let inside = dir.join(format!(".socket.{}", std::process::id()));
    drop(std::fs::remove_dir_all(&inside));
    DirBuilder::new().mode(0o700).create(&inside)?;
    let bound = (|| {
        // Socket paths are limited to about a hundred bytes; the path of an open directory is short.
        let open = File::open(&inside)?;
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{DRAFT_SOCKET_NAME}", open.as_raw_fd()))?;
        std::fs::set_permissions(inside.join(DRAFT_SOCKET_NAME), Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    })();
    match bound {
        Ok(listener) => Ok(PrivateSocket { listener, draft_path: inside, path: dir.join(name) }),
        Err(error) => {
            drop(std::fs::remove_dir_all(&inside));
            Err(error)
        }
    }
}

/// Returns the boot id of this machine.
pub(crate) fn boot_id() -> Option<String> {
    Some(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

/// Writes the location of the server; it is removed when the returned value is dropped.
pub(crate) fn announce_server(
    dir: &Path,
    discovery: &ServerDiscovery,
) -> Result<DiscoveryFiles, DiscoveryError> {
    make_directory_private(dir)?;
    let found = dir.metadata().map_err(|e| file_error(dir, e))?;
    let discovery = ServerDiscovery { directory: Some((found.dev(), found.ino())), ..discovery.clone() };
    let text = serde_json::to_vec_pretty(&discovery).map_err(|e| file_error(dir, io::Error::other(e)))?;
    let path = write_private_file(dir, SERVER_FILE, &text)?;
    Ok(DiscoveryFiles { path, socket: discovery.socket })
}

/// Writes the server's current certificate and returns the path.
pub(crate) fn store_pinned_certificate(dir: &Path, certificate: &str) -> Result<PathBuf, DiscoveryError> {
    make_directory_private(dir)?;
    write_private_file(dir, PIN_FILE, certificate.as_bytes())
}

fn make_directory_private(dir: &Path) -> Result<(), DiscoveryError> {
    match DirBuilder::new().recursive(true).mode(0o700).create(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(file_error(dir, e)),
        _ => {}
    }
    let meta = dir.symlink_metadata().map_err(|e| file_error(dir, e))?;
    let own = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0;
    if own { Ok(()) } else { Err(DiscoveryError::NotPrivate { path: dir.to_owned() }) }
}

/// Replaces the file atomically.
fn write_private_file(dir: &Path, name: &str, text: &[u8]) -> Result<PathBuf, DiscoveryError> {
    let (path, draft) = (dir.join(name), dir.join(format!(".{name}.{}", std::process::id())));
    let written = (|| {
        // Left by an earlier process with the same pid, if any.
        drop(std::fs::remove_file(&draft));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(no_follow_flag())
            .open(&draft)?;
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&draft, &path)
    })();
    written.map_err(|e| file_error(&path, e))?;
    Ok(path)
}

fn no_follow_flag() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()
}

fn file_error(path: &Path, source: io::Error) -> DiscoveryError {
    DiscoveryError::File { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn token_and_socket_are_private_to_the_owner() {
        let root = tempfile::tempdir().unwrap();
        // Longer than a socket path may be.
        let dir = root.path().join("d".repeat(120)).join("db.run");
        store_owner_token(&dir, "one").unwrap();
        store_owner_token(&dir, "two").unwrap();
        assert_eq!(std::fs::read_to_string(dir.join(TOKEN_FILE)).unwrap(), "two");
        let connect = || {
            let open = File::open(&dir).unwrap();
            UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET_FILE}", open.as_raw_fd()))
        };
        drop(listen_private_socket(&dir).unwrap().publish().unwrap());
        let next = listen_private_socket(&dir).unwrap();
        assert!(connect().is_err(), "the socket is at its path only after publishing");
        let socket = next.path.clone();
        assert_eq!(socket, dir.join(SOCKET_FILE), "it replaces the socket of an earlier server");
        let _listener = next.publish().unwrap();
        assert!(connect().is_ok());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&dir.join(TOKEN_FILE)), mode(&socket)), (0o700, 0o600, 0o600));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2, "no temporary files remain");
    }

    #[test]
    fn directory_writable_by_others_is_rejected() {
        let root = tempfile::tempdir().unwrap();
        std::fs::set_permissions(root.path(), Permissions::from_mode(0o777)).unwrap();
        let error = store_owner_token(root.path(), "new").unwrap_err();
        assert!(matches!(error, DiscoveryError::NotPrivate { .. }), "{error}");
        assert!(listen_private_socket(root.path()).is_err());
    }

    #[test]
    fn discovery_file_is_removed_with_the_server() {
        let root = tempfile::tempdir().unwrap();
        std::fs::set_permissions(root.path(), Permissions::from_mode(0o700)).unwrap();
        let record = ServerDiscovery {
            url: "http://127.0.0.1:1".to_owned(),
            pid: 7,
            version: "0".to_owned(),
            token: Some("t".to_owned()),
            socket: None,
            boot_id: None,
            directory: None,
            pin: None,
        };
        let announced = announce_server(root.path(), &record).unwrap();
        let text = std::fs::read(root.path().join(SERVER_FILE)).unwrap();
        let written: ServerDiscovery = serde_json::from_slice(&text).unwrap();
        assert!(written.directory.is_some());
        assert_eq!(ServerDiscovery { directory: None, ..written }, record);
        drop(announced);
        assert!(!root.path().join(SERVER_FILE).exists());
    }
}
