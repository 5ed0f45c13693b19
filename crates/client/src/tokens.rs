//! Who we are at the server, and tokens.

use crate::{Client, Error, TIMEOUT};
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

    /// Revokes all tokens of a user; returns those that were revoked now.
    pub fn revoke_tokens_of(&self, user: &str) -> Result<Vec<Token>, Error> {
        let url = self.address_with("/api/v1/tokens", [("user", user)].into_iter())?;
        let tokens: Tokens = self.call(self.http.delete(url), TIMEOUT)?;
        Ok(tokens.items)
    }

    pub fn revoke_token(&self, id: i64) -> Result<Token, Error> {
        self.delete(&format!("/api/v1/tokens/{id}"))
    }
}
