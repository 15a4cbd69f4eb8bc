//! The envelope: DSSE with one signature, around a statement or a server's profile. It has one canonical form, a
//! single line.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::keys::{Signer, SigningKey};
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
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeRefusal {
    #[error("it is malformed: {0}")]
    Form(String),
    #[error("it is signed by the key {0}, which is not one of the given keys")]
    Stranger(String),
    #[error("its signature by {0} does not match its content")]
    Edited(String),
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
    around(STATEMENT, &statement.text()?, key)
}

/// The envelope around the text of a profile.
///
/// # Errors
/// When it is too long.
pub fn sign_profile(text: &str, key: &SigningKey) -> Result<String, String> {
    around(PROFILE, text, key)
}

fn around(kind: &str, payload: &str, key: &SigningKey) -> Result<String, String> {
    let sig = STANDARD.encode(key.sign(&encoded(kind, payload)));
    let signature = Signature { keyid: key.public().fingerprint(), sig };
    let envelope = Envelope {
        payload_type: kind.to_owned(),
        payload: STANDARD.encode(payload),
        signatures: vec![signature],
    };
    let text = spelled(&envelope)?;
    match text.len() > MAX_BYTES {
        true => Err(format!("it would be larger than {} MiB", MAX_BYTES >> 20)),
        false => Ok(text),
    }
}

fn spelled(envelope: &Envelope) -> Result<String, String> {
    serde_json::to_string(envelope).map(|text| text + "\n").map_err(|error| error.to_string())
}

/// The statement, and who signed it: one of these, with a key that is valid now and was when the receipt was issued.
///
/// # Errors
/// Why it is refused; nothing of the statement is looked at before the signature holds.
pub fn open<'s>(
    text: &str,
    signers: &'s [Signer],
    now: Timestamp,
) -> Result<(Statement, &'s Signer), EnvelopeRefusal> {
    opened(STATEMENT, text, signers, now, |payload| {
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
pub fn open_profile<'s>(
    text: &str,
    signers: &'s [Signer],
    now: Timestamp,
) -> Result<(String, &'s Signer), EnvelopeRefusal> {
    opened(PROFILE, text, signers, now, |payload| Ok((payload, now)))
}

fn opened<'s, T>(
    kind: &str,
    text: &str,
    signers: &'s [Signer],
    now: Timestamp,
    read: impl FnOnce(String) -> Result<(T, Timestamp), EnvelopeRefusal>,
) -> Result<(T, &'s Signer), EnvelopeRefusal> {
    if text.len() > MAX_BYTES {
        return Err(EnvelopeRefusal::Form(format!("it is larger than {} MiB", MAX_BYTES >> 20)));
    }
    let envelope: Envelope =
        serde_json::from_str(text).map_err(|error| EnvelopeRefusal::Form(error.to_string()))?;
    let odd = |what: &str| EnvelopeRefusal::Form(what.to_owned());
    if spelled(&envelope).map_err(EnvelopeRefusal::Form)? != text {
        return Err(odd("its envelope is not in agentsh's canonical form"));
    }
    let [signature] = envelope.signatures.as_slice() else {
        return Err(odd("it does not have exactly one signature"));
    };
    if envelope.payload_type != kind {
        return Err(EnvelopeRefusal::Form(format!("its payload is not {kind}")));
    }
    let decoded =
        |text: &str| STANDARD.decode(text).map_err(|error| EnvelopeRefusal::Form(error.to_string()));
    let payload =
        String::from_utf8(decoded(&envelope.payload)?).map_err(|_| odd("its payload is not text"))?;
    let sig = decoded(&signature.sig)?;
    let mut own = signers.iter().filter(|signer| signer.key.fingerprint() == signature.keyid).peekable();
    let Some(first) = own.peek() else { return Err(EnvelopeRefusal::Stranger(signature.keyid.clone())) };
    if !first.key.holds(&encoded(kind, &payload), &sig) {
        return Err(EnvelopeRefusal::Edited(first.who.clone()));
    }
    let (read, issued) = read(payload)?;
    // One key may be on several lines, each with its validity.
    let mut refused = odd("it has no signature");
    for signer in own {
        match signer.valid_at(issued).and_then(|()| signer.valid_at(now)) {
            Ok(()) => return Ok((read, signer)),
            Err(why) => refused = why,
        }
    }
    Err(refused)
}
