//! `windlass request files`: what became of the input files of a request.

use super::known;
use crate::args::request::FilesArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::ui::listing::{Field, Listing};
use crate::ui::table::Column;
use windlass_api::requests::RequestFiles;
use windlass_types::requests::{FileCounts, FileRow, FileState, Left};

const FILES: &[Field<FileRow>] = &[
    Field::new("lfn", |f: &FileRow| (&f.lfn).into()).column(Column::elastic("LFN")),
    Field::new("state", |f: &FileRow| f.state.name().into()).column(Column::text("STATE")),
    Field::new("round", |f: &FileRow| f.round.into()).column(Column::number("ROUND")),
    Field::new("left", |f: &FileRow| left(f).into()).column(Column::elastic("LEFT")),
    Field::new("reason", |f: &FileRow| f.reason.clone().into()).column(Column::elastic("REASON")),
];

/// What of it is in no output.
fn left(row: &FileRow) -> String {
    let spans = |ranges: &[(u64, u64)]| {
        let span = |(first, last): &(u64, u64)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        ranges.iter().map(span).collect::<Vec<_>>().join(",")
    };
    match (&row.left, row.state) {
        (_, FileState::Processed) => String::new(),
        (None, _) => "all".to_owned(),
        (Some(Left::Events(ranges)), _) => format!("events {}", spans(ranges)),
        (Some(Left::Lumis(mask)), _) => {
            let runs = mask.iter().map(|(run, ranges)| format!("{run}:{}", spans(ranges)));
            format!("lumis {}", runs.collect::<Vec<_>>().join(" "))
        }
    }
}

pub(super) fn run(ctx: &Context, args: &FilesArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk_to_read()?;
    let files = desk.request_files(&args.name, &args.state, args.offset, args.limit);
    let files = known(&desk, &args.name, files)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&files)?;
        return Ok(Exit::Success);
    }
    ctx.ui.note(&told(&files));
    let shown = args.offset + files.items.len() as u64;
    let more = files.total.saturating_sub(shown);
    ctx.ui.print_list(&Listing::new(FILES), files.items)?;
    if more > 0 {
        ctx.ui.note(&format!("{more} more: --offset {shown}"));
    }
    Ok(Exit::Success)
}

/// `90 processed, 3 to be tried again, 2 excluded (1 of them partly processed), 5 fresh`
fn told(files: &RequestFiles) -> String {
    let RequestFiles { counts, exclusions, fresh, .. } = files;
    let partly = match exclusions.partly_processed {
        0 => String::new(),
        some => format!(" ({some} of them partly processed)"),
    };
    if *counts == FileCounts::default() && fresh.is_none() {
        return "no files are listed: nothing was left to a second round".to_owned();
    }
    let fresh = fresh.map(|fresh| format!(", {fresh} fresh")).unwrap_or_default();
    format!(
        "{} processed, {} to be tried again, {} excluded{partly}{fresh}",
        counts.processed, counts.attempted, counts.excluded
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::LumiMask;

    #[test]
    fn what_is_left_of_a_file_is_told() {
        let row = |state, left| FileRow { lfn: "/a".into(), state, round: 0, left, reason: None };
        let events = Some(Left::Events(vec![(1, 5), (9, 9)]));
        let lumis = Some(Left::Lumis(LumiMask::from([(1, vec![(2, 3)]), (4, vec![(7, 7)])])));
        assert_eq!(left(&row(FileState::Attempted, None)), "all");
        assert_eq!(left(&row(FileState::Attempted, events)), "events 1-5,9");
        assert_eq!(left(&row(FileState::Excluded, lumis)), "lumis 1:2-3 4:7");
        assert_eq!(left(&row(FileState::Processed, None)), "");
    }
}
