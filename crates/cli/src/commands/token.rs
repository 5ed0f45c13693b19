//! `windlass auth token`, `login`, `logout`, `whoami`: authentication with a server.

use crate::args::auth::{
    LoginArgs, LogoutArgs, TokenCreateArgs, TokenListArgs, TokenRevokeArgs, TokenSubcommand,
};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::server_discovery;
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::table::TableColumn;
use crate::ui::text;
use windlass_api::tokens::{CreateToken, TokenInfo};
use windlass_client::{Client, ClientOptions, SavedServer, ServerTrust};
use windlass_types::parse_duration;

/// Lifetime of a token created by `login`.
const LOGIN_TOKEN_SECONDS: u32 = 30 * 24 * 3600;

const TOKEN_FIELDS: &[ListField<TokenInfo>] = &[
    ListField::new("id", |t: &TokenInfo| t.id.into()).column(TableColumn::number("ID")),
    ListField::new("name", |t: &TokenInfo| (&t.name).into()).column(TableColumn::flexible("NAME")),
    ListField::new("user", |t: &TokenInfo| (&t.user).into()).column(TableColumn::text("USER")),
    ListField::new("role", |t: &TokenInfo| (&t.role).into()).column(TableColumn::text("ROLE")),
    ListField::new("scopes", |t: &TokenInfo| t.scopes.join(" ").into()).column(TableColumn::text("SCOPES")),
    ListField::new("created_at", |t: &TokenInfo| FieldValue::parse_time(&t.created_at)),
    ListField::new("expires_at", |t: &TokenInfo| t.expires_at.as_deref().map(FieldValue::parse_time).into())
        .column(TableColumn::text("EXPIRES")),
    ListField::new("last_used_at", |t: &TokenInfo| {
        t.last_used_at.as_deref().map(FieldValue::parse_time).into()
    })
    .column(TableColumn::text("LAST USED")),
    ListField::new("revoked_at", |t: &TokenInfo| t.revoked_at.as_deref().map(FieldValue::parse_time).into())
        .column(TableColumn::text("REVOKED")),
];

pub(crate) fn run(ctx: &CliContext, verb: &TokenSubcommand) -> Result<CliExit, CliError> {
    match verb {
        TokenSubcommand::Create(args) => create_token(ctx, args),
        TokenSubcommand::List(args) => list_tokens(ctx, args),
        TokenSubcommand::Revoke(args) => revoke_tokens(ctx, args),
    }
}

fn create_token(ctx: &CliContext, args: &TokenCreateArgs) -> Result<CliExit, CliError> {
    let new = CreateToken {
        name: args.name.clone(),
        user: args.user.clone(),
        role: args.role.clone(),
        scopes: args.scopes.clone(),
        expires_in: args.expires_in.as_deref().map(parse_seconds).transpose()?,
    };
    let made = ctx.require_server()?.create_token(&new)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&made)?;
        return Ok(CliExit::Success);
    }
    ctx.ui.print_line(&made.token)?;
    ctx.ui.print_note(&format!("token {} of {}; it is not shown again", made.about.id, made.about.user));
    Ok(CliExit::Success)
}

fn parse_seconds(text: &str) -> Result<u32, CliError> {
    let wrong = |why: &str| CliError::user(format!("invalid --expires-in `{text}`: {why}"));
    let time = parse_duration(text).map_err(|error| wrong(&error.to_string()))?;
    match u32::try_from(time.as_secs()) {
        Ok(0) => Err(wrong("it would expire immediately")),
        Ok(seconds) => Ok(seconds),
        Err(_) => Err(wrong("more than a hundred years")),
    }
}

fn list_tokens(ctx: &CliContext, args: &TokenListArgs) -> Result<CliExit, CliError> {
    let tokens = ctx.require_server()?.tokens(args.all)?;
    if ctx.ui.print_list(&ListFields::new(TOKEN_FIELDS), tokens)? == 0 {
        ctx.ui.print_note(if args.all {
            "there are no tokens"
        } else {
            "you have no tokens; `--all` lists those of all users (admins only)"
        });
    }
    Ok(CliExit::Success)
}

