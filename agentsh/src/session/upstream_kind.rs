//! A server behind the proxy: a program in a sandbox, or a URL.

use tokio::io::{AsyncRead, AsyncWrite};

use agentsh_mcp::{Running, StartError, Upstream};

use super::remote::Remote;
use super::server::Server;

pub enum UpstreamKind {
    Program(Box<Server>),
    Url(Box<Remote>),
}

impl Upstream for UpstreamKind {
    type Stdin = Box<dyn AsyncWrite + Unpin>;
    type Stdout = Box<dyn AsyncRead + Unpin>;

    async fn start(&mut self) -> Result<Running<Self::Stdin, Self::Stdout>, StartError> {
        match self {
            Self::Program(server) => server.start().await.map(boxed),
            Self::Url(remote) => remote.start().await.map(boxed),
        }
    }
}

fn boxed<I: AsyncWrite + Unpin + 'static, O: AsyncRead + Unpin + 'static>(
    running: Running<I, O>,
) -> Running<Box<dyn AsyncWrite + Unpin>, Box<dyn AsyncRead + Unpin>> {
    let Running { stdin, stdout, exit, kill, told } = running;
    Running { stdin: Box::new(stdin), stdout: Box::new(stdout), exit, kill, told }
}
