//! Operations on requests: release, fail, restart, invalidate; and their alerts.

use super::suggest_request;
use crate::args::list_options::ConfirmArgs;
use crate::args::request_operations::{
    CleanupPolicyArg, RequestAlertsArgs, RequestFailArgs, RequestInvalidateArgs, RequestReleaseArgs,
    RequestRestartArgs,
};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::local_requests::RequestService;
use crate::ui::listing::{ListField, ListFields};
use crate::ui::table::TableColumn;
use crate::ui::text;
use windlass_api::requests::{
    AlertResponse, FailRequest, InvalidateRequest, ReleaseRequest, RequestErrors, RestartRequest,
};
use windlass_types::Bytes;

const MB: u64 = 1 << 20;

pub(super) fn release_request(ctx: &CliContext, args: &RequestReleaseArgs) -> Result<CliExit, CliError> {
    let requests = ctx.request_service()?;
    let name = &args.request.name;
    let wanted = build_release(&requests, args)?;
    let released = suggest_request(&requests, name, requests.release_request(name, &wanted))?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&released)?;
    }
    ctx.ui.print_note(&format!("{name}: {}", released.message));
    warn_no_server(ctx, &requests);
    Ok(CliExit::Success)
}

fn build_release(requests: &RequestService, args: &RequestReleaseArgs) -> Result<ReleaseRequest, CliError> {
    let mut excluded = args.excluded.clone();
    if args.exclude_bad {
        let name = &args.request.name;
        excluded.extend(bad_files(
            name,
            &suggest_request(requests, name, requests.request_errors(name, false))?,
        )?);
    }
    Ok(ReleaseRequest {
        reason: args.request.reason.clone(),
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

/// Input files that made work units fail permanently.
fn bad_files(name: &str, errors: &RequestErrors) -> Result<Vec<String>, CliError> {
    let bad = errors.bad_files.iter().filter(|file| !file.work_units.is_empty());
    let files: Vec<String> = bad.map(|file| file.lfn.clone()).collect();
    if files.is_empty() {
        return Err(CliError::user(format!("no work unit of {name} failed because of an input file"))
            .with_hint(format!("`windlass request errors {name}` shows why they failed")));
    }
    Ok(files)
}

/// The command for this release; the inverse of [`wanted`].
pub(super) fn release_command(name: &str, release: &ReleaseRequest) -> String {
    let mut words = vec!["windlass request release".to_owned(), text::shell_quote(name)];
    for (flag, value) in release_options(release) {
        words.push(flag.to_owned());
        words.extend(value.map(|value| text::shell_quote(&value)));
    }
    words.join(" ")
}

/// Options, each with its value if it has one.
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

fn warn_no_server(ctx: &CliContext, requests: &RequestService) {
    if requests.has_no_server() {
        ctx.ui.print_note(
            "no server is using this database: start `windlass serve` or `windlass request run` to apply it",
        );
    }
}

/// Returns whether to proceed: asks for confirmation, or only reports with --dry-run.
fn confirm_unless_dry_run(ctx: &CliContext, what: &str, confirm: ConfirmArgs) -> Result<bool, CliError> {
    if confirm.dry_run {
        ctx.ui.print_note(&format!("would {what}"));
        return Ok(false);
    }
    ctx.ui.confirm(what, confirm)?;
    Ok(true)
}

pub(super) fn fail_request(ctx: &CliContext, args: &RequestFailArgs) -> Result<CliExit, CliError> {
    let requests = ctx.request_service()?;
    let name = &args.request.name;
    let before = suggest_request(&requests, name, requests.get_request(name))?;
    if !confirm_unless_dry_run(
        ctx,
        &format!("fail request {name}, which is {}", before.status),
        args.confirm,
    )? {
        return Ok(CliExit::Success);
    }
    let failed =
        requests.fail_request(name, &FailRequest { reason: args.request.reason.clone(), lost: args.lost })?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&failed)?;
    }
    ctx.ui.print_note(&format!("{name}: {}", failed.message));
    warn_no_server(ctx, &requests);
    Ok(CliExit::Success)
}

pub(super) fn restart_request(ctx: &CliContext, args: &RequestRestartArgs) -> Result<CliExit, CliError> {
    let requests = ctx.request_service()?;
    let name = &args.request.name;
    let before = suggest_request(&requests, name, requests.get_request(name))?;
    let what = format!("fail request {name}, which is {}, and restart it as a new request", before.status);
    if !confirm_unless_dry_run(ctx, &what, args.confirm)? {
        return Ok(CliExit::Success);
    }
    let wanted = RestartRequest {
        reason: args.request.reason.clone(),
        cleanup_policy: args.cleanup.map(CleanupPolicyArg::policy),
        lost: args.lost,
    };
    let restarted = requests.restart_request(name, &wanted)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&restarted)?;
    }
    ctx.ui.print_note(&restarted.message);
    warn_no_server(ctx, &requests);
    Ok(CliExit::Success)
}

