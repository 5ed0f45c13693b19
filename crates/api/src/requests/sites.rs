//! Sites: where work may run, and where it may not for a while.

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
    /// Until then it gets nothing new.
    #[schema(value_type = Option<String>)]
    pub drain_until: Option<Timestamp>,
    /// `null`: nobody knows.
    pub total_slots: Option<u64>,
    /// Jobs that run on workers of this server there. Jobs of HTCondor are not counted.
    pub running_slots: u64,
    /// Jobs that wait at those workers.
    pub pending_slots: u64,
    pub thresholds: BTreeMap<String, u64>,
    pub schedd_name: Option<String>,
    pub collector_host: Option<String>,
    pub storage_element: Option<String>,
    /// Where files are kept: a path of LFNs begins here.
    pub storage_path: Option<String>,
    #[schema(value_type = String)]
    pub updated_at: Timestamp,
    /// Those that hold now.
    pub bans: Vec<BanResponse>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SiteList {
    pub items: Vec<SiteResponse>,
}

/// That a site gets no work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BanResponse {
    pub id: i64,
    pub site_name: String,
    /// Of this request; `null`: of any.
    pub request_name: Option<String>,
    pub reason: String,
    #[schema(value_type = Object)]
    pub failure_data: Value,
    pub created_by: String,
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    #[schema(value_type = String)]
    pub expires_at: Timestamp,
    /// Somebody lifted it then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub removed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed_by: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BanList {
    /// The oldest first.
    pub items: Vec<BanResponse>,
}

/// What is to be otherwise about a site. What is not said stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PatchSite {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub status: Option<SiteStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_slots: Option<u64>,
    /// Limits per role, which are not enforced yet: any entry is rejected with 422.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<BTreeMap<String, u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedd_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collector_host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_element: Option<String>,
    /// Absolute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_path: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DrainSite {
    /// Enabled again then, by itself; without it by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub until: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BanSite {
    /// Of this request; without it of any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_name: Option<String>,
    #[serde(default)]
    #[schema(max_length = 1000)]
    pub reason: String,
    /// For so long.
    #[schema(minimum = 1, maximum = 31_622_400)]
    pub seconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnbanResponse {
    pub site_name: String,
    /// How many bans were lifted.
    pub removed: u64,
}
