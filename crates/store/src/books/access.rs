//! Access groups and tokens.

use super::apply::current_run;
use super::create::name_taken;
use super::manage::By;
use super::query::Query;
use super::{Backend, Books, column, events};
use crate::db::{Db, Row, values};
use crate::error::Fault;
use crate::model::{GroupRow, MemberRow, NewEvent, NewToken, Severity, TokenRow, WorkflowGroupRow};
use crate::sql::server as sql;
use crate::{Access, Error};
use serde_json::{Value, json};
use windlass_types::{Timestamp, WorkflowId};

impl<B: Backend> Access for Books<B> {
    fn add_group(&self, name: &str, description: Option<&str>, now: Timestamp) -> Result<i64, Error> {
        let (name, description) = (name.to_owned(), description.map(str::to_owned));
        self.act(now, move |db, by| add_group(db, &name, description.as_deref(), by))
    }

    fn groups(&self) -> Result<Vec<GroupRow>, Error> {
        self.read(|db| groups(db, None))
    }

    fn group(&self, id: i64) -> Result<Option<GroupRow>, Error> {
        self.read(|db| Ok(groups(db, Some(id))?.pop()))
    }

    fn delete_group(&self, id: i64, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |db, by| delete_group(db, id, by))
    }

    fn add_member(&self, group: i64, user: &str, role: &str, now: Timestamp) -> Result<MemberRow, Error> {
        let (user, role) = (user.to_owned(), role.to_owned());
        self.act(now, move |db, by| add_member(db, group, &user, &role, by))
    }

    fn remove_member(&self, group: i64, user: &str, now: Timestamp) -> Result<(), Error> {
        let user = user.to_owned();
        self.act(now, move |db, by| remove_member(db, group, &user, by))
    }

    fn members(&self, group: i64) -> Result<Vec<MemberRow>, Error> {
        self.read(|db| {
            require_group(db, group)?;
            db.all(sql::MEMBERS, [group], |row| member_row(row, 0))
        })
    }

    fn groups_of(&self, user: &str) -> Result<Vec<(GroupRow, MemberRow)>, Error> {
        let row = |row: &Row<'_>| Ok((group_row(row)?, member_row(row, 4)?));
        self.read(|db| db.all(sql::GROUPS_OF_USER, [user], row))
    }

    fn share(&self, workflow: WorkflowId, group: i64, now: Timestamp) -> Result<WorkflowGroupRow, Error> {
        self.act(now, move |db, by| share(db, workflow, group, by))
    }

    fn unshare(&self, workflow: WorkflowId, group: i64, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |db, by| unshare(db, workflow, group, by))
    }

    fn groups_sharing(&self, workflow: WorkflowId) -> Result<Vec<GroupRow>, Error> {
        self.read(|db| {
            current_run(db, workflow)?;
            db.all(sql::GROUPS_SHARING, [workflow.0], group_row)
        })
    }

    fn is_shared_with(&self, workflow: WorkflowId, user: &str) -> Result<bool, Error> {
        self.read(|db| db.exists(sql::SHARED_WITH, values![workflow.0, user]))
    }

    fn add_token(&self, token: &NewToken, now: Timestamp) -> Result<i64, Error> {
        let token = token.clone();
        self.act(now, move |db, by| add_token(db, &token, by))
    }

    fn tokens(&self, user: Option<&str>) -> Result<Vec<TokenRow>, Error> {
        self.read(|db| tokens(db, user))
    }

    fn token_by_hash(&self, hash: &str) -> Result<Option<TokenRow>, Error> {
        let mut query = Query::new(sql::SELECT_TOKENS, vec![]);
        query.push("t.hash = ?", vec![Box::new(hash.to_owned())]);
        self.read(|db| Ok(query.run(db, token_row)?.pop()))
    }

    fn revoke_token(&self, id: i64, now: Timestamp) -> Result<(), Error> {
        self.act(now, move |db, by| revoke_token(db, id, by))
    }

    fn note_token_use(&self, id: i64, now: Timestamp) -> Result<(), Error> {
        self.backend.write(move |db| db.execute(sql::NOTE_TOKEN_USE, [now.0, id])).map(|_| ())
    }
}

const ACCESS: &str = "access";

/// About the whole database, or about a workflow that is shared.
fn note(
    db: &impl Db,
    workflow: Option<WorkflowId>,
    message: String,
    data: Value,
    by: By<'_>,
) -> Result<(), Fault> {
    let (category, data) = (ACCESS.to_owned(), Some(data));
    let event = NewEvent { workflow, job: None, severity: Severity::Info, category, message, data };
    events::note(db, by.actor, &event, by.now)?;
    Ok(())
}

fn add_group(db: &impl Db, name: &str, description: Option<&str>, by: By<'_>) -> Result<i64, Fault> {
    let values = values![name, description, by.now.0];
    let inserted = db.one(sql::INSERT_GROUP, values, |row| row.get(0));
    let id = inserted.map_err(|error| name_taken(error, "an access group", name))?;
    note(db, None, format!("added access group `{name}`"), json!({ "group_id": id, "name": name }), by)?;
    Ok(id)
}

fn groups(db: &impl Db, id: Option<i64>) -> Result<Vec<GroupRow>, Fault> {
    let mut query = Query::new(sql::SELECT_GROUPS, vec![]);
    match id {
        Some(id) => query.push("g.id = ?", vec![Box::new(id)]),
        None => query.push("1 = 1 ORDER BY g.id", vec![]),
    }
    query.run(db, group_row)
}

fn require_group(db: &impl Db, id: i64) -> Result<GroupRow, Fault> {
    groups(db, Some(id))?.pop().ok_or_else(|| Error::NoSuch { what: "access group".into(), id }.into())
}

