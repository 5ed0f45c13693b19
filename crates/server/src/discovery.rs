//! How clients of the same owner find the server and its token by themselves.
//!
//! Files in a directory that only the owner can enter, each readable by nobody else: `owner.token`, which outlives the
//! server so that workers which are under way are known to the next one; `server.json`, which is there while the server
//! is; and with TLS `server.pem`, the certificate that it shows.

use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

pub const SERVER_FILE: &str = "server.json";
/// What stands in it lets in whoever shows it, as the owner.
pub const TOKEN_FILE: &str = "owner.token";
const PIN_FILE: &str = "server.pem";

/// What stands in `server.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discovery {
    /// `http://127.0.0.1:8080`: without a prefix.
    pub url: String,
    pub pid: u32,
    pub version: String,
    /// Of the owner; may do everything. Not there with `--no-auth`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Where it speaks TLS: a file with the very certificate that it shows. Whoever believes that one needs neither its
    /// authority nor a name that stands in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<PathBuf>,
}

/// The directory and its files are not as private as they have to be.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    #[error("cannot use {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{} is not yours alone", path.display())]
    NotPrivate { path: PathBuf },
}

/// `server.json`, for as long as the server runs.
#[derive(Debug)]
pub(crate) struct Announced {
    path: PathBuf,
}

impl Drop for Announced {
    fn drop(&mut self) {
        // Whoever reads it afterwards finds nobody there, and is told so.
        drop(std::fs::remove_file(&self.path));
    }
}

/// The token of the owner that an earlier server made, or the one that `make` makes.
pub(crate) fn owner_token(dir: &Path, make: impl FnOnce() -> String) -> Result<String, DiscoveryError> {
    make_private(dir)?;
    let path = dir.join(TOKEN_FILE);
    match OpenOptions::new().read(true).custom_flags(no_follow()).open(&path) {
        Ok(mut file) => {
            let meta = file.metadata().map_err(|e| wrong(&path, e))?;
            if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
                return Err(DiscoveryError::NotPrivate { path });
            }
            let mut token = String::new();
            file.read_to_string(&mut token).map_err(|e| wrong(&path, e))?;
            let token = token.trim();
            if !token.is_empty() {
                return Ok(token.to_owned());
            }
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(wrong(&path, e)),
    }
    let token = make();
    write_private(dir, TOKEN_FILE, token.as_bytes())?;
    Ok(token)
}

/// Says where the server is, until what it returns is dropped.
pub(crate) fn announce(dir: &Path, discovery: &Discovery) -> Result<Announced, DiscoveryError> {
    make_private(dir)?;
    let text = serde_json::to_vec_pretty(discovery).map_err(|e| wrong(dir, io::Error::other(e)))?;
    let path = write_private(dir, SERVER_FILE, &text)?;
    Ok(Announced { path })
}

/// Keeps the certificate that the server shows now. Where.
pub(crate) fn pin(dir: &Path, certificate: &str) -> Result<PathBuf, DiscoveryError> {
    make_private(dir)?;
    write_private(dir, PIN_FILE, certificate.as_bytes())
}

fn make_private(dir: &Path) -> Result<(), DiscoveryError> {
    match DirBuilder::new().recursive(true).mode(0o700).create(dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(wrong(dir, e)),
        _ => {}
    }
    let meta = dir.symlink_metadata().map_err(|e| wrong(dir, e))?;
    let own = meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0;
    if own { Ok(()) } else { Err(DiscoveryError::NotPrivate { path: dir.to_owned() }) }
}

/// Whole or not at all, whoever looks meanwhile.
fn write_private(dir: &Path, name: &str, text: &[u8]) -> Result<PathBuf, DiscoveryError> {
    let (path, draft) = (dir.join(name), dir.join(format!(".{name}.{}", std::process::id())));
    let written = (|| {
        // Of an earlier process with this pid, if anything.
        drop(std::fs::remove_file(&draft));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(no_follow())
            .open(&draft)?;
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&draft, &path)
    })();
    written.map_err(|e| wrong(&path, e))?;
    Ok(path)
}

fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()
}

fn wrong(path: &Path, source: io::Error) -> DiscoveryError {
    DiscoveryError::File { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_token_outlives_the_server_and_is_private() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("db.run");
        let first = owner_token(&dir, || "one".to_owned()).unwrap();
        assert_eq!((first.as_str(), owner_token(&dir, || "two".to_owned()).unwrap()), ("one", first.clone()));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&dir.join(TOKEN_FILE))), (0o700, 0o600));
    }

    #[test]
    fn a_token_that_others_can_read_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        std::fs::set_permissions(root.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let path = root.path().join(TOKEN_FILE);
        std::fs::write(&path, "known to all").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        let error = owner_token(root.path(), || "new".to_owned()).unwrap_err();
        assert!(matches!(error, DiscoveryError::NotPrivate { .. }), "{error}");
    }

    #[test]
    fn the_announcement_lasts_as_long_as_the_server() {
        let root = tempfile::tempdir().unwrap();
        std::fs::set_permissions(root.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let told = Discovery {
            url: "http://127.0.0.1:1".to_owned(),
            pid: 7,
            version: "0".to_owned(),
            token: Some("t".to_owned()),
            pin: None,
        };
        let announced = announce(root.path(), &told).unwrap();
        let text = std::fs::read(root.path().join(SERVER_FILE)).unwrap();
        assert_eq!(serde_json::from_slice::<Discovery>(&text).unwrap(), told);
        drop(announced);
        assert!(!root.path().join(SERVER_FILE).exists());
    }
}
