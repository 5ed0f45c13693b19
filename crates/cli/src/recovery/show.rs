//! The plan of a recovery, shown.

use super::allocations::{self, Rescheduled};
use crate::context::Context;
use crate::error::CliError;
use crate::ui::style::Tone;
use crate::ui::table::{Cell, Column, Table};
use crate::ui::text;
use serde::Serialize;
use windlass_core::recovery::Next;
use windlass_core::sizing::{Amount, Change};
use windlass_insight::recovery::{Patient, Plan, PlanView};

/// So many groups are shown to people; programs get every job.
const SHOWN: usize = 40;

/// For programs: the plan, and the allocations that it takes on Slurm.
#[derive(Serialize)]
struct View<'a> {
    #[serde(flatten)]
    plan: PlanView<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slurm: Option<&'a Rescheduled>,
    /// Jobs whose worker died; they run again without using up a retry.
    orphans: usize,
}

pub(super) fn plan(
    ctx: &Context,
    plan: &Plan,
    dry_run: bool,
    asked: Option<&Rescheduled>,
    orphans: usize,
) -> Result<(), CliError> {
    if ctx.ui.json_wanted() {
        return ctx.ui.print_json(&View { plan: PlanView::new(plan, dry_run), slurm: asked, orphans });
    }
    let groups = groups(&plan.patients);
    ctx.ui.print_line(&headline(plan, dry_run, orphans))?;
    if !groups.is_empty() {
        ctx.ui.print_table(&table(&groups))?;
    }
    if groups.len() > SHOWN {
        ctx.ui.note(&format!("… and {} more; --format json shows every job", groups.len() - SHOWN));
    }
    if let Some(asked) = asked {
        ctx.ui.print_line(&allocations::in_words(asked))?;
        allocations::show_shares(ctx, asked)?;
    }
    Ok(())
}

/// `workflow 3 (sim): 2 jobs run again, 1 stays as it is; 1 job whose worker died is ready again`.
pub(super) fn headline(plan: &Plan, dry_run: bool, orphans: usize) -> String {
    let failed = plan.in_words(dry_run);
    let name = text::one_line(&plan.row.name);
    let orphans = match (orphans, dry_run) {
        (0, _) => String::new(),
        (1, false) => "; 1 job whose worker died is ready again".to_owned(),
        (n, false) => format!("; {n} jobs whose workers died are ready again"),
        (1, true) => "; 1 job whose worker died would be ready again".to_owned(),
        (n, true) => format!("; {n} jobs whose workers died would be ready again"),
    };
    format!("workflow {} ({name}): {failed}{orphans}", plan.row.id)
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
