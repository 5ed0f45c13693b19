//! The table of operations: a handler is a plain function, and its parameter and result types define its route
//! and description.
//!
//! ```ignore
//! OperationTable::new("files")
//!     .get("/files/{id}", "get_file", "Get a file record", get) // fn get(call: &TorcCallContext, Path(id): Path<i64>) -> ApiResult<FileModel>
//! ```
//!
//! Handlers of the contract call the store and the scheduler and wait for the answers, so each runs as a whole
//! on the blocking pool. It runs to its end even if the client disconnects: an operation is applied completely
//! or not at all.

use super::call_context::TorcCallContext;
use crate::caller::Caller;
use crate::error::{ApiError, ApiResult};
use crate::extract::{Json, Path, Query};
use crate::state::{AppState, run_blocking};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::openapi::path::Paths;
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::{ArrayBuilder, ContentBuilder, Ref, RefOr, Required, ResponseBuilder, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use windlass_api::torc::JobStatusName;
use windlass_types::JobStatus;

pub(super) type NamedSchemas = Vec<(String, RefOr<Schema>)>;

/// Operations on one type of object.
pub(super) struct OperationTable {
    tag: &'static str,
    router: OpenApiRouter<AppState>,
}

macro_rules! methods {
    ($($name:ident => $filter:ident, $method:ident;)*) => {$(
        pub(super) fn $name<A: 'static, H: OperationHandler<A>>(
            self,
            path: &'static str,
            id: &'static str,
            summary: &'static str,
            handler: H,
        ) -> Self {
            self.add_operation(MethodFilter::$filter, HttpMethod::$method, path, id, summary, handler)
        }
    )*};
}

impl OperationTable {
    pub(super) fn new(tag: &'static str) -> Self {
        Self { tag, router: OpenApiRouter::new() }
    }

    methods! {
        get => GET, Get;
        post => POST, Post;
        put => PUT, Put;
        delete => DELETE, Delete;
    }

    pub(super) fn into_router(self) -> OpenApiRouter<AppState> {
        self.router
    }

    fn add_operation<A: 'static, H: OperationHandler<A>>(
        mut self,
        filter: MethodFilter,
        method: HttpMethod,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self {
        let mut schemas = NamedSchemas::new();
        let operation = OperationBuilder::new().tag(self.tag).operation_id(Some(id)).summary(Some(summary));
        let operation = H::describe(OperationDescription { path, operation, schemas: &mut schemas });
        let mut paths = Paths::new();
        paths.add_path_operation(path, vec![method], operation);
        let route: MethodRouter<AppState> =
            on(filter, move |caller: Caller, state: axum::extract::State<AppState>, request: Request| {
                let handler = handler.clone();
                async move { handler.handle(TorcCallContext::new(state.0, caller.0), request).await }
            });
        self.router = self.router.routes((schemas, paths, route));
        self
    }
}

/// The description of an operation under construction.
pub(super) struct OperationDescription<'a> {
    path: &'static str,
    operation: OperationBuilder,
    schemas: &'a mut NamedSchemas,
}

impl OperationDescription<'_> {
    fn with(mut self, change: impl FnOnce(OperationBuilder) -> OperationBuilder) -> Self {
        self.operation = change(self.operation);
        self
    }

    /// Registers a named schema and all schemas that it refers to.
    pub(super) fn add_schema<T: ToSchema>(&mut self) -> Ref {
        self.schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(self.schemas);
        Ref::from_schema_name(T::name())
    }

    pub(super) fn with_parameters(self, parameters: Vec<Parameter>) -> Self {
        self.with(|operation| parameters.into_iter().fold(operation, OperationBuilder::parameter))
    }

    pub(super) fn with_response(
        mut self,
        status: &'static str,
        words: &str,
        schema: Option<RefOr<Schema>>,
    ) -> Self {
        let mut response = ResponseBuilder::new().description(words);
        if let Some(schema) = schema {
            response =
                response.content("application/json", ContentBuilder::new().schema(Some(schema)).build());
        }
        self.operation = self.operation.response(status, response);
        self
    }
}

/// A handler function of an operation.
pub(super) trait OperationHandler<A>: Clone + Send + Sync + 'static {
    fn describe(description: OperationDescription<'_>) -> Operation;
    fn handle(self, call: TorcCallContext, request: Request) -> impl Future<Output = Response> + Send;
}

macro_rules! handlers {
    ($(($($part:ident $value:ident),*))*) => {$(
        impl<F, R, $($part,)*> OperationHandler<($($part,)* R,)> for F
        where
            F: Fn(&TorcCallContext, $($part),*) -> ApiResult<R> + Clone + Send + Sync + 'static,
            R: HandlerReply,
            $($part: HandlerArgument,)*
        {
            fn describe(description: OperationDescription<'_>) -> Operation {
                $(let description = $part::describe(description);)*
                R::describe(description).operation.build()
            }

            async fn handle(self, call: TorcCallContext, request: Request) -> Response {
                let mut given = HandlerInput::new(request);
                $(
                    let $value = match $part::extract(&mut given, &call).await {
                        Ok(value) => value,
                        Err(error) => return error.into_response(),
                    };
                )*
                run_blocking_handler(move || self(&call, $($value),*)).await
            }
        }
    )*};
}

