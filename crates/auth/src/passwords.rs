//! The password file: `name:hash` per line, as `htpasswd -B` and Torc write it, with argon2id in addition to
//! bcrypt.
//!
//! Unchanged lines are preserved, comments included. Checking takes the same time whether or not the user
//! exists.

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use sha2::{Digest as _, Sha256};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Maximum length of a password: hashing a very long one would be slow.
const MAX_PASSWORD_BYTES: usize = 1024;
/// bcrypt ignores everything beyond this length.
const MAX_BCRYPT_BYTES: usize = 72;
const BCRYPT_COST: u32 = 12;

/// Hash algorithm of new passwords.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PasswordHashing {
    #[default]
    Argon2id,
    /// For files that Torc's server or a web server also reads.
    Bcrypt,
}

#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    #[error("cannot read the password file {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write the password file {}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("line {line} of the password file: {what}")]
    Line { line: usize, what: &'static str },
    #[error("{}, line {line}: {what}", path.display())]
    In { path: PathBuf, line: usize, what: &'static str },
    #[error(
        "`{0}` cannot be a user name: it must not be empty, start with `#`, or contain `:` or control characters"
    )]
    Name(String),
    #[error("{0}")]
    Password(&'static str),
    #[error("cannot hash the password: {0}")]
    Hash(String),
}

/// The content of a password file.
#[derive(Clone, Debug, Default)]
pub struct PasswordFile {
    lines: Vec<PasswordLine>,
}

#[derive(Clone, Debug)]
enum PasswordLine {
    /// A comment or an empty line.
    Verbatim(String),
    User {
        name: String,
        hash: String,
    },
}

impl PasswordFile {
    pub fn parse(text: &str) -> Result<Self, PasswordError> {
        let lines = text.lines().enumerate().map(|(at, line)| parse_line(line, at + 1));
        Ok(Self { lines: lines.collect::<Result<_, _>>()? })
    }

    pub fn read(path: &Path) -> Result<Self, PasswordError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| PasswordError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|error| match error {
            PasswordError::Line { line, what } => PasswordError::In { path: path.to_owned(), line, what },
            other => other,
        })
    }

    /// Replaces the file atomically.
    pub fn write(&self, path: &Path) -> Result<(), PasswordError> {
        replace_file(path, self.render().as_bytes())
            .map_err(|source| PasswordError::Write { path: path.to_owned(), source })
    }

    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.entries().map(|(name, _)| name)
    }

    /// Sets the password of a user and returns whether the user is new.
    pub fn set(
        &mut self,
        user: &str,
        password: &str,
        hashing: PasswordHashing,
    ) -> Result<bool, PasswordError> {
        check_name(user)?;
        let hash = hash_password(password, hashing)?;
        let is_new = !self.remove(user);
        self.lines.push(PasswordLine::User { name: user.to_owned(), hash });
        Ok(is_new)
    }

    /// Removes a user and returns whether the user existed.
    pub fn remove(&mut self, user: &str) -> bool {
        let before = self.lines.len();
        self.lines.retain(|line| !matches!(line, PasswordLine::User { name, .. } if name == user));
        self.lines.len() < before
    }

    /// Checks the password of a user. Slow on purpose.
    pub fn verify(&self, user: &str, password: &str) -> bool {
        // The last line of a user counts, as in Torc.
        let found = self.entries().filter(|(name, _)| *name == user).last();
        let is_right = found.map_or_else(|| self.decoy_hash(user), |(_, hash)| Some(hash));
        let is_right = is_right.is_some_and(|hash| verify_hash(password, hash));
        found.is_some() && is_right
    }

    /// Returns the hash that is checked for an unknown user, so that it takes as long: the hash of an existing
    /// user, always the same one for the same name.
    fn decoy_hash(&self, user: &str) -> Option<&str> {
        let hashes: Vec<&str> = self.entries().map(|(_, hash)| hash).collect();
        let digest = Sha256::digest(user.as_bytes());
        let number =
            digest.iter().fold(0_usize, |number, byte| (number << 8 ^ usize::from(*byte)) % (1 << 24));
        hashes.get(number % hashes.len().max(1)).copied()
    }

    fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        self.lines.iter().filter_map(|line| match line {
            PasswordLine::User { name, hash } => Some((name.as_str(), hash.as_str())),
            PasswordLine::Verbatim(_) => None,
        })
    }

    fn render(&self) -> String {
        let lines = self.lines.iter().map(|line| match line {
            PasswordLine::Verbatim(text) => format!("{text}\n"),
            PasswordLine::User { name, hash } => format!("{name}:{hash}\n"),
        });
        lines.collect()
    }
}

fn parse_line(line: &str, at: usize) -> Result<PasswordLine, PasswordError> {
    let wrong = |what| PasswordError::Line { line: at, what };
    let trimmed = line.trim();
    if trimmed.is_empty() || trimmed.starts_with('#') {
        return Ok(PasswordLine::Verbatim(line.to_owned()));
    }
    let (name, hash) = trimmed.split_once(':').ok_or_else(|| wrong("expected `name:hash`"))?;
    let (name, hash) = (name.trim(), hash.trim());
    check_name(name).map_err(|_| wrong("no valid name before the colon"))?;
    let is_known = if hash.starts_with("$2") {
        hash.parse::<bcrypt::HashParts>().is_ok()
    } else {
        hash.starts_with("$argon2id$") && PasswordHash::new(hash).is_ok()
    };
    if !is_known {
        return Err(wrong("the hash is neither bcrypt ($2a$, $2b$, $2y$) nor argon2id ($argon2id$)"));
    }
    Ok(PasswordLine::User { name: name.to_owned(), hash: hash.to_owned() })
}

