//! `windlass request errors`: lists the errors of a request, and the command that may help.

use super::operations::release_command;
use super::suggest_request;
use crate::args::request_operations::RequestErrorListArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::ui::listing::{ListField, ListFields};
use crate::ui::table::TableColumn;
use crate::ui::text;
use windlass_api::requests::{
    ErrorsOfFile, ErrorsOfSignature, ErrorsOfSite, RecoverySuggestion, ReleaseRequest, RequestErrors,
};
use windlass_types::requests::RequestStatus;

/// Number of error classes with a log excerpt.
const MAX_EXCERPTS: usize = 3;
/// Number of lines per excerpt.
const EXCERPT_LINES: usize = 5;
/// Number of rows per table; JSON contains all rows.
const MAX_ROWS: usize = 15;

const KIND_FIELDS: &[ListField<ErrorsOfSignature>] = &[
    ListField::new("category", |k: &ErrorsOfSignature| k.category.to_string().into())
        .column(TableColumn::text("CATEGORY")),
    ListField::new("exit_code", |k: &ErrorsOfSignature| k.exit_code.into())
        .column(TableColumn::number("CODE")),
    ListField::new("attempts", |k: &ErrorsOfSignature| k.attempts.into())
        .column(TableColumn::number("FAILED")),
    ListField::new("for_good", |k: &ErrorsOfSignature| k.for_good.into())
        .column(TableColumn::number("PERMANENT")),
    ListField::new("sites", |k: &ErrorsOfSignature| worst_sites(k).into())
        .column(TableColumn::flexible("SITES")),
    ListField::new("example", |k: &ErrorsOfSignature| (&k.example).into())
        .column(TableColumn::text("EXAMPLE")),
    ListField::new("message", |k: &ErrorsOfSignature| (&k.message).into())
        .column(TableColumn::flexible("MESSAGE")),
];

/// `T2_A 12, T1_B 3`, most errors first.
fn worst_sites(kind: &ErrorsOfSignature) -> String {
    const SHOWN: usize = 3;
    let mut sites: Vec<(&String, &u64)> = kind.sites.iter().collect();
    sites.sort_by_key(|(_, attempts)| std::cmp::Reverse(**attempts));
    let shown = sites.iter().take(SHOWN).map(|(site, attempts)| format!("{site} {attempts}"));
    let more = if sites.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", shown.collect::<Vec<_>>().join(", "))
}

const SITE_FIELDS: &[ListField<ErrorsOfSite>] = &[
    ListField::new("site_name", |s: &ErrorsOfSite| (&s.site_name).into()).column(TableColumn::text("SITE")),
    ListField::new("failed", |s: &ErrorsOfSite| s.failed.into()).column(TableColumn::number("FAILED")),
    ListField::new("ended", |s: &ErrorsOfSite| s.ended.into()).column(TableColumn::number("OF")),
    ListField::new("blamed", |s: &ErrorsOfSite| s.blamed.into()).column(TableColumn::number("BLAMED")),
    ListField::new("is_banned", |s: &ErrorsOfSite| s.is_banned.then_some("banned").into())
        .column(TableColumn::text("NOW")),
];

const FILE_FIELDS: &[ListField<ErrorsOfFile>] = &[
    ListField::new("lfn", |f: &ErrorsOfFile| (&f.lfn).into()).column(TableColumn::flexible("BAD FILE")),
    ListField::new("attempts", |f: &ErrorsOfFile| f.attempts.into()).column(TableColumn::number("FAILED")),
    ListField::new("work_units", |f: &ErrorsOfFile| (f.work_units.len() as u64).into())
        .column(TableColumn::number("UNITS FAILED")),
    ListField::new("sites", |f: &ErrorsOfFile| f.sites.join(", ").into()).column(TableColumn::text("SITES")),
];

pub(super) fn run(ctx: &CliContext, args: &RequestErrorListArgs) -> Result<CliExit, CliError> {
    let requests = ctx.request_service_read()?;
    let errors = suggest_request(&requests, &args.name, requests.request_errors(&args.name, args.all))?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&errors)?;
        return Ok(CliExit::Success);
    }
    ctx.ui.print_line(&render_headline(&errors))?;
    if errors.attempts_failed == 0 {
        return print_other_sources(ctx, &errors);
    }
    print_top_rows(ctx, KIND_FIELDS, &errors.kinds)?;
    print_top_rows(ctx, SITE_FIELDS, &errors.by_site)?;
    print_top_rows(ctx, FILE_FIELDS, &errors.bad_files)?;
    for kind in errors.kinds.iter().filter(|kind| !kind.log_tail.is_empty()).take(MAX_EXCERPTS) {
        ctx.ui.print_line("")?;
        ctx.ui.print_lines(&render_excerpt(kind))?;
    }
    ctx.ui.print_line("")?;
    ctx.ui.print_lines(&render_advice(&errors))?;
    Ok(CliExit::Success)
}

