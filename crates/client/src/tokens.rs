//! Who we are at the server, and tokens.

use crate::{Client, Error};
use windlass_api::tokens::{MadeToken, Me, NewToken, Token, Tokens};

impl Client {
    pub fn me(&self) -> Result<Me, Error> {
        self.get("/api/v1/me")
    }

    pub fn create_token(&self, token: &NewToken) -> Result<MadeToken, Error> {
        self.post("/api/v1/tokens", token)
    }

    /// One's own; with `all`, everybody's.
    pub fn tokens(&self, all: bool) -> Result<Vec<Token>, Error> {
        let tokens: Tokens = self.get(if all { "/api/v1/tokens?all=true" } else { "/api/v1/tokens" })?;
        Ok(tokens.items)
    }

    pub fn revoke_token(&self, id: i64) -> Result<Token, Error> {
        self.delete(&format!("/api/v1/tokens/{id}"))
    }
}