fn revoke_tokens(ctx: &CliContext, args: &TokenRevokeArgs) -> Result<CliExit, CliError> {
    let client = ctx.require_server()?;
    if let Some(user) = &args.user {
        let tokens = client.revoke_tokens_of(user)?;
        ctx.ui.print_note(&format!("revoked {} of {user}", text::render_count(tokens.len() as u64, "token")));
        if ctx.ui.wants_json() {
            ctx.ui.print_json(&tokens)?;
        }
        return Ok(CliExit::Success);
    }
    let token = client.revoke_token(args.id.unwrap_or_default())?;
    ctx.ui.print_note(&format!("revoked token {} ({}) of {}", token.id, token.name, token.user));
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&token)?;
    }
    Ok(CliExit::Success)
}

pub(crate) fn show_identity(ctx: &CliContext) -> Result<CliExit, CliError> {
    let client = ctx.require_server()?;
    let me = client.caller_info()?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&me)?;
        return Ok(CliExit::Success);
    }
    let scopes = me.scopes.join(", ");
    ctx.ui.print_line(&format!(
        "{}, {} at {} (authenticated by {}, scopes: {scopes})",
        me.user,
        me.role,
        client.url(),
        me.how
    ))?;
    Ok(CliExit::Success)
}

/// The token is saved only after the server has accepted it.
pub(crate) fn login(ctx: &CliContext, args: &LoginArgs) -> Result<CliExit, CliError> {
    let mut keyring = server_discovery::open_keyring()?;
    let token = match &args.user {
        None => ctx.ui.prompt_secret(&format!("Token for {}: ", args.url))?,
        Some(user) => create_token_with_password(ctx, args, user)?,
    };
    let me = connect(ctx, args, Some(token.clone()), None)?.caller_info()?;
    keyring.save(SavedServer { url: args.url.clone(), token, trust: login_trust(ctx, args) })?;
    ctx.ui.print_note(&format!("logged in as {}, {} at {}", me.user, me.role, args.url));
    Ok(CliExit::Success)
}

fn create_token_with_password(ctx: &CliContext, args: &LoginArgs, user: &str) -> Result<String, CliError> {
    let password = ctx.ui.prompt_secret(&format!("Password of {user} at {}: ", args.url))?;
    let client = connect(ctx, args, None, Some((user.to_owned(), password)))?;
    let made = client.create_token(&CreateToken {
        name: "windlass login".to_owned(),
        scopes: vec!["write".to_owned(), "worker".to_owned()],
        expires_in: Some(LOGIN_TOKEN_SECONDS),
        ..CreateToken::default()
    })?;
    Ok(made.token)
}

/// Saved with the token, with absolute paths.
fn login_trust(ctx: &CliContext, args: &LoginArgs) -> ServerTrust {
    let ca_file = args.ca_file.as_ref().map(|path| ctx.cwd.join(path));
    ServerTrust { ca_file, ..ctx.connection_settings().trust.clone() }
}

fn connect(
    ctx: &CliContext,
    args: &LoginArgs,
    token: Option<String>,
    password: Option<(String, String)>,
) -> Result<Client, CliError> {
    Ok(Client::new(ClientOptions {
        token_lookup: None,
        url: args.url.clone(),
        token,
        password,
        trust: login_trust(ctx, args),
        insecure_http: args.insecure_http,
    })?)
}

/// Deletes the saved token. It is not revoked, because it may be used elsewhere.
pub(crate) fn logout(ctx: &CliContext, args: &LogoutArgs) -> Result<CliExit, CliError> {
    if server_discovery::open_keyring()?.remove(&args.url)? {
        ctx.ui
            .print_note(&format!("deleted the token for {}; it remains valid until it is revoked", args.url));
        return Ok(CliExit::Success);
    }
    Err(CliError::user(format!("no token is saved for {}", args.url))
        .with_hint(format!("`windlass auth login {}` saves one", args.url)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_lifetime_is_parsed_and_limited() {
        assert_eq!(parse_seconds("90d").unwrap(), 90 * 86400);
        assert!(
            parse_seconds("0s").is_err() && parse_seconds("soon").is_err() && parse_seconds("200y").is_err()
        );
    }
}
