//! Authentication with a server: tokens, passwords, login.

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
  windlass auth token create --name ci --user ci --scope write     for another user (admins only)
  windlass auth token revoke 7
  windlass auth token revoke --user ana            all tokens of a user")]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) verb: TokenSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenSubcommand {
    /// Create a token and print it. The server stores only its hash, so it cannot be printed again.
    Create(TokenCreateArgs),
    /// List your tokens, including expired ones.
    List(TokenListArgs),
    /// Revoke a token, or all tokens of a user.
    Revoke(TokenRevokeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TokenCreateArgs {
    /// Name of the token, to tell tokens apart.
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: String,
    /// Scope of the token: read, write, worker, agent (decisions about failures only), admin; repeat for more.
    #[arg(long = "scope", value_name = "SCOPE", required = true)]
    pub(crate) scopes: Vec<String>,
    /// Time until the token expires: 12h, 90d. Default: it does not expire.
    #[arg(long, value_name = "TIME")]
    pub(crate) expires_in: Option<String>,
    /// User of the token (admins only). Default: you.
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Maximum role: viewer, user, operator, admin. Default: your role, or `user` for another user.
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TokenListArgs {
    /// List the tokens of all users (admins only).
    #[arg(short, long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TokenRevokeArgs {
    /// Id of the token, as `windlass auth token list` shows it.
    #[arg(value_name = "ID", required_unless_present = "user")]
    pub(crate) id: Option<i64>,
    /// Revoke all tokens of this user (for other users: admins only).
    #[arg(long, value_name = "NAME", conflicts_with = "id")]
    pub(crate) user: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The file has one line per user, `name:hash`, as `htpasswd -B` and Torc write it. A server reads it at start, on SIGHUP, \
and when an admin requests it (POST /api/v1/admin/reload-auth).

Examples:
  windlass auth password add users.htpasswd ana            prompts for the password
  windlass auth password add users.htpasswd ana < secret   reads it from a file
  windlass serve --password-file users.htpasswd")]
pub(crate) struct PasswordArgs {
    #[command(subcommand)]
    pub(crate) verb: PasswordSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PasswordSubcommand {
    /// Add a user or change the password; prompts for it, or reads it from standard input.
    Add(PasswordAddArgs),
    /// Remove a user from the file.
    Remove(PasswordUserArgs),
    /// Check a password; the exit code is 4 if it is wrong.
    Verify(PasswordUserArgs),
    /// List the users in the file.
    List(PasswordListArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PasswordAddArgs {
    #[command(flatten)]
    pub(crate) entry: PasswordUserArgs,
    /// Hash with bcrypt, for files that Torc or a web server also reads.
    #[arg(long)]
    pub(crate) bcrypt: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PasswordUserArgs {
    /// Password file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Name of the user.
    #[arg(value_name = "USER")]
    pub(crate) user: String,
}

#[derive(Debug, Args)]
pub(crate) struct PasswordListArgs {
    /// Password file.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The token is stored in ~/.config/windlass/tokens.toml, which only you can read, and is sent only to that server.

Examples:
  windlass auth login https://windlass.example.org               prompts for a token
  windlass auth login https://windlass.example.org --user ana    prompts for the password, and creates a token
  windlass auth login https://windlass.example.org < token       reads the token from a file")]
pub(crate) struct LoginArgs {
    /// URL of the server.
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Log in with the password of this user, which creates a token that expires after 30 days. Default:
    /// prompt for a token.
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Trust the certificates in this file in addition to those of the system (PEM); stored with the token.
    #[arg(long, value_name = "PATH")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Allow sending the token to another machine over unencrypted HTTP. Others on the network can read it.
    #[arg(long)]
    pub(crate) insecure_http: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    /// URL of the server.
    #[arg(value_name = "URL")]
    pub(crate) url: String,
}
