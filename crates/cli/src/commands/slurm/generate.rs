//! `windlass slurm generate`: schedulers and actions, written into a spec.

use crate::args::slurm::GenerateArgs;
use crate::clusters;
use crate::context::Context;
use crate::deliver;
use crate::error::{CliError, Exit};
use crate::packing;
use crate::plan::SpecFile;
use crate::spec_files;
use crate::ui::{diff, text};
use std::path::Path;
use windlass_spec::patch::without_schedule;

pub(crate) fn run(ctx: &Context, args: &GenerateArgs) -> Result<Exit, CliError> {
    let named = spec_files::named_or_found(args.spec.as_ref(), &ctx.cwd)?;
    let original = SpecFile::read(&ctx.cwd, &named)?;
    let bare;
    let file = match packing::is_scheduled(&original.load()?) {
        false => &original,
        true if args.overwrite => {
            bare = original.with_text(without_schedule(original.source())?);
            &bare
        }
        true => {
            let message = format!("{} has schedulers already", original.name());
            return Err(CliError::refused(message).with_hint("--overwrite makes new ones in their place"));
        }
    };
    let workflow = file.load()?;
    let profile = clusters::find(ctx, args.packing.profile.profile.as_deref())?;
    let demands = packing::demands(&workflow);
    let proposals = packing::proposals(&workflow, &demands, &profile, &args.packing)?;
    if proposals.is_empty() {
        return Err(CliError::user(format!("{} has no job that Slurm could run", original.name()))
            .with_hint("jobs with labels wait for workers that carry those"));
    }
    let new = packing::scheduled(file, &workflow, &demands, &proposals, !args.no_actions)?;
    let text = String::from_utf8_lossy(new.source().text).into_owned();
    if args.dry_run {
        let before = String::from_utf8_lossy(original.source().text);
        ctx.ui.print_lines(&diff::unified(original.name(), &before, &text))?;
        ctx.ui.note("nothing was written");
        return Ok(Exit::Success);
    }
    match args.output.as_deref().or_else(|| original.path().is_none().then_some(Path::new("-"))) {
        Some(path) if path == Path::new("-") => deliver::text(ctx, None, &text)?,
        Some(path) => deliver::text(ctx, Some(path), &text)?,
        None => {
            let Some(path) = original.path() else { return Ok(Exit::Success) };
            deliver::replace(path, &text)?;
            ctx.ui.note(&format!("changed {}", original.name()));
        }
    }
    let allocations: u64 = proposals.iter().map(|one| u64::from(one.group.allocations)).sum();
    ctx.ui.note(&format!(
        "{} for {} on {}; next: windlass submit {}",
        text::count(allocations, "allocation"),
        text::count(proposals.len() as u64, "scheduler"),
        packing::title(&profile),
        args.output.as_deref().unwrap_or(&named).display()
    ));
    Ok(Exit::Success)
}
