//! What requests need of a catalog: the content of the input, and a place for the output.
//!
//! All writes are idempotent: after a crash it is unknown whether they were done, so they are repeated with the
//! same result. How the services provide that:
//!
//! | here | DBS | Rucio |
//! |---|---|---|
//! | dataset `/A/B/C` | dataset | container |
//! | block `/A/B/C#uuid` | block | dataset |
//! | [`DatasetCatalog::open_block`] | known once it has files | created, attached to its container; *exists already* is success |
//! | [`DatasetCatalog::register`] | bulk insert; *exists already* is success | attached with replicas at the site; likewise |
//! | [`DatasetCatalog::protect`], [`DatasetCatalog::archive`] | | a rule whose target is the block. *Duplicate* is success, with the id of the existing rule, unless that one is being deleted: then [`Fault::Later`] |
//! | [`DatasetCatalog::close_block`] | `open_for_writing=0` | `open=false` |
//! | [`DatasetCatalog::invalidate`] | its files are invalidated one by one, because blocks cannot be | rules of Windlass on the block are removed |
//!
//! The caller names a block, so that opening it again finds the same block.

mod local;

pub use local::LocalCatalog;

use windlass_types::catalog::CatalogFile;

/// A catalog. Calls block, with a timeout.
pub trait DatasetCatalog: Send + Sync + std::fmt::Debug {
    /// Whether the dataset exists.
    fn has_dataset(&self, dataset: &str) -> Result<bool, CatalogError>;

    /// The valid files of a dataset with their luminosity sections and locations. An unknown dataset is
    /// [`Fault::Never`]: an empty answer would be planned as nothing to do.
    fn list_files(&self, dataset: &str) -> Result<Vec<CatalogFile>, CatalogError>;

    /// A block of the dataset, open for files.
    fn open_block(&self, dataset: &str, block: &str) -> Result<(), CatalogError>;

    /// Registers the files of a work unit at this site. Rejected for a closed block, except for files that are
    /// in it.
    fn register_files(&self, block: &str, site: &str, files: &[CatalogFile]) -> Result<(), CatalogError>;

    /// Creates a rule that keeps the block at this site, and returns its id.
    fn protect_block(&self, block: &str, site: &str) -> Result<String, CatalogError>;

    /// Closes the block for new files.
    fn close_block(&self, block: &str) -> Result<(), CatalogError>;

    /// Creates a rule that archives the block, and returns its id.
    fn archive_block(&self, block: &str) -> Result<String, CatalogError>;

    /// Removing a missing rule is success.
    fn remove_rule(&self, rule: &str) -> Result<(), CatalogError>;

    /// Invalidates its files and removes remaining rules of Windlass. A missing block is success.
    fn invalidate_block(&self, block: &str) -> Result<(), CatalogError>;
}

/// Whether a retry makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogErrorKind {
    /// The service is down or busy, or something there has to end first.
    Transient,
    /// The answer stays the same until an operator changes something: no such dataset, an invalid expression.
    Permanent,
}

/// Why a catalog call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct CatalogError {
    pub fault: CatalogErrorKind,
    pub detail: String,
}

impl CatalogError {
    pub fn transient(detail: impl std::fmt::Display) -> Self {
        Self { fault: CatalogErrorKind::Transient, detail: detail.to_string() }
    }

    pub fn permanent(detail: impl std::fmt::Display) -> Self {
        Self { fault: CatalogErrorKind::Permanent, detail: detail.to_string() }
    }
}
