//! [`Datasets`] on a database: blocks and rules; files are in [`files`], their lumis in [`lumis`].

mod files;
mod lumis;

use super::query::Query;
use super::requests::{natural, number};
use super::{Backend, Books, column, events};
use crate::db::{Db, Row, values};
use crate::error::Fault;
use crate::model::{NewEvent, Severity};
use crate::sql::datasets as sql;
use crate::{DatasetWriter, Datasets, Error};
use serde_json::{Value, json};
use windlass_types::Timestamp;
use windlass_types::catalog::{CatalogBlock, CatalogFile, DatasetSummary, NewRule, Replica, Rule};

impl<B: Backend> Datasets for Books<B> {
    fn datasets(&self, pattern: Option<&str>) -> Result<Vec<DatasetSummary>, Error> {
        let mut query = Query::new(sql::SELECT_DATASETS, vec![]);
        match pattern {
            Some(pattern) => query.push_pattern("", "d.name", pattern),
            None => query.push("1 = 1", vec![]),
        }
        query.push(sql::GROUP_DATASETS, vec![]);
        self.read(|db| query.run(db, |row| Ok(summary(row)?.1)))
    }

    fn dataset(&self, name: &str) -> Result<Option<DatasetSummary>, Error> {
        self.read(|db| one(db, name))
    }

    /// As one large transaction: many files come at once, and may take a while.
    fn add_dataset_files(
        &self,
        dataset: &str,
        files: &[CatalogFile],
        by: DatasetWriter<'_>,
        now: Timestamp,
    ) -> Result<u64, Error> {
        self.backend.large(|db| files::add(db, dataset, files, by, now))
    }

    fn dataset_files(&self, dataset: &str, only_valid: bool) -> Result<Vec<CatalogFile>, Error> {
        self.read(|db| {
            let id = find(db, dataset)?.ok_or_else(|| no_dataset(dataset))?;
            files::all(db, sql::FILES_OF_DATASET, sql::REPLICAS_OF_DATASET, id, only_valid)
        })
    }

    fn page_of_dataset_files(
        &self,
        dataset: &str,
        only_valid: bool,
        offset: u64,
        limit: u64,
    ) -> Result<(Vec<CatalogFile>, u64), Error> {
        self.read(|db| {
            let id = find(db, dataset)?.ok_or_else(|| no_dataset(dataset))?;
            files::page(db, id, only_valid, offset, limit)
        })
    }

    fn delete_dataset(&self, dataset: &str, by: DatasetWriter<'_>, now: Timestamp) -> Result<bool, Error> {
        let (dataset, user, may_change_others) =
            (dataset.to_owned(), by.user.to_owned(), by.may_change_others);
        self.backend.write(move |db| {
            let by = DatasetWriter { user: &user, may_change_others };
            let Some(id) = find_own(db, &dataset, by)? else { return Ok(false) };
            for sql in sql::DELETE_DATASET {
                db.execute(sql, [id])?;
            }
            note(db, by, now, format!("forgot dataset {dataset}"), json!({ "dataset": dataset }))?;
            Ok(true)
        })
    }

    fn add_replicas(&self, replicas: &[Replica]) -> Result<(), Error> {
        let replicas = replicas.to_vec();
        self.backend.write(move |db| files::add_replicas(db, &replicas))
    }

    fn remove_replicas(&self, site: &str, lfns: &[String]) -> Result<u64, Error> {
        let (site, lfns) = (site.to_owned(), lfns.to_vec());
        self.backend.write(move |db| files::remove_replicas(db, &site, &lfns))
    }

    fn invalidate_files(&self, lfns: &[String]) -> Result<u64, Error> {
        let lfns = lfns.to_vec();
        self.backend.write(move |db| files::invalidate(db, &lfns))
    }

    fn open_block(&self, dataset: &str, block: &str, now: Timestamp) -> Result<(), Error> {
        let (dataset, block) = (dataset.to_owned(), block.to_owned());
        self.backend.write(move |db| open_block(db, &dataset, &block, now))
    }

    fn register_files(&self, block: &str, files: &[CatalogFile]) -> Result<u64, Error> {
        let (block, files) = (block.to_owned(), files.to_vec());
        self.backend.write(move |db| {
            let found = find_block(db, &block)?.ok_or_else(|| no_block(&block))?;
            files::register(db, &block, &found, &files)
        })
    }

