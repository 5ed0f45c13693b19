//! Files of datasets, many at once, and where they are.

use super::{FoundBlock, add_dataset, find_own, lumis, note};
use crate::books::column::{self, json_text};
use crate::books::requests::number;
use crate::db::{Db, Loader as _, Row, values};
use crate::error::Fault;
use crate::sql::datasets as sql;
use crate::{DatasetWriter, Error};
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use windlass_types::Timestamp;
use windlass_types::catalog::{CatalogFile, Replica};

/// Names that are looked up together.
const AT_ONCE: usize = 10_000;

/// A file that is there.
#[derive(Clone, Copy)]
struct Found {
    id: i64,
    dataset: i64,
    block: Option<i64>,
}

/// By place; `None` where there is none.
fn find<'n>(db: &impl Db, names: impl Iterator<Item = &'n str>) -> Result<Vec<Option<Found>>, Fault> {
    let names: Vec<&str> = names.collect();
    let mut found = Vec::with_capacity(names.len());
    for some in names.chunks(AT_ONCE) {
        let first = found.len();
        found.resize(first + some.len(), None);
        db.for_each_named(sql::FILE_NAMED, some, |place, row| {
            let file = Found { id: row.get(0)?, dataset: row.get(1)?, block: row.get(2)? };
            found[first + place] = Some(file);
            Ok(())
        })?;
    }
    Ok(found)
}

/// Only the last of several with the same name counts.
fn without_repeats(files: &[CatalogFile]) -> Vec<&CatalogFile> {
    let mut seen = HashSet::with_capacity(files.len());
    let mut kept: Vec<&CatalogFile> = files.iter().rev().filter(|file| seen.insert(&file.lfn)).collect();
    kept.reverse();
    kept
}

pub(super) fn add(
    db: &impl Db,
    name: &str,
    files: &[CatalogFile],
    by: DatasetWriter<'_>,
    now: Timestamp,
) -> Result<u64, Fault> {
    let found = find_own(db, name, by)?;
    let is_new = found.is_none();
    let dataset = match found {
        Some(dataset) => dataset,
        None => add_dataset(db, name, Some(by.user), now)?,
    };
    let files = without_repeats(files);
    let found = find(db, files.iter().map(|file| file.lfn.as_str()))?;
    let (mut new, mut known) = (Vec::new(), Vec::new());
    for (file, found) in files.into_iter().zip(found) {
        match found {
            None => new.push(file),
            Some(found) if found.dataset == dataset => known.push((found.id, file)),
            Some(found) => return Err(elsewhere(db, file, found)?),
        }
    }
    insert(db, dataset, None, &new)?;
    update(db, dataset, &known)?;
    let (added, changed) = (new.len() as u64, known.len() as u64);
    if is_new || added + changed > 0 {
        let message = format!("added {added} files to dataset {name} and changed {changed}");
        let data = json!({ "dataset": name, "added": added, "changed": changed, "is_new": is_new });
        note(db, by, now, message, data)?;
    }
    Ok(added)
}

fn elsewhere(db: &impl Db, file: &CatalogFile, found: Found) -> Result<Fault, Fault> {
    let owner: String = db.one(sql::NAME_OF_DATASET, [found.dataset], |row| row.get(0))?;
    Ok(Error::NameTaken { what: format!("a file of dataset {owner}").into(), name: file.lfn.clone() }.into())
}

pub(super) fn register(
    db: &impl Db,
    name: &str,
    block: &FoundBlock,
    files: &[CatalogFile],
) -> Result<u64, Fault> {
    let files = without_repeats(files);
    let found = find(db, files.iter().map(|file| file.lfn.as_str()))?;
    let mut new = Vec::new();
    for (file, found) in files.into_iter().zip(found) {
        match found {
            None => new.push(file),
            Some(found) if found.block == Some(block.id) => {}
            Some(found) => return Err(elsewhere(db, file, found)?),
        }
    }
    if let Some(first) = new.first()
        && !block.is_open
    {
        let what = format!("block {name}");
        let found = format!("is closed; file {} is not in it", first.lfn);
        return Err(Error::Unexpected { what, expected: "open".into(), found }.into());
    }
    insert(db, block.dataset, Some(block.id), &new)?;
    Ok(new.len() as u64)
}

/// The columns that say what a file is.
struct Texts {
    size: i64,
    events: i64,
    lumi_count: i64,
    checksums: Option<String>,
    parents: Option<String>,
    lumis: Option<String>,
}

impl Texts {
    fn of(file: &CatalogFile) -> Result<Self, Fault> {
        let json = |is_empty: bool, text: Result<String, Error>| {
            if is_empty { Ok(None) } else { text.map(Some) }
        };
        Ok(Self {
            size: number("the size of a file of", file.size)?,
            events: number("the number of events of a file of", file.events)?,
            lumi_count: number("the number of lumis of a file of", file.lumis.len() as u64)?,
            checksums: json(file.checksums.is_empty(), json_text(&file.checksums))?,
            parents: json(file.parents.is_empty(), json_text(&file.parents))?,
            lumis: lumis::write(&file.lumis),
        })
    }
}

