//! What operators do about requests: release, fail, restart, invalidate; and what people were told of them.

use super::known;
use crate::args::operator::{AlertsArgs, Cleanup, FailArgs, InvalidateArgs, ReleaseArgs, RestartArgs};
use crate::args::page::ConfirmArgs;
use crate::context::Context;
use crate::desk::Desk;
use crate::error::{CliError, Exit};
use crate::ui::listing::{Field, Listing};
use crate::ui::table::Column;
use crate::ui::text;
use windlass_api::requests::{
    Alert, FailRequest, InvalidateRequest, ReleaseRequest, RequestErrors, RestartRequest,
};
use windlass_types::Bytes;

const MB: u64 = 1 << 20;

pub(super) fn release(ctx: &Context, args: &ReleaseArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk()?;
    let name = &args.which.name;
    let wanted = wanted(&desk, args)?;
    let released = known(&desk, name, desk.release(name, &wanted))?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&released)?;
    }
    ctx.ui.note(&format!("{name}: {}", released.message));
    tell_unattended(ctx, &desk);
    Ok(Exit::Success)
}

fn wanted(desk: &Desk, args: &ReleaseArgs) -> Result<ReleaseRequest, CliError> {
    let mut excluded = args.excluded.clone();
    if args.exclude_bad {
        let name = &args.which.name;
        excluded.extend(bad_files(name, &known(desk, name, desk.errors(name, false))?)?);
    }
    Ok(ReleaseRequest {
        reason: args.which.reason.clone(),
        rescue: args.rescue,
        site_bans: args.bans.clone(),
        ban_seconds: args.ban_for.map(|spell| i64::try_from(spell.as_secs()).unwrap_or(i64::MAX)),
        memory_mb: args.memory.map(|Bytes(bytes)| bytes.div_ceil(MB) as i64),
        time_per_event_sec: args.time_per_event,
        retry_count: args.retries,
        error_hold_threshold: args.threshold,
        max_rescue_attempts: args.max_rescues,
        excluded_files: excluded,
    })
}

/// Those that work units failed for good because of.
fn bad_files(name: &str, errors: &RequestErrors) -> Result<Vec<String>, CliError> {
    let bad = errors.bad_files.iter().filter(|file| !file.work_units.is_empty());
    let files: Vec<String> = bad.map(|file| file.lfn.clone()).collect();
    if files.is_empty() {
        return Err(CliError::user(format!("no work unit of {name} failed because of an input file"))
            .with_hint(format!("`windlass request errors {name}` says why they failed")));
    }
    Ok(files)
}

/// The command that releases a request like this; the other way round than [`wanted`].
pub(super) fn release_command(name: &str, release: &ReleaseRequest) -> String {
    let mut words = vec!["windlass request release".to_owned(), text::shell_quote(name)];
    for (flag, value) in release_options(release) {
        words.push(flag.to_owned());
        words.extend(value.map(|value| text::shell_quote(&value)));
    }
    words.join(" ")
}

/// Flags, each with its value if it has one.
pub(in crate::commands) fn release_options(release: &ReleaseRequest) -> Vec<(&'static str, Option<String>)> {
    let mut options = Vec::new();
    let mut option = |flag: &'static str, value: String| options.push((flag, Some(value)));
    for site in &release.site_bans {
        option("--ban", site.clone());
    }
    if let Some(seconds) = release.ban_seconds {
        option("--ban-for", format!("{seconds}s"));
    }
    if let Some(memory) = release.memory_mb {
        option("--memory", format!("{memory}m"));
    }
    if let Some(seconds) = release.time_per_event_sec {
        option("--time-per-event", seconds.to_string());
    }
    if let Some(retries) = release.retry_count {
        option("--retries", retries.to_string());
    }
    if let Some(share) = release.error_hold_threshold {
        option("--threshold", share.to_string());
    }
    if let Some(rescues) = release.max_rescue_attempts {
        option("--max-rescues", rescues.to_string());
    }
    for file in &release.excluded_files {
        option("--exclude", file.clone());
    }
    if !release.reason.is_empty() {
        option("--reason", release.reason.clone());
    }
    if release.rescue {
        options.push(("--rescue", None));
    }
    options
}

fn tell_unattended(ctx: &Context, desk: &Desk) {
    if desk.is_unattended() {
        ctx.ui.note("no server has this database now: `windlass serve` or `windlass request run` sees to it");
    }
}

/// Whether it is to be done: somebody was asked, or only wanted to know.
fn is_agreed(ctx: &Context, what: &str, confirm: ConfirmArgs) -> Result<bool, CliError> {
    if confirm.dry_run {
        ctx.ui.note(&format!("would {what}"));
        return Ok(false);
    }
    ctx.ui.confirm(what, confirm)?;
    Ok(true)
}

