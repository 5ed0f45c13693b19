//! Settings, shell completions and the generated documentation.

use clap::{Args, Subcommand};
use clap_complete::Shell;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(after_help = "\
Settings come from these sources; later ones take precedence:
  /etc/windlass/config.toml
  $XDG_CONFIG_HOME/windlass/config.toml, by default ~/.config/windlass/config.toml
  windlass.toml in the current directory
  environment variables: WINDLASS_RUN__GRACE=30s sets `grace` in the section [run]
  the command line")]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) verb: ConfigSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigSubcommand {
    /// Show the settings in effect.
    Show(ConfigShowArgs),
    /// Show the files that settings are read from, and whether they exist.
    Paths,
    /// Write a settings file with all settings, explained and commented out.
    Init(ConfigInitArgs),
    /// Check the settings and report all errors.
    Validate,
    /// Print a shell's completion script for windlass.
    Completions(CompletionsArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShowArgs {
    /// Also show the source of each setting.
    #[arg(long)]
    pub(crate) origin: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigInitArgs {
    /// Write the file for all users of this machine.
    #[arg(long, group = "place")]
    pub(crate) system: bool,
    /// Write the file of the current user. This is the default.
    #[arg(long, group = "place")]
    pub(crate) user: bool,
    /// Write the file for the current directory.
    #[arg(long, group = "place")]
    pub(crate) local: bool,
    /// Overwrite an existing file.
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
    /// Shell for which to print the script.
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct DocsArgs {
    /// Output directory; created if it does not exist.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}
