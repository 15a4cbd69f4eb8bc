//! `agentsh ui`, and what a browser would send to it: every header as the test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use super::Place;

/// The page, before anybody opened it.
pub struct Ui {
    child: Child,
    pub address: String,
    /// The path of the link.
    pub link: String,
    /// What a browser would send back; empty before the link was followed.
    pub cookie: String,
}

pub struct Got {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Ui {
    pub fn start(place: &Place) -> Self {
        let mut command = place.agentsh(&["ui", "--no-open"]);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (address, link) = line.trim().strip_prefix("http://").expect(&line).split_once('/').unwrap();
        Self { child, address: address.to_owned(), link: format!("/{link}"), cookie: String::new() }
    }

    /// With the link followed.
    pub fn open(place: &Place) -> Self {
        let mut ui = Self::start(place);
        let link = ui.link.clone();
        let got = ui.get(&link);
        assert_eq!(got.status, 200, "{}", got.body);
        let cookie = got.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        ui.cookie = cookie.split(';').next().unwrap().to_owned();
        ui
    }

    pub fn get(&self, path: &str) -> Got {
        self.raw("GET", path, &[], "")
    }

    /// As the form of a page sends it; where the answer leads elsewhere, that page.
    pub fn post(&self, path: &str, body: &str) -> Got {
        let origin = format!("http://{}", self.address);
        let got = self.raw("POST", path, &[("Origin", &origin)], body);
        match got.head.lines().find_map(|line| line.strip_prefix("location: ")) {
            Some(to) if got.status == 303 => self.get(to),
            _ => got,
        }
    }

    /// With these headers in addition to, or in place of, the usual ones.
    pub fn raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Got {
        let mut stream = self.connect();
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        let length = body.len().to_string();
        let usual = [
            ("Host", self.address.as_str()),
            ("Cookie", &self.cookie),
            ("Content-Type", "application/x-www-form-urlencoded"),
            ("Content-Length", &length),
        ];
        let is_given = |name: &str| headers.iter().any(|(given, _)| *given == name);
        let usual = usual.iter().filter(|(name, value)| !is_given(name) && !value.is_empty());
        for (name, value) in usual.chain(headers).filter(|(_, value)| !value.is_empty()) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        // Only the browser cares where a long word may be broken.
        Got { status, head: head.to_owned(), body: body.replace("<wbr>", "") }
    }

    /// The stream of a page that is kept up to date, behind its head.
    pub fn listen(&self, after: i64) -> BufReader<TcpStream> {
        let mut stream = self.connect();
        let head = format!(
            "GET /events?after={after} HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\n\r\n",
            self.address, self.cookie
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        BufReader::new(stream)
    }

    /// Ends it as Ctrl-C does; gives the exit status.
    pub fn interrupt(mut self) -> i32 {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        super::outcome::wait(&mut self.child)
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }
}

impl Drop for Ui {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Got {
    /// The value of the first input or button with this name.
    pub fn field(&self, name: &str) -> &str {
        let marker = format!("name=\"{name}\" value=\"");
        self.body.split_once(&marker).expect(name).1.split('"').next().unwrap()
    }
}
