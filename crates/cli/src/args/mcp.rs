//! `windlass mcp`.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
An agent starts this command and communicates through its standard input and output, with the Model Context Protocol. It \
uses the database that other commands use here, or with --url a server, with your permissions there.

Without --allow-write an agent can only read: tools that change something are not offered. With it, tools that start, end \
or repeat work require `confirm: true` in each call.

Output of jobs is shown in part, without secrets, and marked as untrusted data. Review what an agent proposes before you \
let it act.

Examples:
  windlass mcp                                           an agent may read
  windlass mcp --allow-write                             an agent may also act
  windlass mcp --url https://windlass.example.org        use a server
  claude mcp add windlass -- windlass mcp                register it with an agent

`windlass serve --mcp` offers the same over HTTP, at /mcp.")]
pub(crate) struct McpArgs {
    /// Also offer tools that change workflows or requests. Default: tools that only read.
    #[arg(long)]
    pub(crate) allow_write: bool,
    /// Print the tools and their arguments as JSON, and exit.
    #[arg(long)]
    pub(crate) list_tools: bool,
}
