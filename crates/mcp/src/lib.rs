//! Windlass for AI agents: the server half of the Model Context Protocol, over the books.
//!
//! A [`Desk`] is what an agent sits at: books to read in, [`Hands`] that do what changes something, and terms. Whoever
//! makes it decides what the agent may do: the books of a server are those that its caller may see, and nothing here
//! goes round them. [`tools`] are what an agent can call, one line each in its table; [`shown`] is what becomes of texts
//! before they are shown; [`library`] are the pages and examples that are compiled in.
//!
//! The SDK (`rmcp`) moves fast, so only [`handler`] and [`speak`] know it.

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
