//! What somebody wants of whoever runs a workflow at the moment, who alone may change where its jobs stand.

use super::manage::By;
use super::{apply, column, orders};
use crate::Error;
use crate::db::{Db, values};
use crate::error::Fault;
use crate::model::WishAnswer;
use crate::sql::common as sql;
use windlass_types::WorkflowId;
use windlass_types::orders::Wanted;

pub(crate) fn add(db: &impl Db, workflow: WorkflowId, wanted: &Wanted, by: By<'_>) -> Result<i64, Fault> {
    apply::current_run(db, workflow)?;
    let wanted = column::json_text(wanted)?;
    db.one(sql::ADD_WISH, values![workflow.0, by.now.0, by.actor, wanted], |row| row.get(0))
}

pub(crate) fn open(db: &impl Db, workflow: WorkflowId) -> Result<Vec<i64>, Fault> {
    db.all(sql::OPEN_WISHES, [workflow.0], |row| row.get(0))
}

/// Does what is wanted, in the name of who wants it, and answers. What cannot be done is an answer too.
pub(crate) fn grant(db: &impl Db, workflow: WorkflowId, wish: i64, by: By<'_>) -> Result<(), Fault> {
    let found = db.optional(sql::WANTED, [wish, workflow.0], |row| {
        Ok((row.get::<String>(0)?, column::required_json::<Wanted>(row, 1)?))
    })?;
    // Withdrawn or answered meanwhile.
    let Some((actor, wanted)) = found else { return Ok(()) };
    let answer: WishAnswer = match orders::carry_out(db, workflow, &wanted, By { actor: &actor, ..by }) {
        Ok(outcomes) => Ok(outcomes),
        Err(Fault::Told(error)) => Err(error.to_string()),
        Err(fault) => return Err(fault),
    };
    let answer = column::json_text(&answer)?;
    db.execute(sql::ANSWER_WISH, values![by.now.0, answer, wish])?;
    Ok(())
}

/// What came of it, if anybody has answered.
pub(crate) fn answer(db: &impl Db, wish: i64) -> Result<Option<WishAnswer>, Fault> {
    let found = db.optional(sql::WISH, [wish], |row| column::json(row, 0))?;
    found.ok_or_else(|| Error::OutOfRange { what: format!("wish {wish}") }.into())
}

/// Nobody is to answer it any more. `false`: somebody has.
pub(crate) fn withdraw(db: &impl Db, wish: i64) -> Result<bool, Fault> {
    Ok(db.execute(sql::WITHDRAW_WISH, [wish])? > 0)
}
