//! `windlass slurm`: what is asked of Slurm for a workflow, and what runs there.

mod accounts;
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

pub(crate) use plan::show;

use crate::args::allocations::BooksVerb;
use crate::args::slurm::SlurmVerb;
use crate::args::slurm_reports::ReportVerb;
use crate::context::Context;
use crate::error::{CliError, Exit};

pub(crate) fn run(ctx: &Context, verb: &SlurmVerb) -> Result<Exit, CliError> {
    match verb {
        SlurmVerb::Generate(args) => generate::run(ctx, args),
        SlurmVerb::Plan(args) => plan::run(ctx, args),
        SlurmVerb::Books(verb) => books(ctx, verb),
        SlurmVerb::Reports(ReportVerb::Usage(args)) => usage::run(ctx, args),
        SlurmVerb::Reports(ReportVerb::Sacct(args)) => accounts::sacct(ctx, args),
        SlurmVerb::Reports(ReportVerb::Stats(args)) => accounts::stats(ctx, args),
        SlurmVerb::Reports(ReportVerb::Logs(args)) => logs::run(ctx, args),
        SlurmVerb::Worker(args) => worker::run(ctx, args),
        SlurmVerb::Regenerate(args) => regenerate::run(ctx, args),
    }
}

fn books(ctx: &Context, verb: &BooksVerb) -> Result<Exit, CliError> {
    match verb {
        BooksVerb::Allocations(args) => allocations::list(ctx, args),
        BooksVerb::Cancel(args) => allocations::cancel(ctx, args),
        BooksVerb::ScheduleNodes(args) => allocations::schedule_nodes(ctx, args),
        BooksVerb::Audit(args) => audit::run(ctx, args),
        BooksVerb::Rpc => rpc::run(ctx),
        BooksVerb::List(args) => schedulers::list(ctx, args),
        BooksVerb::Get(args) => schedulers::get(ctx, args),
        BooksVerb::Create(args) => schedulers::create(ctx, args),
        BooksVerb::Update(args) => schedulers::update(ctx, args),
        BooksVerb::Delete(args) => schedulers::delete(ctx, args),
    }
}
