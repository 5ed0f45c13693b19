//! Confirmation prompts and input of secrets.

use super::{TerminalUi, write_stderr_line};
use crate::args::list_options::ConfirmArgs;
use crate::error::CliError;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

impl TerminalUi {
    /// Continues only after confirmation: `--yes`, or an answer on the terminal. `what` completes "about to …".
    pub(crate) fn confirm(&self, what: &str, args: ConfirmArgs) -> Result<(), CliError> {
        if args.yes {
            return Ok(());
        }
        if !(io::stdin().is_terminal() && self.stderr.is_terminal()) {
            return Err(CliError::refused(format!(
                "confirmation is required to {what}, and stdin is not a terminal"
            ))
            .with_hint("confirm with --yes, or preview with --dry-run"));
        }
        write_stderr_line(&self.stderr, &format!("About to {what}."));
        drop(self.stderr.lock().write_all(b"Continue? [y/N] "));
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        match read {
            Ok(_) if is_yes(&answer) => Ok(()),
            _ => Err(CliError::refused("nothing changed")),
        }
    }
}

impl TerminalUi {
    /// Reads a secret: without echo on a terminal, or the first line of standard input.
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
            return Err(CliError::user("nothing was entered, or standard input is empty"));
        }
        Ok(answer)
    }

    /// Reads a new secret, twice on a terminal.
    pub(crate) fn prompt_new_secret(&self, question: &str) -> Result<String, CliError> {
        let secret = self.prompt_secret(question)?;
        let is_asked = io::stdin().is_terminal() && self.stderr.is_terminal();
        if is_asked && self.prompt_secret("Repeat: ")? != secret {
            return Err(CliError::user("the entries differ; nothing changed"));
        }
        Ok(secret)
    }
}

/// Disables terminal echo while it lives.
struct HiddenInput(Option<rustix::termios::Termios>);

impl HiddenInput {
    fn hide_input() -> Self {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut unseen = before.clone();
            unseen.local_modes.remove(LocalModes::ECHO);
            // If the terminal does not support it, echo stays on; better than failing.
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
    fn prompt_accepts_only_yes() {
        assert!(is_yes("y\n") && is_yes("Yes\n"));
        assert!(!is_yes("\n") && !is_yes("n\n") && !is_yes("yellow\n"));
    }
}
