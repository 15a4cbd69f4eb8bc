//! Why a name, a connection or a request is let through or refused: every reason that the network gives, in one list.

use std::fmt;

macro_rules! reasons {
    ($($(#[$about:meta])* $variant:ident = $code:literal,)+) => {
        /// Why. The codes are stable: they stand in events and in `--json`, and scripts read them.
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
    // A rule of the policy decides.
    NameAllowed = "name-allowed",
    AddressAllowed = "address-allowed",
    LoopbackPortOpen = "loopback-port-open",
    NameNotAllowed = "name-not-allowed",
    PortNotAllowed = "port-not-allowed",
    /// No rule allows the address, or it leads to a place that is shut to sandboxes.
    AddressNotAllowed = "address-not-allowed",
    LoopbackPortNotOpen = "loopback-port-not-open",
    /// An allowed name leads to an address that is not public, and its rule permits none.
    AddressNotPublic = "address-not-public",
    ApprovalDenied = "approval-denied",
    ApprovalTimedOut = "approval-timed-out",
    NobodyToAsk = "nobody-to-ask",
    /// The agent contacts the host by itself, for telemetry or updates: nobody is asked about it.
    TelemetryOrUpdate = "telemetry-or-update",
    /// The rule is about requests, and the protocol is neither HTTP nor TLS that agentsh may end.
    RequestsNotReadable = "requests-not-readable",
    RequestNotAllowed = "request-not-allowed",
    /// A body where the method has none.
    BodyNotExpected = "body-not-expected",
    /// A git fetch sends more than a fetch has to say.
    BodyTooLong = "body-too-long",
    ConnectNotAllowed = "connect-not-allowed",
    UpgradeNotAllowed = "upgrade-not-allowed",
    UpgradeNotFirst = "upgrade-not-first",
    /// A header that replaces method or path, where a rule is about these.
    OverrideNotAllowed = "override-not-allowed",
    /// The agent speaks MCP to a server directly.
    McpPastBridges = "mcp-past-bridges",
    UdpNotAllowed = "udp-not-allowed",
    ProtocolNotAllowed = "protocol-not-allowed",
    SocketNotAllowed = "socket-not-allowed",
    // DNS.
    /// A name with labels that no host has.
    NameNotValid = "name-not-valid",
    /// More names were asked for under wildcards than there are addresses in the pool.
    NamePoolFull = "name-pool-full",
    /// A question of another class than IN.
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
    /// An address of the pool that stands for no name.
    AddressNotGiven = "address-not-given",
    TooManyConnections = "too-many-connections",
    /// A control group without a sandbox.
    SandboxUnknown = "sandbox-unknown",
    NoListener = "no-listener",
    NoMemory = "no-memory",
    TableFull = "table-full",
    /// The kernel refused more connections than could be read in time.
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
    /// The far side does not prove its name.
    CertificateNotValid = "certificate-not-valid",
    /// The program does not trust the certificate authority of the session.
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
    /// A name that some servers read as a header that decides, such as `content_length`.
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
    /// Bytes behind a request for a web socket, before the server agreed to it.
    EarlyData = "early-data",
    AnswerNotValid = "answer-not-valid",
    AnswerTooLong = "answer-too-long",
    // Credentials.
    /// A request that the credential's rule does not mean.
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
