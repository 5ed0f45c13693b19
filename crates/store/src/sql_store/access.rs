//! Access groups and tokens.

use super::apply_changes::current_run;
use super::create::duplicate_name;
use super::query_builder::SqlQuery;
use super::workflow_updates::AuditContext;
use super::{SqlStore, StoreBackend, column_decoding, events};
use crate::db::{SqlConnection, SqlRow, values};
use crate::error::SqlError;
use crate::model::{
    AccessGroupRow, EventSeverity, GroupMemberRow, NewEvent, NewTokenRow, TokenRow, WorkflowGroupRow,
};
use crate::sql::workers_and_parts as sql;
use crate::{AccessStore, StoreError};
use serde_json::{Value, json};
use windlass_types::{Timestamp, WorkflowId};

impl<B: StoreBackend> AccessStore for SqlStore<B> {
    fn add_group(&self, name: &str, description: Option<&str>, now: Timestamp) -> Result<i64, StoreError> {
        let (name, description) = (name.to_owned(), description.map(str::to_owned));
        self.write_as_actor(now, move |db, by| add_group(db, &name, description.as_deref(), by))
    }

    fn groups(&self) -> Result<Vec<AccessGroupRow>, StoreError> {
        self.read(|db| list_groups(db, None))
    }

    fn group(&self, id: i64) -> Result<Option<AccessGroupRow>, StoreError> {
        self.read(|db| Ok(list_groups(db, Some(id))?.pop()))
    }

    fn delete_group(&self, id: i64, now: Timestamp) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| delete_group(db, id, by))
    }

    fn add_member(
        &self,
        group: i64,
        user: &str,
        role: &str,
        now: Timestamp,
    ) -> Result<GroupMemberRow, StoreError> {
        let (user, role) = (user.to_owned(), role.to_owned());
        self.write_as_actor(now, move |db, by| add_member(db, group, &user, &role, by))
    }

    fn remove_member(&self, group: i64, user: &str, now: Timestamp) -> Result<(), StoreError> {
        let user = user.to_owned();
        self.write_as_actor(now, move |db, by| remove_member(db, group, &user, by))
    }

    fn members(&self, group: i64) -> Result<Vec<GroupMemberRow>, StoreError> {
        self.read(|db| {
            require_group(db, group)?;
            db.query_all(sql::MEMBERS, [group], |row| read_member_row(row, 0))
        })
    }

    fn groups_of_user(&self, user: &str) -> Result<Vec<(AccessGroupRow, GroupMemberRow)>, StoreError> {
        let row = |row: &SqlRow<'_>| Ok((read_group_row(row)?, read_member_row(row, 4)?));
        self.read(|db| db.query_all(sql::GROUPS_OF_USER, [user], row))
    }

    fn share_workflow(
        &self,
        workflow: WorkflowId,
        group: i64,
        now: Timestamp,
    ) -> Result<WorkflowGroupRow, StoreError> {
        self.write_as_actor(now, move |db, by| share_workflow(db, workflow, group, by))
    }

    fn unshare_workflow(&self, workflow: WorkflowId, group: i64, now: Timestamp) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| unshare_workflow(db, workflow, group, by))
    }

    fn groups_sharing(&self, workflow: WorkflowId) -> Result<Vec<AccessGroupRow>, StoreError> {
        self.read(|db| {
            current_run(db, workflow)?;
            db.query_all(sql::GROUPS_SHARING, [workflow.0], read_group_row)
        })
    }

    fn is_shared_with(&self, workflow: WorkflowId, user: &str) -> Result<bool, StoreError> {
        self.read(|db| db.exists(sql::SHARED_WITH, values![workflow.0, user]))
    }

    fn add_token(&self, token: &NewTokenRow, now: Timestamp) -> Result<i64, StoreError> {
        let token = token.clone();
        self.write_as_actor(now, move |db, by| add_token(db, &token, by))
    }

    fn tokens(&self, user: Option<&str>) -> Result<Vec<TokenRow>, StoreError> {
        self.read(|db| list_tokens(db, user))
    }

    fn token_by_hash(&self, hash: &str) -> Result<Option<TokenRow>, StoreError> {
        let mut query = SqlQuery::new(sql::SELECT_TOKENS, vec![]);
        query.push("t.hash = ?", vec![Box::new(hash.to_owned())]);
        self.read(|db| Ok(query.read_rows(db, read_token_row)?.pop()))
    }

    fn revoke_token(&self, id: i64, now: Timestamp) -> Result<(), StoreError> {
        self.write_as_actor(now, move |db, by| revoke_token(db, id, by))
    }

    fn record_token_use(&self, id: i64, now: Timestamp) -> Result<(), StoreError> {
        self.backend.run_write(move |db| db.execute(sql::RECORD_TOKEN_USE, [now.0, id])).map(|_| ())
    }
}

