//! What a request needs of a catalog: what is in its input, and a home for its output.
//!
//! Everything that writes may be done twice: after a crash nobody knows whether it was done, so it is done again, and the
//! answer is the same as before. What the services make of that:
//!
//! | here | DBS | Rucio |
//! |---|---|---|
//! | dataset `/A/B/C` | dataset | container |
//! | block `/A/B/C#uuid` | block | dataset |
//! | [`Catalog::open_block`] | known once it has files | made, attached to its container; *exists already* is success |
//! | [`Catalog::register`] | bulk insert; *exists already* is success | attached with replicas at the site; likewise |
//! | [`Catalog::protect`], [`Catalog::archive`] | | a rule whose target is the block. *Duplicate* is success, with the id of the rule there is, unless that one is being deleted: then [`Fault::Later`] |
//! | [`Catalog::close_block`] | `open_for_writing=0` | `open=false` |
//! | [`Catalog::invalidate`] | its files are made invalid, one by one: blocks cannot be | rules on the block that are ours are removed |
//!
//! A block's name is given by whoever opens it, so that opening it again finds the same block.

mod local;

pub use local::LocalCatalog;

use windlass_types::catalog::CatalogFile;

/// A catalog. Calls block; each ends by itself in reasonable time.
pub trait DatasetCatalog: Send + Sync + std::fmt::Debug {
    /// Whether anybody has heard of this dataset.
    fn has_dataset(&self, dataset: &str) -> Result<bool, CatalogError>;

    /// The valid files of a dataset with their luminosity sections and where they are. A dataset that nobody knows is
    /// [`Fault::Never`]: an empty answer would be planned as nothing to do.
    fn list_files(&self, dataset: &str) -> Result<Vec<CatalogFile>, CatalogError>;

    /// A block of the dataset, open for files.
    fn open_block(&self, dataset: &str, block: &str) -> Result<(), CatalogError>;

    /// The files of a work unit, which are at this site. Refused for a closed block, but for files that are in it.
    fn register_files(&self, block: &str, site: &str, files: &[CatalogFile]) -> Result<(), CatalogError>;

    /// What is in the block stays at this site. The id of the rule.
    fn protect_block(&self, block: &str, site: &str) -> Result<String, CatalogError>;

    /// Nothing more comes into it.
    fn close_block(&self, block: &str) -> Result<(), CatalogError>;

    /// It is to go where it stays for good. The id of the rule.
    fn archive_block(&self, block: &str) -> Result<String, CatalogError>;

    /// A rule that is not there any more is success.
    fn remove_rule(&self, rule: &str) -> Result<(), CatalogError>;

    /// Its files are not to be used any more, and rules of ours that are left on it go. A block that is not there is
    /// success.
    fn invalidate_block(&self, block: &str) -> Result<(), CatalogError>;
}

/// Whether it makes sense to ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogErrorKind {
    /// The service is down, or busy, or something there has to end first.
    Transient,
    /// It will answer the same until a person changes something: no such dataset, a bad expression.
    Permanent,
}

/// Why a catalog did not do it.
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
