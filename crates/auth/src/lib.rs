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

mod cache;
mod certificates;
mod config;
mod gate;
mod jwt;
mod passwords;
mod policy;
mod principal;
mod secret;
mod settings;
mod throttle;
mod tokens;

pub use certificates::{AuthorityId, PeerCertificate, SubjectAlternative};
pub use config::{Config, ConfigError};
pub use gate::{Denied, Gate, GateOptions, Reloaded, Shown};
pub use jwt::{Fetch, FetchError};
pub use passwords::{Hashing, PasswordError, PasswordFile};
pub use policy::{Least, Operation, Relation, Rule, Verdict, judge, remedy, rule};
pub use principal::{Binding, How, ParseRoleError, ParseScopeError, Principal, Role, Scope, Scopes};
pub use secret::{Secret, SecretHash};
pub use throttle::network;
pub use tokens::{BookError, JobHolder, TokenBook, TokenRecord, TokenRefused, TokenRequest, grant};
pub use windlass_core::redact::{MASK, Masking};
