//! The token of a running job: its claims and its signature.
//!
//! A worker creates one for each attempt that it starts, from the secret that the server gave to the worker.
//! The server keeps the hash of that secret, so it can verify tokens without storing one per job. The token is
//! accepted as long as this worker holds this attempt.

use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{Attempt, JobId, RunId, WorkerId, WorkflowId};

/// Prefix of every job token.
pub const JOB_TOKEN_PREFIX: &str = "wlj_";

/// The claims of a job token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobTokenClaims {
    pub worker: WorkerId,
    pub work: JobTokenSubject,
}

/// The job or action that the worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobTokenSubject {
    Job(AttemptKey),
    /// An execution of a workflow action.
    Action {
        workflow: WorkflowId,
        action: i64,
        attempt: Attempt,
    },
}

impl JobTokenClaims {
    /// Returns the signed token. The key is the SHA-256 hash of the worker's secret, as text ([`secret_hash`]).
    pub fn sign(&self, secret_hash: &str) -> String {
        let signed = self.signed_text();
        let mut token = format!("{JOB_TOKEN_PREFIX}{signed}_");
        for byte in hmac(secret_hash.as_bytes(), signed.as_bytes()) {
            // Writing to a string cannot fail.
            write!(token, "{byte:02x}").unwrap_or_default();
        }
        token
    }

    /// Parses the claims of a token without verifying its signature.
    pub fn parse(token: &str) -> Option<Self> {
        let (signed, _) = token.strip_prefix(JOB_TOKEN_PREFIX)?.rsplit_once('_')?;
        let mut parts = signed.split('_');
        let (kind, worker) = (parts.next()?, WorkerId(parse_number(parts.next())?));
        let work = match kind {
            "j" => JobTokenSubject::Job(AttemptKey {
                workflow: WorkflowId(parse_number(parts.next())?),
                run: RunId(parse_number(parts.next())?),
                job: JobId(parse_number(parts.next())?),
                attempt: Attempt(parse_number(parts.next())?),
            }),
            "a" => JobTokenSubject::Action {
                workflow: WorkflowId(parse_number(parts.next())?),
                action: parse_number(parts.next())?,
                attempt: Attempt(parse_number(parts.next())?),
            },
            _ => return None,
        };
        parts.next().is_none().then_some(Self { worker, work })
    }

    fn signed_text(&self) -> String {
        let worker = self.worker;
        match &self.work {
            JobTokenSubject::Job(key) => {
                format!("j_{worker}_{}_{}_{}_{}", key.workflow, key.run, key.job, key.attempt)
            }
            JobTokenSubject::Action { workflow, action, attempt } => {
                format!("a_{worker}_{workflow}_{action}_{attempt}")
            }
        }
    }
}

/// Returns the SHA-256 hash of a worker's secret, as the server stores it.
pub fn secret_hash(secret: &str) -> String {
    Sha256::digest(secret.as_bytes()).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap_or_default();
        text
    })
}

fn parse_number<T: std::str::FromStr>(text: Option<&str>) -> Option<T> {
    text?.parse().ok()
}

/// Computes HMAC-SHA-256 (RFC 2104). Keys here are hashes as text, at most 64 bytes.
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0_u8; 64];
    if key.len() <= block.len() {
        block[..key.len()].copy_from_slice(key);
    } else {
        block[..32].copy_from_slice(&Sha256::digest(key));
    }
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_matches_rfc_4231() {
        let hex = |bytes: [u8; 32]| bytes.map(|byte| format!("{byte:02x}")).concat();
        assert_eq!(
            hex(hmac(b"Jefe", b"what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hex(hmac(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn signed_token_parses_to_its_claims() {
        let key = AttemptKey { workflow: WorkflowId(1), job: JobId(2), run: RunId(3), attempt: Attempt(4) };
        let action = JobTokenSubject::Action { workflow: WorkflowId(1), action: 2, attempt: Attempt(3) };
        for work in [JobTokenSubject::Job(key), action] {
            let claim = JobTokenClaims { worker: WorkerId(9), work };
            let token = claim.sign(&secret_hash("hush"));
            assert_eq!(JobTokenClaims::parse(&token), Some(claim));
            assert_ne!(token, claim.sign(&secret_hash("other")));
        }
        for text in [
            "",
            "wlj_",
            "wlj_x_1_2_3_4_5_00",
            "wlj_j_1_2_3_4_00",
            "wlj_j_1_2_3_4_5_6_00",
            "wl_j_1_2_3_4_5_00",
        ] {
            assert_eq!(JobTokenClaims::parse(text), None, "{text}");
        }
    }
}
