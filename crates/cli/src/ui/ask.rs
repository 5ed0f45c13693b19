//! Asking before something is destroyed.

use super::{Ui, say};
use crate::args::page::ConfirmArgs;
use crate::error::CliError;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

impl Ui {
    /// Goes on only if somebody said yes: with `--yes`, or when asked on a terminal. `what` completes "about to …".
    pub(crate) fn confirm(&self, what: &str, args: ConfirmArgs) -> Result<(), CliError> {
        if args.yes {
            return Ok(());
        }
        if !(io::stdin().is_terminal() && self.stderr.is_terminal()) {
            return Err(CliError::refused(format!("about to {what}, and nobody is here to be asked"))
                .with_hint("say --yes, or look first with --dry-run"));
        }
        say(&self.stderr, &format!("About to {what}."));
        drop(self.stderr.lock().write_all(b"Go on? [y/N] "));
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        match read {
            Ok(_) if is_yes(&answer) => Ok(()),
            _ => Err(CliError::refused("nothing was changed")),
        }
    }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        assert!(is_yes("y\n") && is_yes("Yes\n"));
        assert!(!is_yes("\n") && !is_yes("n\n") && !is_yes("yellow\n"));
    }
}
