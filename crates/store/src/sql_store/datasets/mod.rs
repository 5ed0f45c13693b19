//! [`DatasetStore`] on a database: blocks and rules; files are in [`files`], their lumis in [`lumis`].

mod files;
mod lumis;

use super::query_builder::SqlQuery;
use super::requests::{read_unsigned, to_signed};
use super::{SqlStore, StoreBackend, column_decoding, events};
use crate::db::{SqlConnection, SqlRow, values};
use crate::error::SqlError;
use crate::model::{EventSeverity, NewEvent};
use crate::sql::datasets as sql;
use crate::{AddedFiles, DatasetEditor, DatasetStore, StoreError};
use serde_json::{Value, json};
use windlass_types::Timestamp;
use windlass_types::catalog::{
    CatalogBlock, CatalogFile, CatalogReplica, DatasetSummary, NewReplicationRule, ReplicationRule,
};

impl<B: StoreBackend> DatasetStore for SqlStore<B> {
    fn datasets(&self, pattern: Option<&str>) -> Result<Vec<DatasetSummary>, StoreError> {
        let mut query = SqlQuery::new(sql::SELECT_DATASETS, vec![]);
        match pattern {
            Some(pattern) => query.push_pattern("", "d.name", pattern),
            None => query.push("1 = 1", vec![]),
        }
        query.push(sql::GROUP_DATASETS, vec![]);
        self.read(|db| query.read_rows(db, |row| Ok(read_summary(row)?.1)))
    }

    fn dataset(&self, name: &str) -> Result<Option<DatasetSummary>, StoreError> {
        self.read(|db| load_summary(db, name))
    }

    /// As one large transaction, because adding many files may take a while.
    fn add_dataset_files(
        &self,
        dataset: &str,
        files: &[CatalogFile],
        by: DatasetEditor<'_>,
        now: Timestamp,
    ) -> Result<AddedFiles, StoreError> {
        self.backend.run_large_transaction(|db| files::add_files(db, dataset, files, by, now))
    }

    fn dataset_files(&self, dataset: &str, only_valid: bool) -> Result<Vec<CatalogFile>, StoreError> {
        self.read(|db| {
            let id = find_dataset(db, dataset)?.ok_or_else(|| missing_dataset(dataset))?;
            files::load_files(db, sql::FILES_OF_DATASET, sql::REPLICAS_OF_DATASET, id, only_valid)
        })
    }

    fn list_dataset_files(
        &self,
        dataset: &str,
        only_valid: bool,
        offset: u64,
        limit: u64,
    ) -> Result<(Vec<CatalogFile>, u64), StoreError> {
        self.read(|db| {
            let id = find_dataset(db, dataset)?.ok_or_else(|| missing_dataset(dataset))?;
            files::load_file_page(db, id, only_valid, offset, limit)
        })
    }

    fn delete_dataset(
        &self,
        dataset: &str,
        by: DatasetEditor<'_>,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let (dataset, user, may_change_others) =
            (dataset.to_owned(), by.user.to_owned(), by.may_change_others);
        self.backend.run_write(move |db| {
            let by = DatasetEditor { user: &user, may_change_others };
            let Some(id) = find_changeable_dataset(db, &dataset, by)? else { return Ok(false) };
            for sql in sql::DELETE_DATASET {
                db.execute(sql, [id])?;
            }
            record_dataset_event(
                db,
                by,
                now,
                format!("deleted dataset {dataset}"),
                json!({ "dataset": dataset }),
            )?;
            Ok(true)
        })
    }

    fn add_replicas(&self, replicas: &[CatalogReplica]) -> Result<(), StoreError> {
        let replicas = replicas.to_vec();
        self.backend.run_write(move |db| files::add_replicas(db, &replicas))
    }

    fn remove_replicas(&self, site: &str, lfns: &[String]) -> Result<u64, StoreError> {
        let (site, lfns) = (site.to_owned(), lfns.to_vec());
        self.backend.run_write(move |db| files::remove_replicas(db, &site, &lfns))
    }

    fn invalidate_files(&self, lfns: &[String]) -> Result<u64, StoreError> {
        let lfns = lfns.to_vec();
        self.backend.run_write(move |db| files::invalidate_files(db, &lfns))
    }

    fn open_block(&self, dataset: &str, block: &str, now: Timestamp) -> Result<(), StoreError> {
        let (dataset, block) = (dataset.to_owned(), block.to_owned());
        self.backend.run_write(move |db| open_block(db, &dataset, &block, now))
    }

