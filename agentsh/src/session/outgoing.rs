//! The client with which a session, or a verb, asks in its own name.

use crate::egress::Client;
use crate::egress::proxy::Proxy;
use crate::egress::resolve::Resolver;
use crate::egress::target::Rules;

/// A client that resolves as the host does, or goes by the proxy of the environment. The user named the address, so it may be
/// a private one.
///
/// # Errors
/// When the resolver of this machine cannot be used, or the environment names a proxy that is none.
pub fn client() -> Result<Client, String> {
    let lookup = Resolver::system_lookup().map_err(|error| error.to_string())?;
    let proxy = Proxy::of_environment(|name| std::env::var(name).ok())?;
    Ok(Client::new(lookup, Rules::users_word()).with_proxy(proxy))
}
