//! Requests, their runs, sites and catalog. Served at `/api/v1` only.
//!
//! Shapes that the specification shows in its examples are kept as they are there; other fields are additions.

mod admission;
mod catalog;
mod crud;
mod dags;
mod errors;
mod files;
mod recovery;
mod sites;
mod workflows;

pub use admission::{AdmissionConfig, AdmissionQueue, NextInQueue, SystemStatus};
pub use catalog::{DatasetBlockList, DatasetFileList, DatasetList, ImportFiles, ImportResponse};
pub use crud::{
    AbortResponse, FullRequest, PatchRequest, PendingCommandResponse, RequestList, RequestSummary,
    RequestVersion, RequestVersionList, RequestWorkflowRef, StatusTransitionResponse, StopRequest,
    StopResponse, SubmitResponse,
};
pub use dags::{
    DagAction, DagHistory, DagLogs, DagReason, DagWorkUnit, RequestDag, RequestDagEvent, RequestDagList,
    RequestDagNode, RequestDagNodeList,
};
pub use errors::{
    ErrorsOfCategory, ErrorsOfCode, ErrorsOfFile, ErrorsOfSignature, ErrorsOfSite, RecoverySuggestion,
    RequestErrors,
};
pub use files::{ExclusionReason, FileExclusions, RequestFiles};
pub use recovery::{
    AlertList, AlertResponse, FailRequest, InvalidateRequest, InvalidateResponse, ReleaseRequest,
    ReleaseResponse, RequestRecoveryState, RestartRequest, RestartResponse,
};
pub use sites::{BanList, BanResponse, BanSite, DrainSite, PatchSite, SiteList, SiteResponse, UnbanResponse};
pub use workflows::{
    BlockSummary, DagSummary, RequestMetrics, RequestWorkflowDetails, RequestWorkflowList,
    RequestWorkflowStatus, RequestWorkflowSummary,
};
