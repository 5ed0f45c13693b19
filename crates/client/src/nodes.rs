//! Node quarantine.

use crate::{CALL_TIMEOUT, Client, ClientError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;
use windlass_types::Timestamp;

/// A node in quarantine, or on probation after it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct NodeQuarantineInfo {
    pub host: String,
    /// User whose workers get no jobs there; `None`: all users.
    #[serde(default)]
    pub user: Option<String>,
    /// `quarantined` or `on_probation`.
    pub standing: String,
    pub since: Timestamp,
    pub until: Timestamp,
    pub set_by: String,
    pub reason: String,
    #[serde(default)]
    pub evidence: Option<Value>,
}

impl Client {
    /// Lists nodes in quarantine or on probation, by name.
    pub fn quarantined_nodes(&self) -> Result<Vec<NodeQuarantineInfo>, ClientError> {
        #[derive(Deserialize)]
        struct QuarantinedNodesPage {
            items: Vec<NodeQuarantineInfo>,
        }
        Ok(self.get::<QuarantinedNodesPage>("/api/v1/nodes")?.items)
    }

    /// Quarantines a node: it gets no jobs for this time.
    pub fn quarantine_node(
        &self,
        host: &str,
        duration: Duration,
        reason: &str,
    ) -> Result<NodeQuarantineInfo, ClientError> {
        #[derive(Serialize)]
        struct NewAside<'a> {
            host: &'a str,
            seconds: u64,
            reason: &'a str,
        }
        self.post("/api/v1/nodes", &NewAside { host, seconds: duration.as_secs(), reason })
    }

    /// Releases a node from quarantine.
    pub fn release_node(&self, host: &str) -> Result<(), ClientError> {
        let url = self.url_for_name("/api/v1/nodes", host)?;
        self.call::<serde::de::IgnoredAny>(self.http.delete(url), CALL_TIMEOUT).map(|_| ())
    }
}
