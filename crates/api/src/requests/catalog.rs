//! The catalog that a server keeps itself.

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

/// Files of a dataset, to be known from now on.
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
    /// Of these files, so many were not known before.
    pub added: u64,
    #[schema(value_type = Object)]
    pub dataset: DatasetSummary,
}
