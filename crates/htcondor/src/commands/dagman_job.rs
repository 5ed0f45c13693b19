//! A DAGMan job as `condor_q` and `condor_history` show it.

use crate::parsers::class_ads::ClassAd;
use crate::parsers::events::JobHold;

/// The attributes to query: an ad has about a hundred, only these are needed.
pub(super) const QUEUE_ATTRIBUTES: &str = "ClusterId,JobBatchName,JobStatus,EnteredCurrentStatus,ExitCode,ExitBySignal,\
     HoldReason,HoldReasonCode,HoldReasonSubCode,RemoveReason,NumJobStarts,DAG_Status,DAG_InRecovery";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DagmanJob {
    pub cluster: u64,
    pub batch: String,
    pub state: DagmanJobState,
    /// When the job entered this state, in seconds since 1970.
    pub since: Option<i64>,
    /// Why the job was removed.
    pub removal: Option<String>,
    /// More than one: DAGMan was restarted after a crash or a release.
    pub starts: i64,
    /// As DAGMan last reported to the schedd; it does so only now and then.
    pub dag_status: Option<i64>,
    pub is_recovering: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DagmanJobState {
    Idle,
    Running,
    Held(JobHold),
    /// In the queue: being removed. In the history: removed.
    Removed,
    /// The exit code of DAGMan, unless a signal ended it.
    Completed(Option<i64>),
    /// A state unknown to this version.
    Other(i64),
}

impl DagmanJob {
    pub(super) fn from_ad(ad: &ClassAd) -> Option<Self> {
        Some(Self {
            cluster: u64::try_from(ad.integer("ClusterId")?).ok()?,
            batch: ad.text("JobBatchName").unwrap_or_default().to_owned(),
            state: parse_state(ad)?,
            since: ad.integer("EnteredCurrentStatus"),
            removal: ad.text("RemoveReason").map(str::to_owned),
            starts: ad.integer("NumJobStarts").unwrap_or(0),
            dag_status: ad.integer("DAG_Status"),
            is_recovering: ad
                .boolean("DAG_InRecovery")
                .or_else(|| ad.integer("DAG_InRecovery").map(|n| n != 0))
                == Some(true),
        })
    }

    /// Whether the job has ended: for jobs from the history.
    pub fn is_over(&self) -> bool {
        matches!(self.state, DagmanJobState::Removed | DagmanJobState::Completed(_))
    }
}

fn parse_state(ad: &ClassAd) -> Option<DagmanJobState> {
    Some(match ad.integer("JobStatus")? {
        1 => DagmanJobState::Idle,
        2 => DagmanJobState::Running,
        3 => DagmanJobState::Removed,
        4 => DagmanJobState::Completed(ad.integer("ExitCode")),
        5 => DagmanJobState::Held(parse_hold(ad)),
        other => DagmanJobState::Other(other),
    })
}

fn parse_hold(ad: &ClassAd) -> JobHold {
    let code = |name| ad.integer(name).and_then(|code| i32::try_from(code).ok()).unwrap_or(0);
    JobHold {
        reason: ad.text("HoldReason").unwrap_or_default().to_owned(),
        code: code("HoldReasonCode"),
        subcode: code("HoldReasonSubCode"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsers::class_ads;

    fn read(file: &[u8]) -> Vec<DagmanJob> {
        class_ads::parse_ads(file).unwrap().iter().filter_map(DagmanJob::from_ad).collect()
    }

    #[test]
    fn running_dags_are_parsed_from_the_queue() {
        let jobs = read(include_bytes!("../../tests/data/condor_q.dagman.json"));
        assert!(jobs.iter().all(|job| job.state == DagmanJobState::Running && !job.is_over()), "{jobs:?}");
        assert_eq!(jobs[0].cluster, 19);
        assert!(!jobs[0].is_recovering);
    }

    #[test]
    fn held_dag_has_its_hold_reason() {
        let jobs = read(include_bytes!("../../tests/data/condor_q.held.json"));
        let DagmanJobState::Held(hold) = &jobs[0].state else { panic!("{jobs:?}") };
        assert_eq!((hold.code, hold.subcode), (21, 102));
        assert!(hold.reason.contains("memory usage exceeded request_memory"), "{hold:?}");
    }

    #[test]
    fn ends_of_dags_are_distinguished() {
        let jobs = read(
            br#"[{"ClusterId":1,"JobStatus":4,"ExitCode":1},{"ClusterId":2,"JobStatus":3,"RemoveReason":"why"},
                {"ClusterId":3,"JobStatus":4,"ExitBySignal":true},{"ClusterId":4,"JobStatus":7},{"ClusterId":5}]"#,
        );
        let states: Vec<_> = jobs.iter().map(|job| job.state.clone()).collect();
        let expected = [
            DagmanJobState::Completed(Some(1)),
            DagmanJobState::Removed,
            DagmanJobState::Completed(None),
            DagmanJobState::Other(7),
        ];
        assert_eq!(states, expected, "an ad without a state is not a job");
        assert_eq!(jobs[1].removal.as_deref(), Some("why"));
    }
}
