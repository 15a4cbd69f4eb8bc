//! Whether a request came from a page of the same site.

/// The headers in which a browser says where a request goes to and comes from.
#[derive(Clone, Copy, Debug, Default)]
pub struct BrowserRequest<'a> {
    /// It only reads: GET or HEAD.
    pub only_reads: bool,
    /// The header of this name; None if it is missing or not text.
    pub host: Option<&'a str>,
    /// None: there is no such header. One that is not text counts as a foreign one.
    pub origin: Option<&'a str>,
    /// `Sec-Fetch-Site`.
    pub fetch_site: Option<&'a str>,
}

impl<'h> BrowserRequest<'h> {
    /// With its headers by their names. One that is not text is not from a page of this site.
    pub fn of(only_reads: bool, text: impl Fn(&str) -> Option<&'h str>) -> Self {
        let [host, origin, fetch_site] = ["host", "origin", "sec-fetch-site"].map(text);
        Self { only_reads, host, origin, fetch_site }
    }
}

/// Whether the request was sent to one of `hosts` (without ports), by a page of the same site or by no page at all.
///
/// # Errors
/// For a name that was rebound to this address, and for pages of other sites.
pub fn same_site(asked: &BrowserRequest<'_>, hosts: &[String]) -> Result<(), &'static str> {
    let host = asked.host.ok_or("a request names its host")?;
    if !hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host_without_port(host))) {
        return Err("the Host header names another server");
    }
    if asked.only_reads {
        return Ok(());
    }
    if let Some(origin) = asked.origin {
        let origin = origin.split_once("://");
        if origin.is_none_or(|(_, origin)| !origin.eq_ignore_ascii_case(host)) {
            return Err("from a page of another site");
        }
    }
    match asked.fetch_site {
        None | Some("same-origin" | "none") => Ok(()),
        Some(_) => Err("from a page of another site"),
    }
}

/// A host without its port.
pub fn host_without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}
