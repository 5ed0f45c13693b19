//! The caller's identity, and access tokens.

use crate::{CALL_TIMEOUT, Client, ClientError};
use windlass_api::tokens::{CallerInfo, CreateToken, CreatedToken, TokenInfo, TokenList};

impl Client {
    pub fn caller_info(&self) -> Result<CallerInfo, ClientError> {
        self.get("/api/v1/me")
    }

    pub fn create_token(&self, token: &CreateToken) -> Result<CreatedToken, ClientError> {
        self.post("/api/v1/tokens", token)
    }

    /// Lists the caller's tokens; with `all`, those of all users.
    pub fn tokens(&self, all: bool) -> Result<Vec<TokenInfo>, ClientError> {
        let tokens: TokenList = self.get(if all { "/api/v1/tokens?all=true" } else { "/api/v1/tokens" })?;
        Ok(tokens.items)
    }

    /// Revokes all tokens of a user; returns those revoked by this call.
    pub fn revoke_tokens_of(&self, user: &str) -> Result<Vec<TokenInfo>, ClientError> {
        let url = self.url_with_query("/api/v1/tokens", [("user", user)].into_iter())?;
        let tokens: TokenList = self.call(self.http.delete(url), CALL_TIMEOUT)?;
        Ok(tokens.items)
    }

    pub fn revoke_token(&self, id: i64) -> Result<TokenInfo, ClientError> {
        self.delete(&format!("/api/v1/tokens/{id}"))
    }
}
