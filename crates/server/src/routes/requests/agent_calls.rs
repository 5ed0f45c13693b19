//! Queries and commands of agents on requests, with the permissions of their caller.

use super::{crud, parse_list, recovery};
use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::requests::{errors, load_requestor, request_queries};
use crate::state::AppState;
use serde::Serialize;
use serde_json::Value;
use windlass_api::requests::FailRequest;
use windlass_mcp::RequestToolCall;
use windlass_store::StoreDatabase;
use windlass_store::model::RequestFilter;

pub(crate) async fn perform_agent_call(
    state: &AppState,
    caller: &Caller,
    asked: RequestToolCall,
) -> ApiResult<Value> {
    let now = state.now();
    match asked {
        RequestToolCall::List { status, name, offset, limit } => {
            let filter = RequestFilter {
                status: parse_list("status", status.as_deref())?,
                name,
                offset,
                limit: Some(limit),
                ..RequestFilter::default()
            };
            to_json(
                &caller
                    .read_as_caller(state, move |db| request_queries::list_requests(db, filter))
                    .await?
                    .items,
            )
        }
        RequestToolCall::Show { name } => to_json(&caller.read_request(state, name).await?),
        RequestToolCall::Errors { name, all_rounds } => {
            let memory = state.options.requests.memory_window;
            let of = name.clone();
            let show =
                move |db: &dyn StoreDatabase| errors::get_request_errors(db, &name, all_rounds, memory, now);
            to_json(&caller.read_request_details(state, move |db| load_requestor(db, &of), show).await?)
        }
        RequestToolCall::Release { name, body } => {
            let wanted = serde_json::from_value(body).map_err(|why| ApiError::invalid(why.to_string()))?;
            to_json(&recovery::release_as(state, caller, &name, wanted).await?)
        }
        RequestToolCall::Stop { name, reason } => {
            to_json(&crud::stop_as(state, caller, &name, reason).await?)
        }
        RequestToolCall::Fail { name, reason } => {
            let wanted = FailRequest { reason, ..FailRequest::default() };
            to_json(&recovery::fail_as(state, caller, &name, wanted).await?)
        }
    }
}

fn to_json(answer: &impl Serialize) -> ApiResult<Value> {
    serde_json::to_value(answer).map_err(|why| ApiError::invalid(why.to_string()))
}
