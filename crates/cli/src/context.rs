//! What every command has at hand: the global flags, the terminal, and the way to the database.

use crate::args::Globals;
use crate::error::CliError;
use crate::ui::Ui;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use windlass_store::Store;
use windlass_types::Clock;

pub(crate) struct Context {
    pub(crate) ui: Ui,
    pub(crate) clock: Clock,
    /// Absolute: where the command was typed.
    pub(crate) cwd: PathBuf,
    /// From `--db` or `WINDLASS_DB`.
    db: Option<PathBuf>,
}

impl Context {
    pub(crate) fn new(globals: &Globals) -> Result<Self, CliError> {
        let cwd = std::env::current_dir()
            .map_err(|e| CliError::io(format!("cannot tell the current directory: {e}")))?;
        let db = globals.db.as_ref().map(|path| cwd.join(path));
        Ok(Self { ui: Ui::new(globals), clock: Clock, cwd, db })
    }

    /// The database, for reading only. It must exist.
    pub(crate) fn open_read(&self) -> Result<Arc<dyn Store>, CliError> {
        Err(self.no_store())
    }

    /// The database, for writing. It must exist.
    pub(crate) fn open_write(&self) -> Result<Arc<dyn Store>, CliError> {
        Err(self.no_store())
    }

    /// The database, for writing; made here if there is none yet.
    pub(crate) fn open_or_create(&self) -> Result<Arc<dyn Store>, CliError> {
        Err(self.no_store())
    }

    fn no_store(&self) -> CliError {
        let path = self.db.as_deref().unwrap_or(Path::new(".windlass/windlass.db"));
        CliError::internal(format!("{}: the store is not built yet", path.display()))
    }
}
