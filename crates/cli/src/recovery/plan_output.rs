//! Prints a recovery plan.

use super::allocations::{self, AllocationRescheduleResult};
use crate::context::CliContext;
use crate::error::CliError;
use crate::ui::style::TextTone;
use crate::ui::table::{TableCell, TableColumn, TextTable};
use crate::ui::text;
use serde::Serialize;
use windlass_core::recovery::RecoveryAction;
use windlass_core::sizing::{ResourceAmount, ResourceChange};
use windlass_insight::recovery::{JobDiagnosis, RecoveryPlan, RecoveryPlanReport};

/// Maximum number of groups shown; JSON contains every job.
const MAX_GROUPS_SHOWN: usize = 40;

/// JSON output: the plan, and the Slurm allocations that it needs.
#[derive(Serialize)]
struct RecoveryReportView<'a> {
    #[serde(flatten)]
    plan: RecoveryPlanReport<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slurm: Option<&'a AllocationRescheduleResult>,
    /// Jobs whose worker died; they run again without using up a retry.
    orphans: usize,
}

pub(super) fn print_plan(
    ctx: &CliContext,
    plan: &RecoveryPlan,
    dry_run: bool,
    asked: Option<&AllocationRescheduleResult>,
    orphans: usize,
) -> Result<(), CliError> {
    if ctx.ui.wants_json() {
        return ctx.ui.print_json(&RecoveryReportView {
            plan: RecoveryPlanReport::new(plan, dry_run),
            slurm: asked,
            orphans,
        });
    }
    let groups = group_failures(&plan.diagnoses);
    ctx.ui.print_line(&render_headline(plan, dry_run, orphans))?;
    if !groups.is_empty() {
        ctx.ui.print_table(&render_table(&groups))?;
    }
    if groups.len() > MAX_GROUPS_SHOWN {
        ctx.ui.print_note(&format!(
            "… and {} more; use --format json for every job",
            groups.len() - MAX_GROUPS_SHOWN
        ));
    }
    if let Some(asked) = asked {
        ctx.ui.print_line(&allocations::render_summary(asked))?;
        allocations::print_shares(ctx, asked)?;
    }
    Ok(())
}

pub(super) fn render_headline(plan: &RecoveryPlan, dry_run: bool, orphans: usize) -> String {
    let name = text::one_line(&plan.row.name);
    format!("workflow {} ({name}): {}", plan.row.id, plan.render_summary(dry_run, orphans))
}

/// Jobs of one job group with the same diagnosis.
struct FailedJobGroup<'a> {
    failed_jobs: Vec<&'a JobDiagnosis>,
}

fn group_failures(diagnoses: &[JobDiagnosis]) -> Vec<FailedJobGroup<'_>> {
    let class = |failed_job: &JobDiagnosis| {
        let name = failed_job.examined.job_group.as_ref().unwrap_or(&failed_job.examined.name).clone();
        (name, failed_job.remedy.diagnosis, failed_job.remedy.next.clone())
    };
    let mut groups: Vec<FailedJobGroup<'_>> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for failed_job in diagnoses {
        let index = *known.entry(class(failed_job)).or_insert_with(|| {
            groups.push(FailedJobGroup { failed_jobs: Vec::new() });
            groups.len() - 1
        });
        groups[index].failed_jobs.push(failed_job);
    }
    groups
}

impl FailedJobGroup<'_> {
    fn first(&self) -> &JobDiagnosis {
        self.failed_jobs[0]
    }

    fn name(&self) -> String {
        match (self.failed_jobs.len(), &self.first().examined.job_group) {
            (1, _) | (_, None) => self.first().examined.name.clone(),
            (n, Some(kind)) => format!("{n} of {kind}"),
        }
    }

    /// The evidence of the diagnosis: that of the first job.
    fn evidence(&self) -> String {
        let evidence = &self.first().remedy.evidence;
        if self.failed_jobs.len() == 1 { evidence.clone() } else { format!("for example: {evidence}") }
    }

    /// `memory 2 GiB` and `memory 3 GiB`, or `memory 3 GiB – 4.5 GiB` if they differ.
    fn render_amounts(&self, which: fn(&ResourceChange) -> Option<ResourceAmount>) -> String {
        let mut ranges: Vec<(ResourceAmount, ResourceAmount)> = Vec::new();
        for amount in
            self.failed_jobs.iter().flat_map(|failed_job| &failed_job.remedy.changes).filter_map(which)
        {
            let same =
                |range: &&mut (ResourceAmount, ResourceAmount)| range.0.resource() == amount.resource();
            match ranges.iter_mut().find(same) {
                Some(range) => *range = (min_amount(range.0, amount), max_amount(range.1, amount)),
                None => ranges.push((amount, amount)),
            }
        }
        let words = ranges.into_iter().map(|(least, most)| match least {
            _ if least != most => format!("{}{least} – {most}", amount_unit(least)),
            _ => format!("{}{least}", amount_unit(least)),
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

/// The unit is part of the CPU text.
const fn amount_unit(amount: ResourceAmount) -> &'static str {
    match amount {
        ResourceAmount::Memory(_) => "memory ",
        ResourceAmount::Runtime(_) => "runtime ",
        ResourceAmount::Cpus(_) => "",
    }
}

fn amount_size(amount: ResourceAmount) -> u128 {
    match amount {
        ResourceAmount::Memory(bytes) => u128::from(bytes.0),
        ResourceAmount::Cpus(cpus) => u128::from(cpus),
        ResourceAmount::Runtime(time) => time.as_nanos(),
    }
}

fn min_amount(one: ResourceAmount, other: ResourceAmount) -> ResourceAmount {
    if amount_size(other) < amount_size(one) { other } else { one }
}

fn max_amount(one: ResourceAmount, other: ResourceAmount) -> ResourceAmount {
    if amount_size(other) > amount_size(one) { other } else { one }
}

fn render_table(groups: &[FailedJobGroup<'_>]) -> TextTable {
    let mut table = TextTable::new(vec![
        TableColumn::flexible("JOBS"),
        TableColumn::text("DIAGNOSIS"),
        TableColumn::flexible("REASON"),
        TableColumn::text("REQUESTED"),
        TableColumn::flexible("NEXT"),
    ]);
    for group in groups.iter().take(MAX_GROUPS_SHOWN) {
        let next = match &group.first().remedy.next {
            RecoveryAction::Stay(why) => {
                TableCell::with_tone(format!("unchanged: {why}"), Some(TextTone::Dim))
            }
            RecoveryAction::RunAgain => match group.render_amounts(|change| Some(change.to)) {
                more if more.is_empty() => TableCell::new("runs again unchanged"),
                more => TableCell::new(format!("runs again with {more}")),
            },
        };
        table.add_row(vec![
            TableCell::new(group.name()),
            TableCell::new(group.first().remedy.diagnosis.as_str()),
            TableCell::new(group.evidence()),
            TableCell::new(group.render_amounts(|change| change.from)),
            next,
        ]);
    }
    table
}
