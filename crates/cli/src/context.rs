//! The context of a command: global options, the terminal, and access to the database.

use crate::args::GlobalArgs;
use crate::config::CliConfig;
use crate::error::CliError;
use crate::server_discovery::{self, ConnectionSettings};
use crate::ui::TerminalUi;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use windlass_client::Client;
use windlass_server::DATABASE_START_WAIT;
use windlass_store::postgres::PgStore;
use windlass_store::sqlite::{OpenMode, OpenedStore, SqliteStore};
use windlass_store::{Store, StoreDatabase, StoreError, StoreLocation};
use windlass_types::{SystemClock, WorkflowId};

const DATA_FOLDER: &str = ".windlass";
pub(crate) const DATABASE_FILE: &str = "windlass.db";
const DATABASE_RETRY_INTERVAL: Duration = Duration::from_millis(500);

pub(crate) struct CliContext {
    pub(crate) ui: TerminalUi,
    pub(crate) clock: SystemClock,
    /// The current directory, absolute.
    pub(crate) cwd: PathBuf,
    /// Settings of files and the environment; the clap defaults already include them.
    pub(crate) config: CliConfig,
    /// From `--db` or the settings, absolute.
    db: Option<PathBuf>,
    /// From `--url` or the settings.
    url: Option<String>,
    connection_settings: ConnectionSettings,
    /// The server in use; searched for once.
    server: OnceLock<Option<Client>>,
}

impl CliContext {
    pub(crate) fn new(globals: &GlobalArgs, config: CliConfig) -> Result<Self, CliError> {
        let cwd = std::env::current_dir()
            .map_err(|e| CliError::io(format!("cannot determine the current directory: {e}")))?;
        let (db, url) = server_discovery::choose_location(globals, &config)?;
        db.as_deref().map_or(Ok(()), refuse_unsupported_urls)?;
        let db = db.map(|path| absolute_database(&cwd, &path));
        let (manner, server) = (ConnectionSettings::new(globals, &cwd)?, OnceLock::new());
        Ok(Self {
            ui: TerminalUi::new(globals),
            clock: SystemClock,
            cwd,
            config,
            db,
            url,
            connection_settings: manner,
            server,
        })
    }

    /// The named server, or the server that uses the found database. `None`: the database is a file without a
    /// server.
    pub(crate) fn server(&self) -> Result<Option<&Client>, CliError> {
        if self.server.get().is_none() {
            let found = server_discovery::find_server(
                self.url.as_deref(),
                &self.connection_settings,
                self.find_database().as_deref(),
            )?;
            // Cannot fail: this is the only thread here.
            self.server.set(found).ok();
        }
        Ok(self.server.get().and_then(Option::as_ref))
    }

    /// The global options that make another `windlass` process use the same database or server.
    pub(crate) fn repeat_global_args(&self) -> Vec<OsString> {
        let trust = &self.connection_settings.trust;
        let credentials = [
            ("--cert", trust.cert.as_ref().map(|path| path.as_os_str())),
            ("--key", trust.key.as_ref().map(|path| path.as_os_str())),
        ];
        let given =
            credentials.into_iter().filter_map(|(flag, value)| Some([flag.into(), value?.to_owned()]));
        self.repeat_global_args_without_credentials().into_iter().chain(given.flatten()).collect()
    }

    /// The same without the user's credentials, for a process with its own.
    pub(crate) fn repeat_global_args_without_credentials(&self) -> Vec<OsString> {
        let named = [
            ("--db", self.db.as_ref().map(|path| path.as_os_str())),
            ("--url", self.url.as_ref().map(AsRef::as_ref)),
            ("--ca-file", self.connection_settings.trust.ca_file.as_ref().map(|path| path.as_os_str())),
        ];
        let given = named.into_iter().filter_map(|(flag, value)| Some([flag.into(), value?.to_owned()]));
        let in_the_clear = self.connection_settings.insecure_http.then(|| "--insecure-http".into());
        given.flatten().chain(in_the_clear).collect()
    }

