//! The built-in catalog of the server.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use windlass_types::catalog::{CatalogBlock, CatalogFile, DatasetSummary};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DatasetList {
    #[schema(value_type = Vec<Object>)]
    pub items: Vec<DatasetSummary>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DatasetFileList {
    #[schema(value_type = Vec<Object>)]
    pub items: Vec<CatalogFile>,
    pub total: u64,
    pub offset: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DatasetBlockList {
    #[schema(value_type = Vec<Object>)]
    pub items: Vec<CatalogBlock>,
}

/// Files to add to a dataset of the catalog.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportFiles {
    /// `/primary/processed/tier`
    pub dataset: String,
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
    #[schema(value_type = Object)]
    pub dataset: DatasetSummary,
}