    fn register_files(&self, block: &str, files: &[CatalogFile]) -> Result<u64, StoreError> {
        let (block, files) = (block.to_owned(), files.to_vec());
        self.backend.run_write(move |db| {
            let found = find_block(db, &block)?.ok_or_else(|| missing_block(&block))?;
            files::register_files(db, &block, &found, &files)
        })
    }

    fn close_block(&self, block: &str, now: Timestamp) -> Result<(), StoreError> {
        let block = block.to_owned();
        self.backend.run_write(move |db| match db.execute(sql::CLOSE_BLOCK, values![now.0, block])? {
            0 => Err(missing_block(&block)),
            _ => Ok(()),
        })
    }

    fn catalog_block(&self, block: &str) -> Result<Option<CatalogBlock>, StoreError> {
        self.read(|db| Ok(list_blocks(db, "b.name = ?", block)?.pop()))
    }

    fn catalog_blocks(&self, dataset: &str) -> Result<Vec<CatalogBlock>, StoreError> {
        self.read(|db| list_blocks(db, "d.name = ? ORDER BY b.id", dataset))
    }

    fn block_files(&self, block: &str, only_valid: bool) -> Result<Vec<CatalogFile>, StoreError> {
        self.read(|db| {
            let found = find_block(db, block)?.ok_or_else(|| missing_block(block))?;
            files::load_files(db, sql::FILES_OF_BLOCK, sql::REPLICAS_OF_BLOCK, found.id, only_valid)
        })
    }

    fn add_rule(&self, rule: &NewReplicationRule, now: Timestamp) -> Result<String, StoreError> {
        let rule = rule.clone();
        self.backend.run_write(move |db| add_rule(db, &rule, now))
    }

    fn delete_rule(&self, id: &str) -> Result<bool, StoreError> {
        let id = id.to_owned();
        self.backend.run_write(move |db| Ok(db.execute(sql::DELETE_RULE, [&id])? > 0))
    }

    fn rules(&self, name: Option<&str>) -> Result<Vec<ReplicationRule>, StoreError> {
        let mut query = SqlQuery::new(sql::SELECT_RULES, vec![]);
        match name {
            Some(name) => query.push("r.name = ?", vec![Box::new(name.to_owned())]),
            None => query.push("1 = 1", vec![]),
        }
        query.push(" ORDER BY r.created_at, r.uuid", vec![]);
        self.read(|db| query.read_rows(db, read_rule_row))
    }
}

fn missing_dataset(name: &str) -> SqlError {
    StoreError::NoSuchName { what: "dataset".into(), name: name.to_owned() }.into()
}

fn missing_block(name: &str) -> SqlError {
    StoreError::NoSuchName { what: "block".into(), name: name.to_owned() }.into()
}

fn find_dataset(db: &impl SqlConnection, dataset: &str) -> Result<Option<i64>, SqlError> {
    db.query_optional(sql::DATASET, [dataset], |row| row.get(0))
}

/// Rejected if it belongs to another user. `None`: it does not exist, and the user may create it.
fn find_changeable_dataset(
    db: &impl SqlConnection,
    dataset: &str,
    by: DatasetEditor<'_>,
) -> Result<Option<i64>, SqlError> {
    let found = db.query_optional(sql::DATASET_AND_OWNER, [dataset], |row| {
        Ok((row.get::<i64>(0)?, row.get::<Option<String>>(1)?))
    })?;
    let (id, owner) = match found {
        Some((id, owner)) => (Some(id), owner),
        // Only the request that will write a dataset may add files before it exists.
        None => (None, find_output_owner(db, dataset)?),
    };
    let is_refused = match &owner {
        Some(owner) => owner != by.user,
        None => id.is_some(),
    };
    if is_refused && !by.may_change_others {
        return Err(StoreError::NotOwner { dataset: dataset.to_owned(), owner }.into());
    }
    Ok(id)
}

fn find_output_owner(db: &impl SqlConnection, dataset: &str) -> Result<Option<String>, SqlError> {
    db.query_optional(sql::OWNER_OF_OUTPUT, [dataset], |row| row.get(0))
}

fn add_dataset(
    db: &impl SqlConnection,
    dataset: &str,
    owner: Option<&str>,
    now: Timestamp,
) -> Result<i64, SqlError> {
    db.query_one(sql::INSERT_DATASET, values![dataset, now.0, owner], |row| row.get(0))
}

/// Records a change of the catalog, in the transaction that makes it.
fn record_dataset_event(
    db: &impl SqlConnection,
    by: DatasetEditor<'_>,
    now: Timestamp,
    message: String,
    data: Value,
) -> Result<(), SqlError> {
    let event = NewEvent {
        workflow: None,
        job: None,
        severity: EventSeverity::Info,
        category: "catalog".to_owned(),
        message,
        data: Some(data),
    };
    events::insert_event(db, by.user, &event, now)?;
    Ok(())
}

