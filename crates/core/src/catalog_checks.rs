//! What may be said about files of a dataset, before it is believed.

use std::collections::BTreeSet;
use windlass_types::catalog::CatalogFile;
use windlass_types::payload::{check_lfn, check_name};

/// So many faults are told; whoever has more has one mistake everywhere.
const MAX_PROBLEMS: usize = 20;

/// A dataset is called `/primary/processed/tier`.
pub fn check_dataset_name(name: &str) -> Result<(), String> {
    let parts: Vec<&str> = name.strip_prefix('/').unwrap_or_default().split('/').collect();
    let [primary, processed, tier] = parts[..] else {
        return Err(format!("`{name}` is no name of a dataset: it has three parts, /primary/processed/tier"));
    };
    for part in [primary, processed, tier] {
        check_name(part).map_err(|error| format!("`{name}` is no name of a dataset: {error}"))?;
    }
    Ok(())
}

/// All that is wrong with files that are to be in a dataset.
pub fn check_catalog_files(dataset: &str, files: &[CatalogFile]) -> Vec<String> {
    let mut faults: Vec<String> = check_dataset_name(dataset).err().into_iter().collect();
    let mut names = BTreeSet::new();
    for file in files {
        check_file(file, &mut faults);
        if !names.insert(file.lfn.as_str()) {
            faults.push(format!("{}: is there twice", file.lfn));
        }
    }
    faults
}

fn check_file(file: &CatalogFile, faults: &mut Vec<String>) {
    let mut fault = |what: String| faults.push(format!("{}: {what}", file.lfn));
    if let Err(error) = check_lfn(&file.lfn) {
        fault(format!("it is no logical file name: {error}"));
    }
    for (site, path) in &file.replicas {
        if let Err(error) = check_name(site) {
            fault(format!("`{}` is no site: {error}", site.escape_debug()));
        }
        if path.is_empty() || path.contains(['\0', '\n']) {
            fault(format!("its path at {site} is `{}`", path.escape_debug()));
        }
    }
    let ascends = file.lumis.windows(2).all(|pair| (pair[0].run, pair[0].lumi) < (pair[1].run, pair[1].lumi));
    if !ascends {
        fault("its lumis do not ascend by run and lumi, or one is there twice".to_owned());
    }
    let counted: Option<u64> = file.lumis.iter().map(|lumi| lumi.events.map(u64::from)).sum();
    if let Some(counted) = counted.filter(|counted| !file.lumis.is_empty() && *counted != file.events) {
        fault(format!("it has {} events, and its lumis have {counted}", file.events));
    }
}

/// Several faults in one text.
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
    fn good_files_are_believed() {
        let unknown =
            CatalogFile { lumis: vec![FileLumi { run: 1, lumi: 9, events: None }], ..file("/store/b") };
        assert_eq!(check_catalog_files("/A/B-v1/RAW", &[file("/store/a"), unknown]), [""; 0]);
    }

    #[test]
    fn each_fault_is_told() {
        let change = |change: fn(&mut CatalogFile)| {
            let mut file = file("/store/a");
            change(&mut file);
            vec![file]
        };
        let table: Vec<(&str, Vec<CatalogFile>, &str)> = vec![
            ("A/B/C", vec![], "no name of a dataset"),
            ("/A/B", vec![], "three parts"),
            ("/A/B/C/D", vec![], "three parts"),
            ("/A/../C", vec![], "no name of a dataset"),
            ("/A/B/C", vec![file("/store/a"), file("/store/a")], "there twice"),
            ("/A/B/C", vec![file("store/a")], "no logical file name"),
            ("/A/B/C", vec![file("/store/../a")], "no logical file name"),
            ("/A/B/C", change(|file| file.events = 6), "6 events, and its lumis have 5"),
            ("/A/B/C", change(|file| file.lumis.reverse()), "do not ascend"),
            ("/A/B/C", change(|file| file.lumis[1].lumi = 1), "do not ascend"),
            ("/A/B/C", change(|file| drop(file.replicas.insert("a b".into(), "/x".into()))), "is no site"),
            (
                "/A/B/C",
                change(|file| drop(file.replicas.insert("T1_A".into(), String::new()))),
                "its path at T1_A",
            ),
        ];
        for (dataset, files, expected) in table {
            let told = check_catalog_files(dataset, &files);
            assert!(told.len() == 1 && told[0].contains(expected), "{expected}: {told:?}");
        }
    }

    #[test]
    fn many_faults_are_counted() {
        let many: Vec<String> = (0..25).map(|n| n.to_string()).collect();
        assert!(join_problems(&many).ends_with("19\nand 5 more"));
    }
}
