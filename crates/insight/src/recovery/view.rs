//! The plan of a recovery, for programs.

use super::{Patient, Plan};
use serde::Serialize;
use serde_json::{Value, json};
use windlass_core::recovery::{Diagnosis, Next};
use windlass_core::sizing::{Amount, Change};
use windlass_types::{JobId, JobStatus, WorkflowId};

#[derive(Debug, Serialize)]
pub struct PlanView<'a> {
    workflow_id: WorkflowId,
    name: &'a str,
    dry_run: bool,
    run_again: usize,
    stay: usize,
    jobs: Vec<JobView<'a>>,
}

#[derive(Debug, Serialize)]
struct JobView<'a> {
    job_id: JobId,
    name: &'a str,
    /// Where it stood.
    status: JobStatus,
    diagnosis: Diagnosis,
    evidence: &'a str,
    runs_again: bool,
    /// Why it does not.
    stays_because: Option<&'a str>,
    /// What it asks for from then on, where that is something else: bytes, CPUs, seconds.
    changes: Vec<Value>,
}

impl<'a> PlanView<'a> {
    pub fn new(plan: &'a Plan, dry_run: bool) -> Self {
        Self::of_first(plan, dry_run, plan.patients.len())
    }

    /// So many jobs are told of one by one.
    pub fn of_first(plan: &'a Plan, dry_run: bool, most: usize) -> Self {
        Self {
            workflow_id: plan.row.id,
            name: &plan.row.name,
            dry_run,
            run_again: plan.again().count(),
            stay: plan.staying(),
            jobs: plan.patients.iter().take(most).map(JobView::new).collect(),
        }
    }
}

impl<'a> JobView<'a> {
    fn new(patient: &'a Patient) -> Self {
        let remedy = &patient.remedy;
        let change = |change: &Change| {
            json!({
                "resource": change.to.resource(), "from": change.from.map(plain), "to": plain(change.to),
                "evidence": change.evidence,
            })
        };
        Self {
            job_id: remedy.job,
            name: &patient.found.name,
            status: patient.found.case.status,
            diagnosis: remedy.diagnosis,
            evidence: &remedy.evidence,
            runs_again: remedy.runs_again(),
            stays_because: match &remedy.next {
                Next::Stay(why) => Some(why),
                Next::RunAgain => None,
            },
            changes: remedy.changes.iter().map(change).collect(),
        }
    }
}

fn plain(amount: Amount) -> Value {
    match amount {
        Amount::Memory(bytes) => bytes.0.into(),
        Amount::Cpus(cpus) => cpus.into(),
        Amount::Runtime(time) => time.as_secs_f64().into(),
    }
}
