//! `windlass request files`: the state of the input files of a request.

use super::suggest_request;
use crate::args::request::RequestFilesArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::ui::listing::{ListField, ListFields};
use crate::ui::table::TableColumn;
use windlass_api::requests::RequestFiles;
use windlass_types::requests::{FileRemainder, RequestFileCounts, RequestFileRow, RequestFileState};

const FILE_FIELDS: &[ListField<RequestFileRow>] = &[
    ListField::new("lfn", |f: &RequestFileRow| (&f.lfn).into()).column(TableColumn::flexible("LFN")),
    ListField::new("state", |f: &RequestFileRow| f.state.name().into()).column(TableColumn::text("STATE")),
    ListField::new("round", |f: &RequestFileRow| f.round.into()).column(TableColumn::number("ROUND")),
    ListField::new("left", |f: &RequestFileRow| remaining_parts(f).into())
        .column(TableColumn::flexible("LEFT")),
    ListField::new("reason", |f: &RequestFileRow| f.reason.clone().into())
        .column(TableColumn::flexible("REASON")),
];

/// The part that is in no output.
fn remaining_parts(row: &RequestFileRow) -> String {
    let spans = |ranges: &[(u64, u64)]| {
        let span = |(first, last): &(u64, u64)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        ranges.iter().map(span).collect::<Vec<_>>().join(",")
    };
    match (&row.left, row.state) {
        (_, RequestFileState::Processed) => String::new(),
        (None, _) => "all".to_owned(),
        (Some(FileRemainder::Events(ranges)), _) => format!("events {}", spans(ranges)),
        (Some(FileRemainder::Lumis(mask)), _) => {
            let runs = mask.iter().map(|(run, ranges)| format!("{run}:{}", spans(ranges)));
            format!("lumis {}", runs.collect::<Vec<_>>().join(" "))
        }
    }
}

pub(super) fn run(ctx: &CliContext, args: &RequestFilesArgs) -> Result<CliExit, CliError> {
    let requests = ctx.request_service_read()?;
    let files = requests.request_files(&args.name, &args.state, args.offset, args.limit);
    let files = suggest_request(&requests, &args.name, files)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&files)?;
        return Ok(CliExit::Success);
    }
    ctx.ui.print_note(&render_counts(&files));
    let shown = args.offset + files.items.len() as u64;
    let more = files.total.saturating_sub(shown);
    ctx.ui.print_list(&ListFields::new(FILE_FIELDS), files.items)?;
    if more > 0 {
        ctx.ui.print_note(&format!("{more} more: --offset {shown}"));
    }
    Ok(CliExit::Success)
}

/// `90 processed, 3 to retry, 2 excluded (1 of them partly processed), 5 new`
fn render_counts(files: &RequestFiles) -> String {
    let RequestFiles { counts, exclusions, fresh, .. } = files;
    let partly = match exclusions.partly_processed {
        0 => String::new(),
        some => format!(" ({some} of them partly processed)"),
    };
    if *counts == RequestFileCounts::default() && fresh.is_none() {
        return "no file is listed: file states are recorded from the second round on, and none was needed"
            .to_owned();
    }
    let fresh = fresh.map(|fresh| format!(", {fresh} new")).unwrap_or_default();
    format!(
        "{} processed, {} to retry, {} excluded{partly}{fresh}",
        counts.processed, counts.attempted, counts.excluded
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::LumiMask;

    #[test]
    fn request_file_shows_remaining_events_and_lumis() {
        let row = |state, left| RequestFileRow { lfn: "/a".into(), state, round: 0, left, reason: None };
        let events = Some(FileRemainder::Events(vec![(1, 5), (9, 9)]));
        let lumis = Some(FileRemainder::Lumis(LumiMask::from([(1, vec![(2, 3)]), (4, vec![(7, 7)])])));
        assert_eq!(remaining_parts(&row(RequestFileState::Attempted, None)), "all");
        assert_eq!(remaining_parts(&row(RequestFileState::Attempted, events)), "events 1-5,9");
        assert_eq!(remaining_parts(&row(RequestFileState::Excluded, lumis)), "lumis 1:2-3 4:7");
        assert_eq!(remaining_parts(&row(RequestFileState::Processed, None)), "");
    }
}
