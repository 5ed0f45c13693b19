//! What every command has at hand: the global flags, the terminal, and the way to the database.

use crate::args::Globals;
use crate::config::Config;
use crate::error::CliError;
use crate::server::{self, Manner};
use crate::ui::Ui;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use windlass_client::Client;
use windlass_store::postgres::PgStore;
use windlass_store::sqlite::{OpenMode, Opened, SqliteStore};
use windlass_store::{Database, Location, Store};
use windlass_types::{Clock, WorkflowId};

const FOLDER: &str = ".windlass";
pub(crate) const DATABASE: &str = "windlass.db";

pub(crate) struct Context {
    pub(crate) ui: Ui,
    pub(crate) clock: Clock,
    /// Absolute: where the command was typed.
    pub(crate) cwd: PathBuf,
    /// What files and the environment say; the command line knows it already.
    pub(crate) config: Config,
    /// From `--db` or the settings, absolute.
    db: Option<PathBuf>,
    /// From `--url` or the settings.
    url: Option<String>,
    manner: Manner,
    /// Whom we talk to; looked for once.
    server: OnceLock<Option<Client>>,
}

impl Context {
    pub(crate) fn new(globals: &Globals, config: Config) -> Result<Self, CliError> {
        let cwd = std::env::current_dir()
            .map_err(|e| CliError::io(format!("cannot tell the current directory: {e}")))?;
        let (db, url) = server::which(globals, &config)?;
        db.as_deref().map_or(Ok(()), refuse_other_urls)?;
        let db = db.map(|path| absolute(&cwd, &path));
        let (manner, server) = (Manner::new(globals, &cwd)?, OnceLock::new());
        Ok(Self { ui: Ui::new(globals), clock: Clock, cwd, config, db, url, manner, server })
    }

    /// The server that was named, or the one that serves the database that was found. `None`: the database is a file
    /// that nobody serves.
    pub(crate) fn server(&self) -> Result<Option<&Client>, CliError> {
        if self.server.get().is_none() {
            let found = server::find(self.url.as_deref(), &self.manner, self.find().as_deref())?;
            // Nobody else sets it: there is one thread here.
            self.server.set(found).ok();
        }
        Ok(self.server.get().and_then(Option::as_ref))
    }

    /// The words that have another `windlass` work on the same database or server.
    pub(crate) fn globals_again(&self) -> Vec<OsString> {
        let trust = &self.manner.trust;
        let credentials = [
            ("--cert", trust.cert.as_ref().map(|path| path.as_os_str())),
            ("--key", trust.key.as_ref().map(|path| path.as_os_str())),
        ];
        let given =
            credentials.into_iter().filter_map(|(flag, value)| Some([flag.into(), value?.to_owned()]));
        self.globals_of_others().into_iter().chain(given.flatten()).collect()
    }

    /// The same without the user's credentials, for a process that has its own.
    pub(crate) fn globals_of_others(&self) -> Vec<OsString> {
        let named = [
            ("--db", self.db.as_ref().map(|path| path.as_os_str())),
            ("--url", self.url.as_ref().map(AsRef::as_ref)),
            ("--ca-file", self.manner.trust.ca_file.as_ref().map(|path| path.as_os_str())),
        ];
        let given = named.into_iter().filter_map(|(flag, value)| Some([flag.into(), value?.to_owned()]));
        let in_the_clear = self.manner.insecure_http.then(|| "--insecure-http".into());
        given.flatten().chain(in_the_clear).collect()
    }

    /// How servers are talked to, as it was said.
    pub(crate) const fn manner(&self) -> &Manner {
        &self.manner
    }

