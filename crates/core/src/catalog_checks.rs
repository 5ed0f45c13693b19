//! Validation of dataset files before they are accepted.

use std::collections::BTreeSet;
use windlass_types::catalog::CatalogFile;
use windlass_types::payload::{check_lfn, check_name};

/// Maximum number of problems reported; more are usually the same mistake repeated.
const MAX_PROBLEMS: usize = 20;

/// Checks that a dataset name has the form `/primary/processed/tier`.
pub fn check_dataset_name(name: &str) -> Result<(), String> {
    let parts: Vec<&str> = name.strip_prefix('/').unwrap_or_default().split('/').collect();
    let [primary, processed, tier] = parts[..] else {
        return Err(format!("`{name}` is not a dataset name: expected three parts, /primary/processed/tier"));
    };
    for part in [primary, processed, tier] {
        check_name(part).map_err(|error| format!("`{name}` is not a dataset name: {error}"))?;
    }
    Ok(())
}

/// Returns all problems of files to be added to a dataset.
pub fn check_catalog_files(dataset: &str, files: &[CatalogFile]) -> Vec<String> {
    let mut faults: Vec<String> = check_dataset_name(dataset).err().into_iter().collect();
    let mut names = BTreeSet::new();
    for file in files {
        check_file(file, &mut faults);
        if !names.insert(file.lfn.as_str()) {
            faults.push(format!("{}: listed twice", file.lfn));
        }
    }
    faults
}

fn check_file(file: &CatalogFile, faults: &mut Vec<String>) {
    let mut fault = |what: String| faults.push(format!("{}: {what}", file.lfn));
    if let Err(error) = check_lfn(&file.lfn) {
        fault(format!("not a logical file name: {error}"));
    }
    for (site, path) in &file.replicas {
        if let Err(error) = check_name(site) {
            fault(format!("`{}` is not a site name: {error}", site.escape_debug()));
        }
        if path.is_empty() || path.contains(['\0', '\n']) {
            fault(format!("the path at {site} is `{}`", path.escape_debug()));
        }
    }
    let ascends = file.lumis.windows(2).all(|pair| (pair[0].run, pair[0].lumi) < (pair[1].run, pair[1].lumi));
    if !ascends {
        fault("lumis are not in ascending order of run and lumi, or one is listed twice".to_owned());
    }
    let counted: Option<u64> = file.lumis.iter().map(|lumi| lumi.events.map(u64::from)).sum();
    if let Some(counted) = counted.filter(|counted| !file.lumis.is_empty() && *counted != file.events) {
        fault(format!("the file has {} events, its lumis have {counted}", file.events));
    }
}

/// Joins several problems into one text.
pub fn join_problems(faults: &[String]) -> String {
    let more = faults.len().checked_sub(MAX_PROBLEMS).filter(|more| *more > 0);
    let more = more.map(|more| format!("and {more} more"));
    faults.iter().take(MAX_PROBLEMS).cloned().chain(more).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::catalog::FileLumi;

    fn file(lfn: &str) -> CatalogFile {
        let lumi = |lumi, events| FileLumi { run: 1, lumi, events: Some(events) };
        CatalogFile {
            lfn: lfn.into(),
            size: 3,
            events: 5,
            lumis: vec![lumi(1, 2), lumi(2, 3)],
            replicas: [("T1_A".to_owned(), "/data/x".to_owned())].into(),
            ..CatalogFile::default()
        }
    }

    #[test]
    fn valid_catalog_files_have_no_problems() {
        let unknown =
            CatalogFile { lumis: vec![FileLumi { run: 1, lumi: 9, events: None }], ..file("/store/b") };
        assert_eq!(check_catalog_files("/A/B-v1/RAW", &[file("/store/a"), unknown]), [""; 0]);
    }

    #[test]
    fn each_problem_is_reported() {
        let change = |change: fn(&mut CatalogFile)| {
            let mut file = file("/store/a");
            change(&mut file);
            vec![file]
        };
        let table: Vec<(&str, Vec<CatalogFile>, &str)> = vec![
            ("A/B/C", vec![], "not a dataset name"),
            ("/A/B", vec![], "three parts"),
            ("/A/B/C/D", vec![], "three parts"),
            ("/A/../C", vec![], "not a dataset name"),
            ("/A/B/C", vec![file("/store/a"), file("/store/a")], "listed twice"),
            ("/A/B/C", vec![file("store/a")], "not a logical file name"),
            ("/A/B/C", vec![file("/store/../a")], "not a logical file name"),
            ("/A/B/C", change(|file| file.events = 6), "6 events, its lumis have 5"),
            ("/A/B/C", change(|file| file.lumis.reverse()), "not in ascending order"),
            ("/A/B/C", change(|file| file.lumis[1].lumi = 1), "not in ascending order"),
            (
                "/A/B/C",
                change(|file| drop(file.replicas.insert("a b".into(), "/x".into()))),
                "is not a site name",
            ),
            (
                "/A/B/C",
                change(|file| drop(file.replicas.insert("T1_A".into(), String::new()))),
                "the path at T1_A",
            ),
        ];
        for (dataset, files, expected) in table {
            let told = check_catalog_files(dataset, &files);
            assert!(told.len() == 1 && told[0].contains(expected), "{expected}: {told:?}");
        }
    }

    #[test]
    fn many_problems_are_counted() {
        let many: Vec<String> = (0..25).map(|n| n.to_string()).collect();
        assert!(join_problems(&many).ends_with("19\nand 5 more"));
    }
}