    /// The connection options that were given.
    pub(crate) const fn connection_settings(&self) -> &ConnectionSettings {
        &self.connection_settings
    }

    /// Searches again for the server of the database, since another one may have taken over. `None` if the
    /// server was named explicitly.
    pub(crate) fn server_finder(&self) -> Option<impl Fn() -> Option<Client> + Send + Sync + 'static> {
        let database = self.find_database().filter(|_| self.url.is_none())?;
        let manner = self.connection_settings.clone();
        Some(move || server_discovery::find_server(None, &manner, Some(&database)).ok().flatten())
    }

    /// The database by which its server is found. `None` if the server was named explicitly.
    pub(crate) fn served_database(&self) -> Option<String> {
        let database = self.find_database().filter(|_| self.url.is_none())?;
        let real = database.canonicalize().unwrap_or(database);
        Some(StoreLocation::without_password(&real.to_string_lossy()))
    }

    /// The server, for operations that need one.
    pub(crate) fn require_server(&self) -> Result<&Client, CliError> {
        self.server()?.ok_or_else(|| {
            CliError::user("this command needs a server, but none is running for this database")
                .with_hint("start one with `windlass serve`, or name one with --url or WINDLASS_URL")
        })
    }

    /// For commands that do not work with a server.
    pub(crate) fn refuse_server(&self, why: &str) -> Result<(), CliError> {
        match &self.url {
            Some(url) => {
                Err(CliError::user(format!("{why}, but the settings or --url name the server {url}"))
                    .with_hint("leave out --url, and unset WINDLASS_URL"))
            }
            None => Ok(()),
        }
    }

    fn open_remote(&self) -> Result<Option<Arc<dyn Store>>, CliError> {
        Ok(self.server()?.map(|client| Arc::new(client.store()) as Arc<dyn Store>))
    }

    /// The database, for reading only. It must exist.
    pub(crate) fn open_read(&self) -> Result<Arc<dyn Store>, CliError> {
        if let Some(jobs_store) = self.open_remote()? {
            return Ok(jobs_store);
        }
        let path = self.existing_database()?;
        Ok(self.open_at(&path, OpenMode::ReadOnly)?)
    }

    /// The database, for writing. It must exist.
    pub(crate) fn open_write(&self) -> Result<Arc<dyn Store>, CliError> {
        if let Some(jobs_store) = self.open_remote()? {
            return Ok(jobs_store);
        }
        let path = self.existing_database()?;
        self.refuse_foreign_owner(&path)?;
        Ok(self.open_at(&path, OpenMode::ReadWrite)?)
    }

    /// The database, for writing, if there is one.
    pub(crate) fn open_if_exists(&self) -> Result<Option<Arc<dyn Store>>, CliError> {
        let there = self.url.is_some() || self.database_exists();
        there.then(|| self.open_write()).transpose()
    }

    /// The database, for reading only, if there is one.
    pub(crate) fn open_read_if_exists(&self) -> Result<Option<Arc<dyn Store>>, CliError> {
        let there = self.url.is_some() || self.database_exists();
        there.then(|| self.open_read()).transpose()
    }

    /// The database itself, also while a server uses it, read-only, if it exists.
    pub(crate) fn open_local_if_exists(&self) -> Result<Option<Arc<dyn Store>>, CliError> {
        let Some(path) = self.find_database().filter(|_| self.database_exists()) else { return Ok(None) };
        if let Some(url) = postgres_url(&path)
            && let Err(windlass_store::StoreError::FormatTooOld { found: 0, .. }) =
                PgStore::open(url, OpenMode::ReadOnly)
        {
            // An empty database exists but has no tables yet.
            return Ok(None);
        }
        Ok(Some(self.open_at(&path, OpenMode::ReadOnly)?))
    }

    /// The database itself with its contents, read-only. It must exist.
    pub(crate) fn open_database_read(&self) -> Result<Arc<dyn StoreDatabase>, CliError> {
        self.open_at(&self.existing_database()?, OpenMode::ReadOnly)
    }

    /// The database, for writing; created in the current directory if there is none there or in a parent.
    pub(crate) fn open_or_create(&self) -> Result<Arc<dyn Store>, CliError> {
        if let Some(jobs_store) = self.open_remote()? {
            return Ok(jobs_store);
        }
        let store = self.open_or_create_local()?;
        self.refuse_served_database(&*store)?;
        Ok(store)
    }

    /// Called before a workflow is created: it could not be run while an unreachable server holds the database.
    pub(crate) fn refuse_served_database(&self, store: &dyn Store) -> Result<(), CliError> {
        if self.server()?.is_some() {
            return Ok(());
        }
        // A lock on workflow 0 is a lock on all workflows.
        let Some(holder) = store.lock_holder(WorkflowId(0))? else { return Ok(()) };
        Err(CliError::refused(format!("the database is in use by {holder}"))
            .with_hint("wait for it, stop it, connect to it with --url, or use another database"))
    }

    /// The database itself, also while a server uses it; created if there is none.
    pub(crate) fn open_or_create_local(&self) -> Result<Arc<dyn StoreDatabase>, CliError> {
        let path = match self.find_database() {
            Some(path) => {
                self.refuse_foreign_owner(&path)?;
                path
            }
            None => make_folder(&self.cwd)?.join(DATABASE_FILE),
        };
        if postgres_url(&path).is_some() {
            return self.open_at(&path, OpenMode::ReadWrite);
        }
        Ok(self.print_open_warnings(SqliteStore::open_or_create(&path)?))
    }

    /// The same for a server: waits for a PostgreSQL that does not respond yet, since both may start with the
    /// machine.
    pub(crate) fn open_or_create_for_server(&self) -> Result<Arc<dyn StoreDatabase>, CliError> {
        let path = self.database();
        let Some(url) = postgres_url(&path) else { return self.open_or_create_local() };
        let begin = Instant::now();
        let mut has_warned = false;
        loop {
            match PgStore::open(url, OpenMode::ReadWrite) {
                Err(error @ StoreError::Unreachable { .. }) if begin.elapsed() < DATABASE_START_WAIT => {
                    if !has_warned {
                        let seconds = DATABASE_START_WAIT.as_secs();
                        self.ui.print_warning(&format!("{error}; trying again for {seconds} seconds"));
                        has_warned = true;
                    }
                    std::thread::sleep(DATABASE_RETRY_INTERVAL);
                }
                opened => return Ok(Arc::new(opened?.acting_as(&crate::spec_file::current_user()))),
            }
        }
    }

    /// The path of the database, existing or not; for a server, its URL.
    pub(crate) fn database(&self) -> PathBuf {
        let served = self.url.as_ref().map(PathBuf::from);
        served
            .or_else(|| self.find_database())
            .unwrap_or_else(|| self.cwd.join(DATA_FOLDER).join(DATABASE_FILE))
    }

    /// The same for display, without passwords.
    pub(crate) fn database_name(&self) -> String {
        let database = self.database();
        postgres_url(&database)
            .map_or_else(|| database.display().to_string(), StoreLocation::without_password)
    }

    /// Whether the database is PostgreSQL.
    pub(crate) fn is_postgres(&self) -> bool {
        postgres_url(&self.database()).is_some()
    }

    fn find_database(&self) -> Option<PathBuf> {
        self.db.clone().or_else(|| find_folder(&self.cwd).map(|folder| folder.join(DATABASE_FILE)))
    }

    pub(crate) fn existing_database(&self) -> Result<PathBuf, CliError> {
        self.find_database().ok_or_else(|| {
            CliError::user(format!(
                "there is no {DATA_FOLDER} directory in {} or its parents",
                self.cwd.display()
            ))
            .with_hint("`windlass run SPEC` creates one; use --db or WINDLASS_DB for a database elsewhere")
        })
    }

    /// Commands in a database are executed, so a database that was found by searching must belong to the
    /// caller.
    fn refuse_foreign_owner(&self, path: &Path) -> Result<(), CliError> {
        let Some(folder) = path.parent().filter(|_| self.db.is_none()) else { return Ok(()) };
        let owner = std::fs::metadata(folder).map(|meta| meta.uid());
        if owner.is_ok_and(|uid| uid != rustix::process::geteuid().as_raw()) {
            return Err(CliError::refused(format!("{} belongs to another user", folder.display()))
                .with_hint(format!("to use it anyway: --db {}", path.display())));
        }
        Ok(())
    }

    /// Checks that the file exists; a PostgreSQL database gets its tables when it is opened for writing. Other
    /// errors are reported when the database is opened.
    pub(crate) fn database_exists(&self) -> bool {
        self.find_database()
            .is_some_and(|path| postgres_url(&path).is_some() || path.try_exists().unwrap_or(true))
    }

    fn open_at(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn StoreDatabase>, CliError> {
        match postgres_url(path) {
            Some(url) => Ok(Arc::new(PgStore::open(url, mode)?.acting_as(&crate::spec_file::current_user()))),
            None => Ok(self.print_open_warnings(SqliteStore::open(path, mode)?)),
        }
    }

    fn print_open_warnings(&self, opened: OpenedStore) -> Arc<dyn StoreDatabase> {
        for warning in &opened.warnings {
            self.ui.print_warning(&warning.to_string());
        }
        // The user is recorded in events.
        Arc::new(opened.store.acting_as(&crate::spec_file::current_user()))
    }
}