    /// Looks once more for the server of the database: another one may have taken over. `None`: it was named, and then
    /// it is that one or none.
    pub(crate) fn way_back(&self) -> Option<impl Fn() -> Option<Client> + Send + Sync + 'static> {
        let database = self.find().filter(|_| self.url.is_none())?;
        let manner = self.manner.clone();
        Some(move || server::find(None, &manner, Some(&database)).ok().flatten())
    }

    /// The server, for what only a server can do.
    pub(crate) fn require_server(&self) -> Result<&Client, CliError> {
        self.server()?.ok_or_else(|| {
            CliError::user("this needs a server, and none was named or serves this database")
                .with_hint("--url or WINDLASS_URL names one; `windlass serve` starts one")
        })
    }

    /// For commands that cannot be done by a server.
    pub(crate) fn refuse_server(&self, why: &str) -> Result<(), CliError> {
        match &self.url {
            Some(url) => {
                Err(CliError::user(format!("{why}, and the settings or --url name the server {url}"))
                    .with_hint("leave out --url, and unset WINDLASS_URL"))
            }
            None => Ok(()),
        }
    }

    fn remote(&self) -> Result<Option<Arc<dyn Store>>, CliError> {
        Ok(self.server()?.map(|client| Arc::new(client.books()) as Arc<dyn Store>))
    }

    /// The database, for reading only. It must exist.
    pub(crate) fn open_read(&self) -> Result<Arc<dyn Store>, CliError> {
        if let Some(books) = self.remote()? {
            return Ok(books);
        }
        let path = self.existing()?;
        Ok(self.open_at(&path, OpenMode::ReadOnly)?)
    }

    /// The database, for writing. It must exist.
    pub(crate) fn open_write(&self) -> Result<Arc<dyn Store>, CliError> {
        if let Some(books) = self.remote()? {
            return Ok(books);
        }
        let path = self.existing()?;
        self.refuse_foreign(&path)?;
        Ok(self.open_at(&path, OpenMode::ReadWrite)?)
    }

    /// The database, for writing, if there is one.
    pub(crate) fn open_if_there(&self) -> Result<Option<Arc<dyn Store>>, CliError> {
        let there = self.url.is_some() || self.is_there();
        there.then(|| self.open_write()).transpose()
    }

    /// The database, for reading only, if there is one.
    pub(crate) fn open_read_if_there(&self) -> Result<Option<Arc<dyn Store>>, CliError> {
        let there = self.url.is_some() || self.is_there();
        there.then(|| self.open_read()).transpose()
    }

    /// The database itself, whoever serves it, for reading only, if there is one.
    pub(crate) fn open_here_if_there(&self) -> Result<Option<Arc<dyn Store>>, CliError> {
        let Some(path) = self.find().filter(|_| self.is_there()) else { return Ok(None) };
        if let Some(url) = postgres(&path)
            && let Err(windlass_store::Error::Older { found: 0, .. }) = PgStore::open(url, OpenMode::ReadOnly)
        {
            // It has no tables: the database is there, and yet to be made.
            return Ok(None);
        }
        Ok(Some(self.open_at(&path, OpenMode::ReadOnly)?))
    }

    /// The database itself with all that it keeps, for reading only. It must exist.
    pub(crate) fn database_to_read(&self) -> Result<Arc<dyn Database>, CliError> {
        self.open_at(&self.existing()?, OpenMode::ReadOnly)
    }

    /// The database, for writing; made here if there is none here or above.
    pub(crate) fn open_or_create(&self) -> Result<Arc<dyn Store>, CliError> {
        if let Some(books) = self.remote()? {
            return Ok(books);
        }
        let store = self.open_here_or_create()?;
        self.refuse_served(&*store)?;
        Ok(store)
    }

    /// Before a workflow is made: nobody here could run it while a server that does not talk to us has the database.
    pub(crate) fn refuse_served(&self, store: &dyn Store) -> Result<(), CliError> {
        if self.server()?.is_some() {
            return Ok(());
        }
        // Whoever holds a workflow that is not there holds them all.
        let Some(holder) = store.lock_holder(WorkflowId(0))? else { return Ok(()) };
        Err(CliError::refused(format!("the database is in use by {holder}"))
            .with_hint("wait for it, stop it, name it with --url, or use another database"))
    }

    /// The database itself, whoever serves it; made here if there is none here or above.
    pub(crate) fn open_here_or_create(&self) -> Result<Arc<dyn Database>, CliError> {
        let path = match self.find() {
            Some(path) => {
                self.refuse_foreign(&path)?;
                path
            }
            None => make_folder(&self.cwd)?.join(DATABASE),
        };
        if postgres(&path).is_some() {
            return self.open_at(&path, OpenMode::ReadWrite);
        }
        Ok(self.warned(SqliteStore::open_or_create(&path)?))
    }

    /// Where the database is, or would be made; that of a server goes by its name.
    pub(crate) fn database(&self) -> PathBuf {
        let served = self.url.as_ref().map(PathBuf::from);
        served.or_else(|| self.find()).unwrap_or_else(|| self.cwd.join(FOLDER).join(DATABASE))
    }

    /// The same, to be shown: without what is secret about it.
    pub(crate) fn database_name(&self) -> String {
        let database = self.database();
        postgres(&database).map_or_else(|| database.display().to_string(), Location::without_password)
    }

    /// Whether the database is one of PostgreSQL.
    pub(crate) fn is_postgres(&self) -> bool {
        postgres(&self.database()).is_some()
    }

    fn find(&self) -> Option<PathBuf> {
        self.db.clone().or_else(|| find_folder(&self.cwd).map(|folder| folder.join(DATABASE)))
    }

    pub(crate) fn existing(&self) -> Result<PathBuf, CliError> {
        self.find().ok_or_else(|| {
            CliError::user(format!("there is no {FOLDER} folder in {} or above it", self.cwd.display()))
                .with_hint("`windlass run SPEC` makes one; --db or WINDLASS_DB names a database elsewhere")
        })
    }

    /// What a database says is run as commands: one that was merely found must be one's own.
    fn refuse_foreign(&self, path: &Path) -> Result<(), CliError> {
        let Some(folder) = path.parent().filter(|_| self.db.is_none()) else { return Ok(()) };
        let owner = std::fs::metadata(folder).map(|meta| meta.uid());
        if owner.is_ok_and(|uid| uid != rustix::process::geteuid().as_raw()) {
            return Err(CliError::refused(format!("{} belongs to somebody else", folder.display()))
                .with_hint(format!("to use it all the same, say so: --db {}", path.display())));
        }
        Ok(())
    }

    /// A file that must be there, or a PostgreSQL database, which gets its tables when it is opened for writing.
    /// Whether something that cannot be looked at is a database, opening it says.
    pub(crate) fn is_there(&self) -> bool {
        self.find().is_some_and(|path| postgres(&path).is_some() || path.try_exists().unwrap_or(true))
    }

    fn open_at(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn Database>, CliError> {
        match postgres(path) {
            Some(url) => Ok(Arc::new(PgStore::open(url, mode)?.acting_as(&crate::plan::current_user()))),
            None => Ok(self.warned(SqliteStore::open(path, mode)?)),
        }
    }

    fn warned(&self, opened: Opened) -> Arc<dyn Database> {
        for warning in &opened.warnings {
            self.ui.warn(&warning.to_string());
        }
        // Events say who did it.
        Arc::new(opened.store.acting_as(&crate::plan::current_user()))
    }
}

