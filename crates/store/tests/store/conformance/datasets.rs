//! The catalog of datasets: files, replicas, blocks, rules; all changes are idempotent.

use crate::kit::NOW;
use windlass_store::model::EventFilter;
use windlass_store::{AddedFiles, DatasetEditor, StoreDatabase, StoreError};
use windlass_types::Timestamp;
use windlass_types::catalog::{CatalogFile, CatalogReplica, FileLumi, NewReplicationRule};

const LATER: Timestamp = Timestamp(NOW.0 + 1);
const ADA: DatasetEditor<'_> = DatasetEditor { user: "ada", may_change_others: false };
const RAW: &str = "/A/B/RAW";

fn file(lfn: &str, events: u64) -> CatalogFile {
    let lumi = |lumi| FileLumi { run: 356_164, lumi, events: Some(5) };
    CatalogFile {
        lfn: lfn.into(),
        size: 1 << 40,
        events,
        checksums: [("adler32".to_owned(), "ad0".to_owned())].into(),
        lumis: vec![lumi(3), lumi(4), FileLumi { run: 356_165, lumi: 1, events: None }],
        replicas: [("T2_A".to_owned(), format!("/data{lfn}"))].into(),
        parents: vec!["/parent".into()],
    }
}

const fn counts(added: u64, changed: u64) -> AddedFiles {
    AddedFiles { added, changed }
}

fn plain(lfn: &str) -> CatalogFile {
    CatalogFile { lfn: lfn.into(), ..CatalogFile::default() }
}

pub(crate) fn dataset_files_round_trip(store: &dyn StoreDatabase) {
    let files = vec![file("/b", 10), plain("/a"), file("/c\t\\N'", 1 << 33)];
    assert_eq!(store.add_dataset_files(RAW, &files, ADA, NOW).unwrap(), counts(3, 0));
    assert_eq!(store.dataset_files(RAW, true).unwrap(), files);
    let summary = store.dataset(RAW).unwrap().unwrap();
    assert_eq!((summary.files, summary.events, summary.lumis), (3, 10 + (1 << 33), 6));
    assert_eq!((summary.size, summary.blocks, summary.invalid_files), (2 << 40, 0, 0));
    assert_eq!(summary.sites, [("T2_A".to_owned(), 2)].into());

    store.add_dataset_files("/A/C/RAW", &[plain("/d")], ADA, NOW).unwrap();
    store.add_dataset_files("/Z", &[], ADA, NOW).unwrap();
    let named = |pattern: Option<&str>| -> Vec<(String, u64)> {
        let found = store.datasets(pattern).unwrap();
        found.into_iter().map(|summary| (summary.name, summary.files)).collect()
    };
    let (b, c) = ((RAW.to_owned(), 3), ("/A/C/RAW".to_owned(), 1));
    assert_eq!(named(None), [b, c.clone(), ("/Z".to_owned(), 0)]);
    assert_eq!(named(Some("/a/c*")), [c]);
    assert_eq!(store.dataset("/nothing").unwrap(), None);
    assert!(store.dataset_files("/nothing", true).unwrap_err().is_missing());
}

pub(crate) fn readded_file_is_updated(store: &dyn StoreDatabase) {
    store.add_dataset_files(RAW, &[file("/a", 1), file("/b", 2)], ADA, NOW).unwrap();
    store.invalidate_files(&["/b".into()]).unwrap();
    let mut again = file("/b", 20);
    again.replicas = [("T2_B".to_owned(), "/elsewhere".to_owned())].into();
    let twice = [file("/c", 1), again.clone(), file("/c", 3)];
    assert_eq!(store.add_dataset_files(RAW, &twice, ADA, LATER).unwrap(), counts(1, 1));
    assert_eq!(store.add_dataset_files(RAW, &twice, ADA, LATER).unwrap(), counts(0, 0));
    again.replicas.extend(file("/b", 20).replicas);
    assert_eq!(store.dataset_files(RAW, true).unwrap(), [file("/a", 1), again, file("/c", 3)]);

    let other = store.add_dataset_files("/other", &[plain("/new"), plain("/a")], ADA, LATER).unwrap_err();
    assert!(matches!(&other, StoreError::NameTaken { name, .. } if name == "/a"), "{other}");
    assert_eq!(store.dataset("/other").unwrap(), None, "all or none");
    let too_large = CatalogFile { events: u64::MAX, ..plain("/x") };
    assert!(matches!(
        store.add_dataset_files(RAW, &[too_large], ADA, NOW),
        Err(StoreError::OutOfRange { .. })
    ));
}

