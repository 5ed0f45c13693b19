//! File states by example. Tests over many rounds that nothing is lost or processed twice:
//! `round_plan/tests/recovery.rs`.

use super::*;

fn reading(unit: u32, lfn: &str, part: FilePart) -> UnitInput {
    UnitInput { unit, lfn: lfn.to_owned(), part }
}

fn outcome(completed: &[u32], bad: &[(u32, &str)]) -> RoundUnitOutcome {
    let mut outcome =
        RoundUnitOutcome { completed: completed.iter().copied().collect(), bad_files: BTreeMap::new() };
    for (unit, lfn) in bad {
        outcome.bad_files.entry(*unit).or_default().insert((*lfn).to_owned());
    }
    outcome
}

/// `/a attempted 1: events 3-4`
fn told(rows: &[RequestFileRow]) -> Vec<String> {
    let left = |left: &FileRemainder| match left {
        FileRemainder::Events(ranges) => {
            let ranges: Vec<String> = ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect();
            format!(": events {}", ranges.join(" "))
        }
        FileRemainder::Lumis(mask) => format!(": lumis {:?}", mask.0),
    };
    let one = |row: &RequestFileRow| {
        let RequestFileRow { lfn, state, round, .. } = row;
        let why = row.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("{lfn} {state} {round}{}{why}", row.left.as_ref().map(left).unwrap_or_default())
    };
    rows.iter().map(one).collect()
}

fn mask(run: u64, ranges: &[(u64, u64)]) -> LumiMask {
    LumiMask::from([(run, ranges.to_vec())])
}

#[test]
fn files_of_completed_units_are_processed() {
    let readings = [
        reading(0, "/a", FilePart::Whole),
        reading(0, "/b", FilePart::Whole),
        reading(1, "/c", FilePart::Whole),
    ];
    let rows = settle_files(3, readings, &outcome(&[0], &[]), &[]).unwrap();
    assert_eq!(told(&rows), ["/a processed 3", "/b processed 3", "/c attempted 3"]);
    assert_eq!(count_files(&rows), RequestFileCounts { attempted: 1, processed: 2, excluded: 0 });
}

/// R-187: of the failed unit, only the bad file is excluded.
#[test]
fn bad_file_is_excluded_and_other_files_retried() {
    let readings = || [reading(0, "/a", FilePart::Whole), reading(0, "/b", FilePart::Whole)];
    let rows = settle_files(0, readings(), &outcome(&[], &[(0, "/b")]), &[]).unwrap();
    let bad = "/b excluded 0 (work unit mg_000000 of round 0 found it bad)";
    assert_eq!(told(&rows), ["/a attempted 0", bad]);
    // Bad files of a unit that completed in the end do not count, nor files that the unit does not read.
    let rows = settle_files(0, readings(), &outcome(&[0], &[(0, "/b")]), &[]).unwrap();
    assert_eq!(told(&rows), ["/a processed 0", "/b processed 0"]);
    let rows = settle_files(0, readings(), &outcome(&[], &[(0, "/x"), (1, "/b")]), &[]).unwrap();
    assert_eq!(told(&rows), ["/a attempted 0", "/b attempted 0"]);
}

#[test]
fn remainder_of_a_file_in_several_units_is_known() {
    let windows = || {
        [(0, 1, 5), (1, 6, 10), (2, 11, 15), (2, 16, 20), (3, 21, 25)]
            .map(|(unit, first, last)| reading(unit, "/a", FilePart::Events(first, last)))
    };
    let rows = settle_files(0, windows(), &outcome(&[0, 3], &[]), &[]).unwrap();
    assert_eq!(told(&rows), ["/a attempted 0: events 6-20"]);
    // Nothing of it is processed: the whole selection of that time is read again.
    let rows = settle_files(0, windows(), &outcome(&[], &[]), &[]).unwrap();
    assert_eq!(told(&rows), ["/a attempted 0"]);
    let rows = settle_files(0, windows(), &outcome(&[0, 1, 3], &[(2, "/a")]), &[]).unwrap();
    assert_eq!(told(&rows), ["/a excluded 0: events 11-20 (work unit mg_000002 of round 0 found it bad)"]);
    assert_eq!(
        (InputExclusions::from_rows(&rows).files, InputExclusions::from_rows(&rows).partly_processed),
        (1, 1)
    );
}

#[test]
fn remainder_is_kept_without_progress() {
    let first = settle_files(
        0,
        [(0, 1, 5), (1, 6, 10)].map(|(unit, a, b)| reading(unit, "/a", FilePart::Events(a, b))),
        &outcome(&[0], &[]),
        &[],
    );
    let first = first.unwrap();
    let again = || [reading(0, "/a", FilePart::Events(6, 10))];
    let second = settle_files(1, again(), &outcome(&[], &[]), &first).unwrap();
    assert_eq!(told(&second), ["/a attempted 1: events 6-10"]);
    assert_eq!(
        settle_files(1, again(), &outcome(&[0], &[]), &second).map(|rows| told(&rows)),
        Ok(vec!["/a processed 1".to_owned()])
    );
}

