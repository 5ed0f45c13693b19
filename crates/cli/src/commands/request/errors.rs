//! `windlass request errors`: what went wrong in a request, and the command that might help.

use super::known;
use super::operator::release_command;
use crate::args::operator::ErrorsArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::ui::listing::{Field, Listing};
use crate::ui::table::Column;
use crate::ui::text;
use windlass_api::requests::{
    ErrorsOfFile, ErrorsOfKind, ErrorsOfSite, ReleaseRequest, RequestErrors, Suggestion,
};
use windlass_types::requests::RequestStatus;

/// So many kinds say what they said last.
const TAILS: usize = 3;
/// So many lines of it.
const TAIL_LINES: usize = 5;
/// So many rows of each table; JSON has them all.
const ROWS: usize = 15;

const KINDS: &[Field<ErrorsOfKind>] = &[
    Field::new("category", |k: &ErrorsOfKind| k.category.to_string().into()).column(Column::text("CATEGORY")),
    Field::new("exit_code", |k: &ErrorsOfKind| k.exit_code.into()).column(Column::number("CODE")),
    Field::new("attempts", |k: &ErrorsOfKind| k.attempts.into()).column(Column::number("FAILED")),
    Field::new("for_good", |k: &ErrorsOfKind| k.for_good.into()).column(Column::number("FOR GOOD")),
    Field::new("sites", |k: &ErrorsOfKind| worst(k).into()).column(Column::elastic("SITES")),
    Field::new("example", |k: &ErrorsOfKind| (&k.example).into()).column(Column::text("EXAMPLE")),
    Field::new("message", |k: &ErrorsOfKind| (&k.message).into()).column(Column::elastic("MESSAGE")),
];

/// `T2_A 12, T1_B 3`, the worst first.
fn worst(kind: &ErrorsOfKind) -> String {
    const SHOWN: usize = 3;
    let mut sites: Vec<(&String, &u64)> = kind.sites.iter().collect();
    sites.sort_by_key(|(_, attempts)| std::cmp::Reverse(**attempts));
    let shown = sites.iter().take(SHOWN).map(|(site, attempts)| format!("{site} {attempts}"));
    let more = if sites.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", shown.collect::<Vec<_>>().join(", "))
}

const SITES: &[Field<ErrorsOfSite>] = &[
    Field::new("site_name", |s: &ErrorsOfSite| (&s.site_name).into()).column(Column::text("SITE")),
    Field::new("failed", |s: &ErrorsOfSite| s.failed.into()).column(Column::number("FAILED")),
    Field::new("ended", |s: &ErrorsOfSite| s.ended.into()).column(Column::number("OF")),
    Field::new("blamed", |s: &ErrorsOfSite| s.blamed.into()).column(Column::number("BLAMED")),
    Field::new("is_banned", |s: &ErrorsOfSite| s.is_banned.then_some("banned").into())
        .column(Column::text("NOW")),
];

const FILES: &[Field<ErrorsOfFile>] = &[
    Field::new("lfn", |f: &ErrorsOfFile| (&f.lfn).into()).column(Column::elastic("BAD FILE")),
    Field::new("attempts", |f: &ErrorsOfFile| f.attempts.into()).column(Column::number("FAILED")),
    Field::new("work_units", |f: &ErrorsOfFile| (f.work_units.len() as u64).into())
        .column(Column::number("UNITS LOST")),
    Field::new("sites", |f: &ErrorsOfFile| f.sites.join(", ").into()).column(Column::text("SITES")),
];

pub(super) fn run(ctx: &Context, args: &ErrorsArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk_to_read()?;
    let errors = known(&desk, &args.name, desk.errors(&args.name, args.all))?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&errors)?;
        return Ok(Exit::Success);
    }
    ctx.ui.print_line(&headline(&errors))?;
    if errors.attempts_failed == 0 {
        return tell_where_else(ctx, &errors);
    }
    print_some(ctx, KINDS, &errors.kinds)?;
    print_some(ctx, SITES, &errors.by_site)?;
    print_some(ctx, FILES, &errors.bad_files)?;
    for kind in errors.kinds.iter().filter(|kind| !kind.log_tail.is_empty()).take(TAILS) {
        ctx.ui.print_line("")?;
        ctx.ui.print_lines(&tail(kind))?;
    }
    ctx.ui.print_line("")?;
    ctx.ui.print_lines(&advice(&errors))?;
    Ok(Exit::Success)
}

