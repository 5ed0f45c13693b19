//! Stored tokens for servers: `~/.config/windlass/tokens.toml`, readable by its owner only.
//!
//! A token is sent only to the server it was stored for: the same scheme, host and port. Over plain `http` it
//! is sent to this machine only, unless explicitly permitted.

use crate::{ClientError, ServerTrust};
use serde::Deserialize;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The content of the file.
#[derive(Clone, Debug)]
pub struct Keyring {
    path: PathBuf,
    servers: Vec<SavedServer>,
}

/// The stored data of a server.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct SavedServer {
    /// Scheme, host and port.
    pub url: String,
    /// Empty if only the address is stored.
    pub token: String,
    /// Certificates to verify the server, and the client certificate.
    #[serde(flatten)]
    pub trust: ServerTrust,
}

impl std::fmt::Debug for SavedServer {
    /// Omits the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("url", &self.url).finish_non_exhaustive()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyringFile {
    #[serde(default)]
    server: Vec<SavedServer>,
}

impl Keyring {
    /// Loads the keyring of a settings directory; empty if there is none. A file that other users can read is
    /// refused: its tokens may be compromised.
    pub fn open(config_dir: &Path) -> Result<Self, ClientError> {
        let path = config_dir.join("tokens.toml");
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(ClientError::File { path, source }),
        };
        if !text.is_empty() {
            let about = path.metadata().map_err(|source| ClientError::File { path: path.clone(), source })?;
            if about.mode() & 0o077 != 0 {
                return Err(ClientError::NotPrivate { path });
            }
        }
        match toml::from_str::<KeyringFile>(&text) {
            Ok(written) => Ok(Self { path, servers: written.server }),
            Err(error) => Err(ClientError::Keyring { path, why: error.to_string() }),
        }
    }

    /// Returns the stored data of the server at this address.
    pub fn find(&self, url: &str) -> Option<&SavedServer> {
        let wanted = origin(url).ok()?;
        self.servers.iter().find(|kept| origin(&kept.url).is_ok_and(|origin| origin == wanted))
    }

    pub fn servers(&self) -> &[SavedServer] {
        &self.servers
    }

    /// Stores a token, replacing an earlier one for the same server.
    pub fn save(&mut self, kept: SavedServer) -> Result<(), ClientError> {
        let url = origin(&kept.url)?;
        self.remove_entry(&url);
        self.servers.push(SavedServer { url, ..kept });
        self.write()
    }

    /// Removes the data of a server and returns whether there was any.
    pub fn remove(&mut self, url: &str) -> Result<bool, ClientError> {
        let there = self.remove_entry(&origin(url)?);
        if there {
            self.write()?;
        }
        Ok(there)
    }

    fn remove_entry(&mut self, wanted: &str) -> bool {
        let before = self.servers.len();
        self.servers.retain(|kept| origin(&kept.url).is_ok_and(|origin| origin != wanted));
        self.servers.len() < before
    }

    fn write(&self) -> Result<(), ClientError> {
        let write = || -> io::Result<()> {
            let dir = self.path.parent().unwrap_or(Path::new("."));
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            let draft = self.path.with_extension(format!("new.{}", std::process::id()));
            // May be left over from an earlier process with the same pid.
            drop(std::fs::remove_file(&draft));
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(self.render().as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&draft, &self.path)
        };
        write().map_err(|source| ClientError::File { path: self.path.clone(), source })
    }

    fn render(&self) -> String {
        // For the contents of URLs, tokens and paths, JSON and TOML strings are quoted alike.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let servers = self.servers.iter().map(|kept| {
            let ServerTrust { ca_file, pin_file, socket, cert, key } = &kept.trust;
            let files = [
                ("ca_file", ca_file),
                ("pin_file", pin_file),
                ("socket", socket),
                ("cert", cert),
                ("key", key),
            ];
            let files = files.into_iter().fold(String::new(), |text, (name, path)| match path.as_deref() {
                Some(path) => text + name + " = " + &quoted(&path.to_string_lossy()) + "\n",
                None => text,
            });
            format!("\n[[server]]\nurl = {}\ntoken = {}\n{files}", quoted(&kept.url), quoted(&kept.token))
        });
        let head =
            "# Tokens for Windlass servers, written by `windlass auth login`. Keep this file private.\n";
        std::iter::once(head.to_owned()).chain(servers).collect()
    }
}