#[test]
fn settling_is_idempotent() {
    let readings = || {
        vec![
            reading(0, "/a", FilePart::Lumis(mask(1, &[(1, 2)]))),
            reading(1, "/a", FilePart::Lumis(mask(1, &[(3, 3)]))),
            reading(1, "/b", FilePart::Lumis(mask(1, &[(3, 4)]))),
            reading(2, "/c", FilePart::Whole),
        ]
    };
    let outcome = outcome(&[0], &[(2, "/c")]);
    let once = settle_files(0, readings(), &outcome, &[]).unwrap();
    let bad = "/c excluded 0 (work unit mg_000002 of round 0 found it bad)";
    assert_eq!(told(&once), ["/a attempted 0: lumis {1: [(3, 3)]}", "/b attempted 0", bad]);
    assert_eq!(settle_files(0, readings(), &outcome, &once), Ok(once));
}

#[test]
fn last_run_of_a_unit_decides_its_bad_files() {
    let tally = |text: &str| serde_json::from_str::<FailureTally>(text).unwrap();
    let first = tally(
        r#"{"units": {"1": true, "2": true}, "files": {"/a": {"units": [1, 2]}, "/b": {"units": [2]}}}"#,
    );
    // In the rescue unit 2 failed because of another file, and unit 3 without naming one.
    let second = tally(r#"{"units": {"2": true, "3": false}, "files": {"/b": {"units": [2]}}}"#);
    let files = |names: &[&str]| names.iter().map(|&lfn| lfn.to_owned()).collect::<BTreeSet<_>>();
    let alone = find_bad_files(std::slice::from_ref(&first));
    assert_eq!(alone, [(1, files(&["/a"])), (2, files(&["/a", "/b"]))].into());
    assert_eq!(find_bad_files(&[first, second]), [(1, files(&["/a"])), (2, files(&["/b"]))].into());
}

#[test]
fn inconsistent_file_parts_are_an_error() {
    let readings = [
        reading(0, "/a", FilePart::Events(1, 2)),
        reading(1, "/a", FilePart::Events(3, 4)),
        reading(2, "/a", FilePart::Lumis(mask(1, &[(1, 1)]))),
    ];
    let fault = settle_files(2, readings, &outcome(&[0], &[]), &[]).unwrap_err();
    assert!(fault.to_string().contains("round 2 read /a partly by events"), "{fault}");
}

#[test]
fn round_has_files_neither_processed_nor_excluded() {
    let row = |lfn: &str, state, left: Option<FileRemainder>| RequestFileRow {
        lfn: lfn.to_owned(),
        state,
        round: 0,
        left,
        reason: None,
    };
    let file = |lfn: &str| CatalogFile { lfn: lfn.to_owned(), ..CatalogFile::default() };
    let part = FileRemainder::Events(vec![(3, 4)]);
    let rows = vec![
        row("/done", RequestFileState::Processed, None),
        row("/bad", RequestFileState::Excluded, None),
        row("/gone", RequestFileState::Attempted, None),
        row("/part", RequestFileState::Attempted, Some(part.clone())),
        row("/unwanted", RequestFileState::Attempted, Some(part.clone())),
        row("/whole", RequestFileState::Attempted, None),
    ];
    let dataset =
        ["/bad", "/done", "/new", "/part", "/unwanted", "/unwanted-too", "/whole"].map(file).to_vec();
    let unwanted = ["/unwanted", "/unwanted-too", "/done", "/never-heard-of"]
        .map(|lfn| (lfn.to_owned(), "eve".to_owned()));
    let remaining = remaining_input(dataset, rows, &unwanted.into(), 4);
    let files: Vec<&str> = remaining.files.iter().map(|file| file.lfn.as_str()).collect();
    assert_eq!(files, ["/new", "/part", "/whole"]);
    assert_eq!(remaining.attempted, ["/part", "/whole"].map(str::to_owned).into());
    assert_eq!(remaining.left, [("/part".to_owned(), part)].into());
    let excluded = [
        "/gone excluded 4 (it is no longer in the dataset)",
        "/unwanted excluded 4: events 3-4 (by eve)",
        "/unwanted-too excluded 4 (by eve)",
    ];
    assert_eq!(told(&remaining.excluded), excluded);
    let report = InputExclusions::from_rows(&remaining.excluded);
    assert_eq!(report.reasons[0], ("by eve".to_owned(), 2));
}
