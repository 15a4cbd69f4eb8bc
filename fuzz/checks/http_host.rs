//! Any pieces release the same bytes; never more than was fed; after a refusal nothing; every head that is released
//! names the host.

use super::net::http_host::Reader;

const NAME: &str = "api.example.com";

pub fn check(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else { return };
    let (whole, requests, refused) = run(bytes, bytes.len().max(1));
    assert_eq!(
        run(bytes, usize::from(*size).max(1)),
        (whole, requests, refused),
        "the pieces made a difference"
    );
    assert_eq!(run(bytes, 1), (whole, requests, refused), "single bytes made a difference");
    let released = bytes.get(..whole).unwrap_or_default().to_ascii_lowercase();
    let hosts = released.windows(NAME.len()).filter(|window| *window == NAME.as_bytes()).count();
    assert!(hosts >= requests, "a head without the host was released");
}

/// Bytes and requests released, and why it ended.
fn run(bytes: &[u8], size: usize) -> (usize, usize, Option<&'static str>) {
    let mut reader = Reader::new(NAME, 80);
    let (mut fed, mut released, mut requests) = (0, 0, 0);
    let mut refused = None;
    for piece in bytes.chunks(size) {
        fed += piece.len();
        match reader.feed(piece) {
            Ok(verdict) => {
                assert!(refused.is_none() || verdict.forward == 0, "released after a refusal");
                released += verdict.forward;
                requests += verdict.requests.len();
            }
            Err(refusal) => refused = refused.or(Some(refusal.reason.code())),
        }
        assert!(released <= fed, "released more than was fed");
    }
    (released, requests, refused.or(reader.refusal().map(|refusal| refusal.reason.code())))
}
