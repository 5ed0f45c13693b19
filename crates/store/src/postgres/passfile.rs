//! PostgreSQL password files: lines of `host:port:database:user:password`, `*` for any.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// Environment variable with a file that a run writes for its jobs, which get the URL without the password.
pub const PASS_FILE_VARIABLE: &str = "WINDLASS_PGPASSFILE";

/// Returns the password for this connection, from the first file that has one.
pub(super) fn find_password(config: &Config) -> Option<String> {
    passfile_paths().iter().find_map(|path| find_matching_password(&read_private(path)?, config))
}

/// Returns a line for such a file, if the URL has a password.
pub fn render_passfile_line(url: &str) -> Option<String> {
    let config: Config = super::connect::strip_tls_options(url).parse().ok()?;
    let password = String::from_utf8(config.get_password()?.to_vec()).ok()?;
    Some(format!(
        "*:*:*:{}:{}\n",
        config.get_user().map_or("*".to_owned(), escape_field),
        escape_field(&password)
    ))
}

fn passfile_paths() -> Vec<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty());
    let usual = || named("HOME").map(|home| Path::new(&home).join(".pgpass").into_os_string());
    let all: [Option<OsString>; 2] = [named(PASS_FILE_VARIABLE), named("PGPASSFILE").or_else(usual)];
    all.into_iter().flatten().map(PathBuf::from).collect()
}

/// A file that others can read is ignored, as in other clients.
fn read_private(path: &Path) -> Option<String> {
    let meta = std::fs::metadata(path).ok()?;
    let for_others = meta.mode() & 0o077;
    (meta.is_file() && for_others == 0).then(|| std::fs::read_to_string(path).ok()).flatten()
}

fn find_matching_password(text: &str, config: &Config) -> Option<String> {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        _ => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let user = config.get_user().unwrap_or_default();
    let wanted = [host.as_str(), &port, config.get_dbname().unwrap_or(user), user];
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = split_fields(line);
        let (password, place) = fields.split_last()?;
        let fits = place.len() == wanted.len()
            && place.iter().zip(wanted).all(|(said, wanted)| said == "*" || said == wanted);
        fits.then(|| password.clone())
    })
}

/// Splits a line at colons; a backslash escapes the next character.
fn split_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        let last = fields.len() - 1;
        match letter {
            ':' if last < 4 => fields.push(String::new()),
            '\\' => fields[last].extend(letters.next()),
            other => fields[last].push(other),
        }
    }
    fields
}

fn escape_field(text: impl AsRef<str>) -> String {
    text.as_ref().replace('\\', "\\\\").replace(':', "\\:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passfile_line_is_matched_by_target() {
        let text = "# mine\nother:*:*:*:no\n*:5433:*:*:no\ndb:5432:w:me:se\\:cr\\\\et\n*:*:*:*:last\n";
        let of = |url: &str| find_matching_password(text, &url.parse().unwrap());
        assert_eq!(of("postgres://me@db/w").as_deref(), Some("se:cr\\et"));
        assert_eq!(of("postgres://you@db/w").as_deref(), Some("last"));
        assert_eq!(find_matching_password("db:5432:w:me\n", &"postgres://me@db/w".parse().unwrap()), None);
    }

    #[test]
    fn written_passfile_is_read_back() {
        let line = render_passfile_line("postgres://me:se%3Acr%5Cet@db/w?sslmode=verify-full").unwrap();
        assert_eq!(
            find_matching_password(&line, &"postgres://me@elsewhere/x".parse().unwrap()).as_deref(),
            Some("se:cr\\et")
        );
        assert_eq!(render_passfile_line("postgres://me@db/w"), None);
    }
}
