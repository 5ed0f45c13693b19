//! The plan of a recovery, for people and for programs.

use super::{Patient, Plan};
use crate::context::Context;
use crate::error::CliError;
use crate::ui::style::Tone;
use crate::ui::table::{Cell, Column, Table};
use crate::ui::text;
use serde::Serialize;
use serde_json::{Value, json};
use windlass_core::recovery::{Diagnosis, Next};
use windlass_core::sizing::{Amount, Change};
use windlass_types::{JobId, JobStatus, WorkflowId};

/// So many groups are shown to people; programs get every job.
const SHOWN: usize = 40;

pub(super) fn plan(ctx: &Context, plan: &Plan, dry_run: bool) -> Result<(), CliError> {
    if ctx.ui.json_wanted() {
        return ctx.ui.print_json(&PlanView::new(plan, dry_run));
    }
    let groups = groups(&plan.patients);
    ctx.ui.print_line(&headline(plan, dry_run))?;
    if !groups.is_empty() {
        ctx.ui.print_table(&table(&groups))?;
    }
    if groups.len() > SHOWN {
        ctx.ui.note(&format!("… and {} more; --format json shows every job", groups.len() - SHOWN));
    }
    Ok(())
}

/// `workflow 3 (sim): 2 jobs run again, 1 stays as it is`.
pub(super) fn headline(plan: &Plan, dry_run: bool) -> String {
    let of = format!("workflow {} ({})", plan.row.id, text::one_line(&plan.row.name));
    if plan.patients.is_empty() {
        return format!("{of}: no job has failed; there is nothing to recover");
    }
    let verb = if dry_run { "would run" } else { "will run" };
    let again = plan.again().count();
    let head = format!("{of}: {} {verb} again", text::count(again as u64, "job"));
    match plan.staying() {
        0 => head,
        1 => format!("{head}, 1 stays as it is"),
        n => format!("{head}, {n} stay as they are"),
    }
}

/// Jobs of one entry of the spec with the same ailment.
struct Group<'a> {
    patients: Vec<&'a Patient>,
}

fn groups(patients: &[Patient]) -> Vec<Group<'_>> {
    let class = |patient: &Patient| {
        let name = patient.found.kind.as_ref().unwrap_or(&patient.found.name).clone();
        (name, patient.remedy.diagnosis, patient.remedy.next.clone())
    };
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for patient in patients {
        let index = *known.entry(class(patient)).or_insert_with(|| {
            groups.push(Group { patients: Vec::new() });
            groups.len() - 1
        });
        groups[index].patients.push(patient);
    }
    groups
}

impl Group<'_> {
    fn first(&self) -> &Patient {
        self.patients[0]
    }

    fn name(&self) -> String {
        match (self.patients.len(), &self.first().found.kind) {
            (1, _) | (_, None) => self.first().found.name.clone(),
            (n, Some(kind)) => format!("{n} of {kind}"),
        }
    }

    /// What the diagnosis rests on: of several, that of the first.
    fn evidence(&self) -> String {
        let evidence = &self.first().remedy.evidence;
        if self.patients.len() == 1 { evidence.clone() } else { format!("for example: {evidence}") }
    }

    /// `memory 2 GiB` and `memory 3 GiB`, or `memory 3 GiB – 4.5 GiB` where they differ.
    fn amounts(&self, which: fn(&Change) -> Option<Amount>) -> String {
        let mut ranges: Vec<(Amount, Amount)> = Vec::new();
        for amount in self.patients.iter().flat_map(|patient| &patient.remedy.changes).filter_map(which) {
            let same = |range: &&mut (Amount, Amount)| range.0.resource() == amount.resource();
            match ranges.iter_mut().find(same) {
                Some(range) => *range = (smaller(range.0, amount), larger(range.1, amount)),
                None => ranges.push((amount, amount)),
            }
        }
        let words = ranges.into_iter().map(|(least, most)| match least {
            _ if least != most => format!("{}{least} – {most}", what(least)),
            _ => format!("{}{least}", what(least)),
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

/// CPUs name themselves.
const fn what(amount: Amount) -> &'static str {
    match amount {
        Amount::Memory(_) => "memory ",
        Amount::Runtime(_) => "runtime ",
        Amount::Cpus(_) => "",
    }
}

fn size_of(amount: Amount) -> u128 {
    match amount {
        Amount::Memory(bytes) => u128::from(bytes.0),
        Amount::Cpus(cpus) => u128::from(cpus),
        Amount::Runtime(time) => time.as_nanos(),
    }
}

fn smaller(one: Amount, other: Amount) -> Amount {
    if size_of(other) < size_of(one) { other } else { one }
}

fn larger(one: Amount, other: Amount) -> Amount {
    if size_of(other) > size_of(one) { other } else { one }
}

fn table(groups: &[Group<'_>]) -> Table {
    let mut table = Table::new(vec![
        Column::elastic("JOBS"),
        Column::text("DIAGNOSIS"),
        Column::elastic("BECAUSE"),
        Column::text("ASKED FOR"),
        Column::elastic("NEXT"),
    ]);
    for group in groups.iter().take(SHOWN) {
        let next = match &group.first().remedy.next {
            Next::Stay(why) => Cell::toned(format!("stays: {why}"), Some(Tone::Dim)),
            Next::RunAgain => match group.amounts(|change| Some(change.to)) {
                more if more.is_empty() => Cell::new("runs again as it is"),
                more => Cell::new(format!("runs again with {more}")),
            },
        };
        table.row(vec![
            Cell::new(group.name()),
            Cell::new(group.first().remedy.diagnosis.as_str()),
            Cell::new(group.evidence()),
            Cell::new(group.amounts(|change| change.from)),
            next,
        ]);
    }
    table
}

/// For programs.
#[derive(Serialize)]
struct PlanView<'a> {
    workflow_id: WorkflowId,
    name: &'a str,
    dry_run: bool,
    run_again: usize,
    stay: usize,
    jobs: Vec<JobView<'a>>,
}

#[derive(Serialize)]
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
    fn new(plan: &'a Plan, dry_run: bool) -> Self {
        Self {
            workflow_id: plan.row.id,
            name: &plan.row.name,
            dry_run,
            run_again: plan.again().count(),
            stay: plan.staying(),
            jobs: plan.patients.iter().map(JobView::new).collect(),
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