/// The URL of a PostgreSQL database, where a path was expected.
fn postgres(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| Location::is_postgres(text))
}

/// Nobody has a folder called `mysql:`, with another one in it.
fn refuse_other_urls(db: &Path) -> Result<(), CliError> {
    let Some((scheme, _)) =
        db.to_str().filter(|text| !Location::is_postgres(text)).and_then(|text| text.split_once("://"))
    else {
        return Ok(());
    };
    let hint = match scheme {
        "http" | "https" => "--url names a server; --db a file, or postgres://USER@HOST:PORT/DATABASE",
        _ => "it is a file, or a database of PostgreSQL: postgres://USER@HOST:PORT/DATABASE",
    };
    let shown = Location::without_password(&db.to_string_lossy());
    Err(CliError::user(format!("{shown} is no database that windlass can use")).with_hint(hint))
}

/// A path becomes absolute; a URL stays as it is.
fn absolute(cwd: &Path, db: &Path) -> PathBuf {
    if postgres(db).is_some() { db.to_owned() } else { cwd.join(db) }
}

fn find_folder(from: &Path) -> Option<PathBuf> {
    from.ancestors().map(|dir| dir.join(FOLDER)).find(|folder| folder.is_dir())
}

/// Private, and out of git's sight.
pub(crate) fn make_folder(parent: &Path) -> Result<PathBuf, CliError> {
    let folder = parent.join(FOLDER);
    let made = match DirBuilder::new().mode(0o700).create(&folder) {
        // Somebody else made it just now.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        // Its name must survive a power cut, as what is in it does.
        made => made
            .and_then(|()| std::fs::write(folder.join(".gitignore"), "*\n"))
            .and_then(|()| std::fs::File::open(parent)?.sync_all()),
    };
    made.map_err(|e| {
        CliError::io(format!("cannot make {}: {e}", folder.display()))
            .with_hint("--db or WINDLASS_DB names a database elsewhere")
    })?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_folder_is_found_here_and_above() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        assert_eq!(find_folder(&deep).filter(|f| f.starts_with(root.path())), None);
        let folder = make_folder(root.path()).unwrap();
        assert_eq!(find_folder(&deep), Some(folder.clone()));
        assert_eq!(find_folder(root.path()), Some(folder));
    }

    #[test]
    fn the_folder_is_private_and_ignored_by_git() {
        let root = tempfile::tempdir().unwrap();
        let folder = make_folder(root.path()).unwrap();
        let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(std::fs::read_to_string(folder.join(".gitignore")).unwrap(), "*\n");
        assert_eq!(make_folder(root.path()).unwrap(), folder);
    }
}
