//! Windlass for AI agents: the server half of the Model Context Protocol, over the books.
//!
//! A [`Desk`] is what an agent sits at: books to read in, [`Hands`] that do what changes something, and terms. Whoever
//! makes it decides what the agent may do: the books of a server are those that its caller may see, and nothing here
//! goes round them. [`tools`] are what an agent can call, one line each in its table; [`shown`] is what becomes of texts
//! before they are shown; [`library`] are the pages and examples that are compiled in.
//!
//! The SDK (`rmcp`) moves fast, so only [`handler`] and [`speak`] know it.

mod desk;
mod handler;
mod library;
mod made;
mod prompts;
mod requests;
mod shown;
mod speak;
mod tools;

pub use desk::{
    Desk, Environment, Hands, NoHands, Skill, SpecText, Trouble, Undelivered, UndeliveredAttempt,
    environments,
};
pub use made::make_workflow;
pub use requests::AboutRequests;
pub use speak::{respond, serve_stdio};
pub use tools::{describe as describe_tools, names as tool_names};
