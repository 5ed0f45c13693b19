//! `windlass auth password`: maintains the password file.

use crate::args::auth::{PasswordAddArgs, PasswordListArgs, PasswordSubcommand, PasswordUserArgs};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use std::path::Path;
use windlass_auth::{PasswordError, PasswordFile, PasswordHashing};

pub(crate) fn run(ctx: &CliContext, verb: &PasswordSubcommand) -> Result<CliExit, CliError> {
    match verb {
        PasswordSubcommand::Add(args) => add_user(ctx, args),
        PasswordSubcommand::Remove(args) => remove_user(ctx, args),
        PasswordSubcommand::Verify(args) => verify_password(ctx, args),
        PasswordSubcommand::List(args) => list_users(ctx, args),
    }
}

fn add_user(ctx: &CliContext, args: &PasswordAddArgs) -> Result<CliExit, CliError> {
    let PasswordUserArgs { file: path, user } = &args.entry;
    let mut file =
        if path.try_exists().unwrap_or(true) { PasswordFile::read(path)? } else { PasswordFile::default() };
    let password = ctx.ui.prompt_new_secret(&format!("Password of {user}: "))?;
    let hashing = if args.bcrypt { PasswordHashing::Bcrypt } else { PasswordHashing::Argon2id };
    let is_new = file.set(user, &password, hashing)?;
    file.write(path)?;
    let done = if is_new { "was added to" } else { "has a new password in" };
    ctx.ui.print_note(&format!("{user} {done} {}", path.display()));
    Ok(CliExit::Success)
}

fn remove_user(ctx: &CliContext, args: &PasswordUserArgs) -> Result<CliExit, CliError> {
    let mut file = PasswordFile::read(&args.file)?;
    if !file.remove(&args.user) {
        return Err(unknown_user_error(&args.user, &args.file));
    }
    file.write(&args.file)?;
    ctx.ui.print_note(&format!("{} was removed from {}", args.user, args.file.display()));
    Ok(CliExit::Success)
}

fn verify_password(ctx: &CliContext, args: &PasswordUserArgs) -> Result<CliExit, CliError> {
    let file = PasswordFile::read(&args.file)?;
    if !file.users().any(|user| user == args.user) {
        return Err(unknown_user_error(&args.user, &args.file));
    }
    let password = ctx.ui.prompt_secret(&format!("Password of {}: ", args.user))?;
    if !file.verify(&args.user, &password) {
        return Err(CliError::refused("the password is incorrect"));
    }
    ctx.ui.print_note("the password is correct");
    Ok(CliExit::Success)
}

fn list_users(ctx: &CliContext, args: &PasswordListArgs) -> Result<CliExit, CliError> {
    let file = PasswordFile::read(&args.file)?;
    let users: Vec<String> = file.users().map(str::to_owned).collect();
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&users)?;
    } else {
        ctx.ui.print_lines(&users)?;
    }
    Ok(CliExit::Success)
}

fn unknown_user_error(user: &str, path: &Path) -> CliError {
    CliError::user(format!("there is no user `{user}` in {}", path.display()))
        .with_hint(format!("`windlass auth password list {}` lists the users", path.display()))
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