    fn close_block(&self, block: &str, now: Timestamp) -> Result<(), Error> {
        let block = block.to_owned();
        self.backend.write(move |db| match db.execute(sql::CLOSE_BLOCK, values![now.0, block])? {
            0 => Err(no_block(&block)),
            _ => Ok(()),
        })
    }

    fn catalog_block(&self, block: &str) -> Result<Option<CatalogBlock>, Error> {
        self.read(|db| Ok(blocks(db, "b.name = ?", block)?.pop()))
    }

    fn catalog_blocks(&self, dataset: &str) -> Result<Vec<CatalogBlock>, Error> {
        self.read(|db| blocks(db, "d.name = ? ORDER BY b.id", dataset))
    }

    fn block_files(&self, block: &str, only_valid: bool) -> Result<Vec<CatalogFile>, Error> {
        self.read(|db| {
            let found = find_block(db, block)?.ok_or_else(|| no_block(block))?;
            files::all(db, sql::FILES_OF_BLOCK, sql::REPLICAS_OF_BLOCK, found.id, only_valid)
        })
    }

    fn add_rule(&self, rule: &NewRule, now: Timestamp) -> Result<String, Error> {
        let rule = rule.clone();
        self.backend.write(move |db| add_rule(db, &rule, now))
    }

    fn delete_rule(&self, id: &str) -> Result<bool, Error> {
        let id = id.to_owned();
        self.backend.write(move |db| Ok(db.execute(sql::DELETE_RULE, [&id])? > 0))
    }

    fn rules(&self, name: Option<&str>) -> Result<Vec<Rule>, Error> {
        let mut query = Query::new(sql::SELECT_RULES, vec![]);
        match name {
            Some(name) => query.push("r.name = ?", vec![Box::new(name.to_owned())]),
            None => query.push("1 = 1", vec![]),
        }
        query.push(" ORDER BY r.created_at, r.uuid", vec![]);
        self.read(|db| query.run(db, rule_row))
    }
}

fn no_dataset(name: &str) -> Fault {
    Error::NoSuchName { what: "dataset".into(), name: name.to_owned() }.into()
}

fn no_block(name: &str) -> Fault {
    Error::NoSuchName { what: "block".into(), name: name.to_owned() }.into()
}

fn find(db: &impl Db, dataset: &str) -> Result<Option<i64>, Fault> {
    db.optional(sql::DATASET, [dataset], |row| row.get(0))
}

/// Refused if it belongs to another user. `None`: there is none, and the user may make it.
fn find_own(db: &impl Db, dataset: &str, by: DatasetWriter<'_>) -> Result<Option<i64>, Fault> {
    let found = db.optional(sql::DATASET_AND_OWNER, [dataset], |row| {
        Ok((row.get::<i64>(0)?, row.get::<Option<String>>(1)?))
    })?;
    let (id, owner) = match found {
        Some((id, owner)) => (Some(id), owner),
        // Nobody else fills a dataset before the request that writes it.
        None => (None, owner_of_output(db, dataset)?),
    };
    let is_refused = match &owner {
        Some(owner) => owner != by.user,
        None => id.is_some(),
    };
    if is_refused && !by.may_change_others {
        return Err(Error::NotOwner { dataset: dataset.to_owned(), owner }.into());
    }
    Ok(id)
}

fn owner_of_output(db: &impl Db, dataset: &str) -> Result<Option<String>, Fault> {
    db.optional(sql::OWNER_OF_OUTPUT, [dataset], |row| row.get(0))
}

fn add_dataset(db: &impl Db, dataset: &str, owner: Option<&str>, now: Timestamp) -> Result<i64, Fault> {
    db.one(sql::INSERT_DATASET, values![dataset, now.0, owner], |row| row.get(0))
}

/// Notes a change of the catalog, in the transaction that makes it.
fn note(
    db: &impl Db,
    by: DatasetWriter<'_>,
    now: Timestamp,
    message: String,
    data: Value,
) -> Result<(), Fault> {
    let event = NewEvent {
        workflow: None,
        job: None,
        severity: Severity::Info,
        category: "catalog".to_owned(),
        message,
        data: Some(data),
    };
    events::note(db, by.user, &event, now)?;
    Ok(())
}