/// The URL of a PostgreSQL database, given where a path was expected.
fn postgres_url(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| StoreLocation::is_postgres(text))
}

/// Recognizes URLs with another scheme, such as `mysql://`, which are unlikely paths.
fn refuse_unsupported_urls(db: &Path) -> Result<(), CliError> {
    let Some((scheme, _)) =
        db.to_str().filter(|text| !StoreLocation::is_postgres(text)).and_then(|text| text.split_once("://"))
    else {
        return Ok(());
    };
    let hint = match scheme {
        "http" | "https" => "use --url for a server; --db takes a file or postgres://USER@HOST:PORT/DATABASE",
        _ => "use a file, or a PostgreSQL database: postgres://USER@HOST:PORT/DATABASE",
    };
    let shown = StoreLocation::without_password(&db.to_string_lossy());
    Err(CliError::user(format!("{shown} is not a supported database")).with_hint(hint))
}

/// Makes a path absolute; leaves a URL unchanged.
fn absolute_database(cwd: &Path, db: &Path) -> PathBuf {
    if postgres_url(db).is_some() { db.to_owned() } else { cwd.join(db) }
}

fn find_folder(from: &Path) -> Option<PathBuf> {
    from.ancestors().map(|dir| dir.join(DATA_FOLDER)).find(|folder| folder.is_dir())
}

