//! Receipts: what a session did, as an [in-toto statement](statement) in a [signed envelope](envelope), by [keys](keys) of
//! OpenSSH or minisign, and what somebody [requires](requirements) of one. Pure: texts and a time come in, sentences go out.

pub mod envelope;
pub mod keys;
pub mod requirements;
pub mod statement;
#[cfg(test)]
mod tests;

pub use envelope::{EnvelopeRefusal, MAX_BYTES, open, open_profile, sign, sign_profile};
pub use keys::{KeyError, PublicKey, Signer, SigningKey, signers};
pub use requirements::Requirements;
pub use statement::{Predicate, Statement};
