//! Receipts: a session as an [in-toto statement](statement) in a [signed envelope](envelope), signed by OpenSSH or
//! minisign [keys](keys) or with X.509 [certificates](certificates), and the [requirements](requirements) that a receipt is verified against. No I/O, no clock.

pub mod certificates;
pub mod envelope;
pub mod keys;
pub mod requirements;
pub mod statement;
#[cfg(test)]
mod tests;

pub use certificates::{Authorities, CERTIFICATE};
pub use envelope::{EnvelopeRefusal, MAX_BYTES, SignedBy, open, open_profile, sign, sign_profile};
pub use keys::{Accepted, KeyError, PublicKey, Signer, SigningKey, signers};
pub use requirements::Requirements;
pub use statement::{Predicate, Statement};