/// `reco is held: 12 of 40 attempts failed in round 0`
fn headline(errors: &RequestErrors) -> String {
    let of = match errors.round {
        None => "; nothing is planned yet".to_owned(),
        Some(round) => {
            let span = if errors.all { "over all rounds".to_owned() } else { format!("in round {round}") };
            format!(": {} of {} attempts failed {span}", errors.attempts_failed, errors.attempts_ended)
        }
    };
    format!("{} is {}{of}", errors.request_name, errors.status)
}

/// It may be held for other reasons than failed attempts.
fn tell_where_else(ctx: &Context, errors: &RequestErrors) -> Result<Exit, CliError> {
    let name = text::shell_quote(&errors.request_name);
    if let Some(reason) = &errors.reason {
        ctx.ui.print_line(reason)?;
    }
    if errors.status == RequestStatus::Held {
        ctx.ui.print_line(&format!("next: windlass request release {name}"))?;
    } else if !errors.all && errors.round > Some(0) {
        ctx.ui.note(&format!("`windlass request errors {name} --all` tells of earlier rounds"));
    }
    Ok(Exit::Success)
}

fn print_some<T: Clone>(ctx: &Context, fields: &'static [Field<T>], rows: &[T]) -> Result<(), CliError> {
    if rows.is_empty() {
        return Ok(());
    }
    ctx.ui.print_line("")?;
    ctx.ui.print_list(&Listing::new(fields), rows.iter().take(ROWS).cloned().collect())?;
    let more = rows.len().saturating_sub(ROWS);
    if more > 0 {
        ctx.ui.print_line(&format!("… {more} more: --format json"))?;
    }
    Ok(())
}

/// What one of them said last.
fn tail(kind: &ErrorsOfKind) -> Vec<String> {
    let lines: Vec<&str> = kind.log_tail.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    let said = lines[from..].iter().map(|line| format!("  {line}"));
    [format!("{} said last:", kind.example)].into_iter().chain(said).collect()
}

/// What might be done, and the command that does all of it.
fn advice(errors: &RequestErrors) -> Vec<String> {
    let one = |suggestion: &Suggestion| {
        format!("- {} ({})", suggestion.text, text::count(suggestion.attempts, "failed attempt"))
    };
    let mut lines = vec!["suggestions:".to_owned()];
    lines.extend(errors.suggestions.iter().map(one));
    lines.extend(next(errors).map(|command| format!("next: {command}")));
    lines
}

fn next(errors: &RequestErrors) -> Option<String> {
    match errors.status {
        RequestStatus::Held => Some(command(errors)),
        RequestStatus::Failed | RequestStatus::Aborted => {
            Some(format!("windlass request restart {}", text::shell_quote(&errors.request_name)))
        }
        _ => None,
    }
}

/// Files that are bad are left out by one word, however many they are.
fn command(errors: &RequestErrors) -> String {
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
            suggestions: vec![Suggestion { text: "ban T2_A".to_owned(), attempts: 4, release: None }],
            suggested_release: release,
        }
    }

    #[test]
    fn the_command_does_all_that_is_suggested() {
        let release = ReleaseRequest {
            site_bans: vec!["T2_A".to_owned()],
            memory_mb: Some(2500),
            excluded_files: vec!["/store/a".to_owned(), "/store/b".to_owned()],
            ..ReleaseRequest::default()
        };
        let told = advice(&errors(RequestStatus::Held, release));
        let expected = [
            "suggestions:",
            "- ban T2_A (4 failed attempts)",
            "next: windlass request release reco --ban T2_A --memory 2500m --exclude-bad",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn only_what_can_be_done_is_suggested() {
        let next = |status| next(&errors(status, ReleaseRequest::default()));
        assert_eq!(next(RequestStatus::Held).as_deref(), Some("windlass request release reco"));
        assert_eq!(next(RequestStatus::Failed).as_deref(), Some("windlass request restart reco"));
        assert_eq!(next(RequestStatus::Active), None);
        assert_eq!(next(RequestStatus::Completed), None);
    }
}
