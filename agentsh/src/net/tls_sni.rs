//! The name that a TLS client asks for, read from its first message. Pure; nothing is decrypted.

/// What the bytes so far say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hello {
    /// Everything so far fits a ClientHello.
    NeedMore,
    NotTls,
    /// A whole ClientHello with one name.
    Name {
        /// Lower case.
        name: String,
        /// The hello carries an encrypted one with possibly another name.
        ech: bool,
        alpn: Vec<Vec<u8>>,
    },
    /// A whole ClientHello without a name.
    NoName,
    /// TLS, but not a ClientHello that agentsh lets pass; the code says why.
    Bad(&'static str),
}

/// Most bytes of a ClientHello, record headers included.
pub const MAX_HELLO: usize = 64 * 1024;

/// Reads a ClientHello piece by piece, in time linear in what was fed.
#[derive(Debug, Default)]
pub struct Reader {}

impl Reader {
    /// Takes the next bytes. After an answer other than [`Hello::NeedMore`] the same answer comes for ever.
    pub fn feed(&mut self, bytes: &[u8]) -> Hello {
        let _ = bytes;
        Hello::NotTls
    }
}

/// Reads everything at once.
#[must_use]
pub fn read(bytes: &[u8]) -> Hello {
    Reader::default().feed(bytes)
}