pub(crate) fn only_files_that_differ_count_as_changed(store: &dyn StoreDatabase) {
    let files = [file("/a", 1), file("/b", 2), file("/c", 3)];
    assert_eq!(store.add_dataset_files(RAW, &files, ADA, NOW).unwrap(), counts(3, 0));
    let elsewhere = CatalogFile { replicas: [("T2_B".to_owned(), "/a".to_owned())].into(), ..file("/a", 1) };
    let other_sum =
        CatalogFile { checksums: [("adler32".to_owned(), "ad1".to_owned())].into(), ..file("/b", 2) };
    let added = store.add_dataset_files(RAW, &[elsewhere, other_sum, file("/c", 3), plain("/d")], ADA, LATER);
    assert_eq!(added.unwrap(), counts(1, 1));
    store.invalidate_files(&["/c".into()]).unwrap();
    assert_eq!(store.add_dataset_files(RAW, &[file("/c", 3)], ADA, LATER).unwrap(), counts(0, 1));
}

pub(crate) fn replicas_are_added_and_removed(store: &dyn StoreDatabase) {
    store.add_dataset_files(RAW, &[plain("/a"), plain("/b")], ADA, NOW).unwrap();
    let replica = |lfn: &str, site: &str, path: &str| CatalogReplica {
        lfn: lfn.into(),
        site: site.into(),
        path: path.into(),
    };
    store
        .add_replicas(&[replica("/a", "X", "/1"), replica("/b", "X", "/2"), replica("/b", "Y", "/3")])
        .unwrap();
    store.add_replicas(&[replica("/a", "X", "/4"), replica("/b", "X", "/2")]).unwrap();
    let where_is = |n: usize| -> Vec<(String, String)> {
        store.dataset_files(RAW, true).unwrap()[n].replicas.clone().into_iter().collect()
    };
    let at = |site: &str, path: &str| (site.to_owned(), path.to_owned());
    assert_eq!((where_is(0), where_is(1)), (vec![at("X", "/4")], vec![at("X", "/2"), at("Y", "/3")]));
    assert!(
        store.add_replicas(&[replica("/b", "Z", "/"), replica("/no", "X", "/")]).unwrap_err().is_missing()
    );
    assert_eq!(store.remove_replicas("X", &["/a".into(), "/b".into(), "/no".into()]).unwrap(), 2);
    assert_eq!(store.remove_replicas("X", &["/a".into()]).unwrap(), 0);
    assert_eq!((where_is(0), where_is(1)), (vec![], vec![at("Y", "/3")]));
}

pub(crate) fn invalidated_files_are_omitted(store: &dyn StoreDatabase) {
    store.add_dataset_files(RAW, &[file("/a", 1), file("/b", 2), file("/c", 4)], ADA, NOW).unwrap();
    assert_eq!(store.invalidate_files(&["/b".into(), "/no".into()]).unwrap(), 1);
    assert_eq!(store.invalidate_files(&["/b".into()]).unwrap(), 0);
    assert_eq!(store.dataset_files(RAW, true).unwrap(), [file("/a", 1), file("/c", 4)]);
    assert_eq!(store.dataset_files(RAW, false).unwrap().len(), 3);
    let summary = store.dataset(RAW).unwrap().unwrap();
    assert_eq!((summary.files, summary.events, summary.invalid_files), (2, 5, 1));
}

