//! Receipts: a session as an [in-toto statement](statement) in a [signed envelope](envelope), signed by OpenSSH or
//! minisign [keys](keys), and the [requirements](requirements) that a receipt is verified against. No I/O, no clock.

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
