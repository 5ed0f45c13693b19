//! The Model Context Protocol server of Windlass, over the store.
//!
//! An [`AgentSession`] has a store to read from, [`AgentActions`] for changes, and permissions. Its creator
//! decides what the agent may do: the store of a server returns only what its caller may see, and all access
//! goes through it. `tools` has a table of all tools; `output_redaction` redacts texts before they are shown;
//! `embedded_docs` has the pages and examples that are compiled in.
//!
//! The SDK (`rmcp`) changes often, so only `handler` and `transport` use it.

mod agent_session;
mod embedded_docs;
mod handler;
mod output_redaction;
mod prompts;
mod requests;
mod tools;
mod transport;
mod workflow_creation;

pub use agent_session::{
    AgentActions, AgentCapability, AgentSession, JobVariables, ReadOnlyActions, SpecText, ToolError,
    UndeliveredAttempt, WorkerJournal, load_job_variables,
};
pub use requests::RequestToolCall;
pub use tools::{describe_tools, tool_names};
pub use transport::{respond_http, serve_stdio};
pub use workflow_creation::create_workflow;
