//! Files and user data.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A file that jobs read or write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FileModel {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub workflow_id: i64,
    pub name: String,
    /// Relative to the submission directory, or absolute.
    pub path: String,
    /// Modification time when last seen: seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub st_mtime: Option<f64>,
}

/// Files of one workflow to create together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FilesModel {
    pub files: Vec<FileModel>,
}

/// The created files, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CreateFilesResponse {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<FileModel>>,
}

/// A piece of data that jobs read or write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UserDataModel {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub workflow_id: i64,
    pub name: String,
    /// Any JSON value; absent until a job has written it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// Cleared when the workflow is initialized again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_ephemeral: Option<bool>,
}

/// User data of one workflow to create together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UserDataListModel {
    pub user_data: Vec<UserDataModel>,
}

/// The created user data, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CreateUserDataListResponse {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<Vec<UserDataModel>>,
}

/// Ids of user data that jobs read, no job writes, and that have no value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListMissingUserDataResponse {
    pub user_data: Vec<i64>,
}

/// Ids of files that must exist before the workflow starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListRequiredExistingFilesResponse {
    pub files: Vec<i64>,
}

/// An entity in the RO-Crate of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RoCrateEntityModel {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    pub workflow_id: i64,
    /// Its `@id`.
    pub entity_id: String,
    /// Its `@type`.
    pub entity_type: String,
    pub metadata: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_id: Option<i64>,
}

/// Number of deleted entities.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DeleteRoCrateEntitiesResponse {
    pub deleted_count: i64,
    pub message: String,
}