pub(crate) fn dataset_files_are_paged(store: &dyn StoreDatabase) {
    let files: Vec<CatalogFile> = (0..7).map(|n| file(&format!("/{n}"), n)).collect();
    store.add_dataset_files("/other/A/RAW", &[plain("/x")], ADA, NOW).unwrap();
    store.add_dataset_files(RAW, &files, ADA, NOW).unwrap();
    store.invalidate_files(&["/1".into()]).unwrap();
    let page = |only_valid, offset, limit| store.list_dataset_files(RAW, only_valid, offset, limit).unwrap();
    assert_eq!(page(false, 0, 3), (files[..3].to_vec(), 7), "with their replicas");
    assert_eq!(page(false, 5, 100), (files[5..].to_vec(), 7));
    assert_eq!(page(true, 1, 2), (files[2..4].to_vec(), 6), "invalid files do not count");
    assert_eq!(page(true, 6, u64::MAX), (Vec::new(), 6));
    assert!(store.list_dataset_files("/no/such/RAW", true, 0, 1).unwrap_err().is_missing());
}

pub(crate) fn block_is_opened_filled_and_closed_once(store: &dyn StoreDatabase) {
    let (dataset, name) = ("/A/B/RECO", "/A/B/RECO#1");
    assert!(store.register_files(name, &[]).unwrap_err().is_missing());
    store.open_block(dataset, name, NOW).unwrap();
    store.open_block(dataset, name, LATER).unwrap();
    let elsewhere = store.open_block("/other", name, NOW).unwrap_err();
    assert!(matches!(elsewhere, StoreError::NameTaken { .. }), "{elsewhere}");
    let files = [file("/a", 1), file("/b", 2)];
    assert_eq!(store.register_files(name, &files[..1]).unwrap(), 1);
    assert_eq!(store.register_files(name, &files).unwrap(), 1);
    assert_eq!(store.register_files(name, &files).unwrap(), 0);
    store.open_block(dataset, "/A/B/RECO#2", NOW).unwrap();
    let taken = store.register_files("/A/B/RECO#2", &[plain("/new"), plain("/a")]).unwrap_err();
    assert!(matches!(&taken, StoreError::NameTaken { name, .. } if name == "/a"), "{taken}");

    store.close_block(name, LATER).unwrap();
    store.close_block(name, NOW).unwrap();
    store.open_block(dataset, name, NOW).unwrap();
    assert_eq!(store.register_files(name, &files).unwrap(), 0, "they already are in it");
    let closed = store.register_files(name, &[plain("/new")]).unwrap_err();
    assert!(matches!(&closed, StoreError::Unexpected { found, .. } if found.contains("/new")), "{closed}");
    let block = store.catalog_block(name).unwrap().unwrap();
    assert_eq!((block.is_open, block.closed_at, block.files, block.created_at), (false, Some(LATER), 2, NOW));
    assert_eq!(block.dataset, dataset);
    let blocks: Vec<_> =
        store.catalog_blocks(dataset).unwrap().into_iter().map(|block| (block.name, block.files)).collect();
    assert_eq!(blocks, [(name.to_owned(), 2), ("/A/B/RECO#2".to_owned(), 0)]);
    assert_eq!(store.block_files(name, true).unwrap(), files);
    assert_eq!(store.dataset(dataset).unwrap().unwrap().blocks, 2);
    assert!(store.close_block("/no", NOW).unwrap_err().is_missing());
    let operator = DatasetEditor::with_full_access("op");
    assert!(store.delete_dataset(dataset, operator, LATER).unwrap());
    assert!(!store.delete_dataset(dataset, operator, LATER).unwrap());
    assert_eq!(store.catalog_block(name).unwrap(), None);
    assert_eq!(store.add_dataset_files("/other", &files, ADA, NOW).unwrap(), counts(2, 0));
}