/// Creates the folder, private and ignored by git.
pub(crate) fn make_folder(parent: &Path) -> Result<PathBuf, CliError> {
    let folder = parent.join(DATA_FOLDER);
    let made = match DirBuilder::new().mode(0o700).create(&folder) {
        // Another process created it concurrently.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // The directory entry must survive a power failure, like the contents.
        made => made
            .and_then(|()| std::fs::write(folder.join(".gitignore"), "*\n"))
            .and_then(|()| std::fs::File::open(parent)?.sync_all()),
    };
    made.map_err(|e| {
        CliError::io(format!("cannot create {}: {e}", folder.display()))
            .with_hint("use --db or WINDLASS_DB for a database elsewhere")
    })?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn windlass_folder_is_found_in_parent_directories() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        assert_eq!(find_folder(&deep).filter(|f| f.starts_with(root.path())), None);
        let folder = make_folder(root.path()).unwrap();
        assert_eq!(find_folder(&deep), Some(folder.clone()));
        assert_eq!(find_folder(root.path()), Some(folder));
    }

    #[test]
    fn windlass_folder_is_private_and_ignored_by_git() {
        let root = tempfile::tempdir().unwrap();
        let folder = make_folder(root.path()).unwrap();
        let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(std::fs::read_to_string(folder.join(".gitignore")).unwrap(), "*\n");
        assert_eq!(make_folder(root.path()).unwrap(), folder);
    }
}
