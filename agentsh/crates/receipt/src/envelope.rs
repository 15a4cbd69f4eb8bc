//! The envelope: DSSE with one signature, around a statement or a server's profile. It has one canonical form, a
//! single line.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use super::keys::{Accepted, Signer, SigningKey};
use super::statement::Statement;

/// Larger ones are refused unread.
pub const MAX_BYTES: usize = 8 << 20;
const STATEMENT: &str = "application/vnd.in-toto+json";
const PROFILE: &str = "application/vnd.agentsh.profile+yaml";
/// By how much clocks may differ.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    #[serde(rename = "payloadType")]
    payload_type: String,
    payload: String,
    signatures: Vec<Signature>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signature {
    keyid: String,
    sig: String,
    /// The certificates of the key, its own first, as the header `x5c` of RFC 7515 has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    x5c: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedBy {
    pub who: String,
    pub fingerprint: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeRefusal {
    #[error("it is malformed: {0}")]
    Form(String),
    #[error("it is signed by the key {0}, which is not one of the given keys")]
    Stranger(String),
    #[error("its signature by {0} does not match its content")]
    Edited(String),
    #[error("its certificate is not accepted: {0}")]
    Certificate(String),
    #[error("the key of {0} is not valid before {1}")]
    Early(String, Timestamp),
    #[error("the key of {0} expired at {1}")]
    Expired(String, Timestamp),
    #[error("it was issued at {0}, which is in the future")]
    Future(Timestamp),
}

/// The signed bytes: DSSE's pre-authentication encoding.
fn encoded(kind: &str, payload: &str) -> Vec<u8> {
    format!("DSSEv1 {} {kind} {} {payload}", kind.len(), payload.len()).into_bytes()
}

/// The envelope, as a line.
///
/// # Errors
/// When the statement is not whole, or too long.
pub fn sign(statement: &Statement, key: &SigningKey) -> Result<String, String> {
    sign_payload(STATEMENT, &statement.text()?, key)
}

/// The envelope around the text of a profile.
///
/// # Errors
/// When it is too long.
pub fn sign_profile(text: &str, key: &SigningKey) -> Result<String, String> {
    sign_payload(PROFILE, text, key)
}

fn sign_payload(kind: &str, payload: &str, key: &SigningKey) -> Result<String, String> {
    let sig = STANDARD.encode(key.sign(&encoded(kind, payload)).map_err(|error| error.to_string())?);
    let x5c = match key {
        SigningKey::Certified(key) => key.chain.iter().map(|one| STANDARD.encode(one)).collect(),
        SigningKey::Plain(_) => Vec::new(),
    };
    let signature = Signature { keyid: key.fingerprint(), sig, x5c };
    let envelope = Envelope {
        payload_type: kind.to_owned(),
        payload: STANDARD.encode(payload),
        signatures: vec![signature],
    };
    let text = envelope_json(&envelope)?;
    match text.len() > MAX_BYTES {
        true => Err(format!("it would be larger than {} MiB", MAX_BYTES >> 20)),
        false => Ok(text),
    }
}

fn envelope_json(envelope: &Envelope) -> Result<String, String> {
    serde_json::to_string(envelope).map(|text| text + "\n").map_err(|error| error.to_string())
}

/// The statement, and who signed it: one of these, with a key that is valid now and was when the receipt was issued.
///
/// # Errors
/// Why it is refused; nothing of the statement is looked at before the signature holds.
pub fn open(
    text: &str,
    accepted: &Accepted,
    now: Timestamp,
) -> Result<(Statement, SignedBy), EnvelopeRefusal> {
    open_envelope(STATEMENT, text, accepted, now, |payload| {
        let statement = Statement::read(&payload).map_err(EnvelopeRefusal::Form)?;
        let issued = statement.predicate.issued;
        if issued.duration_since(now) > CLOCK_SKEW {
            Err(EnvelopeRefusal::Future(issued))
        } else {
            Ok((statement, issued))
        }
    })
}

/// Like [`open`], for a profile, which does not say when it was signed.
///
/// # Errors
/// Why it is refused.
pub fn open_profile(
    text: &str,
    accepted: &Accepted,
    now: Timestamp,
) -> Result<(String, SignedBy), EnvelopeRefusal> {
    open_envelope(PROFILE, text, accepted, now, |payload| Ok((payload, now)))
}

fn open_envelope<T>(
    kind: &str,
    text: &str,
    accepted: &Accepted,
    now: Timestamp,
    read: impl FnOnce(String) -> Result<(T, Timestamp), EnvelopeRefusal>,
) -> Result<(T, SignedBy), EnvelopeRefusal> {
    if text.len() > MAX_BYTES {
        return Err(EnvelopeRefusal::Form(format!("it is larger than {} MiB", MAX_BYTES >> 20)));
    }
    let envelope: Envelope =
        serde_json::from_str(text).map_err(|error| EnvelopeRefusal::Form(error.to_string()))?;
    let odd = |what: &str| EnvelopeRefusal::Form(what.to_owned());
    if envelope_json(&envelope).map_err(EnvelopeRefusal::Form)? != text {
        return Err(odd("its envelope is not in agentsh's canonical form"));
    }
    let [Signature { keyid, sig, x5c }] = envelope.signatures.as_slice() else {
        return Err(odd("it does not have exactly one signature"));
    };
    if envelope.payload_type != kind {
        return Err(EnvelopeRefusal::Form(format!("its payload is not {kind}")));
    }
    let decoded =
        |text: &String| STANDARD.decode(text).map_err(|error| EnvelopeRefusal::Form(error.to_string()));
    let payload =
        String::from_utf8(decoded(&envelope.payload)?).map_err(|_| odd("its payload is not text"))?;
    let (signed, sig) = (encoded(kind, &payload), decoded(sig)?);
    let by = |who: &str| SignedBy { who: who.to_owned(), fingerprint: keyid.clone() };
    match accepted {
        Accepted::Authorities(authorities) => {
            let chain = x5c.iter().map(|one| decoded(one).map(CertificateDer::from));
            let chain = chain.collect::<Result<Vec<_>, _>>()?;
            let who = authorities.verify_signature(&chain, keyid, (&signed, &sig), now)?;
            let (read, issued) = read(payload)?;
            authorities.valid_at(&chain, issued)?;
            Ok((read, by(&who)))
        }
        Accepted::Keys(_) if !x5c.is_empty() => Err(EnvelopeRefusal::Stranger(format!(
            "{keyid} with a certificate (accept it with the certificates of its authority and --identity)"
        ))),
        Accepted::Keys(signers) => {
            let mut own = signers.iter().filter(|signer| signer.key.fingerprint() == *keyid).peekable();
            let Some(first) = own.peek() else { return Err(EnvelopeRefusal::Stranger(keyid.clone())) };
            if !first.key.verifies(&signed, &sig) {
                return Err(EnvelopeRefusal::Edited(first.who.clone()));
            }
            let (read, issued) = read(payload)?;
            valid(own, issued, now).map(|signer| (read, by(&signer.who)))
        }
    }
}

/// One key may be on several lines, each with its time.
fn valid<'s>(
    lines: impl Iterator<Item = &'s Signer>,
    issued: Timestamp,
    now: Timestamp,
) -> Result<&'s Signer, EnvelopeRefusal> {
    let mut refused = EnvelopeRefusal::Form("it has no signature".to_owned());
    for signer in lines {
        match signer.valid_at(issued).and_then(|()| signer.valid_at(now)) {
            Ok(()) => return Ok(signer),
            Err(why) => refused = why,
        }
    }
    Err(refused)
}
