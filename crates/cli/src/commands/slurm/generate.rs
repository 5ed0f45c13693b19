//! `windlass slurm generate`: writes schedulers and actions into a spec.

use crate::args::slurm::SlurmGenerateArgs;
use crate::cluster_profiles;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::output_files;
use crate::slurm_packing;
use crate::spec_discovery;
use crate::spec_file::SpecFile;
use crate::ui::{diff, text};
use std::path::Path;
use windlass_spec::patch::remove_schedule;

pub(crate) fn run(ctx: &CliContext, args: &SlurmGenerateArgs) -> Result<CliExit, CliError> {
    let named = spec_discovery::resolve_spec_path(args.spec.as_ref(), &ctx.cwd)?;
    let original = SpecFile::read(&ctx.cwd, &named)?;
    let bare;
    let file = match slurm_packing::has_schedulers(&original.load()?) {
        false => &original,
        true if args.overwrite => {
            bare = original.with_text(remove_schedule(original.source())?);
            &bare
        }
        true => {
            let message = format!("{} already has schedulers", original.name());
            return Err(CliError::refused(message).with_hint("use --overwrite to replace them"));
        }
    };
    let workflow = file.load()?;
    let profile = cluster_profiles::find_profile(ctx, args.packing.profile.profile.as_deref())?;
    let demands = slurm_packing::entry_demands(&workflow);
    let proposals = slurm_packing::plan_packing(&workflow, &demands, &profile, &args.packing)?;
    if proposals.is_empty() {
        return Err(CliError::user(format!("{} has no job that can run on Slurm", original.name()))
            .with_hint("jobs with labels need workers with the same labels"));
    }
    let new = slurm_packing::add_schedulers(file, &workflow, &demands, &proposals, !args.no_actions)?;
    let text = String::from_utf8_lossy(new.source().text).into_owned();
    if args.dry_run {
        let before = String::from_utf8_lossy(original.source().text);
        ctx.ui.print_lines(&diff::unified_diff(original.name(), &before, &text))?;
        ctx.ui.print_note("nothing written");
        return Ok(CliExit::Success);
    }
    match args.output.as_deref().or_else(|| original.path().is_none().then_some(Path::new("-"))) {
        Some(path) if path == Path::new("-") => output_files::write_text(ctx, None, &text)?,
        Some(path) => output_files::write_text(ctx, Some(path), &text)?,
        None => {
            let Some(path) = original.path() else { return Ok(CliExit::Success) };
            output_files::replace_file(path, &text)?;
            ctx.ui.print_note(&format!("changed {}", original.name()));
        }
    }
    let allocations: u64 = proposals.iter().map(|one| u64::from(one.group.allocations)).sum();
    ctx.ui.print_note(&format!(
        "{} for {} on {}; next: windlass submit {}",
        text::render_count(allocations, "allocation"),
        text::render_count(proposals.len() as u64, "scheduler"),
        slurm_packing::cluster_title(&profile),
        args.output.as_deref().unwrap_or(&named).display()
    ));
    Ok(CliExit::Success)
}
