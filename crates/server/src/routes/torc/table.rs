//! The table of operations: a handler is a plain function, and what it takes and gives says how it is routed and described.
//!
//! ```ignore
//! Table::new("files")
//!     .get("/files/{id}", "get_file", "One file", get)       // fn get(call: &Call, Path(id): Path<i64>) -> Answer<FileModel>
//! ```
//!
//! Handlers of the contract ask the books and the service and wait for the answers, so each runs as a whole on the blocking
//! pool. It runs to its end also when its caller hangs up meanwhile: what it asked for is done or not done, never half.

use super::call::Call;
use crate::caller::Caller;
use crate::error::{Answer, ApiError};
use crate::extract::{Json, Path, Query};
use crate::state::{AppState, blocking};
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

pub(super) type Schemas = Vec<(String, RefOr<Schema>)>;

/// Operations about one noun.
pub(super) struct Table {
    tag: &'static str,
    router: OpenApiRouter<AppState>,
}

macro_rules! methods {
    ($($name:ident => $filter:ident, $method:ident;)*) => {$(
        pub(super) fn $name<A: 'static, H: Handler<A>>(
            self,
            path: &'static str,
            id: &'static str,
            summary: &'static str,
            handler: H,
        ) -> Self {
            self.add(MethodFilter::$filter, HttpMethod::$method, path, id, summary, handler)
        }
    )*};
}

impl Table {
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

    fn add<A: 'static, H: Handler<A>>(
        mut self,
        filter: MethodFilter,
        method: HttpMethod,
        path: &'static str,
        id: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self {
        let mut schemas = Schemas::new();
        let operation = OperationBuilder::new().tag(self.tag).operation_id(Some(id)).summary(Some(summary));
        let operation = H::describe(Description { path, operation, schemas: &mut schemas });
        let mut paths = Paths::new();
        paths.add_path_operation(path, vec![method], operation);
        let route: MethodRouter<AppState> =
            on(filter, move |caller: Caller, state: axum::extract::State<AppState>, request: Request| {
                let handler = handler.clone();
                async move { handler.handle(Call::new(state.0, caller.0), request).await }
            });
        self.router = self.router.routes((schemas, paths, route));
        self
    }
}

/// An operation while it is being described.
pub(super) struct Description<'a> {
    path: &'static str,
    operation: OperationBuilder,
    schemas: &'a mut Schemas,
}