fn one(db: &impl Db, name: &str) -> Result<Option<DatasetSummary>, Fault> {
    let mut query = Query::new(sql::SELECT_DATASETS, vec![]);
    query.push("d.name = ?", vec![Box::new(name.to_owned())]);
    query.push(sql::GROUP_DATASETS, vec![]);
    let Some((id, mut summary)) = query.run(db, summary)?.pop() else { return Ok(None) };
    let sites = db.all(sql::SITES_OF_DATASET, [id], |row| Ok((row.get(0)?, natural(row, 1)?)))?;
    summary.sites = sites.into_iter().collect();
    Ok(Some(summary))
}

fn summary(row: &Row<'_>) -> Result<(i64, DatasetSummary), Fault> {
    // The sum of nothing is NULL.
    let sum = |index| row.get::<Option<i64>>(index).map(|sum| sum.unwrap_or_default().unsigned_abs());
    let summary = DatasetSummary {
        name: row.get(1)?,
        owner: row.get(8)?,
        files: natural(row, 2)?,
        events: sum(3)?,
        lumis: sum(4)?,
        size: sum(5)?,
        invalid_files: natural(row, 6)?,
        blocks: natural(row, 7)?,
        sites: std::collections::BTreeMap::new(),
    };
    Ok((row.get(0)?, summary))
}

struct FoundBlock {
    id: i64,
    dataset: i64,
    is_open: bool,
}

fn find_block(db: &impl Db, name: &str) -> Result<Option<FoundBlock>, Fault> {
    db.optional(sql::BLOCK, [name], |row| {
        Ok(FoundBlock { id: row.get(0)?, dataset: row.get(1)?, is_open: column::time(row, 2)?.is_none() })
    })
}

fn open_block(db: &impl Db, dataset: &str, block: &str, now: Timestamp) -> Result<(), Fault> {
    let dataset_id = match find(db, dataset)? {
        Some(id) => id,
        None => add_dataset(db, dataset, owner_of_output(db, dataset)?.as_deref(), now)?,
    };
    match find_block(db, block)? {
        Some(found) if found.dataset == dataset_id => Ok(()),
        Some(found) => {
            let owner: String = db.one(sql::NAME_OF_DATASET, [found.dataset], |row| row.get(0))?;
            Err(Error::NameTaken {
                what: format!("a block of dataset {owner}").into(),
                name: block.to_owned(),
            }
            .into())
        }
        None => db.execute(sql::INSERT_BLOCK, values![dataset_id, block, now.0]).map(|_| ()),
    }
}

fn blocks(db: &impl Db, condition: &str, name: &str) -> Result<Vec<CatalogBlock>, Fault> {
    let mut query = Query::new(sql::SELECT_BLOCKS, vec![]);
    query.push(condition, vec![Box::new(name.to_owned())]);
    query.run(db, |row| {
        let closed_at = column::time(row, 3)?;
        Ok(CatalogBlock {
            name: row.get(0)?,
            dataset: row.get(1)?,
            is_open: closed_at.is_none(),
            files: natural(row, 4)?,
            created_at: Timestamp(row.get(2)?),
            closed_at,
        })
    })
}

fn add_rule(db: &impl Db, rule: &NewRule, now: Timestamp) -> Result<String, Fault> {
    let NewRule { name, rse_expression, copies, lifetime, comment } = rule;
    let found = db.optional(sql::RULE_LIKE, values![name, rse_expression, *copies], |row| row.get(0))?;
    if let Some(id) = found {
        return Ok(id);
    }
    let id = uuid::Uuid::new_v4().simple().to_string();
    let lifetime = lifetime.map(|seconds| number("a lifetime of", seconds)).transpose()?;
    let values = values![id, name, rse_expression, *copies, lifetime, comment.as_deref(), now.0];
    db.execute(sql::INSERT_RULE, values)?;
    Ok(id)
}

fn rule_row(row: &Row<'_>) -> Result<Rule, Fault> {
    let lifetime: Option<i64> = row.get(4)?;
    let rule = NewRule {
        name: row.get(1)?,
        rse_expression: row.get(2)?,
        copies: row.get(3)?,
        lifetime: lifetime.map(|_| natural(row, 4)).transpose()?,
        comment: row.get(5)?,
    };
    Ok(Rule { id: row.get(0)?, rule, created_at: Timestamp(row.get(6)?) })
}