pub(super) fn invalidate_request(
    ctx: &CliContext,
    args: &RequestInvalidateArgs,
) -> Result<CliExit, CliError> {
    let requests = ctx.request_service()?;
    let name = &args.request.name;
    suggest_request(&requests, name, requests.get_request(name))?;
    if !confirm_unless_dry_run(ctx, &format!("invalidate all outputs of request {name}"), args.confirm)? {
        return Ok(CliExit::Success);
    }
    let done =
        requests.invalidate_request(name, &InvalidateRequest { reason: args.request.reason.clone() })?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&done)?;
    }
    ctx.ui.print_note(&format!("{name}: {}", done.message));
    if done.blocks > 0 {
        warn_no_server(ctx, &requests);
    }
    Ok(CliExit::Success)
}

const ALERT_FIELDS: &[ListField<AlertResponse>] = &[
    ListField::new("id", |a: &AlertResponse| a.id.into()),
    ListField::new("at", |a: &AlertResponse| a.at.into()).column(TableColumn::text("TIME")),
    ListField::new("kind", |a: &AlertResponse| (&a.kind).into()).column(TableColumn::text("KIND")),
    ListField::new("request_name", |a: &AlertResponse| a.request_name.clone().into())
        .column(TableColumn::text("REQUEST")),
    ListField::new("message", |a: &AlertResponse| (&a.message).into())
        .column(TableColumn::flexible("MESSAGE")),
    ListField::new("detail", |a: &AlertResponse| a.detail.clone().into()),
    ListField::new("told_at", |a: &AlertResponse| a.told_at.into()),
];

pub(super) fn list_alerts(ctx: &CliContext, args: &RequestAlertsArgs) -> Result<CliExit, CliError> {
    let requests = ctx.request_service_read()?;
    if let Some(name) = &args.name {
        suggest_request(&requests, name, requests.get_request(name))?;
    }
    let found = requests.list_alerts(args.name.as_deref(), args.kind.as_deref(), args.limit)?;
    if found.items.is_empty() {
        ctx.ui.print_note("no alerts");
    }
    ctx.ui.print_list(&ListFields::new(ALERT_FIELDS), found.items)?;
    Ok(CliExit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, CliCommand};
    use clap::Parser as _;

    /// The printed command parses back to the same release.
    #[test]
    fn release_renders_as_command_line() {
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
        let Some(CliCommand::Request(args)) = Cli::parse_from(words).command else {
            panic!("another command")
        };
        let Some(crate::args::request::RequestSubcommand::Release(args)) = args.verb else {
            panic!("another verb")
        };
        assert_eq!(args.memory.map(|Bytes(bytes)| bytes.div_ceil(MB)), Some(2500));
        assert_eq!(args.time_per_event, Some(2.5));
        assert_eq!(args.ban_for, Some(std::time::Duration::from_hours(2)));
        assert_eq!((args.bans, args.excluded), (release.site_bans, release.excluded_files));
    }
}
