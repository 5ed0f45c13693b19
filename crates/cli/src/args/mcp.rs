//! `windlass mcp`.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
It speaks the Model Context Protocol on its standard input and output, so an agent starts it, not a person. It works on
the database that other commands use here, or with --url on a server, with your rights there.

Without --allow-write an agent can look at everything and change nothing: the tools that would are not even there. With
it, those that start, end or repeat work still want `confirm: true` in each call.

What jobs wrote is shown in part, without secrets, and marked as data. That does not make it true: look at what an agent
proposes before you let it act.

Examples:
  windlass mcp                                           for an agent that explains and helps
  windlass mcp --allow-write                             for one that may act
  windlass mcp --url https://windlass.example.org        on a server
  claude mcp add windlass -- windlass mcp                one way to tell an agent of it

`windlass serve --mcp` offers the same over HTTP, at /mcp.")]
pub(crate) struct McpArgs {
    /// Offer also the tools that change something.
    #[arg(long)]
    pub(crate) allow_write: bool,
    /// Print the tools and their arguments as JSON, and do not serve.
    #[arg(long)]
    pub(crate) list_tools: bool,
}
