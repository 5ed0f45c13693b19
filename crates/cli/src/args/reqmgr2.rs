//! Where ReqMgr2 is, from which requests are imported by their names, and who we are to it.

use crate::error::CliError;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use windlass_requests::Reqmgr2Client;
use windlass_types::parse_duration;

#[derive(Debug, Args)]
#[command(next_help_heading = "ReqMgr2")]
pub(crate) struct Reqmgr2Args {
    /// Ask the ReqMgr2 at this address for requests that are imported by their names: https://HOST/reqmgr2.
    #[arg(id = "reqmgr2", long = "reqmgr2", value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Be known to ReqMgr2 by this certificate, its chain behind it, or this X.509 proxy (PEM).
    #[arg(id = "reqmgr2_cert", long = "reqmgr2-cert", value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// The private key of that certificate, if it is in a file of its own (PEM).
    #[arg(id = "reqmgr2_key", long = "reqmgr2-key", value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Trust ReqMgr2 if one of these authorities has certified it, or one that the system trusts: a file, or a directory as
    /// /etc/grid-security/certificates (PEM).
    #[arg(id = "reqmgr2_ca", long = "reqmgr2-ca", value_name = "FILE|DIR")]
    pub(crate) authorities: Option<PathBuf>,
    /// Send ReqMgr2 the token in this file.
    #[arg(id = "reqmgr2_token_file", long = "reqmgr2-token-file", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Give up on ReqMgr2 after this time; until then, it is asked again if it does not answer or is busy.
    #[arg(id = "reqmgr2_timeout", long = "reqmgr2-timeout", value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub(crate) limit: Duration,
}

impl Reqmgr2Args {
    /// `None`: nobody said where it is.
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

    /// Whoever says a part of it means it, and must not find out at the first import.
    fn refuse_partial_settings(&self) -> Result<Option<Reqmgr2Client>, CliError> {
        let parts = [
            ("--reqmgr2-cert", &self.cert),
            ("--reqmgr2-key", &self.key),
            ("--reqmgr2-ca", &self.authorities),
            ("--reqmgr2-token-file", &self.token_file),
        ];
        match parts.iter().find(|(_, said)| said.is_some()) {
            Some((said, _)) => Err(CliError::user(format!("{said} is given without --reqmgr2"))
                .with_hint("--reqmgr2, or reqmgr2.url in the settings, says where ReqMgr2 is")),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        reqmgr2: Reqmgr2Args,
    }

    fn read(words: &[&str]) -> Result<Option<Reqmgr2Client>, CliError> {
        let line = Line::try_parse_from([&["serve"], words].concat()).unwrap();
        line.reqmgr2.to_settings(|path| PathBuf::from("/here").join(path))
    }

    #[test]
    fn without_an_address_there_is_none() {
        assert_eq!(read(&[]).unwrap(), None);
        for part in ["--reqmgr2-cert=c", "--reqmgr2-key=k", "--reqmgr2-ca=a", "--reqmgr2-token-file=t"] {
            assert!(read(&[part]).unwrap_err().message.ends_with("is given without --reqmgr2"), "{part}");
        }
        assert!(read(&["--reqmgr2=https://h", "--reqmgr2-key=k"]).is_err());
    }

    #[test]
    fn what_is_said_is_meant() {
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
