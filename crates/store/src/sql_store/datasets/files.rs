//! Files of datasets and their replicas, in bulk.

use super::{FoundBlock, add_dataset, find_changeable_dataset, lumis, record_dataset_event};
use crate::db::{BulkLoader as _, SqlConnection, SqlRow, values};
use crate::error::SqlError;
use crate::sql::datasets as sql;
use crate::sql_store::column_decoding::{self, render_json};
use crate::sql_store::requests::to_signed;
use crate::{AddedFiles, DatasetEditor, StoreError};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use windlass_types::Timestamp;
use windlass_types::catalog::{CatalogFile, CatalogReplica};

/// Number of names per query.
const NAMES_PER_LOOKUP: usize = 10_000;

/// An existing file.
#[derive(Clone, Copy)]
struct FoundFile {
    id: i64,
    dataset: i64,
    block: Option<i64>,
}

/// By index; `None` if it does not exist.
fn find_files<'n>(
    db: &impl SqlConnection,
    names: impl Iterator<Item = &'n str>,
) -> Result<Vec<Option<FoundFile>>, SqlError> {
    let names: Vec<&str> = names.collect();
    let mut found = Vec::with_capacity(names.len());
    for some in names.chunks(NAMES_PER_LOOKUP) {
        let first = found.len();
        found.resize(first + some.len(), None);
        db.for_each_text_key(sql::FILE_NAMED, some, |place, row| {
            let file = FoundFile { id: row.get(0)?, dataset: row.get(1)?, block: row.get(2)? };
            found[first + place] = Some(file);
            Ok(())
        })?;
    }
    Ok(found)
}

/// Of several files with the same name only the last one is used.
fn last_of_each_name(files: &[CatalogFile]) -> Vec<&CatalogFile> {
    let mut seen = HashSet::with_capacity(files.len());
    let mut kept: Vec<&CatalogFile> = files.iter().rev().filter(|file| seen.insert(&file.lfn)).collect();
    kept.reverse();
    kept
}

pub(super) fn add_files(
    db: &impl SqlConnection,
    name: &str,
    files: &[CatalogFile],
    by: DatasetEditor<'_>,
    now: Timestamp,
) -> Result<AddedFiles, SqlError> {
    let found = find_changeable_dataset(db, name, by)?;
    let is_new = found.is_none();
    let dataset = match found {
        Some(dataset) => dataset,
        None => add_dataset(db, name, Some(by.user), now)?,
    };
    let files = last_of_each_name(files);
    let found = find_files(db, files.iter().map(|file| file.lfn.as_str()))?;
    let (mut new, mut known) = (Vec::new(), Vec::new());
    for (file, found) in files.into_iter().zip(found) {
        match found {
            None => new.push(file),
            Some(found) if found.dataset == dataset => known.push((found.id, file)),
            Some(found) => return Err(other_dataset_error(db, file, found)?),
        }
    }
    let (added, changed) = (new.len() as u64, count_changed_files(db, &known)?);
    insert_files(db, dataset, None, &new)?;
    update_files(db, dataset, &known)?;
    if is_new || !new.is_empty() || !known.is_empty() {
        let message = format!("added {added} and changed {changed} files of dataset {name}");
        let data = json!({ "dataset": name, "added": added, "changed": changed, "is_new": is_new });
        record_dataset_event(db, by, now, message, data)?;
    }
    Ok(AddedFiles { added, changed })
}

/// How many of these files are stored with other properties, or as invalid. Replicas do not count.
fn count_changed_files(db: &impl SqlConnection, known: &[(i64, &CatalogFile)]) -> Result<u64, SqlError> {
    let mut changed = 0;
    for some in known.chunks(NAMES_PER_LOOKUP) {
        let names: Vec<&str> = some.iter().map(|(_, file)| file.lfn.as_str()).collect();
        db.for_each_text_key(sql::CONTENT_OF_FILE, &names, |place, row| {
            let new = CatalogFile { replicas: BTreeMap::new(), ..some[place].1.clone() };
            changed += u64::from(!row.get::<bool>(7)? || read_file_row(row)? != new);
            Ok(())
        })?;
    }
    Ok(changed)
}

fn other_dataset_error(
    db: &impl SqlConnection,
    file: &CatalogFile,
    found: FoundFile,
) -> Result<SqlError, SqlError> {
    let owner: String = db.query_one(sql::NAME_OF_DATASET, [found.dataset], |row| row.get(0))?;
    Ok(StoreError::NameTaken { what: format!("a file of dataset {owner}").into(), name: file.lfn.clone() }
        .into())
}

