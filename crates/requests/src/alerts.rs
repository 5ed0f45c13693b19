//! Alerts: a line in the log, and an external program (mail, webhook) that gets the alert as JSON.
//!
//! The program runs without a shell, with a timeout, and never on the thread of decisions: a mail server that is
//! down delays mails and nothing else.

use std::io::{self, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use windlass_core::requests::rows::AlertRow;

/// Interval at which a program that should end soon is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Recipients of alerts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlertNotifier {
    /// A program and its arguments; empty: only the log.
    pub command: Vec<String>,
    /// Timeout of the program. Zero: [`Bell::TIMEOUT`].
    pub timeout: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum AlertError {
    #[error("cannot run the alert program `{program}`: {source}")]
    Run { program: String, source: io::Error },
    #[error("the alert program `{program}` failed: {status}")]
    Failed { program: String, status: ExitStatus },
    #[error("the alert program `{program}` timed out after {timeout:?}")]
    TimedOut { program: String, timeout: Duration },
}

impl AlertNotifier {
    pub const TIMEOUT: Duration = Duration::from_secs(30);

    /// Sends all alerts; a program is run once per alert.
    pub fn send_alert(&self, alert: &AlertRow) -> Result<(), AlertError> {
        let text = serde_json::to_string(alert).unwrap_or_default();
        tracing::warn!(
            kind = alert.alert.kind,
            request = alert.alert.request.as_deref(),
            detail = %alert.alert.detail,
            "{}",
            alert.alert.message
        );
        let Some((program, arguments)) = self.command.split_first() else { return Ok(()) };
        self.run_program(program, arguments, text)
    }

    fn run_program(&self, program: &str, arguments: &[String], text: String) -> Result<(), AlertError> {
        let wrong = |source| AlertError::Run { program: program.to_owned(), source };
        let timeout = if self.timeout.is_zero() { Self::TIMEOUT } else { self.timeout };
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(wrong)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that does not read must not block its timeout. One that has ended needs no more input.
            thread::spawn(move || stdin.write_all(text.as_bytes()).unwrap_or_default());
        }
        match wait_with_timeout(&mut child, timeout).map_err(wrong)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(AlertError::Failed { program: program.to_owned(), status }),
            None => Err(AlertError::TimedOut { program: program.to_owned(), timeout }),
        }
    }
}

/// `None`: it timed out and was killed.
fn wait_with_timeout(child: &mut Child, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    let until = Instant::now() + timeout;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use windlass_core::requests::rows::NewAlert;
    use windlass_types::Timestamp;

    fn alert() -> AlertRow {
        let alert = NewAlert {
            kind: "stuck_in_queue".into(),
            request: Some("r1".into()),
            message: "it waits".into(),
            detail: json!({"status": "queued"}),
        };
        AlertRow { id: 3, alert, at: Timestamp(0), told_at: None }
    }

    fn bell(command: &[&str]) -> AlertNotifier {
        AlertNotifier {
            command: command.iter().map(|&word| word.to_owned()).collect(),
            timeout: Duration::ZERO,
        }
    }

    #[test]
    fn alert_program_gets_alert_without_shell() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("$(id) said");
        bell(&["tee", file.to_str().unwrap()]).send_alert(&alert()).unwrap();
        let received: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!((&received["kind"], &received["request"]), (&json!("stuck_in_queue"), &json!("r1")));
    }

    #[test]
    fn alert_program_errors_are_reported() {
        bell(&[]).send_alert(&alert()).unwrap();
        assert!(matches!(bell(&["false"]).send_alert(&alert()), Err(AlertError::Failed { .. })));
        assert!(matches!(bell(&["/no/such/program"]).send_alert(&alert()), Err(AlertError::Run { .. })));
        let slow = AlertNotifier { timeout: Duration::from_millis(50), ..bell(&["sleep", "600"]) };
        assert!(matches!(slow.send_alert(&alert()), Err(AlertError::TimedOut { .. })));
    }
}