impl Description<'_> {
    fn with(mut self, change: impl FnOnce(OperationBuilder) -> OperationBuilder) -> Self {
        self.operation = change(self.operation);
        self
    }

    /// Names a schema and keeps it and all that it refers to.
    pub(super) fn name<T: ToSchema>(&mut self) -> Ref {
        self.schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(self.schemas);
        Ref::from_schema_name(T::name())
    }

    pub(super) fn takes(self, parameters: Vec<Parameter>) -> Self {
        self.with(|operation| parameters.into_iter().fold(operation, OperationBuilder::parameter))
    }

    pub(super) fn answers(
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

/// A function that answers an operation.
pub(super) trait Handler<A>: Clone + Send + Sync + 'static {
    fn describe(description: Description<'_>) -> Operation;
    fn handle(self, call: Call, request: Request) -> impl Future<Output = Response> + Send;
}

macro_rules! handlers {
    ($(($($part:ident $value:ident),*))*) => {$(
        impl<F, R, $($part,)*> Handler<($($part,)* R,)> for F
        where
            F: Fn(&Call, $($part),*) -> Answer<R> + Clone + Send + Sync + 'static,
            R: Reply,
            $($part: Part,)*
        {
            fn describe(description: Description<'_>) -> Operation {
                $(let description = $part::describe(description);)*
                R::describe(description).operation.build()
            }

            async fn handle(self, call: Call, request: Request) -> Response {
                let mut given = Given::new(request);
                $(
                    let $value = match $part::take(&mut given, &call).await {
                        Ok(value) => value,
                        Err(error) => return error.into_response(),
                    };
                )*
                answer(move || self(&call, $($value),*)).await
            }
        }
    )*};
}

/// Runs a handler where it may block.
async fn answer<R: Reply>(handler: impl FnOnce() -> Answer<R> + Send + 'static) -> Response {
    match blocking(handler).await.flatten() {
        Ok(reply) => reply.render(),
        Err(error) => error.into_response(),
    }
}

impl<F, R> Handler<(R,)> for F
where
    F: Fn(&Call) -> Answer<R> + Clone + Send + Sync + 'static,
    R: Reply,
{
    fn describe(description: Description<'_>) -> Operation {
        R::describe(description).operation.build()
    }

    async fn handle(self, call: Call, _: Request) -> Response {
        answer(move || self(&call)).await
    }
}

handlers! {
    (A a)
    (A a, B b)
    (A a, B b, C c)
}

/// What is left of a request while its parts are taken.
pub(super) struct Given {
    parts: Parts,
    body: Option<axum::body::Body>,
}

impl Given {
    fn new(request: Request) -> Self {
        let (parts, body) = request.into_parts();
        Self { parts, body: Some(body) }
    }

    pub(super) async fn query<T: DeserializeOwned>(&mut self, call: &Call) -> Answer<T> {
        Query::from_request_parts(&mut self.parts, &call.state).await.map(|Query(query)| query)
    }
}

/// What a handler takes out of a request.
pub(super) trait Part: Sized + Send + 'static {
    fn describe(description: Description<'_>) -> Description<'_>;
    fn take(given: &mut Given, call: &Call) -> impl Future<Output = Answer<Self>> + Send;
}

impl<T: PathValues> Part for Path<T> {
    fn describe(description: Description<'_>) -> Description<'_> {
        let names = description.path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let parameters: Vec<Parameter> =
            names.zip(T::schemas()).map(|(name, schema)| path_parameter(name, schema)).collect();
        description.takes(parameters)
    }

    async fn take(given: &mut Given, call: &Call) -> Answer<Self> {
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

impl<T: DeserializeOwned + IntoParams + Send + 'static> Part for Query<T> {
    fn describe(description: Description<'_>) -> Description<'_> {
        description.takes(T::into_params(|| Some(ParameterIn::Query)))
    }

    async fn take(given: &mut Given, call: &Call) -> Answer<Self> {
        given.query(call).await.map(Self)
    }
}

impl<T: DeserializeOwned + Described + Send + 'static> Part for Json<T> {
    fn describe(mut description: Description<'_>) -> Description<'_> {
        let content = ContentBuilder::new().schema(Some(T::named(&mut description))).build();
        let body = RequestBodyBuilder::new()
            .content("application/json", content)
            .required(Some(Required::True))
            .build();
        description.with(|operation| operation.request_body(Some(body)))
    }

    async fn take(given: &mut Given, call: &Call) -> Answer<Self> {
        let body = given.body.take().ok_or_else(|| ApiError::internal("a body is taken twice"))?;
        let request = Request::from_parts(given.parts.clone(), body);
        Self::from_request(request, &call.state).await
    }
}

/// What stands in a path.
pub(super) trait PathValues: DeserializeOwned + Send + 'static {
    fn schemas() -> Vec<RefOr<Schema>>;
}

macro_rules! path_values {
    ($($type:ty: [$($schema:ty),*];)*) => {$(
        impl PathValues for $type {
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

/// A workflow of the engine by its number; or, which the contract does not know, that of a request by its UUID.
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

/// What the contract describes, or something of our own for a key that it does not know.
pub(super) enum OneOf<T, O> {
    Contract(T),
    Ours(O),
}

impl<T: Reply, O: Serialize + Send + 'static> Reply for OneOf<T, O> {
    fn describe(description: Description<'_>) -> Description<'_> {
        T::describe(description)
    }

    fn render(self) -> Response {
        match self {
            Self::Contract(reply) => reply.render(),
            Self::Ours(reply) => Json(reply).into_response(),
        }
    }
}

/// What has a schema by name, or is a list of such, or is anything at all.
pub(super) trait Described {
    fn named(description: &mut Description<'_>) -> RefOr<Schema>;
}

/// Any JSON.
impl Described for serde_json::Value {
    fn named(_: &mut Description<'_>) -> RefOr<Schema> {
        Self::schema()
    }
}

impl Described for Vec<String> {
    fn named(_: &mut Description<'_>) -> RefOr<Schema> {
        ArrayBuilder::new().items(String::schema()).into()
    }
}

/// Gives models their schema by name.
macro_rules! described {
    ($($model:ident),* $(,)?) => {$(
        impl Described for windlass_api::torc::$model {
            fn named(description: &mut Description<'_>) -> RefOr<Schema> {
                description.name::<Self>().into()
            }
        }

        impl Described for Vec<windlass_api::torc::$model> {
            fn named(description: &mut Description<'_>) -> RefOr<Schema> {
                ArrayBuilder::new().items(description.name::<windlass_api::torc::$model>()).into()
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

impl<T: windlass_api::torc::Listed> Described for windlass_api::torc::Page<T> {
    fn named(description: &mut Description<'_>) -> RefOr<Schema> {
        description.name::<Self>().into()
    }
}

impl<T: windlass_api::torc::Listed> Described for windlass_api::torc::GroupPage<T> {
    fn named(description: &mut Description<'_>) -> RefOr<Schema> {
        description.name::<Self>().into()
    }
}

/// What a handler gives.
pub(super) trait Reply: Send + 'static {
    fn describe(description: Description<'_>) -> Description<'_>;
    fn render(self) -> Response;
}

impl<T: Serialize + Described + Send + 'static> Reply for T {
    fn describe(mut description: Description<'_>) -> Description<'_> {
        let schema = T::named(&mut description);
        description.answers("200", "Done", Some(schema))
    }

    fn render(self) -> Response {
        Json(self).into_response()
    }
}
