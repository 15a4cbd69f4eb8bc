//! All reasons for which the network allows or refuses.

use std::fmt;

macro_rules! reasons {
    ($($(#[$about:meta])* $variant:ident = $code:literal,)+) => {
        /// The codes are stable: events and `--json` contain them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason {
            $($(#[$about])* $variant,)+
        }

        impl Reason {
            /// In kebab case.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$variant => $code,)+
                }
            }
        }
    };
}

reasons! {
    // The policy decides.
    NameAllowed = "name-allowed",
    AddressAllowed = "address-allowed",
    LoopbackPortOpen = "loopback-port-open",
    NameNotAllowed = "name-not-allowed",
    PortNotAllowed = "port-not-allowed",
    /// No rule allows the address, or it is a closed host's.
    AddressNotAllowed = "address-not-allowed",
    LoopbackPortNotOpen = "loopback-port-not-open",
    /// An allowed name resolves to a non-public address that its rule does not permit.
    AddressNotPublic = "address-not-public",
    ApprovalDenied = "approval-denied",
    ApprovalTimedOut = "approval-timed-out",
    NobodyToAsk = "nobody-to-ask",
    /// The agent contacts the host for telemetry or updates: no person is asked.
    TelemetryOrUpdate = "telemetry-or-update",
    /// The rule is about requests, and the protocol is neither HTTP nor inspectable TLS.
    RequestsNotReadable = "requests-not-readable",
    RequestNotAllowed = "request-not-allowed",
    /// A body on a method without one.
    BodyNotExpected = "body-not-expected",
    /// A git fetch with a larger body than a fetch needs.
    BodyTooLong = "body-too-long",
    ConnectNotAllowed = "connect-not-allowed",
    UpgradeNotAllowed = "upgrade-not-allowed",
    UpgradeNotFirst = "upgrade-not-first",
    /// A header that overrides method or path, with a rule about these.
    OverrideNotAllowed = "override-not-allowed",
    /// The agent uses MCP without a bridge.
    McpPastBridges = "mcp-past-bridges",
    UdpNotAllowed = "udp-not-allowed",
    ProtocolNotAllowed = "protocol-not-allowed",
    SocketNotAllowed = "socket-not-allowed",
    // DNS.
    /// A label that is not a host name's.
    NameNotValid = "name-not-valid",
    /// The pool has no address left for wildcard names.
    NamePoolFull = "name-pool-full",
    /// A query of a class other than IN.
    ClassNotAllowed = "class-not-allowed",
    TooShort = "too-short",
    TooLong = "too-long",
    NotAQuery = "not-a-query",
    NotOneQuestion = "not-one-question",
    NotReadable = "not-readable",
    OperationNotKnown = "operation-not-known",
    EdnsVersionNotKnown = "edns-version-not-known",
    // The way into the relay.
    /// A connection to the listener itself.
    NotRedirected = "not-redirected",
    /// A pool address without a name.
    AddressNotGiven = "address-not-given",
    TooManyConnections = "too-many-connections",
    /// A cgroup without a sandbox.
    SandboxUnknown = "sandbox-unknown",
    NoListener = "no-listener",
    NoMemory = "no-memory",
    TableFull = "table-full",
    /// More refusals by the kernel than could be read.
    EventsLost = "events-lost",
    // First bytes and TLS.
    /// Nothing came in time.
    Silent = "silent",
    NotTlsOrHttp = "not-tls-or-http",
    NotTls = "not-tls",
    NoServerName = "no-server-name",
    ServerNameMismatch = "server-name-mismatch",
    EncryptedClientHello = "encrypted-client-hello",
    SeveralNames = "several-names",
    NameIsAnAddress = "name-is-an-address",
    ExtensionTwice = "extension-twice",
    TooManyExtensions = "too-many-extensions",
    HelloTooLong = "hello-too-long",
    HelloInterrupted = "hello-interrupted",
    HelloFollowed = "hello-followed",
    HelloLengths = "hello-lengths",
    NotAHello = "not-a-hello",
    VersionNotKnown = "version-not-known",
    RecordLength = "record-length",
    InspectionFailed = "inspection-failed",
    /// The server's certificate is not valid.
    CertificateNotValid = "certificate-not-valid",
    /// The program does not trust the session's certificate authority.
    AuthorityNotTrusted = "authority-not-trusted",
    ClientHandshakeFailed = "client-handshake-failed",
    // HTTP.
    NotHttp = "not-http",
    Http2PriorKnowledge = "http2-prior-knowledge",
    HttpVersionNotKnown = "http-version-not-known",
    RequestLineNotValid = "request-line-not-valid",
    TargetNotValid = "target-not-valid",
    TargetMismatch = "target-mismatch",
    HostMissing = "host-missing",
    HostTwice = "host-twice",
    HostMismatch = "host-mismatch",
    HeadTooLong = "head-too-long",
    TooManyHeaders = "too-many-headers",
    HeaderNotValid = "header-not-valid",
    /// A name that some servers read as a defining header, such as `content_length`.
    HeaderLookAlike = "header-look-alike",
    SpaceBeforeColon = "space-before-colon",
    FoldedHeader = "folded-header",
    BareCr = "bare-cr",
    BareLf = "bare-lf",
    NulInHead = "nul-in-head",
    ContentLengthNotValid = "content-length-not-valid",
    ContentLengthTwice = "content-length-twice",
    LengthAndChunked = "length-and-chunked",
    ChunkedTwice = "chunked-twice",
    ChunkedInHttp10 = "chunked-in-http-1-0",
    TransferEncodingNotKnown = "transfer-encoding-not-known",
    ChunkNotValid = "chunk-not-valid",
    ChunkTooLong = "chunk-too-long",
    ChunkExtension = "chunk-extension",
    TrailersNotAllowed = "trailers-not-allowed",
    /// Bytes after an upgrade request, before the server accepted.
    EarlyData = "early-data",
    AnswerNotValid = "answer-not-valid",
    AnswerTooLong = "answer-too-long",
    // Credentials.
    /// A request that the credential's entry does not allow.
    CredentialNotAllowed = "credential-not-allowed",
    CredentialOfAnotherHost = "credential-of-another-host",
    CredentialInAnswer = "credential-in-answer",
    PlaceholderMisplaced = "placeholder-misplaced",
    PlaceholderNotReplaced = "placeholder-not-replaced",
    PlaceholderTwice = "placeholder-twice",
    PlaceholderWithoutTls = "placeholder-without-tls",
    PlaceholderInBody = "placeholder-in-body",
    AuthorizationTwice = "authorization-twice",
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