const ACCESS_CATEGORY: &str = "access";

/// Records an event about the whole database, or about a workflow that is shared.
fn record_access_event(
    db: &impl SqlConnection,
    workflow: Option<WorkflowId>,
    message: String,
    data: Value,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let (category, data) = (ACCESS_CATEGORY.to_owned(), Some(data));
    let event = NewEvent { workflow, job: None, severity: EventSeverity::Info, category, message, data };
    events::insert_event(db, by.actor, &event, by.now)?;
    Ok(())
}

fn add_group(
    db: &impl SqlConnection,
    name: &str,
    description: Option<&str>,
    by: AuditContext<'_>,
) -> Result<i64, SqlError> {
    let values = values![name, description, by.now.0];
    let inserted = db.query_one(sql::INSERT_GROUP, values, |row| row.get(0));
    let id = inserted.map_err(|error| duplicate_name(error, "an access group", name))?;
    record_access_event(
        db,
        None,
        format!("added access group `{name}`"),
        json!({ "group_id": id, "name": name }),
        by,
    )?;
    Ok(id)
}

fn list_groups(db: &impl SqlConnection, id: Option<i64>) -> Result<Vec<AccessGroupRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_GROUPS, vec![]);
    match id {
        Some(id) => query.push("g.id = ?", vec![Box::new(id)]),
        None => query.push("1 = 1 ORDER BY g.id", vec![]),
    }
    query.read_rows(db, read_group_row)
}

fn require_group(db: &impl SqlConnection, id: i64) -> Result<AccessGroupRow, SqlError> {
    list_groups(db, Some(id))?
        .pop()
        .ok_or_else(|| StoreError::NoSuch { what: "access group".into(), id }.into())
}

fn delete_group(db: &impl SqlConnection, id: i64, by: AuditContext<'_>) -> Result<(), SqlError> {
    let group = require_group(db, id)?;
    db.execute(sql::DELETE_MEMBERS, [id])?;
    db.execute(sql::UNSHARE_ALL, [id])?;
    db.execute(sql::DELETE_GROUP, [id])?;
    let told = json!({ "group_id": id, "name": group.name });
    record_access_event(db, None, format!("deleted access group `{}`", group.name), told, by)
}

fn add_member(
    db: &impl SqlConnection,
    group: i64,
    user: &str,
    role: &str,
    by: AuditContext<'_>,
) -> Result<GroupMemberRow, SqlError> {
    let AccessGroupRow { name, .. } = require_group(db, group)?;
    let values = values![group, user, role, by.now.0];
    let member = db.query_one(sql::INSERT_MEMBER, values, |row| read_member_row(row, 0))?;
    let told = json!({ "group_id": group, "user_name": user, "role": role });
    record_access_event(db, None, format!("added `{user}` to access group `{name}` as {role}"), told, by)?;
    Ok(member)
}

fn remove_member(
    db: &impl SqlConnection,
    group: i64,
    user: &str,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    let AccessGroupRow { name, .. } = require_group(db, group)?;
    if db.execute(sql::DELETE_MEMBER, values![group, user])? == 0 {
        return Err(StoreError::NoSuchMember { user: user.to_owned(), group: name }.into());
    }
    let told = json!({ "group_id": group, "user_name": user });
    record_access_event(db, None, format!("removed `{user}` from access group `{name}`"), told, by)
}

