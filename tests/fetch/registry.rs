//! A registry of npm packages, and an index of Python ones, on this machine's loopback, made by the test.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

pub struct Registry {
    pub port: u16,
    scheme: &'static str,
    down: Arc<AtomicBool>,
    pages: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    documents: BTreeMap<String, Value>,
    heard: Arc<Heard>,
}

/// What a registry records about its clients.
#[derive(Default)]
struct Heard {
    /// Paths that were asked for.
    asked: Mutex<Vec<String>>,
    /// Files are kept back for longer than a fetch goes untold.
    is_slow: AtomicBool,
}

impl Registry {
    pub fn start() -> Self {
        Self::listen(None)
    }

    /// The same over TLS.
    pub fn secure(config: Arc<ServerConfig>) -> Self {
        Self::listen(Some(config))
    }

    /// Without a path.
    pub fn address(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    fn listen(config: Option<Arc<ServerConfig>>) -> Self {
        let scheme = if config.is_some() { "https" } else { "http" };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let down = Arc::new(AtomicBool::new(false));
        let pages = Arc::new(Mutex::new(BTreeMap::new()));
        let (stop, served) = (Arc::clone(&down), Arc::clone(&pages));
        let heard: Arc<Heard> = Arc::default();
        let listening = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let (served, config, stream) = (Arc::clone(&served), config.clone(), stream.unwrap());
                let heard = Arc::clone(&listening);
                std::thread::spawn(move || match config {
                    None => drop(answer(stream, &served, &heard)),
                    Some(config) => {
                        let tls = ServerConnection::new(config).unwrap();
                        drop(answer(StreamOwned::new(tls, stream), &served, &heard));
                    }
                });
            }
        });
        Self { port, scheme, down, pages, documents: BTreeMap::new(), heard }
    }

    /// Publishes a package whose command is `script`, with more keys for its `package.json`.
    pub fn publish(&mut self, name: &str, version: &str, script: &str, more: &Value) {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("package");
        std::fs::create_dir(&root).unwrap();
        let command = name.rsplit('/').next().unwrap();
        let mut manifest = json!({"name": name, "version": version, "bin": {command: "index.js"}});
        let keys = more.as_object().unwrap().clone();
        manifest.as_object_mut().unwrap().extend(keys);
        std::fs::write(root.join("package.json"), manifest.to_string()).unwrap();
        std::fs::write(root.join("index.js"), format!("#!/usr/bin/env node\n{script}")).unwrap();
        let file = format!("/files/{command}-{version}.tgz");
        let bytes = packed(place.path());
        let tarball = format!("{}{file}", self.address());
        let mut dist = json!({"tarball": tarball});
        if let Some(integrity) = more.get("integrity") {
            dist["integrity"] = integrity.clone();
        }
        manifest["dist"] = dist;
        if more.get("scripts").is_some() {
            manifest["hasInstallScript"] = true.into();
        }
        let document = self
            .documents
            .entry(name.to_owned())
            .or_insert_with(|| json!({"name": name, "dist-tags": {}, "versions": {}}));
        document["dist-tags"]["latest"] = version.into();
        document["versions"][version] = manifest;
        let mut pages = self.pages.lock().unwrap();
        pages.insert(file, bytes);
        let page = document.to_string().into_bytes();
        pages.insert(format!("/{}", name.replace('/', "%2f")), page.clone());
        pages.insert(format!("/{name}"), page);
    }

    /// Publishes a wheel whose command prints the value of a Python expression as `answering` in `python.rs` says.
    pub fn publish_wheel(&mut self, name: &str, version: &str, code: &str, needs: &[&str]) {
        let module = name.replace('-', "_");
        let place = tempfile::tempdir().unwrap();
        let info = format!("{module}-{version}.dist-info");
        let needs: String = needs.iter().map(|name| format!("Requires-Dist: {name}\n")).collect();
        for (file, text) in [
            (format!("{module}/__init__.py"), code.to_owned()),
            (
                format!("{info}/METADATA"),
                format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"),
            ),
            (
                format!("{info}/WHEEL"),
                "Wheel-Version: 1.0\nGenerator: suite\nRoot-Is-Purelib: true\nTag: py3-none-any\n".to_owned(),
            ),
            (format!("{info}/entry_points.txt"), format!("[console_scripts]\n{name} = {module}:main\n")),
            (format!("{info}/RECORD"), String::new()),
        ] {
            let path = place.path().join("wheel").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let wheel = place.path().join("file.whl");
        let mut zip = Command::new("/usr/bin/python3");
        zip.args(["-m", "zipfile", "-c"]).arg(&wheel).args([&module, &info]);
        assert!(zip.current_dir(place.path().join("wheel")).status().unwrap().success());
        let file = format!("{module}-{version}-py3-none-any.whl");
        self.publish_file(name, &file, std::fs::read(wheel).unwrap());
    }

    /// Adds a file to the page of a Python package, whatever is in it.
    pub fn publish_file(&mut self, name: &str, file: &str, bytes: Vec<u8>) {
        let mut pages = self.pages.lock().unwrap();
        pages.insert(format!("/wheels/{file}"), bytes);
        let page = pages.entry(format!("/simple/{name}/")).or_insert_with(|| b"<!DOCTYPE html>\n".to_vec());
        page.extend(format!("<a href=\"/wheels/{file}\">{file}</a>\n").into_bytes());
    }

    /// How often a file of a package was downloaded.
    pub fn downloads(&self) -> usize {
        self.heard.asked.lock().unwrap().iter().filter(|path| path.starts_with("/files/")).count()
    }

    /// From now on files take their time.
    pub fn slow_down(&self) {
        self.heard.is_slow.store(true, Ordering::SeqCst);
    }

    /// Stops answering.
    pub fn stop(&self) {
        self.down.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.stop();
    }
}

fn packed(directory: &Path) -> Vec<u8> {
    let output = Command::new("tar").args(["czf", "-", "-C"]).arg(directory).arg("package").output().unwrap();
    assert!(output.status.success());
    output.stdout
}

fn answer(
    mut stream: impl Read + Write,
    pages: &Mutex<BTreeMap<String, Vec<u8>>>,
    heard: &Heard,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(&mut stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let path = first.split(' ').nth(1).unwrap_or_default().replace("%2F", "%2f");
    heard.asked.lock().unwrap().push(path.clone());
    if path.starts_with("/files/") && heard.is_slow.load(Ordering::SeqCst) {
        std::thread::sleep(std::time::Duration::from_secs(2));
    }
    let page = pages.lock().unwrap().get(&path).cloned();
    let (status, body) = match page {
        Some(body) => ("200 OK", body),
        None => ("404 Not Found", b"{}".to_vec()),
    };
    let kind = if path.starts_with("/simple/") { "text/html" } else { "application/json" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)?;
    stream.flush()
}
