//! A Java keystore (JKS, version 2) with the same authorities.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{Context as Sum, SHA1_FOR_LEGACY_USE_ONLY};

use crate::session::Context;

/// The format's tag for a trusted certificate.
const TRUSTED: u32 = 2;
const PASSWORD: &str = "changeit";

/// The keystores of installed Java programs.
pub fn stores(context: &Context) -> Vec<PathBuf> {
    let home = context.env.get("JAVA_HOME").map(|home| Path::new(home).join("lib/security/cacerts"));
    let mut found: Vec<PathBuf> = [Some(PathBuf::from("/etc/ssl/certs/java/cacerts")), home]
        .into_iter()
        .flatten()
        .filter_map(|path| path.canonicalize().ok())
        .filter(|path| !path.starts_with(&context.project))
        .collect();
    found.dedup();
    found
}

/// A keystore with a bundle's certificates.
#[must_use]
pub fn store(bundle: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bundle);
    let bodies = text.split("-----BEGIN CERTIFICATE-----").skip(1);
    let bodies = bodies.filter_map(|rest| rest.split_once("-----END CERTIFICATE-----"));
    let decode = |body: &str| {
        let letters: String = body.split_whitespace().collect();
        STANDARD.decode(letters).ok()
    };
    let certificates: Vec<Vec<u8>> = bodies.filter_map(|(body, _)| decode(body)).collect();
    let mut out = vec![0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2];
    let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX).to_be_bytes();
    out.extend(number(certificates.len()));
    for (at, certificate) in certificates.iter().enumerate() {
        out.extend(TRUSTED.to_be_bytes());
        write_string(&mut out, &format!("agentsh-{at}"));
        // The creation time, which is not used.
        out.extend([0; 8]);
        write_string(&mut out, "X.509");
        out.extend(number(certificate.len()));
        out.extend(certificate);
    }
    let mut sum = Sum::new(&SHA1_FOR_LEGACY_USE_ONLY);
    let letters: Vec<u8> = PASSWORD.encode_utf16().flat_map(u16::to_be_bytes).collect();
    sum.update(&letters);
    sum.update(b"Mighty Aphrodite");
    sum.update(&out);
    out.extend(sum.finish().as_ref());
    out
}

fn write_string(out: &mut Vec<u8>, text: &str) {
    out.extend(u16::try_from(text.len()).unwrap_or(0).to_be_bytes());
    out.extend(text.as_bytes());
}