pub(super) fn register_files(
    db: &impl SqlConnection,
    name: &str,
    block: &FoundBlock,
    files: &[CatalogFile],
) -> Result<u64, SqlError> {
    let files = last_of_each_name(files);
    let found = find_files(db, files.iter().map(|file| file.lfn.as_str()))?;
    let mut new = Vec::new();
    for (file, found) in files.into_iter().zip(found) {
        match found {
            None => new.push(file),
            Some(found) if found.block == Some(block.id) => {}
            Some(found) => return Err(other_dataset_error(db, file, found)?),
        }
    }
    if let Some(first) = new.first()
        && !block.is_open
    {
        let what = format!("block {name}");
        let found = format!("is closed and does not contain file {}", first.lfn);
        return Err(StoreError::Unexpected { what, expected: "open".into(), found }.into());
    }
    insert_files(db, block.dataset, Some(block.id), &new)?;
    Ok(new.len() as u64)
}

/// The columns with the properties of a file.
struct FileColumns {
    size: i64,
    events: i64,
    lumi_count: i64,
    checksums: Option<String>,
    parents: Option<String>,
    lumis: Option<String>,
}

impl FileColumns {
    fn from_file(file: &CatalogFile) -> Result<Self, SqlError> {
        let json = |is_empty: bool, text: Result<String, StoreError>| {
            if is_empty { Ok(None) } else { text.map(Some) }
        };
        Ok(Self {
            size: to_signed("size of a file of", file.size)?,
            events: to_signed("number of events of a file of", file.events)?,
            lumi_count: to_signed("number of lumis of a file of", file.lumis.len() as u64)?,
            checksums: json(file.checksums.is_empty(), render_json(&file.checksums))?,
            parents: json(file.parents.is_empty(), render_json(&file.parents))?,
            lumis: lumis::render_lumis(&file.lumis),
        })
    }
}

/// No other writer is active, so ids are counted up.
fn insert_files(
    db: &impl SqlConnection,
    dataset: i64,
    block: Option<i64>,
    files: &[&CatalogFile],
) -> Result<(), SqlError> {
    if files.is_empty() {
        return Ok(());
    }
    let last: i64 = db.query_one(sql::LAST_FILE, values![], |row| row.get(0))?;
    let mut rows = db.open_loader(&sql::FILES)?;
    for (id, file) in (last + 1..).zip(files) {
        let FileColumns { size, events, lumi_count, checksums, parents, lumis } =
            FileColumns::from_file(file)?;
        rows.push(&values![
            id,
            dataset,
            block,
            file.lfn,
            size,
            events,
            1_i64,
            lumi_count,
            checksums.as_deref(),
            parents.as_deref(),
            lumis.as_deref(),
        ])?;
    }
    rows.finish()?;
    let mut rows = db.open_loader(&sql::REPLICAS)?;
    for (id, file) in (last + 1..).zip(files) {
        for (site, path) in &file.replicas {
            rows.push(&values![dataset, id, site, path])?;
        }
    }
    rows.finish()
}

fn update_files(
    db: &impl SqlConnection,
    dataset: i64,
    files: &[(i64, &CatalogFile)],
) -> Result<(), SqlError> {
    db.pipeline(|line| {
        for &(id, file) in files {
            let FileColumns { size, events, lumi_count, checksums, parents, lumis } =
                FileColumns::from_file(file)?;
            let values = values![
                size,
                events,
                1_i64,
                lumi_count,
                checksums.as_deref(),
                parents.as_deref(),
                lumis.as_deref(),
                id,
            ];
            line.send_row(0, None, sql::UPDATE_FILE, &values)?;
            for (site, path) in &file.replicas {
                line.send_row(0, None, sql::PUT_REPLICA, &values![dataset, id, site, path])?;
            }
        }
        Ok(())
    })
}

/// In the order of their ids.
pub(super) fn load_files(
    db: &impl SqlConnection,
    files: &str,
    replicas: &str,
    id: i64,
    only_valid: bool,
) -> Result<Vec<CatalogFile>, SqlError> {
    let (mut found, mut ids) = (Vec::new(), Vec::new());
    db.query_each(files, [id], |row| {
        if only_valid && !row.get::<bool>(7)? {
            return Ok(());
        }
        ids.push(row.get::<i64>(0)?);
        found.push(read_file_row(row)?);
        Ok(())
    })?;
    attach_replicas(db, replicas, [id], &ids, &mut found)?;
    Ok(found)
}