/// Nobody else writes meanwhile, so ids are simply counted on.
fn insert(db: &impl Db, dataset: i64, block: Option<i64>, files: &[&CatalogFile]) -> Result<(), Fault> {
    if files.is_empty() {
        return Ok(());
    }
    let last: i64 = db.one(sql::LAST_FILE, values![], |row| row.get(0))?;
    let mut rows = db.load_into(&sql::FILES)?;
    for (id, file) in (last + 1..).zip(files) {
        let Texts { size, events, lumi_count, checksums, parents, lumis } = Texts::of(file)?;
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
    let mut rows = db.load_into(&sql::REPLICAS)?;
    for (id, file) in (last + 1..).zip(files) {
        for (site, path) in &file.replicas {
            rows.push(&values![dataset, id, site, path])?;
        }
    }
    rows.finish()
}

fn update(db: &impl Db, dataset: i64, files: &[(i64, &CatalogFile)]) -> Result<(), Fault> {
    db.pipeline(|line| {
        for &(id, file) in files {
            let Texts { size, events, lumi_count, checksums, parents, lumis } = Texts::of(file)?;
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
pub(super) fn all(
    db: &impl Db,
    files: &str,
    replicas: &str,
    id: i64,
    only_valid: bool,
) -> Result<Vec<CatalogFile>, Fault> {
    let (mut found, mut ids) = (Vec::new(), Vec::new());
    db.for_each(files, [id], |row| {
        if only_valid && !row.get::<bool>(7)? {
            return Ok(());
        }
        ids.push(row.get::<i64>(0)?);
        found.push(file_row(row)?);
        Ok(())
    })?;
    place(db, replicas, [id], &ids, &mut found)?;
    Ok(found)
}

/// Some of a dataset, in the order of their ids, and how many there are without offset and limit.
pub(super) fn page(
    db: &impl Db,
    dataset: i64,
    only_valid: bool,
    offset: u64,
    limit: u64,
) -> Result<(Vec<CatalogFile>, u64), Fault> {
    let least = i64::from(only_valid);
    let total = db.one(sql::COUNT_OF_FILES, [dataset, least], |row| super::natural(row, 0))?;
    let [offset, limit] = [offset, limit].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    let (mut found, mut ids) = (Vec::new(), Vec::new());
    db.for_each(sql::PAGE_OF_FILES, [dataset, least, limit, offset], |row| {
        ids.push(row.get::<i64>(0)?);
        found.push(file_row(row)?);
        Ok(())
    })?;
    if let (Some(&first), Some(&last)) = (ids.first(), ids.last()) {
        place(db, sql::REPLICAS_OF_PAGE, [dataset, first, last], &ids, &mut found)?;
    }
    Ok((found, total))
}

/// Replicas come in the order of the files, and are handed out on the way.
fn place<const N: usize>(
    db: &impl Db,
    replicas: &str,
    values: [i64; N],
    ids: &[i64],
    found: &mut [CatalogFile],
) -> Result<(), Fault> {
    let mut place = 0;
    db.for_each(replicas, values, |row| {
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

fn file_row(row: &Row<'_>) -> Result<CatalogFile, Fault> {
    let count = super::natural(row, 8)?;
    let lumis = row.text(6)?.map_or_else(
        || Some(Vec::new()),
        |text| lumis::read(text, usize::try_from(count).unwrap_or(usize::MAX)),
    );
    Ok(CatalogFile {
        lfn: row.get(1)?,
        size: super::natural(row, 2)?,
        events: super::natural(row, 3)?,
        checksums: column::json(row, 4)?.unwrap_or_default(),
        parents: column::json(row, 5)?.unwrap_or_default(),
        lumis: lumis.ok_or_else(|| row.wrong(6, "no lumis"))?,
        replicas: BTreeMap::new(),
    })
}

pub(super) fn add_replicas(db: &impl Db, replicas: &[Replica]) -> Result<(), Fault> {
    let found = find(db, replicas.iter().map(|replica| replica.lfn.as_str()))?;
    let missing = replicas.iter().zip(&found).find(|(_, found)| found.is_none());
    if let Some((replica, _)) = missing {
        return Err(Error::NoSuchName { what: "file".into(), name: replica.lfn.clone() }.into());
    }
    db.pipeline(|line| {
        for (replica, found) in replicas.iter().zip(found) {
            if let Some(Found { id, dataset, .. }) = found {
                let values = values![dataset, id, replica.site, replica.path];
                line.send_row(0, None, sql::PUT_REPLICA, &values)?;
            }
        }
        Ok(())
    })
}

pub(super) fn remove_replicas(db: &impl Db, site: &str, lfns: &[String]) -> Result<u64, Fault> {
    let mut removed = 0;
    for file in find(db, lfns.iter().map(String::as_str))?.into_iter().flatten() {
        removed += db.execute(sql::REMOVE_REPLICA, values![file.dataset, file.id, site])?;
    }
    Ok(removed as u64)
}

pub(super) fn invalidate(db: &impl Db, lfns: &[String]) -> Result<u64, Fault> {
    let mut invalidated = 0;
    for file in find(db, lfns.iter().map(String::as_str))?.into_iter().flatten() {
        invalidated += db.execute(sql::INVALIDATE_FILE, [file.id])?;
    }
    Ok(invalidated as u64)
}
