//! The built-in catalog of the server.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_types::catalog::{CatalogBlock, CatalogFile, DatasetSummary};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DatasetList {
    /// The entries of this page or list.
    #[schema(value_type = Vec<Object>)]
    pub items: Vec<DatasetSummary>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DatasetFileList {
    /// The entries of this page or list.
    #[schema(value_type = Vec<Object>)]
    pub items: Vec<CatalogFile>,
    /// Total number of matching files.
    pub total: u64,
    /// Number of entries before the first one of this page.
    pub offset: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DatasetBlockList {
    /// The entries of this page or list.
    #[schema(value_type = Vec<Object>)]
    pub items: Vec<CatalogBlock>,
}

/// Files to add to a dataset of the catalog.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportFiles {
    /// `/primary/processed/tier`
    pub dataset: String,
    /// Files to add or replace.
    #[schema(value_type = Vec<Object>)]
    pub files: Vec<CatalogFile>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportResponse {
    /// How many of the files are new to the catalog.
    pub added: u64,
    /// How many of the files were in the catalog with other properties (size, events, checksums, …), or were invalid.
    #[serde(default)]
    pub changed: u64,
    /// The dataset after the import.
    #[schema(value_type = Object)]
    pub dataset: DatasetSummary,
}