fn delete_group(db: &impl Db, id: i64, by: By<'_>) -> Result<(), Fault> {
    let group = require_group(db, id)?;
    db.execute(sql::DELETE_MEMBERS, [id])?;
    db.execute(sql::UNSHARE_ALL, [id])?;
    db.execute(sql::DELETE_GROUP, [id])?;
    let told = json!({ "group_id": id, "name": group.name });
    note(db, None, format!("deleted access group `{}`", group.name), told, by)
}

fn add_member(db: &impl Db, group: i64, user: &str, role: &str, by: By<'_>) -> Result<MemberRow, Fault> {
    let GroupRow { name, .. } = require_group(db, group)?;
    let values = values![group, user, role, by.now.0];
    let member = db.one(sql::INSERT_MEMBER, values, |row| member_row(row, 0))?;
    let told = json!({ "group_id": group, "user_name": user, "role": role });
    note(db, None, format!("`{user}` belongs to access group `{name}` as {role}"), told, by)?;
    Ok(member)
}

fn remove_member(db: &impl Db, group: i64, user: &str, by: By<'_>) -> Result<(), Fault> {
    let GroupRow { name, .. } = require_group(db, group)?;
    if db.execute(sql::DELETE_MEMBER, values![group, user])? == 0 {
        return Err(Error::NoSuchMember { user: user.to_owned(), group: name }.into());
    }
    let told = json!({ "group_id": group, "user_name": user });
    note(db, None, format!("`{user}` belongs to access group `{name}` no more"), told, by)
}

fn share(db: &impl Db, workflow: WorkflowId, group: i64, by: By<'_>) -> Result<WorkflowGroupRow, Fault> {
    current_run(db, workflow)?;
    let GroupRow { name, .. } = require_group(db, group)?;
    if db.execute(sql::SHARE, [workflow.0, group, by.now.0])? > 0 {
        let told = json!({ "group_id": group, "name": name });
        note(db, Some(workflow), format!("shared with access group `{name}`"), told, by)?;
    }
    let created_at = db.one(sql::SHARED_SINCE, [workflow.0, group], |row| row.get(0).map(Timestamp))?;
    Ok(WorkflowGroupRow { workflow_id: workflow, group_id: group, created_at })
}

fn unshare(db: &impl Db, workflow: WorkflowId, group: i64, by: By<'_>) -> Result<(), Fault> {
    current_run(db, workflow)?;
    let GroupRow { name, .. } = require_group(db, group)?;
    if db.execute(sql::UNSHARE, [workflow.0, group])? == 0 {
        return Err(
            Error::NoSuch { what: "share of that workflow with access group".into(), id: group }.into()
        );
    }
    let told = json!({ "group_id": group, "name": name });
    note(db, Some(workflow), format!("no longer shared with access group `{name}`"), told, by)
}

fn add_token(db: &impl Db, token: &NewToken, by: By<'_>) -> Result<i64, Fault> {
    let scopes = column::json_text(&token.scopes)?;
    let values = values![
        token.hash,
        token.name,
        token.user,
        token.role,
        scopes,
        by.now.0,
        token.expires_at.map(|at| at.0),
    ];
    let id = db.one(sql::INSERT_TOKEN, values, |row| row.get(0))?;
    let message = format!("made token {id} (`{}`) of `{}`", token.name, token.user);
    let told = json!({
        "token_id": id, "name": token.name, "user": token.user, "role": token.role, "scopes": token.scopes,
        "expires_at": token.expires_at,
    });
    note(db, None, message, told, by)?;
    Ok(id)
}

fn tokens(db: &impl Db, user: Option<&str>) -> Result<Vec<TokenRow>, Fault> {
    let mut query = Query::new(sql::SELECT_TOKENS, vec![]);
    match user {
        Some(user) => query.push("t.user_name = ?", vec![Box::new(user.to_owned())]),
        None => query.push("1 = 1", vec![]),
    }
    query.push(" ORDER BY t.id", vec![]);
    query.run(db, token_row)
}

fn revoke_token(db: &impl Db, id: i64, by: By<'_>) -> Result<(), Fault> {
    let row = |row: &Row<'_>| Ok((row.get::<String>(0)?, row.get::<String>(1)?));
    let found = db.optional(sql::REVOKE_TOKEN, [by.now.0, id], row)?;
    let (name, user) = found.ok_or(Error::NoSuch { what: "token".into(), id })?;
    let told = json!({ "token_id": id, "name": name, "user": user });
    note(db, None, format!("revoked token {id} (`{name}`) of `{user}`"), told, by)
}

fn group_row(row: &Row<'_>) -> Result<GroupRow, Fault> {
    Ok(GroupRow {
        id: row.get(0)?,
        name: row.get(1)?,
        description: row.get(2)?,
        created_at: Timestamp(row.get(3)?),
    })
}

fn member_row(row: &Row<'_>, first: usize) -> Result<MemberRow, Fault> {
    Ok(MemberRow {
        id: row.get(first)?,
        group_id: row.get(first + 1)?,
        user_name: row.get(first + 2)?,
        role: row.get(first + 3)?,
        created_at: Timestamp(row.get(first + 4)?),
    })
}

fn token_row(row: &Row<'_>) -> Result<TokenRow, Fault> {
    Ok(TokenRow {
        id: row.get(0)?,
        name: row.get(1)?,
        user: row.get(2)?,
        role: row.get(3)?,
        scopes: column::required_json(row, 4)?,
        created_at: Timestamp(row.get(5)?),
        expires_at: column::time(row, 6)?,
        last_used_at: column::time(row, 7)?,
        revoked_at: column::time(row, 8)?,
    })
}