/// `reco is held: 12 of 40 attempts failed in round 0`
fn render_headline(errors: &RequestErrors) -> String {
    let of = match errors.round {
        None => "; nothing is planned yet".to_owned(),
        Some(round) => {
            let span = if errors.all { "over all rounds".to_owned() } else { format!("in round {round}") };
            format!(": {} of {} attempts failed {span}", errors.attempts_failed, errors.attempts_ended)
        }
    };
    format!("{} is {}{of}", errors.request_name, errors.status)
}

/// The request may be held for reasons other than failed attempts.
fn print_other_sources(ctx: &CliContext, errors: &RequestErrors) -> Result<CliExit, CliError> {
    let name = text::shell_quote(&errors.request_name);
    if let Some(reason) = &errors.reason {
        ctx.ui.print_line(reason)?;
    }
    if errors.status == RequestStatus::Held {
        ctx.ui.print_line(&format!("next: windlass request release {name}"))?;
    } else if !errors.all && errors.round > Some(0) {
        ctx.ui.print_note(&format!("`windlass request errors {name} --all` includes earlier rounds"));
    }
    Ok(CliExit::Success)
}

fn print_top_rows<T: Clone>(
    ctx: &CliContext,
    fields: &'static [ListField<T>],
    rows: &[T],
) -> Result<(), CliError> {
    if rows.is_empty() {
        return Ok(());
    }
    ctx.ui.print_line("")?;
    ctx.ui.print_list(&ListFields::new(fields), rows.iter().take(MAX_ROWS).cloned().collect())?;
    let more = rows.len().saturating_sub(MAX_ROWS);
    if more > 0 {
        ctx.ui.print_line(&format!("… {more} more; use --format json"))?;
    }
    Ok(())
}

/// The log excerpt of an example.
fn render_excerpt(kind: &ErrorsOfSignature) -> Vec<String> {
    let lines: Vec<&str> = kind.log_tail.lines().collect();
    let from = lines.len().saturating_sub(EXCERPT_LINES);
    let message = lines[from..].iter().map(|line| format!("  {line}"));
    [format!("last output of {}:", kind.example)].into_iter().chain(message).collect()
}

/// The suggestions, and one command that applies all of them.
fn render_advice(errors: &RequestErrors) -> Vec<String> {
    let one = |suggestion: &RecoverySuggestion| {
        format!("- {} ({})", suggestion.text, text::render_count(suggestion.attempts, "failed attempt"))
    };
    let mut lines = vec!["suggestions:".to_owned()];
    lines.extend(errors.suggestions.iter().map(one));
    lines.extend(next_steps(errors).map(|command| format!("next: {command}")));
    lines
}

fn next_steps(errors: &RequestErrors) -> Option<String> {
    match errors.status {
        RequestStatus::Held => Some(advice_command(errors)),
        RequestStatus::Failed | RequestStatus::Aborted => {
            Some(format!("windlass request restart {}", text::shell_quote(&errors.request_name)))
        }
        _ => None,
    }
}

/// `--exclude-bad` excludes all bad files, regardless of their number.
fn advice_command(errors: &RequestErrors) -> String {
    let bare = ReleaseRequest { excluded_files: Vec::new(), ..errors.suggested_release.clone() };
    let command = release_command(&errors.request_name, &bare);
    if errors.suggested_release.excluded_files.is_empty() {
        command
    } else {
        format!("{command} --exclude-bad")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(status: RequestStatus, release: ReleaseRequest) -> RequestErrors {
        RequestErrors {
            request_name: "reco".to_owned(),
            status,
            reason: None,
            round: Some(0),
            all: false,
            dags: Vec::new(),
            attempts_ended: 10,
            attempts_failed: 4,
            by_category: Vec::new(),
            by_site: Vec::new(),
            by_exit_code: Vec::new(),
            bad_files: Vec::new(),
            more_bad_files: 0,
            kinds: Vec::new(),
            of_other_kinds: 0,
            suggestions: vec![RecoverySuggestion { text: "ban T2_A".to_owned(), attempts: 4, release: None }],
            suggested_release: release,
        }
    }

    #[test]
    fn suggested_release_command_covers_all_advice() {
        let release = ReleaseRequest {
            site_bans: vec!["T2_A".to_owned()],
            memory_mb: Some(2500),
            excluded_files: vec!["/store/a".to_owned(), "/store/b".to_owned()],
            ..ReleaseRequest::default()
        };
        let advice = render_advice(&errors(RequestStatus::Held, release));
        let expected = [
            "suggestions:",
            "- ban T2_A (4 failed attempts)",
            "next: windlass request release reco --ban T2_A --memory 2500m --exclude-bad",
        ];
        assert_eq!(advice, expected);
    }

    #[test]
    fn suggested_commands_match_request_status() {
        let next = |status| next_steps(&errors(status, ReleaseRequest::default()));
        assert_eq!(next(RequestStatus::Held).as_deref(), Some("windlass request release reco"));
        assert_eq!(next(RequestStatus::Failed).as_deref(), Some("windlass request restart reco"));
        assert_eq!(next(RequestStatus::Active), None);
        assert_eq!(next(RequestStatus::Completed), None);
    }
}