fn load_summary(db: &impl SqlConnection, name: &str) -> Result<Option<DatasetSummary>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_DATASETS, vec![]);
    query.push("d.name = ?", vec![Box::new(name.to_owned())]);
    query.push(sql::GROUP_DATASETS, vec![]);
    let Some((id, mut summary)) = query.read_rows(db, read_summary)?.pop() else { return Ok(None) };
    let sites = db.query_all(sql::SITES_OF_DATASET, [id], |row| Ok((row.get(0)?, read_unsigned(row, 1)?)))?;
    summary.sites = sites.into_iter().collect();
    Ok(Some(summary))
}

fn read_summary(row: &SqlRow<'_>) -> Result<(i64, DatasetSummary), SqlError> {
    // The sum of no rows is NULL.
    let sum = |index| row.get::<Option<i64>>(index).map(|sum| sum.unwrap_or_default().unsigned_abs());
    let summary = DatasetSummary {
        name: row.get(1)?,
        owner: row.get(8)?,
        files: read_unsigned(row, 2)?,
        events: sum(3)?,
        lumis: sum(4)?,
        size: sum(5)?,
        invalid_files: read_unsigned(row, 6)?,
        blocks: read_unsigned(row, 7)?,
        sites: std::collections::BTreeMap::new(),
    };
    Ok((row.get(0)?, summary))
}

struct FoundBlock {
    id: i64,
    dataset: i64,
    is_open: bool,
}

fn find_block(db: &impl SqlConnection, name: &str) -> Result<Option<FoundBlock>, SqlError> {
    db.query_optional(sql::BLOCK, [name], |row| {
        Ok(FoundBlock {
            id: row.get(0)?,
            dataset: row.get(1)?,
            is_open: column_decoding::read_time(row, 2)?.is_none(),
        })
    })
}

fn open_block(db: &impl SqlConnection, dataset: &str, block: &str, now: Timestamp) -> Result<(), SqlError> {
    let dataset_id = match find_dataset(db, dataset)? {
        Some(id) => id,
        None => add_dataset(db, dataset, find_output_owner(db, dataset)?.as_deref(), now)?,
    };
    match find_block(db, block)? {
        Some(found) if found.dataset == dataset_id => Ok(()),
        Some(found) => {
            let owner: String = db.query_one(sql::NAME_OF_DATASET, [found.dataset], |row| row.get(0))?;
            Err(StoreError::NameTaken {
                what: format!("a block of dataset {owner}").into(),
                name: block.to_owned(),
            }
            .into())
        }
        None => db.execute(sql::INSERT_BLOCK, values![dataset_id, block, now.0]).map(|_| ()),
    }
}

fn list_blocks(db: &impl SqlConnection, condition: &str, name: &str) -> Result<Vec<CatalogBlock>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_BLOCKS, vec![]);
    query.push(condition, vec![Box::new(name.to_owned())]);
    query.read_rows(db, |row| {
        let closed_at = column_decoding::read_time(row, 3)?;
        Ok(CatalogBlock {
            name: row.get(0)?,
            dataset: row.get(1)?,
            is_open: closed_at.is_none(),
            files: read_unsigned(row, 4)?,
            created_at: Timestamp(row.get(2)?),
            closed_at,
        })
    })
}

fn add_rule(db: &impl SqlConnection, rule: &NewReplicationRule, now: Timestamp) -> Result<String, SqlError> {
    let NewReplicationRule { name, rse_expression, copies, lifetime, comment } = rule;
    let found =
        db.query_optional(sql::RULE_LIKE, values![name, rse_expression, *copies], |row| row.get(0))?;
    if let Some(id) = found {
        return Ok(id);
    }
    let id = uuid::Uuid::new_v4().simple().to_string();
    let lifetime = lifetime.map(|seconds| to_signed("a lifetime of", seconds)).transpose()?;
    let values = values![id, name, rse_expression, *copies, lifetime, comment.as_deref(), now.0];
    db.execute(sql::INSERT_RULE, values)?;
    Ok(id)
}

fn read_rule_row(row: &SqlRow<'_>) -> Result<ReplicationRule, SqlError> {
    let lifetime: Option<i64> = row.get(4)?;
    let rule = NewReplicationRule {
        name: row.get(1)?,
        rse_expression: row.get(2)?,
        copies: row.get(3)?,
        lifetime: lifetime.map(|_| read_unsigned(row, 4)).transpose()?,
        comment: row.get(5)?,
    };
    Ok(ReplicationRule { id: row.get(0)?, rule, created_at: Timestamp(row.get(6)?) })
}
