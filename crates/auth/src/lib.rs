//! Who somebody is and what he may do.
//!
//! Two questions, kept apart:
//!
//! - [`Gate`]: *who is this?* From what a request shows ([`Shown`]: an `Authorization` header, a client certificate) to a
//!   [`Principal`]. It knows the owner's token, API tokens, a password file, issuers of JSON Web Tokens and a map of
//!   certificates.
//! - [`judge`]: *may he?* One pure table: ([`Operation`], role, scopes, [`Relation`] to the object) to a [`Verdict`].
//!
//! Neither knows HTTP or the database. The server looks up what an object is to somebody and asks.
//!
//! What always holds: a credential that is shown and is wrong is refused, whatever else is shown; secrets are kept as
//! hashes only and compared in constant time; nothing that a secret can be read from is ever in a message.

mod authenticator;
mod certificates;
mod config;
mod jwt;
mod password_cache;
mod passwords;
mod permissions;
mod principal;
mod secret;
mod settings;
mod throttle;
mod tokens;

pub use authenticator::{
    AuthReloadSummary, AuthenticationError, Authenticator, AuthenticatorOptions, PresentedCredentials,
};
pub use certificates::{AuthorityId, PeerCertificate, SubjectAlternative};
pub use config::{AuthConfig, AuthConfigError};
pub use jwt::{DocumentFetchError, DocumentFetcher};
pub use passwords::{PasswordError, PasswordFile, PasswordHashing};
pub use permissions::{
    AccessDecision, AccessRule, AuthOperation, MinimumRole, ObjectRelation, access_rule, decide_access,
    suggest_remedy,
};
pub use principal::{
    AuthMethod, CredentialBinding, ParseRoleError, ParseScopeError, Principal, TokenScope, TokenScopes,
    UserRole,
};
pub use secret::{SecretHash, TokenSecret};
pub use throttle::client_network;
pub use tokens::{
    JobHolder, TokenGrantError, TokenGrantRequest, TokenRecord, TokenStore, TokenStoreError, grant_token,
};
pub use windlass_core::redact::{MASK, SecretNames};