pub(crate) fn only_owner_and_operators_change_a_dataset(store: &dyn StoreDatabase) {
    let eve = DatasetEditor { user: "eve", may_change_others: false };
    let operator = DatasetEditor::with_full_access("op");
    let owner = |dataset: &str| store.dataset(dataset).unwrap().unwrap().owner;
    let is_refused = |outcome: Result<AddedFiles, StoreError>, expected: Option<&str>| {
        let error = outcome.unwrap_err();
        assert!(
            matches!(&error, StoreError::NotOwner { owner, .. } if owner.as_deref() == expected),
            "{error}"
        );
    };
    store.add_dataset_files(RAW, &[file("/a", 1)], ADA, NOW).unwrap();
    let mut hers = file("/a", 7);
    hers.replicas = [("T2_A".to_owned(), "/of/eve".to_owned())].into();
    is_refused(store.add_dataset_files(RAW, &[hers, plain("/b")], eve, LATER), Some("ada"));
    assert!(matches!(store.delete_dataset(RAW, eve, LATER).unwrap_err(), StoreError::NotOwner { .. }));
    assert_eq!(store.dataset_files(RAW, false).unwrap(), [file("/a", 1)], "nothing was changed");
    store.add_dataset_files(RAW, &[file("/b", 2)], operator, LATER).unwrap();
    store.add_dataset_files(RAW, &[file("/b", 3)], ADA, LATER).unwrap();
    assert_eq!(owner(RAW).as_deref(), Some("ada"), "the owner stays the same");
    // The owner of a dataset that a request writes is known before the dataset exists.
    let mut request = super::requests::sample_request("r");
    request.output_datasets = vec!["/A/Out/RECO".into()];
    store.add_request(&request, windlass_types::requests::RequestStatus::Submitted, "ada", NOW).unwrap();
    is_refused(store.add_dataset_files("/A/Out/RECO", &[plain("/x")], eve, NOW), Some("ada"));
    store.open_block("/A/Out/RECO", "/A/Out/RECO#1", NOW).unwrap();
    is_refused(store.add_dataset_files("/A/Out/RECO", &[plain("/x")], eve, NOW), Some("ada"));
    // A dataset without a known owner.
    store.open_block("/A/Old/RECO", "/A/Old/RECO#1", NOW).unwrap();
    is_refused(store.add_dataset_files("/A/Old/RECO", &[plain("/y")], ADA, NOW), None);
    store.add_dataset_files("/A/Old/RECO", &[plain("/y")], operator, NOW).unwrap();
    assert!(store.delete_dataset(RAW, ADA, LATER).unwrap());

    let filter = EventFilter { category: Some("catalog".to_owned()), ..EventFilter::default() };
    let told: Vec<(String, String)> =
        store.events(None, &filter).unwrap().into_iter().map(|event| (event.actor, event.message)).collect();
    let told: Vec<(&str, &str)> = told.iter().map(|(by, what)| (by.as_str(), what.as_str())).collect();
    assert_eq!(
        told,
        [
            ("ada", "added 1 and changed 0 files of dataset /A/B/RAW"),
            ("op", "added 1 and changed 0 files of dataset /A/B/RAW"),
            ("ada", "added 0 and changed 1 files of dataset /A/B/RAW"),
            ("op", "added 1 and changed 0 files of dataset /A/Old/RECO"),
            ("ada", "deleted dataset /A/B/RAW"),
        ]
    );
}

pub(crate) fn replication_rule_is_created_once(store: &dyn StoreDatabase) {
    let rule = |site: &str, copies| NewReplicationRule {
        name: "/A/B/RECO#1".into(),
        rse_expression: site.into(),
        copies,
        lifetime: Some(3600),
        comment: None,
    };
    let first = store.add_rule(&rule("T2_A", 1), NOW).unwrap();
    assert_eq!(first.len(), 32);
    assert_eq!(
        store.add_rule(&NewReplicationRule { lifetime: None, ..rule("T2_A", 1) }, LATER).unwrap(),
        first
    );
    let second = store.add_rule(&rule("T2_A", 2), LATER).unwrap();
    assert_ne!(second, first);
    let rules = store.rules(Some("/A/B/RECO#1")).unwrap();
    assert_eq!((rules.len(), &rules[0].id, &rules[0].rule), (2, &first, &rule("T2_A", 1)));
    assert_eq!(store.rules(Some("/other")).unwrap(), []);
    assert!(store.delete_rule(&first).unwrap());
    assert!(!store.delete_rule(&first).unwrap());
    assert_eq!(store.rules(None).unwrap().len(), 1);
    assert_ne!(store.add_rule(&rule("T2_A", 1), NOW).unwrap(), first);
}
