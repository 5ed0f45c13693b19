//! The recovery plan as JSON.

use super::{JobDiagnosis, RecoveryPlan};
use serde::Serialize;
use serde_json::{Value, json};
use windlass_core::recovery::{RecoveryAction, RecoveryDiagnosis};
use windlass_core::sizing::{ResourceAmount, ResourceChange};
use windlass_types::{JobId, JobStatus, WorkflowId};

#[derive(Debug, Serialize)]
pub struct RecoveryPlanReport<'a> {
    workflow_id: WorkflowId,
    name: &'a str,
    dry_run: bool,
    run_again: usize,
    stay: usize,
    jobs: Vec<JobDiagnosisReport<'a>>,
}

#[derive(Debug, Serialize)]
struct JobDiagnosisReport<'a> {
    job_id: JobId,
    name: &'a str,
    /// Status of the job.
    status: JobStatus,
    diagnosis: RecoveryDiagnosis,
    evidence: &'a str,
    runs_again: bool,
    /// Why it does not run again.
    stays_because: Option<&'a str>,
    /// New requirements, if they change: bytes, CPUs, seconds.
    changes: Vec<Value>,
}

impl<'a> RecoveryPlanReport<'a> {
    pub fn new(plan: &'a RecoveryPlan, dry_run: bool) -> Self {
        Self::with_limit(plan, dry_run, plan.diagnoses.len())
    }

    /// Maximum number of jobs listed individually.
    pub fn with_limit(plan: &'a RecoveryPlan, dry_run: bool, most: usize) -> Self {
        Self {
            workflow_id: plan.row.id,
            name: &plan.row.name,
            dry_run,
            run_again: plan.rerun_jobs().count(),
            stay: plan.unchanged_count(),
            jobs: plan.diagnoses.iter().take(most).map(JobDiagnosisReport::new).collect(),
        }
    }
}

impl<'a> JobDiagnosisReport<'a> {
    fn new(failed_job: &'a JobDiagnosis) -> Self {
        let remedy = &failed_job.remedy;
        let change = |change: &ResourceChange| {
            json!({
                "resource": change.to.resource(), "from": change.from.map(amount_json), "to": amount_json(change.to),
                "evidence": change.evidence,
            })
        };
        Self {
            job_id: remedy.job,
            name: &failed_job.examined.name,
            status: failed_job.examined.failed_job.status,
            diagnosis: remedy.diagnosis,
            evidence: &remedy.evidence,
            runs_again: remedy.runs_again(),
            stays_because: match &remedy.next {
                RecoveryAction::Stay(why) => Some(why),
                RecoveryAction::RunAgain => None,
            },
            changes: remedy.changes.iter().map(change).collect(),
        }
    }
}

fn amount_json(amount: ResourceAmount) -> Value {
    match amount {
        ResourceAmount::Memory(bytes) => bytes.0.into(),
        ResourceAmount::Cpus(cpus) => cpus.into(),
        ResourceAmount::Runtime(time) => time.as_secs_f64().into(),
    }
}