fn share_workflow(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    group: i64,
    by: AuditContext<'_>,
) -> Result<WorkflowGroupRow, SqlError> {
    current_run(db, workflow)?;
    let AccessGroupRow { name, .. } = require_group(db, group)?;
    if db.execute(sql::SHARE, [workflow.0, group, by.now.0])? > 0 {
        let told = json!({ "group_id": group, "name": name });
        record_access_event(db, Some(workflow), format!("shared with access group `{name}`"), told, by)?;
    }
    let created_at = db.query_one(sql::SHARED_SINCE, [workflow.0, group], |row| row.get(0).map(Timestamp))?;
    Ok(WorkflowGroupRow { workflow_id: workflow, group_id: group, created_at })
}

fn unshare_workflow(
    db: &impl SqlConnection,
    workflow: WorkflowId,
    group: i64,
    by: AuditContext<'_>,
) -> Result<(), SqlError> {
    current_run(db, workflow)?;
    let AccessGroupRow { name, .. } = require_group(db, group)?;
    if db.execute(sql::UNSHARE, [workflow.0, group])? == 0 {
        return Err(StoreError::NoSuch {
            what: "share of that workflow with access group".into(),
            id: group,
        }
        .into());
    }
    let told = json!({ "group_id": group, "name": name });
    record_access_event(db, Some(workflow), format!("no longer shared with access group `{name}`"), told, by)
}

fn add_token(db: &impl SqlConnection, token: &NewTokenRow, by: AuditContext<'_>) -> Result<i64, SqlError> {
    let scopes = column_decoding::render_json(&token.scopes)?;
    let values = values![
        token.hash,
        token.name,
        token.user,
        token.role,
        scopes,
        by.now.0,
        token.expires_at.map(|at| at.0),
    ];
    let id = db.query_one(sql::INSERT_TOKEN, values, |row| row.get(0))?;
    let message = format!("created token {id} (`{}`) of `{}`", token.name, token.user);
    let told = json!({
        "token_id": id, "name": token.name, "user": token.user, "role": token.role, "scopes": token.scopes,
        "expires_at": token.expires_at,
    });
    record_access_event(db, None, message, told, by)?;
    Ok(id)
}

fn list_tokens(db: &impl SqlConnection, user: Option<&str>) -> Result<Vec<TokenRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_TOKENS, vec![]);
    match user {
        Some(user) => query.push("t.user_name = ?", vec![Box::new(user.to_owned())]),
        None => query.push("1 = 1", vec![]),
    }
    query.push(" ORDER BY t.id", vec![]);
    query.read_rows(db, read_token_row)
}

fn revoke_token(db: &impl SqlConnection, id: i64, by: AuditContext<'_>) -> Result<(), SqlError> {
    let row = |row: &SqlRow<'_>| Ok((row.get::<String>(0)?, row.get::<String>(1)?));
    let found = db.query_optional(sql::REVOKE_TOKEN, [by.now.0, id], row)?;
    let (name, user) = found.ok_or(StoreError::NoSuch { what: "token".into(), id })?;
    let told = json!({ "token_id": id, "name": name, "user": user });
    record_access_event(db, None, format!("revoked token {id} (`{name}`) of `{user}`"), told, by)
}

fn read_group_row(row: &SqlRow<'_>) -> Result<AccessGroupRow, SqlError> {
    Ok(AccessGroupRow {
        id: row.get(0)?,
        name: row.get(1)?,
        description: row.get(2)?,
        created_at: Timestamp(row.get(3)?),
    })
}

fn read_member_row(row: &SqlRow<'_>, first: usize) -> Result<GroupMemberRow, SqlError> {
    Ok(GroupMemberRow {
        id: row.get(first)?,
        group_id: row.get(first + 1)?,
        user_name: row.get(first + 2)?,
        role: row.get(first + 3)?,
        created_at: Timestamp(row.get(first + 4)?),
    })
}

fn read_token_row(row: &SqlRow<'_>) -> Result<TokenRow, SqlError> {
    Ok(TokenRow {
        id: row.get(0)?,
        name: row.get(1)?,
        user: row.get(2)?,
        role: row.get(3)?,
        scopes: column_decoding::read_required_json(row, 4)?,
        created_at: Timestamp(row.get(5)?),
        expires_at: column_decoding::read_time(row, 6)?,
        last_used_at: column_decoding::read_time(row, 7)?,
        revoked_at: column_decoding::read_time(row, 8)?,
    })
}
