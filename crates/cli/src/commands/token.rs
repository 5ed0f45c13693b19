//! `windlass token`, `login`, `logout`, `whoami`: who one is to a server.

use crate::args::access::{
    LoginArgs, LogoutArgs, TokenCreateArgs, TokenListArgs, TokenRevokeArgs, TokenVerb,
};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::server;
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::table::Column;
use crate::ui::text;
use windlass_api::tokens::{NewToken, Token};
use windlass_client::{Client, ClientOptions, Kept, Trust};
use windlass_types::parse_duration;

/// How long a token is good that `login` has made.
const LOGIN_LASTS: u32 = 30 * 24 * 3600;

const TOKENS: &[Field<Token>] = &[
    Field::new("id", |t: &Token| t.id.into()).column(Column::number("ID")),
    Field::new("name", |t: &Token| (&t.name).into()).column(Column::elastic("NAME")),
    Field::new("user", |t: &Token| (&t.user).into()).column(Column::text("USER")),
    Field::new("role", |t: &Token| (&t.role).into()).column(Column::text("ROLE")),
    Field::new("scopes", |t: &Token| t.scopes.join(" ").into()).column(Column::text("SCOPES")),
    Field::new("created_at", |t: &Token| Datum::time(&t.created_at)),
    Field::new("expires_at", |t: &Token| t.expires_at.as_deref().map(Datum::time).into())
        .column(Column::text("EXPIRES")),
    Field::new("last_used_at", |t: &Token| t.last_used_at.as_deref().map(Datum::time).into())
        .column(Column::text("LAST USED")),
    Field::new("revoked_at", |t: &Token| t.revoked_at.as_deref().map(Datum::time).into())
        .column(Column::text("REVOKED")),
];

pub(crate) fn run(ctx: &Context, verb: &TokenVerb) -> Result<Exit, CliError> {
    match verb {
        TokenVerb::Create(args) => create(ctx, args),
        TokenVerb::List(args) => list(ctx, args),
        TokenVerb::Revoke(args) => revoke(ctx, args),
    }
}

fn create(ctx: &Context, args: &TokenCreateArgs) -> Result<Exit, CliError> {
    let new = NewToken {
        name: args.name.clone(),
        user: args.user.clone(),
        role: args.role.clone(),
        scopes: args.scopes.clone(),
        expires_in: args.expires_in.as_deref().map(seconds).transpose()?,
    };
    let made = ctx.require_server()?.create_token(&new)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&made)?;
        return Ok(Exit::Success);
    }
    ctx.ui.print_line(&made.token)?;
    ctx.ui.note(&format!("token {} of {}; it is not shown again", made.about.id, made.about.user));
    Ok(Exit::Success)
}

fn seconds(text: &str) -> Result<u32, CliError> {
    let wrong = |why: &str| CliError::user(format!("--expires-in cannot be `{text}`: {why}"));
    let time = parse_duration(text).map_err(|error| wrong(&error.to_string()))?;
    match u32::try_from(time.as_secs()) {
        Ok(0) => Err(wrong("it would be over at once")),
        Ok(seconds) => Ok(seconds),
        Err(_) => Err(wrong("that is more than a hundred years")),
    }
}

fn list(ctx: &Context, args: &TokenListArgs) -> Result<Exit, CliError> {
    let tokens = ctx.require_server()?.tokens(args.all)?;
    if ctx.ui.print_list(&Listing::new(TOKENS), tokens)? == 0 {
        ctx.ui.note("there are none");
    }
    Ok(Exit::Success)
}

fn revoke(ctx: &Context, args: &TokenRevokeArgs) -> Result<Exit, CliError> {
    let client = ctx.require_server()?;
    if let Some(user) = &args.user {
        let tokens = client.revoke_tokens_of(user)?;
        ctx.ui.note(&format!("revoked {} of {user}", text::count(tokens.len() as u64, "token")));
        if ctx.ui.json_wanted() {
            ctx.ui.print_json(&tokens)?;
        }
        return Ok(Exit::Success);
    }
    let token = client.revoke_token(args.id.unwrap_or_default())?;
    ctx.ui.note(&format!("revoked token {} ({}) of {}", token.id, token.name, token.user));
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&token)?;
    }
    Ok(Exit::Success)
}

pub(crate) fn whoami(ctx: &Context) -> Result<Exit, CliError> {
    let client = ctx.require_server()?;
    let me = client.me()?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&me)?;
        return Ok(Exit::Success);
    }
    let scopes = me.scopes.join(", ");
    ctx.ui.print_line(&format!(
        "{}, {} at {} (by {}, good for: {scopes})",
        me.user,
        me.role,
        client.url(),
        me.how
    ))?;
    Ok(Exit::Success)
}

/// Nothing is kept before the server has said that it knows the token.
pub(crate) fn login(ctx: &Context, args: &LoginArgs) -> Result<Exit, CliError> {
    let mut keyring = server::keyring()?;
    let token = match &args.user {
        None => ctx.ui.ask_secret(&format!("Token for {}: ", args.url))?,
        Some(user) => token_for_password(ctx, args, user)?,
    };
    let me = called_with(ctx, args, Some(token.clone()), None)?.me()?;
    keyring.keep(Kept { url: args.url.clone(), token, trust: trust(ctx, args) })?;
    ctx.ui.note(&format!("you are {}, {} at {}", me.user, me.role, args.url));
    Ok(Exit::Success)
}

fn token_for_password(ctx: &Context, args: &LoginArgs, user: &str) -> Result<String, CliError> {
    let password = ctx.ui.ask_secret(&format!("Password of {user} at {}: ", args.url))?;
    let client = called_with(ctx, args, None, Some((user.to_owned(), password)))?;
    let made = client.create_token(&NewToken {
        name: "windlass login".to_owned(),
        scopes: vec!["write".to_owned(), "worker".to_owned()],
        expires_in: Some(LOGIN_LASTS),
        ..NewToken::default()
    })?;
    Ok(made.token)
}

/// Kept with the token: the files must be found from everywhere.
fn trust(ctx: &Context, args: &LoginArgs) -> Trust {
    let ca_file = args.ca_file.as_ref().map(|path| ctx.cwd.join(path));
    Trust { ca_file, ..ctx.manner().trust.clone() }
}

fn called_with(
    ctx: &Context,
    args: &LoginArgs,
    token: Option<String>,
    password: Option<(String, String)>,
) -> Result<Client, CliError> {
    Ok(Client::new(ClientOptions {
        find_token: None,
        url: args.url.clone(),
        token,
        password,
        trust: trust(ctx, args),
        insecure_http: args.insecure_http,
    })?)
}

/// Forgets the token. Whether it is also to be revoked is not for this machine to decide: it may be used elsewhere.
pub(crate) fn logout(ctx: &Context, args: &LogoutArgs) -> Result<Exit, CliError> {
    if server::keyring()?.remove(&args.url)? {
        ctx.ui
            .note(&format!("the token for {} is forgotten; it is still good until it is revoked", args.url));
        return Ok(Exit::Success);
    }
    Err(CliError::user(format!("no token is kept for {}", args.url))
        .with_hint(format!("`windlass login {}` keeps one", args.url)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_tokens_last() {
        assert_eq!(seconds("90d").unwrap(), 90 * 86400);
        assert!(seconds("0s").is_err() && seconds("soon").is_err() && seconds("200y").is_err());
    }
}
