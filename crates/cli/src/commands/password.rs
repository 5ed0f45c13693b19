//! `windlass password`: the file of people who show passwords.

use crate::args::access::{PasswordAddArgs, PasswordListArgs, PasswordUserArgs, PasswordVerb};
use crate::context::Context;
use crate::error::{CliError, Exit};
use std::path::Path;
use windlass_auth::{Hashing, PasswordError, PasswordFile};

pub(crate) fn run(ctx: &Context, verb: &PasswordVerb) -> Result<Exit, CliError> {
    match verb {
        PasswordVerb::Add(args) => add(ctx, args),
        PasswordVerb::Remove(args) => remove(ctx, args),
        PasswordVerb::Verify(args) => verify(ctx, args),
        PasswordVerb::List(args) => list(ctx, args),
    }
}

fn add(ctx: &Context, args: &PasswordAddArgs) -> Result<Exit, CliError> {
    let PasswordUserArgs { file: path, user } = &args.of;
    let mut file =
        if path.try_exists().unwrap_or(true) { PasswordFile::read(path)? } else { PasswordFile::default() };
    let password = ctx.ui.ask_new_secret(&format!("Password of {user}: "))?;
    let hashing = if args.bcrypt { Hashing::Bcrypt } else { Hashing::Argon2id };
    let is_new = file.set(user, &password, hashing)?;
    file.write(path)?;
    let done = if is_new { "was added to" } else { "has a new password in" };
    ctx.ui.note(&format!("{user} {done} {}", path.display()));
    Ok(Exit::Success)
}

fn remove(ctx: &Context, args: &PasswordUserArgs) -> Result<Exit, CliError> {
    let mut file = PasswordFile::read(&args.file)?;
    if !file.remove(&args.user) {
        return Err(unknown(&args.user, &args.file));
    }
    file.write(&args.file)?;
    ctx.ui.note(&format!("{} was taken out of {}", args.user, args.file.display()));
    Ok(Exit::Success)
}

fn verify(ctx: &Context, args: &PasswordUserArgs) -> Result<Exit, CliError> {
    let file = PasswordFile::read(&args.file)?;
    if !file.users().any(|user| user == args.user) {
        return Err(unknown(&args.user, &args.file));
    }
    let password = ctx.ui.ask_secret(&format!("Password of {}: ", args.user))?;
    if !file.verify(&args.user, &password) {
        return Err(CliError::refused("the password is wrong"));
    }
    ctx.ui.note("the password is right");
    Ok(Exit::Success)
}

fn list(ctx: &Context, args: &PasswordListArgs) -> Result<Exit, CliError> {
    let file = PasswordFile::read(&args.file)?;
    let users: Vec<String> = file.users().map(str::to_owned).collect();
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&users)?;
    } else {
        ctx.ui.print_lines(&users)?;
    }
    Ok(Exit::Success)
}

fn unknown(user: &str, path: &Path) -> CliError {
    CliError::user(format!("there is no user `{user}` in {}", path.display()))
        .with_hint(format!("`windlass password list {}` shows who is", path.display()))
}

impl From<PasswordError> for CliError {
    fn from(error: PasswordError) -> Self {
        use std::error::Error as _;
        match &error {
            PasswordError::Read { .. } | PasswordError::Write { .. } => {
                let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                Self::io(format!("{error}{cause}"))
            }
            PasswordError::Line { .. }
            | PasswordError::In { .. }
            | PasswordError::Name(_)
            | PasswordError::Password(_) => Self::user(error.to_string()),
            PasswordError::Hash(_) => Self::internal(error.to_string()),
        }
    }
}
