//! Requests: what is asked of a server about them, and what it says. Served at `/api/v1` only.
//!
//! Shapes that the specification shows in its examples are as they are there; other fields are additions.

mod admission;
mod catalog;
mod dags;
mod errors;
mod files;
mod recovery;
mod sites;
mod wishes;
mod workflows;

pub use admission::{AdmissionConfig, AdmissionQueue, NextInQueue, SystemStatus};
pub use catalog::{Blocks, Datasets, Files, Import, Imported};
pub use dags::{Dag, DagAction, DagEvent, DagHistory, DagLogs, DagNode, DagNodes, DagReason, DagUnit, Dags};
pub use errors::{
    ErrorsOfCategory, ErrorsOfCode, ErrorsOfFile, ErrorsOfKind, ErrorsOfSite, RequestErrors, Suggestion,
};
pub use files::{ExclusionReason, Exclusions, RequestFiles};
pub use recovery::{
    Alert, Alerts, FailRequest, InvalidateRequest, Invalidated, RecoveryState, ReleaseRequest, Released,
    RestartRequest, Restarted,
};
pub use sites::{Ban, Bans, Drain, NewBan, PatchSite, Site, Sites, Unbanned};
pub use wishes::{
    Aborted, PatchRequest, RequestLine, RequestShown, Requests, StopRequest, Stopped, Submitted, Transition,
    Version, Versions, Want, WorkflowRef,
};
pub use workflows::{
    BlockLine, DagSummary, RequestMetrics, RequestWorkflow, RequestWorkflows, Workflow, WorkflowStatus,
};
