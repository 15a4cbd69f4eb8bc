//! A client in a process of its own, which does what a line on its standard input orders and answers with a line of JSON.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

pub struct Client {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Client {
    /// Starts it and waits for the answer to its first order, so that it is ready.
    pub fn start(command: &mut Command, first: &str) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut client = Self { child, orders, answers };
        client.order(first);
        client
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn order(&mut self, order: &str) -> Value {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no answer to `{order}`"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.child.wait();
    }
}