/// Runs a handler on the blocking pool.
async fn run_blocking_handler<R: HandlerReply>(
    handler: impl FnOnce() -> ApiResult<R> + Send + 'static,
) -> Response {
    match run_blocking(handler).await.flatten() {
        Ok(reply) => reply.render(),
        Err(error) => error.into_response(),
    }
}

impl<F, R> OperationHandler<(R,)> for F
where
    F: Fn(&TorcCallContext) -> ApiResult<R> + Clone + Send + Sync + 'static,
    R: HandlerReply,
{
    fn describe(description: OperationDescription<'_>) -> Operation {
        R::describe(description).operation.build()
    }

    async fn handle(self, call: TorcCallContext, _: Request) -> Response {
        run_blocking_handler(move || self(&call)).await
    }
}

handlers! {
    (A a)
    (A a, B b)
    (A a, B b, C c)
}

/// The parts of a request that are not extracted yet.
pub(super) struct HandlerInput {
    parts: Parts,
    body: Option<axum::body::Body>,
}

impl HandlerInput {
    fn new(request: Request) -> Self {
        let (parts, body) = request.into_parts();
        Self { parts, body: Some(body) }
    }

    pub(super) async fn query<T: DeserializeOwned>(&mut self, call: &TorcCallContext) -> ApiResult<T> {
        Query::from_request_parts(&mut self.parts, &call.state).await.map(|Query(query)| query)
    }
}

/// A parameter that is extracted from a request.
pub(super) trait HandlerArgument: Sized + Send + 'static {
    fn describe(description: OperationDescription<'_>) -> OperationDescription<'_>;
    fn extract(
        given: &mut HandlerInput,
        call: &TorcCallContext,
    ) -> impl Future<Output = ApiResult<Self>> + Send;
}

impl<T: PathParameters> HandlerArgument for Path<T> {
    fn describe(description: OperationDescription<'_>) -> OperationDescription<'_> {
        let names = description.path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let parameters: Vec<Parameter> =
            names.zip(T::schemas()).map(|(name, schema)| path_parameter(name, schema)).collect();
        description.with_parameters(parameters)
    }

    async fn extract(given: &mut HandlerInput, call: &TorcCallContext) -> ApiResult<Self> {
        Self::from_request_parts(&mut given.parts, &call.state).await
    }
}

fn path_parameter(name: &str, schema: RefOr<Schema>) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .schema(Some(schema))
        .build()
}

impl<T: DeserializeOwned + IntoParams + Send + 'static> HandlerArgument for Query<T> {
    fn describe(description: OperationDescription<'_>) -> OperationDescription<'_> {
        description.with_parameters(T::into_params(|| Some(ParameterIn::Query)))
    }

    async fn extract(given: &mut HandlerInput, call: &TorcCallContext) -> ApiResult<Self> {
        given.query(call).await.map(Self)
    }
}

impl<T: DeserializeOwned + DescribedSchema + Send + 'static> HandlerArgument for Json<T> {
    fn describe(mut description: OperationDescription<'_>) -> OperationDescription<'_> {
        let content = ContentBuilder::new().schema(Some(T::schema_ref(&mut description))).build();
        let body = RequestBodyBuilder::new()
            .content("application/json", content)
            .required(Some(Required::True))
            .build();
        description.with(|operation| operation.request_body(Some(body)))
    }

    async fn extract(given: &mut HandlerInput, call: &TorcCallContext) -> ApiResult<Self> {
        let body = given.body.take().ok_or_else(|| ApiError::internal("a body is extracted twice"))?;
        let request = Request::from_parts(given.parts.clone(), body);
        Self::from_request(request, &call.state).await
    }
}

/// A path parameter.
pub(super) trait PathParameters: DeserializeOwned + Send + 'static {
    fn schemas() -> Vec<RefOr<Schema>>;
}

macro_rules! path_values {
    ($($type:ty: [$($schema:ty),*];)*) => {$(
        impl PathParameters for $type {
            fn schemas() -> Vec<RefOr<Schema>> {
                vec![$(<$schema>::schema()),*]
            }
        }
    )*};
}

path_values! {
    i64: [i64];
    WorkflowKey: [i64];
    String: [String];
    (i64, i64): [i64, i64];
    (i64, String): [i64, String];
    (i64, i64, i64): [i64, i64, i64];
    (i64, JobStatus, i64): [i64, JobStatusName, i64];
}