fn check_name(name: &str) -> Result<(), PasswordError> {
    let is_fine = !name.is_empty()
        && name.len() <= 128
        && name.trim() == name
        && !name.starts_with('#')
        && !name.contains(|c: char| c == ':' || c.is_control());
    if is_fine { Ok(()) } else { Err(PasswordError::Name(name.to_owned())) }
}

fn hash_password(password: &str, hashing: PasswordHashing) -> Result<String, PasswordError> {
    if password.is_empty() {
        return Err(PasswordError::Password("the password is empty"));
    }
    if password.len() > MAX_PASSWORD_BYTES {
        return Err(PasswordError::Password("the password is longer than 1024 bytes"));
    }
    match hashing {
        PasswordHashing::Argon2id => {
            let hash = Argon2::default().hash_password(password.as_bytes());
            hash.map(|hash| hash.to_string()).map_err(|error| PasswordError::Hash(error.to_string()))
        }
        PasswordHashing::Bcrypt if password.len() > MAX_BCRYPT_BYTES => {
            Err(PasswordError::Password("bcrypt uses at most 72 bytes of a password; use argon2id"))
        }
        PasswordHashing::Bcrypt => {
            bcrypt::hash(password, BCRYPT_COST).map_err(|error| PasswordError::Hash(error.to_string()))
        }
    }
}

fn verify_hash(password: &str, hash: &str) -> bool {
    if password.len() > MAX_PASSWORD_BYTES {
        return false;
    }
    if hash.starts_with("$2") {
        return bcrypt::verify(password, hash).unwrap_or(false);
    }
    PasswordHash::new(hash)
        .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok())
}

/// Writes a new file and renames it. A new file is readable by its owner only; an existing one keeps its mode.
fn replace_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mode = std::fs::metadata(path).map_or(0o600, |old| old.permissions().mode() & 0o7777);
    let beside = path.with_extension("new");
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ana` with bcrypt and `secret`, made by `htpasswd -nbB -C 4`-like tools: `$2y$` as Apache writes it.
    fn apache() -> String {
        let parts = bcrypt::hash_with_result("secret", 4).unwrap();
        format!("# people\n\nana:{}\n", parts.format_for_version(bcrypt::Version::TwoY))
    }

    #[test]
    fn torc_and_apache_password_files_are_read() {
        for version in [bcrypt::Version::TwoA, bcrypt::Version::TwoB, bcrypt::Version::TwoY] {
            let hash = bcrypt::hash_with_result("secret", 4).unwrap().format_for_version(version);
            let file = PasswordFile::parse(&format!("ana:{hash}\n")).unwrap();
            assert!(file.verify("ana", "secret"), "{hash}");
            assert!(!file.verify("ana", "Secret"));
            assert!(!file.verify("bob", "secret"));
        }
    }

    #[test]
    fn invalid_hash_is_reported_with_its_line() {
        for (text, line) in
            [("ana\n", 1), ("# x\nana:plain\n", 2), ("ana:{SHA}abc=\n", 1), (":$2y$04$x\n", 1)]
        {
            let error = PasswordFile::parse(text).unwrap_err();
            assert!(matches!(error, PasswordError::Line { line: at, .. } if at == line), "{error}");
            assert!(!error.to_string().contains("plain"), "possible passwords are not printed");
        }
    }

    #[test]
    fn users_are_set_and_removed_and_other_lines_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users");
        let mut file = PasswordFile::parse(&apache()).unwrap();
        assert!(file.set("bob", "hunter2", PasswordHashing::Argon2id).unwrap(), "new");
        assert!(!file.set("ana", "other", PasswordHashing::Bcrypt).unwrap(), "not new");
        file.write(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);

        let mut again = PasswordFile::read(&path).unwrap();
        assert!(again.render().starts_with("# people\n\n"));
        assert!(again.verify("bob", "hunter2") && again.verify("ana", "other"));
        assert!(!again.verify("ana", "secret"));
        assert!(again.remove("bob") && !again.remove("bob"));
        assert_eq!(again.users().collect::<Vec<_>>(), ["ana"]);
    }

    #[test]
    fn invalid_names_and_passwords_are_rejected() {
        let mut file = PasswordFile::default();
        for name in ["", "a:b", "#ana", " ana", "a\nb"] {
            assert!(
                matches!(file.set(name, "x", PasswordHashing::Bcrypt), Err(PasswordError::Name(_))),
                "{name:?}"
            );
        }
        assert!(file.set("ana", "", PasswordHashing::Argon2id).is_err());
        assert!(
            file.set("ana", &"x".repeat(73), PasswordHashing::Bcrypt).is_err(),
            "bcrypt would cut it off"
        );
        assert!(!file.verify("ana", "x"), "an empty file has no users");
    }

    #[test]
    fn unknown_user_is_checked_against_a_decoy_hash() {
        let file = PasswordFile::parse(&apache()).unwrap();
        assert!(file.decoy_hash("unknown").is_some());
        assert!(!file.verify("unknown", "secret"), "rejected, although the decoy's password is right");
    }
}
