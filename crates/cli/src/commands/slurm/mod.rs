//! `windlass slurm`: schedulers, allocations and usage of Slurm for a workflow.

mod accounting;
mod allocations;
mod audit;
mod generate;
mod logs;
mod plan;
mod regenerate;
mod rpc;
mod schedulers;
pub(crate) mod usage;
mod worker;

pub(crate) use plan::show_plan;

use crate::args::allocations::AllocationsSubcommand;
use crate::args::slurm::SlurmSubcommand;
use crate::args::slurm_reports::SlurmReportSubcommand;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};

pub(crate) fn run(ctx: &CliContext, verb: &SlurmSubcommand) -> Result<CliExit, CliError> {
    match verb {
        SlurmSubcommand::Generate(args) => generate::run(ctx, args),
        SlurmSubcommand::Plan(args) => plan::run(ctx, args),
        SlurmSubcommand::Allocations(verb) => dispatch_allocations(ctx, verb),
        SlurmSubcommand::Reports(SlurmReportSubcommand::Usage(args)) => usage::run(ctx, args),
        SlurmSubcommand::Reports(SlurmReportSubcommand::Sacct(args)) => accounting::show_sacct(ctx, args),
        SlurmSubcommand::Reports(SlurmReportSubcommand::Stats(args)) => accounting::show_stats(ctx, args),
        SlurmSubcommand::Reports(SlurmReportSubcommand::Logs(args)) => logs::run(ctx, args),
        SlurmSubcommand::Worker(args) => worker::run(ctx, args),
        SlurmSubcommand::Regenerate(args) => regenerate::run(ctx, args),
        SlurmSubcommand::Hpc(args) => super::hpc::run(ctx, &args.verb),
    }
}

fn dispatch_allocations(ctx: &CliContext, verb: &AllocationsSubcommand) -> Result<CliExit, CliError> {
    match verb {
        AllocationsSubcommand::Allocations(args) => allocations::list_allocations(ctx, args),
        AllocationsSubcommand::Cancel(args) => allocations::cancel_allocations(ctx, args),
        AllocationsSubcommand::ScheduleNodes(args) => allocations::schedule_nodes(ctx, args),
        AllocationsSubcommand::Audit(args) => audit::run(ctx, args),
        AllocationsSubcommand::Rpc => rpc::run(ctx),
        AllocationsSubcommand::List(args) => schedulers::list_schedulers(ctx, args),
        AllocationsSubcommand::Get(args) => schedulers::show_scheduler(ctx, args),
        AllocationsSubcommand::Create(args) => schedulers::create_scheduler(ctx, args),
        AllocationsSubcommand::Update(args) => schedulers::update_scheduler(ctx, args),
        AllocationsSubcommand::Delete(args) => schedulers::delete_scheduler(ctx, args),
    }
}
