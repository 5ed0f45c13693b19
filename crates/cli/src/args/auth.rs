//! Who one is to a server: tokens, passwords, logging in.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct AuthArgs {
    #[command(subcommand)]
    pub(crate) verb: AuthSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuthSubcommand {
    /// Store a token for a server, so that commands with its URL use it.
    Login(LoginArgs),
    /// Delete the stored token for a server.
    Logout(LogoutArgs),
    /// Show the user, role and permissions that a server recognizes.
    Whoami,
    /// Tokens for programs that connect to a server: create, list, revoke.
    Token(TokenArgs),
    /// Password file of a server: add, remove, verify, list.
    Password(PasswordArgs),
    /// Groups of users who share workflows: list, create, delete, add-user, share …
    AccessGroups(super::access_groups::AccessGroupsArgs),
    /// Check that a server answers.
    Ping,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass auth token create --name laptop --scope write --expires-in 90d
  windlass auth token create --name farm --scope worker            for `windlass worker`
  windlass auth token create --name ci --user ci --scope write     for somebody else; admins only
  windlass auth token revoke 7
  windlass auth token revoke --user ana            all tokens of a user who has left")]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) verb: TokenSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenSubcommand {
    /// Make a token and print it; it is not kept anywhere and cannot be printed again.
    Create(TokenCreateArgs),
    /// List your tokens, also those that are over.
    List(TokenListArgs),
    /// Revoke a token, or all tokens of a user, at once.
    Revoke(TokenRevokeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TokenCreateArgs {
    /// What it is for, to tell tokens apart.
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: String,
    /// What it is good for: read, write, worker, agent (decides about failures only), admin; give it again for more.
    #[arg(long = "scope", value_name = "SCOPE", required = true)]
    pub(crate) scopes: Vec<String>,
    /// How long it is good: 12h, 90d; without it, until it is revoked.
    #[arg(long, value_name = "TIME")]
    pub(crate) expires_in: Option<String>,
    /// For this user instead of for you; admins only.
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// With this role at most: viewer, user, operator, admin; without it, your own, and `user` for somebody else.
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TokenListArgs {
    /// Everybody's; admins only.
    #[arg(short, long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TokenRevokeArgs {
    /// The id of the token, as `windlass auth token list` shows it.
    #[arg(value_name = "ID", required_unless_present = "user")]
    pub(crate) id: Option<i64>,
    /// Revoke all tokens of this user (admins only, for other users).
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    pub(crate) user: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The file has one line per user, `name:hash`, as `htpasswd -B` and Torc write it. A server reads it at start, on SIGHUP,
and when an admin asks for it (POST /api/v1/admin/reload-auth).

Examples:
  windlass auth password add users.htpasswd ana            asks for the password
  windlass auth password add users.htpasswd ana < secret   reads it from a file
  windlass serve --password-file users.htpasswd")]
pub(crate) struct PasswordArgs {
    #[command(subcommand)]
    pub(crate) verb: PasswordSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PasswordSubcommand {
    /// Set the password of a user, who may be new; asks for it, or reads it from standard input.
    Add(PasswordAddArgs),
    /// Take a user out of the file.
    Remove(PasswordUserArgs),
    /// Check a password; exits with 4 if it is wrong.
    Verify(PasswordUserArgs),
    /// List the users in the file.
    List(PasswordListArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PasswordAddArgs {
    #[command(flatten)]
    pub(crate) of: PasswordUserArgs,
    /// Hash with bcrypt, for files that Torc or a web server reads as well.
    #[arg(long)]
    pub(crate) bcrypt: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PasswordUserArgs {
    /// The password file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The name of the user.
    #[arg(value_name = "USER")]
    pub(crate) user: String,
}

#[derive(Debug, Args)]
pub(crate) struct PasswordListArgs {
    /// The password file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The token is kept in ~/.config/windlass/tokens.toml, which only you can read, and is sent to that server alone.

Examples:
  windlass auth login https://windlass.example.org               asks for a token
  windlass auth login https://windlass.example.org --user ana    asks for the password, and has a token made
  windlass auth login https://windlass.example.org < token       reads it from a file")]
pub(crate) struct LoginArgs {
    /// The server.
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Show a password instead of a token, and have a token made that is good for 30 days.
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Trust the certificates in this file beside those of the system; kept with the token.
    #[arg(long, value_name = "PATH")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Send the token also where others can read it: over http:// to another machine.
    #[arg(long)]
    pub(crate) insecure_http: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// The server.
    #[arg(value_name = "URL")]
    pub(crate) url: String,
}
