//! Hosts that ssh reaches, and running scripts on them.
//!
//! Commands are sent to `/bin/sh -s` over standard input, so that they, and tokens in particular, do not appear
//! in a command line of ssh or on the host. Host names are checked, because ssh would take a leading dash for
//! an option. Host keys are verified by ssh itself: unknown ones are rejected.

use std::fmt;
use std::io::{self, Write as _};
use std::process::{Child, Command, Output, Stdio};
use std::str::FromStr;

/// `[USER@]HOST[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RemoteHost {
    user: Option<String>,
    host: String,
    port: Option<u16>,
}

impl FromStr for RemoteHost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a host: write HOST, USER@HOST, or USER@HOST:PORT");
        let (user, rest) = match text.split_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, text),
        };
        let (host, port) = match rest.split_once(':') {
            Some((host, port)) => {
                (host, Some(port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong)?))
            }
            None => (rest, None),
        };
        if !is_safe_word(host) || !user.is_none_or(is_safe_word) {
            return Err(wrong());
        }
        Ok(Self { user: user.map(str::to_owned), host: host.to_owned(), port })
    }
}

/// Only characters that are not special to a shell or ssh.
fn is_safe_word(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !word.is_empty() && !word.starts_with(['-', '.']) && word.chars().all(is_part)
}

impl fmt::Display for RemoteHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        f.write_str(&self.host)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl RemoteHost {
    /// Runs a script on the host, and captures its output.
    pub(crate) fn run_script(&self, script: &str, options: &[String]) -> io::Result<Output> {
        self.start_script(script, options)?.wait_with_output()
    }

    /// Starts a script on the host, with its output in a pipe.
    pub(crate) fn start_script(&self, script: &str, options: &[String]) -> io::Result<Child> {
        let mut command = Command::new("ssh");
        command
            .args(self.ssh_arguments(options))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // If ssh has ended, it reports the error itself.
            stdin.write_all(script.as_bytes()).ok();
        }
        Ok(child)
    }

    fn ssh_arguments(&self, options: &[String]) -> Vec<String> {
        let mut words: Vec<String> =
            ["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"].map(str::to_owned).into();
        for option in options {
            words.extend(["-o".to_owned(), option.clone()]);
        }
        if let Some(port) = self.port {
            words.extend(["-p".to_owned(), port.to_string()]);
        }
        let target = self.user.as_ref().map_or(self.host.clone(), |user| format!("{user}@{}", self.host));
        words.extend(["--".to_owned(), target, "/bin/sh -s".to_owned()]);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_host_names_are_validated() {
        for name in ["node1", "alice@node1", "node-1.example.org:2222", "a_b@10.0.0.1:22"] {
            assert_eq!(name.parse::<RemoteHost>().unwrap().to_string(), name);
        }
        for name in [
            "",
            "-oProxyCommand=x",
            "a b",
            "x;y",
            "a@-b",
            "@h",
            "h:",
            "h:0",
            "h:70000",
            "$(x)",
            "a@b@c",
            "../x",
        ] {
            assert!(name.parse::<RemoteHost>().is_err(), "{name}");
        }
    }

    #[test]
    fn ssh_host_follows_all_options() {
        let remote: RemoteHost = "alice@node1:2222".parse().unwrap();
        let words = remote.ssh_arguments(&["A=b".to_owned()]);
        assert_eq!(words[words.len() - 3..], ["--", "alice@node1", "/bin/sh -s"]);
        assert!(
            words.windows(2).any(|pair| pair == ["-o", "A=b"])
                && words.windows(2).any(|pair| pair == ["-p", "2222"])
        );
        assert!(words.iter().any(|word| word == "BatchMode=yes"));
    }
}
