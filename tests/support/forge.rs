//! The small internet with certificates, and with a forge that wants the user's token.

use std::path::PathBuf;

use super::place::{Mode, Place};
use super::trusted;

pub const TOKEN: &str = "forge-token-5up3r-s3cret";
/// Names of the small internet that its servers prove to be.
const PROVEN: [&str; 6] =
    ["allowed.test", "v4.test", "v6.test", "other.test", "deep.wild.test", "platform.claude.com"];

/// Gives the small internet a key and certificates; the authority that signed them is the answer, a file in the
/// project.
pub fn authority(place: &Place) -> PathBuf {
    let (authority, secret) = trusted::issued(&PROVEN);
    std::fs::write(place.internet_log().with_extension("log.tls"), secret).unwrap();
    place.write("authority.pem", authority)
}

/// A forge with one private repository, at `https://allowed.test:8443/git/private.git`, and the user's token for it.
pub fn forge(mode: Mode, backend: &'static str) -> Place {
    let place = Place::new(mode).online().policed_by(backend);
    place.set("SSL_CERT_FILE", authority(&place).display().to_string());
    place.set("FORGE_TOKEN", TOKEN);
    let log = place.internet_log();
    std::fs::write(log.with_extension("log.token"), TOKEN).unwrap();
    let root = log.with_extension("log.git");
    std::fs::create_dir(&root).unwrap();
    let script = format!(
        "cd {0} && git init -q --bare -b main private.git && git clone -q private.git work 2>/dev/null && cd work && \
         git checkout -qb main 2>/dev/null; echo one > file && git add file && \
         git -c user.name=A -c user.email=a@b.example commit -qm one && git push -q origin main && cp -r ../private.git ../public.git",
        root.display()
    );
    #[expect(clippy::disallowed_methods, reason = "the forge is made by whoever runs the tests")]
    let made = std::process::Command::new("sh").args(["-ec", &script]).env("HOME", &root).status().unwrap();
    assert!(made.success());
    place
}