/// A page of the files of a dataset, in the order of their ids, and their total number.
pub(super) fn load_file_page(
    db: &impl SqlConnection,
    dataset: i64,
    only_valid: bool,
    offset: u64,
    limit: u64,
) -> Result<(Vec<CatalogFile>, u64), SqlError> {
    let least = i64::from(only_valid);
    let total = db.query_one(sql::COUNT_OF_FILES, [dataset, least], |row| super::read_unsigned(row, 0))?;
    let [offset, limit] = [offset, limit].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    let (mut found, mut ids) = (Vec::new(), Vec::new());
    db.query_each(sql::PAGE_OF_FILES, [dataset, least, limit, offset], |row| {
        ids.push(row.get::<i64>(0)?);
        found.push(read_file_row(row)?);
        Ok(())
    })?;
    if let (Some(&first), Some(&last)) = (ids.first(), ids.last()) {
        attach_replicas(db, sql::REPLICAS_OF_PAGE, [dataset, first, last], &ids, &mut found)?;
    }
    Ok((found, total))
}

/// Replicas are read in the order of the files and distributed to them.
fn attach_replicas<const N: usize>(
    db: &impl SqlConnection,
    replicas: &str,
    values: [i64; N],
    ids: &[i64],
    found: &mut [CatalogFile],
) -> Result<(), SqlError> {
    let mut place = 0;
    db.query_each(replicas, values, |row| {
        let file: i64 = row.get(0)?;
        while ids.get(place).is_some_and(|id| *id < file) {
            place += 1;
        }
        if ids.get(place) == Some(&file) {
            found[place].replicas.insert(row.get(1)?, row.get(2)?);
        }
        Ok(())
    })
}

fn read_file_row(row: &SqlRow<'_>) -> Result<CatalogFile, SqlError> {
    let count = super::read_unsigned(row, 8)?;
    let lumis = row.get_text(6)?.map_or_else(
        || Some(Vec::new()),
        |text| lumis::parse_lumis(text, usize::try_from(count).unwrap_or(usize::MAX)),
    );
    Ok(CatalogFile {
        lfn: row.get(1)?,
        size: super::read_unsigned(row, 2)?,
        events: super::read_unsigned(row, 3)?,
        checksums: column_decoding::read_json(row, 4)?.unwrap_or_default(),
        parents: column_decoding::read_json(row, 5)?.unwrap_or_default(),
        lumis: lumis.ok_or_else(|| row.conversion_error(6, "no lumis"))?,
        replicas: BTreeMap::new(),
    })
}

pub(super) fn add_replicas(db: &impl SqlConnection, replicas: &[CatalogReplica]) -> Result<(), SqlError> {
    let found = find_files(db, replicas.iter().map(|replica| replica.lfn.as_str()))?;
    let missing = replicas.iter().zip(&found).find(|(_, found)| found.is_none());
    if let Some((replica, _)) = missing {
        return Err(StoreError::NoSuchName { what: "file".into(), name: replica.lfn.clone() }.into());
    }
    db.pipeline(|line| {
        for (replica, found) in replicas.iter().zip(found) {
            if let Some(FoundFile { id, dataset, .. }) = found {
                let values = values![dataset, id, replica.site, replica.path];
                line.send_row(0, None, sql::PUT_REPLICA, &values)?;
            }
        }
        Ok(())
    })
}

pub(super) fn remove_replicas(db: &impl SqlConnection, site: &str, lfns: &[String]) -> Result<u64, SqlError> {
    let mut removed = 0;
    for file in find_files(db, lfns.iter().map(String::as_str))?.into_iter().flatten() {
        removed += db.execute(sql::REMOVE_REPLICA, values![file.dataset, file.id, site])?;
    }
    Ok(removed as u64)
}

pub(super) fn invalidate_files(db: &impl SqlConnection, lfns: &[String]) -> Result<u64, SqlError> {
    let mut invalidated = 0;
    for file in find_files(db, lfns.iter().map(String::as_str))?.into_iter().flatten() {
        invalidated += db.execute(sql::INVALIDATE_FILE, [file.id])?;
    }
    Ok(invalidated as u64)
}
