//! What agents ask about requests, and have done to them: with the rights of their caller, as he would ask himself.

use super::{recovery, wishes, words};
use crate::caller::Caller;
use crate::error::{Answer, ApiError};
use crate::requests::{errors, look, requestor};
use crate::state::AppState;
use serde::Serialize;
use serde_json::Value;
use windlass_api::requests::FailRequest;
use windlass_mcp::AboutRequests;
use windlass_store::Database;
use windlass_store::model::RequestFilter;

pub(crate) async fn answer(state: &AppState, caller: &Caller, asked: AboutRequests) -> Answer<Value> {
    let now = state.now();
    match asked {
        AboutRequests::List { status, name, offset, limit } => {
            let filter = RequestFilter {
                status: words("status", status.as_deref())?,
                name,
                offset,
                limit: Some(limit),
                ..RequestFilter::default()
            };
            shown(&caller.look(state, move |db| look::list(db, filter)).await?.items)
        }
        AboutRequests::Show { name } => shown(&caller.look_at_request(state, name).await?),
        AboutRequests::Errors { name, all_rounds } => {
            let memory = state.options.requests.memory;
            let of = name.clone();
            let show = move |db: &dyn Database| errors::show(db, &name, all_rounds, memory, now);
            shown(&caller.look_into(state, move |db| requestor(db, &of), show).await?)
        }
        AboutRequests::Release { name, body } => {
            let wanted = serde_json::from_value(body).map_err(|why| ApiError::invalid(why.to_string()))?;
            shown(&recovery::release_as(state, caller, &name, wanted).await?)
        }
        AboutRequests::Stop { name, reason } => shown(&wishes::stop_as(state, caller, &name, reason).await?),
        AboutRequests::Fail { name, reason } => {
            let wanted = FailRequest { reason, ..FailRequest::default() };
            shown(&recovery::fail_as(state, caller, &name, wanted).await?)
        }
    }
}

fn shown(answer: &impl Serialize) -> Answer<Value> {
    serde_json::to_value(answer).map_err(|why| ApiError::invalid(why.to_string()))
}
