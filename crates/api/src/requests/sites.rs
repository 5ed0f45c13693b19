//! Sites, drains and bans.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use windlass_types::Timestamp;
use windlass_types::requests::SiteStatus;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SiteResponse {
    pub name: String,
    #[schema(value_type = String)]
    pub status: SiteStatus,
    /// End of the drain; the site gets no new work until then.
    #[schema(value_type = Option<String>)]
    pub drain_until: Option<Timestamp>,
    /// Number of slots of the site; `null` if unknown.
    pub total_slots: Option<u64>,
    /// Jobs that run on workers of this server at the site. Jobs of HTCondor are not counted.
    pub running_slots: u64,
    /// Jobs that wait at those workers.
    pub pending_slots: u64,
    pub thresholds: BTreeMap<String, u64>,
    pub schedd_name: Option<String>,
    pub collector_host: Option<String>,
    pub storage_element: Option<String>,
    /// Prefix of the path of an LFN in the site's storage.
    pub storage_path: Option<String>,
    #[schema(value_type = String)]
    pub updated_at: Timestamp,
    /// Active bans.
    pub bans: Vec<BanResponse>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SiteList {
    pub items: Vec<SiteResponse>,
}

/// A ban: the site gets no work for a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BanResponse {
    pub id: i64,
    pub site_name: String,
    /// Request that the ban applies to; `null`: all requests.
    pub request_name: Option<String>,
    pub reason: String,
    #[schema(value_type = Object)]
    pub failure_data: Value,
    pub created_by: String,
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    #[schema(value_type = String)]
    pub expires_at: Timestamp,
    /// When the ban was lifted by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub removed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_by: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BanList {
    /// Oldest first.
    pub items: Vec<BanResponse>,
}

/// Changes to a site. Absent fields keep their value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PatchSite {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub status: Option<SiteStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_slots: Option<u64>,
    /// Limits per role. Not enforced yet: any entry is rejected with 422.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<BTreeMap<String, u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedd_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collector_host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_element: Option<String>,
    /// Absolute path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_path: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DrainSite {
    /// When the site is enabled again automatically; without it, it stays drained until it is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub until: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BanSite {
    /// Request that the ban applies to. Default: all requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
    #[serde(default)]
    #[schema(max_length = 1000)]
    pub reason: String,
    /// Duration of the ban in seconds.
    #[schema(minimum = 1, maximum = 31_622_400)]
    pub seconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnbanResponse {
    pub site_name: String,
    /// Number of bans that were lifted.
    pub removed: u64,
}
