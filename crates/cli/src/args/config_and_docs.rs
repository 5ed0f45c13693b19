//! Commands about windlass itself.

use clap::{Args, Subcommand};
use clap_complete::Shell;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Settings come from these places, later ones win:
  /etc/windlass/config.toml
  $XDG_CONFIG_HOME/windlass/config.toml, by default ~/.config/windlass/config.toml
  windlass.toml in the current directory
  environment variables: WINDLASS_RUN__GRACE=30s is `grace` in the section [run]
  the command line")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) verb: ConfigSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigSubcommand {
    /// Show the settings that are in force.
    Show(ConfigShowArgs),
    /// Show where settings are looked for, and what is there.
    Paths,
    /// Write a file with every setting, explained and commented out.
    Init(ConfigInitArgs),
    /// Check the settings and name every mistake.
    Validate,
    /// Print a shell's completion script for windlass.
    Completions(CompletionsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShowArgs {
    /// Also where each setting comes from.
    #[arg(long)]
    pub(crate) origin: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigInitArgs {
    /// For everybody on this machine.
    #[arg(long, group = "place")]
    pub(crate) system: bool,
    /// For you. This is what happens if nothing is said.
    #[arg(long, group = "place")]
    pub(crate) user: bool,
    /// For this directory.
    #[arg(long, group = "place")]
    pub(crate) local: bool,
    /// Replace a file that is there.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(windlass config completions bash)                  in ~/.bashrc
  windlass config completions zsh > ~/.zfunc/_windlass
  windlass config completions fish > ~/.config/fish/completions/windlass.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell that is to know the commands.
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct DocsArgs {
    /// Directory to write into, made if it is not there.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}
