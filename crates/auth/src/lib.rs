//! Authentication and permissions.
//!
//! Two questions, kept apart:
//!
//! - [`Authenticator`]: *who is the caller?* Maps the credentials of a request ([`PresentedCredentials`]: an
//!   `Authorization` header, a client certificate) to a [`Principal`]. It knows the owner's token, API tokens,
//!   a password file, issuers of JSON Web Tokens and a map of certificates.
//! - [`decide_access`]: *what may the caller do?* One pure table: ([`AuthOperation`], role, scopes,
//!   [`ObjectRelation`] to the object) to an [`AccessDecision`].
//!
//! Neither uses HTTP or the database. The server determines the relation of the caller to an object.
//!
//! Invariants: a wrong credential is rejected, also beside valid ones; secrets are stored as hashes only and
//! compared in constant time; no message contains anything from which a secret can be read.

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
pub use certificates::{AuthorityId, PeerCertificate, SubjectAltName};
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
