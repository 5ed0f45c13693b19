//! Sites, drains and bans.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use windlass_types::Timestamp;
use windlass_types::requests::SiteStatus;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SiteResponse {
    /// Name of the site.
    pub name: String,
    /// Status of the site.
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
    /// Limits per role; empty, because they are not enforced yet.
    pub thresholds: BTreeMap<String, u64>,
    /// Name of the HTCondor schedd.
    pub schedd_name: Option<String>,
    /// Host of the HTCondor collector.
    pub collector_host: Option<String>,
    /// Name of the storage element in other systems.
    pub storage_element: Option<String>,
    /// Prefix of the path of an LFN in the site's storage.
    pub storage_path: Option<String>,
    /// When it was last changed.
    #[schema(value_type = String)]
    pub updated_at: Timestamp,
    /// Active bans.
    pub bans: Vec<BanResponse>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SiteList {
    /// The entries of this page or list.
    pub items: Vec<SiteResponse>,
}

/// A ban: the site gets no work for a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BanResponse {
    /// Id of the ban.
    pub id: i64,
    /// Name of the site.
    pub site_name: String,
    /// Request that the ban applies to; `null`: all requests.
    pub request_name: Option<String>,
    /// Reason of the ban.
    pub reason: String,
    /// Failures that led to an automatic ban.
    #[schema(value_type = Object)]
    pub failure_data: Value,
    /// User who banned the site; an automatic ban names the server.
    pub created_by: String,
    /// When the site was banned.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// When the ban expires.
    #[schema(value_type = String)]
    pub expires_at: Timestamp,
    /// When the ban was lifted by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub removed_at: Option<Timestamp>,
    /// User who lifted the ban.
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
    /// New status.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub status: Option<SiteStatus>,
    /// New number of single-core jobs that the site can run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_slots: Option<u64>,
    /// Limits per role. Not enforced yet: any entry is rejected with 422.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<BTreeMap<String, u64>>,
    /// New name of the HTCondor schedd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedd_name: Option<String>,
    /// New host of the HTCondor collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collector_host: Option<String>,
    /// New name of the storage element in other systems.
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
    /// Reason of the ban, shown in lists.
    #[serde(default)]
    #[schema(max_length = 1000)]
    pub reason: String,
    /// Duration of the ban in seconds.
    #[schema(minimum = 1, maximum = 31_622_400)]
    pub seconds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnbanResponse {
    /// Name of the site.
    pub site_name: String,
    /// Number of bans that were lifted.
    pub removed: u64,
}
