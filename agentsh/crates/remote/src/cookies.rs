//! Cookies of one origin, with which a load balancer finds the process of a session.

use hyper::header::{HeaderMap, HeaderValue, SET_COOKIE};

/// Cookies of one server.
const MAX_COUNT: usize = 32;
/// Longest cookie, name and value together, in bytes: RFC 6265 asks for as many.
const MAX_LENGTH: usize = 4096;

/// Kept for the life of a session, by name.
#[derive(Debug, Default)]
pub(crate) struct Cookies(Vec<(String, String)>);

impl Cookies {
    /// Applies the cookies that an answer of the origin sets or removes.
    pub fn learn(&mut self, headers: &HeaderMap) {
        for line in headers.get_all(SET_COOKIE).iter().filter_map(|line| line.to_str().ok()) {
            let mut parts = line.split(';');
            let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else { continue };
            let (name, value) = (name.trim(), value.trim());
            if name.is_empty() || name.len() + value.len() > MAX_LENGTH {
                continue;
            }
            self.0.retain(|(known, _)| known != name);
            let is_over = parts.filter_map(|part| part.split_once('=')).any(|(attribute, seconds)| {
                attribute.trim().eq_ignore_ascii_case("max-age")
                    && seconds.trim().parse::<i64>().is_ok_and(|seconds| seconds <= 0)
            });
            if !is_over && self.0.len() < MAX_COUNT {
                self.0.push((name.to_owned(), value.to_owned()));
            }
        }
    }

    /// The `Cookie` header, with the user's own cookies first.
    pub fn header(&self, own: Option<&HeaderValue>) -> Option<HeaderValue> {
        let own = own.and_then(|own| own.to_str().ok()).map(str::to_owned);
        let kept = self.0.iter().map(|(name, value)| format!("{name}={value}"));
        let all: Vec<String> = own.into_iter().chain(kept).collect();
        HeaderValue::from_str(&all.join("; ")).ok().filter(|_| !self.0.is_empty())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use super::*;

    #[test]
    fn cookies_are_kept_replaced_and_taken_back() {
        let mut cookies = Cookies::default();
        let mut answer = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(SET_COOKIE, HeaderValue::from_static(line));
            }
            cookies.learn(&headers);
            cookies.header(None).map(|header| header.to_str().unwrap().to_owned())
        };
        assert_eq!(answer(&["no cookie", "=x"]), None);
        assert_eq!(answer(&["a=1; Path=/; HttpOnly", "b=x=y"]).unwrap(), "a=1; b=x=y");
        assert_eq!(answer(&["a=2; Max-Age=60"]).unwrap(), "b=x=y; a=2");
        assert_eq!(answer(&["b=; max-age=0"]).unwrap(), "a=2");
        let own = HeaderValue::from_static("user=1");
        assert_eq!(cookies.header(Some(&own)).unwrap(), "user=1; a=2");
        assert_eq!(Cookies::default().header(Some(&own)), None);
    }
}
