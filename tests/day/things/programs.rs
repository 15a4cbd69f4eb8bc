//! Languages, build systems and debuggers.

use super::{Thing, refused, works};

const CC: &[&str] = &["cc"];
const NPM: &[&str] = &["npm", "node"];
const PYTHON: &[&str] = &["python3"];

pub const THINGS: &[Thing] = &[
    works(
        "npm install (a local dependency)",
        NPM,
        "npm install --offline --no-audit; node -e 'require(\"dep\")()'",
    ),
    works("npm ci", NPM, "npm ci --offline --no-audit; node -e 'require(\"dep\")()'")
        .before("npm install --offline --no-audit --package-lock-only >/dev/null"),
    works("npm test", NPM, "npm test"),
    works("npm run build", NPM, "npm run build; test -f out.txt"),
    works("npx of a local program", NPM, "npm install --offline --no-audit; npx dep | grep -qx dep"),
    works("npm init -y in a new directory", NPM, "mkdir n; cd n; npm init -y; test -f package.json"),
    works(
        "npm config set --location=project",
        NPM,
        "npm config set audit false --location=project; grep -q audit .npmrc",
    ),
    works("npm pack", NPM, "npm pack; test -f proj-1.0.0.tgz"),
    works("node --test", &["node"], "node --test tests/"),
    works(
        "node: worker threads, child processes",
        &["node"],
        "node -e \"
        const {Worker}=require('worker_threads');const {fork,execSync}=require('child_process');
        new Worker('process.exit(0)',{eval:true}).on('exit',()=>{execSync('true')})\"",
    ),
    works("python -m venv", PYTHON, "python3 -m venv --without-pip .venv; .venv/bin/python -c 'print(1)'"),
    works(
        "python -m venv with pip, an editable install",
        PYTHON,
        "python3 -m venv .venv; printf '[project]\\nname=\"p\"\\nversion=\"1\"\\n[tool.setuptools]\\npackages=[]\\n' > pyproject.toml; \
         .venv/bin/pip install -q --no-build-isolation --no-index -e . 2>&1 || .venv/bin/pip --version",
    ),
    works("unittest", PYTHON, "python3 -m unittest discover -s tests"),
    works("pytest", &["pytest"], "pytest tests"),
    works(
        "python multiprocessing",
        PYTHON,
        "python3 -c 'import multiprocessing as m\nwith m.Pool(2) as p: assert p.map(abs,[-1])==[1]'",
    ),
    works(
        "python sqlite3",
        PYTHON,
        "python3 -c 'import sqlite3; sqlite3.connect(\"d.db\").execute(\"create table t(x)\")'",
    ),
    works(
        "python asyncio subprocess",
        PYTHON,
        "python3 -c '
import asyncio
async def m():
    p = await asyncio.create_subprocess_exec(\"true\")
    assert await p.wait() == 0
asyncio.run(m())'",
    ),
    works("make (cc)", &["make", "cc"], "make -j2; ./prog"),
    works(
        "c++",
        &["g++"],
        "printf '#include <thread>\\nint main(){std::thread t([]{});t.join();}' > t.cc; g++ -pthread t.cc -o t; ./t",
    ),
    works(
        "cargo build and cargo test",
        &["cargo"],
        "cargo init -q --name c --vcs none c; cd c; cargo build -q --offline; cargo test -q --offline",
    ),
    works(
        "go build and go test",
        &["go"],
        "mkdir g; cd g; go mod init g; printf 'package main\\nfunc main(){}' > m.go; go build; go test ./...",
    ),
    works(
        "javac, java",
        &["javac", "java"],
        "echo 'class A{public static void main(String[] a){}}' > A.java; javac A.java; java A",
    ),
    works("java -version", &["java"], "java -version"),
    works("perl, awk, jq", &["perl", "awk", "jq"], "perl -e 1; awk 'BEGIN{}'; echo '{}' | jq ."),
    works("sqlite3", &["sqlite3"], "sqlite3 d.db 'create table t(x); select 1'"),
    works(
        "gdb run (ptrace)",
        &["gdb", "cc"],
        "cc -g -o prog src/main.c; gdb -q -batch -ex run ./prog | grep 'exited normally'",
    ),
    works("strace -f", &["strace"], "strace -f -o /tmp/s sh -c 'true; /bin/true'; grep -q exit_group /tmp/s"),
    works("ASan with LeakSanitizer", CC, "cc -fsanitize=address -o prog src/main.c; ./prog"),
    works(
        "UBSan and TSan",
        CC,
        "cc -fsanitize=undefined -o u src/main.c; ./u; cc -fsanitize=thread -o t src/main.c; ./t",
    ),
    works("valgrind", &["valgrind", "cc"], "cc -g -o prog src/main.c; valgrind -q ./prog"),
    works("a core limit, nice, time", &[], "ulimit -c 0; nice true; bash -c 'time true'"),
    refused("perf stat", &["perf"], "perf stat true", "ermi"),
];
