//! Address and credentials of ReqMgr2, from which requests are imported by name.

use crate::error::CliError;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use windlass_requests::Reqmgr2Client;
use windlass_types::parse_duration;

#[derive(Debug, Args)]
#[command(next_help_heading = "ReqMgr2")]
pub(crate) struct Reqmgr2Args {
    /// URL of the ReqMgr2 from which requests are imported by name: https://HOST/reqmgr2.
    #[arg(id = "reqmgr2", long = "reqmgr2", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Client certificate with its chain, or X.509 proxy, for ReqMgr2 (PEM).
    #[arg(id = "reqmgr2_cert", long = "reqmgr2-cert", value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the client certificate for ReqMgr2 (PEM). Default: the file of --reqmgr2-cert.
    #[arg(id = "reqmgr2_key", long = "reqmgr2-key", value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Certificate authorities to trust for ReqMgr2 in addition to those of the system: a file, or a directory
    /// such as /etc/grid-security/certificates (PEM).
    #[arg(id = "reqmgr2_ca", long = "reqmgr2-ca", value_name = "FILE|DIR")]
    pub(crate) authorities: Option<PathBuf>,
    /// File with the token for ReqMgr2.
    #[arg(id = "reqmgr2_token_file", long = "reqmgr2-token-file", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Time after which an import from ReqMgr2 fails; until then, requests to a busy or unresponsive ReqMgr2
    /// are repeated.
    #[arg(id = "reqmgr2_timeout", long = "reqmgr2-timeout", value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub(crate) limit: Duration,
}

impl Reqmgr2Args {
    /// `None`: no address is configured.
    pub(crate) fn to_settings(
        &self,
        absolute: impl Fn(&PathBuf) -> PathBuf,
    ) -> Result<Option<Reqmgr2Client>, CliError> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(&absolute);
        let Some(url) = &self.url else { return self.refuse_partial_settings() };
        if self.key.is_some() && self.cert.is_none() {
            return Err(CliError::user("--reqmgr2-key is given without --reqmgr2-cert"));
        }
        Ok(Some(Reqmgr2Client {
            url: url.clone(),
            cert: path(&self.cert),
            key: path(&self.key),
            authorities: path(&self.authorities),
            token: path(&self.token_file),
            timeout: self.limit,
        }))
    }

    /// Rejects settings without an address, which would otherwise fail at the first import.
    fn refuse_partial_settings(&self) -> Result<Option<Reqmgr2Client>, CliError> {
        let parts = [
            ("--reqmgr2-cert", &self.cert),
            ("--reqmgr2-key", &self.key),
            ("--reqmgr2-ca", &self.authorities),
            ("--reqmgr2-token-file", &self.token_file),
        ];
        match parts.iter().find(|(_, value)| value.is_some()) {
            Some((option, _)) => Err(CliError::user(format!("{option} is given without --reqmgr2"))
                .with_hint("--reqmgr2 or reqmgr2.url in the settings is the URL of ReqMgr2")),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct ParsedLine {
        #[command(flatten)]
        reqmgr2: Reqmgr2Args,
    }

    fn read(words: &[&str]) -> Result<Option<Reqmgr2Client>, CliError> {
        let line = ParsedLine::try_parse_from([&["serve"], words].concat()).unwrap();
        line.reqmgr2.to_settings(|path| PathBuf::from("/here").join(path))
    }

    #[test]
    fn reqmgr2_options_require_address() {
        assert_eq!(read(&[]).unwrap(), None);
        for part in ["--reqmgr2-cert=c", "--reqmgr2-key=k", "--reqmgr2-ca=a", "--reqmgr2-token-file=t"] {
            assert!(read(&[part]).unwrap_err().message.ends_with("is given without --reqmgr2"), "{part}");
        }
        assert!(read(&["--reqmgr2=https://h", "--reqmgr2-key=k"]).is_err());
    }

    #[test]
    fn given_options_override_defaults() {
        assert_eq!(
            read(&["--reqmgr2=https://h/reqmgr2"]).unwrap(),
            Some(Reqmgr2Client::from_url("https://h/reqmgr2"))
        );
        let all = [
            "--reqmgr2=https://h/reqmgr2",
            "--reqmgr2-cert=c",
            "--reqmgr2-key=/k",
            "--reqmgr2-ca=a",
            "--reqmgr2-token-file=t",
            "--reqmgr2-timeout=2m",
        ];
        let expected = Reqmgr2Client {
            url: "https://h/reqmgr2".to_owned(),
            cert: Some("/here/c".into()),
            key: Some("/k".into()),
            authorities: Some("/here/a".into()),
            token: Some("/here/t".into()),
            timeout: Duration::from_mins(2),
        };
        assert_eq!(read(&all).unwrap(), Some(expected));
    }
}