pub(super) fn fail(ctx: &Context, args: &FailArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk()?;
    let name = &args.which.name;
    let before = known(&desk, name, desk.request(name))?;
    if !is_agreed(ctx, &format!("give up request {name}, which is {}", before.status), args.confirm)? {
        return Ok(Exit::Success);
    }
    let failed = desk.fail(name, &FailRequest { reason: args.which.reason.clone(), lost: args.lost })?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&failed)?;
    }
    ctx.ui.note(&format!("{name}: {}", failed.message));
    tell_unattended(ctx, &desk);
    Ok(Exit::Success)
}

pub(super) fn restart(ctx: &Context, args: &RestartArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk()?;
    let name = &args.which.name;
    let before = known(&desk, name, desk.request(name))?;
    let what = format!("give up request {name}, which is {}, and begin it anew", before.status);
    if !is_agreed(ctx, &what, args.confirm)? {
        return Ok(Exit::Success);
    }
    let wanted = RestartRequest {
        reason: args.which.reason.clone(),
        cleanup_policy: args.cleanup.map(Cleanup::policy),
        lost: args.lost,
    };
    let restarted = desk.restart(name, &wanted)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&restarted)?;
    }
    ctx.ui.note(&restarted.message);
    tell_unattended(ctx, &desk);
    Ok(Exit::Success)
}

pub(super) fn invalidate(ctx: &Context, args: &InvalidateArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk()?;
    let name = &args.which.name;
    known(&desk, name, desk.request(name))?;
    if !is_agreed(ctx, &format!("take back all outputs of request {name}"), args.confirm)? {
        return Ok(Exit::Success);
    }
    let done = desk.invalidate(name, &InvalidateRequest { reason: args.which.reason.clone() })?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&done)?;
    }
    ctx.ui.note(&format!("{name}: {}", done.message));
    if done.blocks > 0 {
        tell_unattended(ctx, &desk);
    }
    Ok(Exit::Success)
}

const ALERTS: &[Field<Alert>] = &[
    Field::new("id", |a: &Alert| a.id.into()),
    Field::new("at", |a: &Alert| a.at.into()).column(Column::text("TIME")),
    Field::new("kind", |a: &Alert| (&a.kind).into()).column(Column::text("KIND")),
    Field::new("request_name", |a: &Alert| a.request_name.clone().into()).column(Column::text("REQUEST")),
    Field::new("message", |a: &Alert| (&a.message).into()).column(Column::elastic("MESSAGE")),
    Field::new("detail", |a: &Alert| a.detail.clone().into()),
    Field::new("told_at", |a: &Alert| a.told_at.into()),
];

pub(super) fn alerts(ctx: &Context, args: &AlertsArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk_to_read()?;
    if let Some(name) = &args.name {
        known(&desk, name, desk.request(name))?;
    }
    let found = desk.alerts(args.name.as_deref(), args.kind.as_deref(), args.limit)?;
    if found.items.is_empty() {
        ctx.ui.note("nobody had to be told anything");
    }
    ctx.ui.print_list(&Listing::new(ALERTS), found.items)?;
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;

    /// What is printed can be typed, and means what was meant.
    #[test]
    fn a_release_is_told_as_the_command_that_makes_it() {
        let release = ReleaseRequest {
            reason: "it loses files".to_owned(),
            rescue: true,
            site_bans: vec!["T2_A".to_owned(), "T2_B".to_owned()],
            ban_seconds: Some(7200),
            memory_mb: Some(2500),
            time_per_event_sec: Some(2.5),
            retry_count: Some(5),
            error_hold_threshold: Some(0.3),
            max_rescue_attempts: Some(2),
            excluded_files: vec!["/store/a b.root".to_owned()],
        };
        let command = release_command("reco_v1", &release);
        let expected = "windlass request release reco_v1 --ban T2_A --ban T2_B --ban-for 7200s --memory 2500m --time-per-event 2.5 \
             --retries 5 \
             --threshold 0.3 --max-rescues 2 --exclude '/store/a b.root' --reason 'it loses files' --rescue";
        assert_eq!(command, expected);
        let words = ["windlass", "request", "release", "reco_v1", "--ban", "T2_A", "--ban", "T2_B"]
            .into_iter()
            .chain(["--ban-for", "7200s"])
            .chain([
                "--memory",
                "2500m",
                "--time-per-event",
                "2.5",
                "--retries",
                "5",
                "--threshold",
                "0.3",
                "--max-rescues",
                "2",
            ])
            .chain(["--exclude", "/store/a b.root", "--reason", "it loses files", "--rescue"]);
        let Some(Command::Request(args)) = Cli::parse_from(words).command else { panic!("another command") };
        let Some(crate::args::request::RequestVerb::Release(args)) = args.verb else {
            panic!("another verb")
        };
        assert_eq!(args.memory.map(|Bytes(bytes)| bytes.div_ceil(MB)), Some(2500));
        assert_eq!(args.time_per_event, Some(2.5));
        assert_eq!(args.ban_for, Some(std::time::Duration::from_hours(2)));
        assert_eq!((args.bans, args.excluded), (release.site_bans, release.excluded_files));
    }
}