/// The integer id of an engine workflow, or (beyond the contract) the UUID of a request's workflow.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) enum WorkflowKey {
    Id(i64),
    Uuid(String),
}

impl TryFrom<String> for WorkflowKey {
    type Error = std::num::ParseIntError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_uuid = text.len() == 36 && text.bytes().filter(|byte| *byte == b'-').count() == 4;
        if is_uuid { Ok(Self::Uuid(text)) } else { text.parse().map(Self::Id) }
    }
}

/// A response of the contract, or a Windlass response for a key that the contract does not know.
pub(super) enum TorcOrOwnReply<T, O> {
    Contract(T),
    Own(O),
}

impl<T: HandlerReply, O: Serialize + Send + 'static> HandlerReply for TorcOrOwnReply<T, O> {
    fn describe(description: OperationDescription<'_>) -> OperationDescription<'_> {
        T::describe(description)
    }

    fn render(self) -> Response {
        match self {
            Self::Contract(reply) => reply.render(),
            Self::Own(reply) => Json(reply).into_response(),
        }
    }
}

/// A body with a named schema, a list of such, or any JSON.
pub(super) trait DescribedSchema {
    fn schema_ref(description: &mut OperationDescription<'_>) -> RefOr<Schema>;
}

/// Any JSON.
impl DescribedSchema for serde_json::Value {
    fn schema_ref(_: &mut OperationDescription<'_>) -> RefOr<Schema> {
        Self::schema()
    }
}

impl DescribedSchema for Vec<String> {
    fn schema_ref(_: &mut OperationDescription<'_>) -> RefOr<Schema> {
        ArrayBuilder::new().items(String::schema()).into()
    }
}

/// Implements the body schema of models by name.
macro_rules! described {
    ($($model:ident),* $(,)?) => {$(
        impl DescribedSchema for windlass_api::torc::$model {
            fn schema_ref(description: &mut OperationDescription<'_>) -> RefOr<Schema> {
                description.add_schema::<Self>().into()
            }
        }

        impl DescribedSchema for Vec<windlass_api::torc::$model> {
            fn schema_ref(description: &mut OperationDescription<'_>) -> RefOr<Schema> {
                ArrayBuilder::new().items(description.add_schema::<windlass_api::torc::$model>()).into()
            }
        }
    )*};
}

described! {
    AccessCheckResponse, AccessGroupModel, ActiveTaskResponse, AdminSqlRequest, AdminSqlResponse,
    ArchiveWorkflowRequest, BatchCompleteJobsRequest, BatchCompleteJobsResponse, ClaimActionRequest,
    ClaimActionResponse, ClaimJobsBasedOnResources, ClaimNextJobsResponse, ComputeNodeModel,
    ComputeNodesResources, CreateFilesResponse, CreateJobsResponse, CreateUserDataListResponse,
    DeleteCountResponse, DeleteRoCrateEntitiesResponse, EventModel, FailureHandlerModel, FileModel, FilesModel,
    GetReadyJobRequirementsResponse, IsCompleteResponse, IsUninitializedResponse, JobModel, JobsModel,
    ListJobIdsResponse, ListMissingUserDataResponse, ListRequiredExistingFilesResponse, LocalSchedulerModel,
    MessageResponse, PingResponse, ProcessChangedJobInputsResponse, ReloadAuthResponse, RemoteWorkerModel,
    ResetJobStatusResponse, ResourceRequirementsModel, ResultModel, RoCrateEntityModel,
    ScheduledComputeNodesModel, SlurmSchedulerModel, SlurmStatsModel, SpawnJobsRequest, SpawnJobsResponse,
    TaskModel, UserDataListModel, UserDataModel, UserGroupMembershipModel, VersionResponse,
    WorkflowAccessGroupModel, WorkflowActionModel, WorkflowModel, WorkflowStatusResponse,
}

impl<T: windlass_api::torc::PageItem> DescribedSchema for windlass_api::torc::ListPage<T> {
    fn schema_ref(description: &mut OperationDescription<'_>) -> RefOr<Schema> {
        description.add_schema::<Self>().into()
    }
}

impl<T: windlass_api::torc::PageItem> DescribedSchema for windlass_api::torc::GroupPage<T> {
    fn schema_ref(description: &mut OperationDescription<'_>) -> RefOr<Schema> {
        description.add_schema::<Self>().into()
    }
}

/// The response of a handler.
pub(super) trait HandlerReply: Send + 'static {
    fn describe(description: OperationDescription<'_>) -> OperationDescription<'_>;
    fn render(self) -> Response;
}

impl<T: Serialize + DescribedSchema + Send + 'static> HandlerReply for T {
    fn describe(mut description: OperationDescription<'_>) -> OperationDescription<'_> {
        let schema = T::schema_ref(&mut description);
        description.with_response("200", "Done", Some(schema))
    }

    fn render(self) -> Response {
        Json(self).into_response()
    }
}