/// Returns scheme, host and port of an address in canonical form.
pub fn origin(url: &str) -> Result<String, ClientError> {
    Ok(parse_url(url)?.origin().ascii_serialization())
}

/// Whether a token may be sent to the address: encrypted, or on this machine.
pub(crate) fn is_private(url: &str) -> bool {
    let Ok(url) = parse_url(url) else { return false };
    url.scheme() == "https"
        || match url.host_str() {
            Some("localhost") => true,
            Some(host) => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
            }
            None => false,
        }
}

fn parse_url(url: &str) -> Result<reqwest::Url, ClientError> {
    let bad = |why: &str| ClientError::BadUrl { url: url.to_owned(), why: why.to_owned() };
    let parsed = reqwest::Url::parse(url).map_err(|error| bad(&error.to_string()))?;
    if matches!(parsed.scheme(), "http" | "https") && parsed.has_host() {
        Ok(parsed)
    } else {
        Err(bad("it must begin with http:// or https:// and a host name"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn kept(url: &str, token: &str) -> SavedServer {
        SavedServer { url: url.to_owned(), token: token.to_owned(), trust: ServerTrust::default() }
    }

    #[test]
    fn tokens_are_stored_per_server() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("windlass");
        let mut keyring = Keyring::open(&config).unwrap();
        keyring.save(kept("https://Host.example:443/some/path", "wl_one")).unwrap();
        keyring.save(kept("http://127.0.0.1:8080", "wl_two")).unwrap();
        let trust = ServerTrust {
            ca_file: Some("/a \"b\"/ca.pem".into()),
            cert: Some("/c.pem".into()),
            key: Some("/k.pem".into()),
            ..ServerTrust::default()
        };
        keyring.save(SavedServer { trust: trust.clone(), ..kept("https://c:1", "wl_three") }).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&config), mode(&config.join("tokens.toml"))), (0o700, 0o600));

        let keyring = Keyring::open(&config).unwrap();
        let token = |url: &str| keyring.find(url).map(|kept| kept.token.as_str());
        assert_eq!(token("https://host.example"), Some("wl_one"));
        assert_eq!(token("https://host.example/api/v1/"), Some("wl_one"));
        assert_eq!(keyring.find("https://c:1").unwrap().trust, trust);
        for other in [
            "http://host.example",
            "https://host.example:8443",
            "https://host.example.evil.example",
            "https://host.example@evil.example",
            "https://evil.example/https://host.example",
            "http://127.0.0.1",
            "http://127.0.0.2:8080",
            "nonsense",
        ] {
            assert_eq!(token(other), None, "{other}");
        }
    }

    #[test]
    fn new_token_replaces_old_token() {
        let dir = tempfile::tempdir().unwrap();
        let mut keyring = Keyring::open(dir.path()).unwrap();
        keyring.save(kept("https://a", "wl_old")).unwrap();
        keyring.save(kept("https://a/", "wl_new")).unwrap();
        assert_eq!(Keyring::open(dir.path()).unwrap().servers(), [kept("https://a", "wl_new")]);
        assert!(keyring.remove("https://a").unwrap() && !keyring.remove("https://a").unwrap());
        assert!(Keyring::open(dir.path()).unwrap().servers().is_empty());
    }

    #[test]
    fn token_file_readable_by_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.toml");
        std::fs::write(&path, "[[server]]\nurl = 'https://a'\ntoken = 'wl_x'\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(matches!(Keyring::open(dir.path()), Err(ClientError::NotPrivate { .. })));
    }

    #[test]
    fn unencrypted_token_is_allowed_only_on_loopback() {
        for url in [
            "https://a",
            "http://localhost:1",
            "http://127.0.0.1",
            "http://127.1.2.3:80",
            "http://[::1]:8080",
        ] {
            assert!(is_private(url), "{url}");
        }
        for url in [
            "http://a",
            "http://10.0.0.1",
            "http://localhost.example",
            "http://127.0.0.1.example",
            "http://[::2]",
        ] {
            assert!(!is_private(url), "{url}");
        }
    }
}
