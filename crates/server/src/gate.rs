//! Where the gate ([`windlass_auth::Gate`]) gets keys of issuers from.

use std::io::Read as _;
use std::time::Duration;
use windlass_auth::{Fetch, FetchError};

/// A key set is small; whoever sends more is not an issuer.
const LARGEST_DOCUMENT: u64 = 1 << 20;
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Documents of issuers, over the network. Used where it may block.
pub(crate) struct Network;

impl Fetch for Network {
    fn fetch(&self, url: &str) -> Result<String, FetchError> {
        get(url).inspect_err(|error| tracing::warn!(%url, %error, "the keys of an issuer cannot be had"))
    }
}

fn get(url: &str) -> Result<String, FetchError> {
    let wrong = |error: reqwest::Error| FetchError(error.without_url().to_string());
    let client = reqwest::blocking::Client::builder()
        .timeout(FETCH_TIMEOUT)
        // An issuer says where its keys are; somebody on the way does not.
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(wrong)?;
    let answer =
        client.get(url).send().and_then(reqwest::blocking::Response::error_for_status).map_err(wrong)?;
    let mut text = String::new();
    let read = answer.take(LARGEST_DOCUMENT + 1).read_to_string(&mut text);
    match read {
        Ok(length) if length as u64 <= LARGEST_DOCUMENT => Ok(text),
        Ok(_) => Err(FetchError("it is too large".to_owned())),
        Err(error) => Err(FetchError(error.to_string())),
    }
}
