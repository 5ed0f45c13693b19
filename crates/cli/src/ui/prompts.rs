//! Asking before something is destroyed.

use super::{TerminalUi, write_stderr_line};
use crate::args::list_options::ConfirmArgs;
use crate::error::CliError;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

impl TerminalUi {
    /// Goes on only if somebody said yes: with `--yes`, or when asked on a terminal. `what` completes "about to …".
    pub(crate) fn confirm(&self, what: &str, args: ConfirmArgs) -> Result<(), CliError> {
        if args.yes {
            return Ok(());
        }
        if !(io::stdin().is_terminal() && self.stderr.is_terminal()) {
            return Err(CliError::refused(format!("about to {what}, and nobody is here to be asked"))
                .with_hint("say --yes, or look first with --dry-run"));
        }
        write_stderr_line(&self.stderr, &format!("About to {what}."));
        drop(self.stderr.lock().write_all(b"Go on? [y/N] "));
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        match read {
            Ok(_) if is_yes(&answer) => Ok(()),
            _ => Err(CliError::refused("nothing was changed")),
        }
    }
}

impl TerminalUi {
    /// A secret: typed unseen on a terminal, or the first line of standard input.
    pub(crate) fn prompt_secret(&self, question: &str) -> Result<String, CliError> {
        let stdin = io::stdin();
        let is_asked = stdin.is_terminal() && self.stderr.is_terminal();
        let _unseen = if is_asked {
            drop(self.stderr.lock().write_all(question.as_bytes()));
            Some(HiddenInput::hide_input())
        } else {
            None
        };
        let mut answer = String::new();
        let read = stdin.lock().read_line(&mut answer);
        if is_asked {
            drop(self.stderr.lock().write_all(b"\n"));
        }
        read.map_err(|error| CliError::io(format!("cannot read standard input: {error}")))?;
        let answer = answer.trim_end_matches(['\n', '\r']).to_owned();
        if answer.is_empty() {
            return Err(CliError::user("nothing was typed, and standard input is empty"));
        }
        Ok(answer)
    }

    /// A new secret: on a terminal it is typed twice.
    pub(crate) fn prompt_new_secret(&self, question: &str) -> Result<String, CliError> {
        let secret = self.prompt_secret(question)?;
        let is_asked = io::stdin().is_terminal() && self.stderr.is_terminal();
        if is_asked && self.prompt_secret("Once more: ")? != secret {
            return Err(CliError::user("these were not the same; nothing was changed"));
        }
        Ok(secret)
    }
}

/// While it lives, what is typed is not shown.
struct HiddenInput(Option<rustix::termios::Termios>);

impl HiddenInput {
    fn hide_input() -> Self {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut unseen = before.clone();
            unseen.local_modes.remove(LocalModes::ECHO);
            // A terminal that cannot do so shows it; better than not to go on.
            tcsetattr(io::stdin(), OptionalActions::Flush, &unseen).ok();
        }
        Self(before)
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            rustix::termios::tcsetattr(io::stdin(), rustix::termios::OptionalActions::Flush, before).ok();
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
