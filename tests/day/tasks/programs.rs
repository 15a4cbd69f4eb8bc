//! Languages, build systems and debuggers.

use super::{Task, refused, works};

const CC: &[&str] = &["cc"];
const NPM: &[&str] = &["npm", "node"];
const PYTHON: &[&str] = &["python3"];

pub const TASKS: &[Task] = &[
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
    refused("perf stat", &["perf"], "perf stat true", "no policy allows it"),
    works(
        "npm workspaces",
        NPM,
        "mkdir -p w/a; echo '{\"name\": \"a\", \"version\": \"1.0.0\", \"scripts\": {\"hi\": \"echo hi-a\"}}' > w/a/package.json; \
         npm pkg set 'workspaces[]=w/*'; npm install --offline --no-audit; npm run hi -w a | grep -qx hi-a",
    ),
    works(
        "npm version patch (commit and tag)",
        &["npm", "git"],
        "npm version patch; git tag | grep -qx v1.0.1",
    )
    .after("git log -1 --format=%s | grep -qx 1.0.1"),
    works(
        "npm ls, npm exec",
        NPM,
        "npm install --offline --no-audit; npm ls dep | grep -q dep@1.0.0; npm exec --offline dep | grep -qx dep",
    ),
    works(
        "node: WebAssembly, zlib",
        &["node"],
        "node -e 'new WebAssembly.Module(new Uint8Array([0,97,115,109,1,0,0,0])); require(\"zlib\").gunzipSync(require(\"zlib\").gzipSync(\"x\"))'",
    ),
    works(
        "node --inspect",
        &["node"],
        "node --inspect=127.0.0.1:9230 -e 'require(\"http\").get(\"http://127.0.0.1:9230/json\", r => { r.resume(); r.on(\"end\", () => process.exit(0)) })'",
    ),
    works(
        "pnpm install (a local dependency)",
        &["pnpm"],
        "pnpm install --offline; node -e 'require(\"dep\")()'",
    ),
    works(
        "yarn install (a local dependency)",
        &["yarn"],
        "yarn install --offline; node -e 'require(\"dep\")()'",
    ),
    works("bun run and bun test", &["bun"], "bun -e 'console.log(1)'; bun run build; test -f out.txt"),
    works(
        "deno run and deno test",
        &["deno"],
        "echo 'Deno.test(\"t\", () => {})' > t_test.ts; deno test --no-check t_test.ts",
    ),
    works(
        "uv venv and uv run",
        &["uv"],
        "uv venv --offline v; uv run --offline --no-project python -c 'print(1)'",
    ),
    works("poetry init and check", &["poetry"], "mkdir q; cd q; poetry init -n --name q; poetry check"),
    works(
        "gradle tasks",
        &["gradle"],
        "echo 'task hi { doLast { println \"hi\" } }' > build.gradle; gradle --offline -q hi | grep -qx hi",
    ),
    works("mvn -v", &["mvn"], "mvn -v"),
    works(
        "python: profile, compileall, zipapp, pdb",
        PYTHON,
        "echo 'print(1)' > m.py; python3 -m cProfile m.py >/dev/null; python3 -m compileall -q src; mkdir z; cp m.py z/__main__.py; \
         python3 -m zipapp z -o z.pyz; python3 z.pyz; echo c | python3 -m pdb m.py | grep -q 1",
    ),
    works(
        "python threads, asyncio and a thread pool",
        PYTHON,
        "python3 -c 'from concurrent.futures import *\nwith ThreadPoolExecutor(4) as p: assert list(p.map(abs,[-1,2]))==[1,2]\nwith ProcessPoolExecutor(2) as p: assert list(p.map(abs,[-1]))==[1]'",
    ),
    works(
        "gdb attaches to one's own child",
        &["gdb", "sleep"],
        "sleep 30 & gdb -q -batch -p $! -ex bt; kill $!",
    ),
    works("strace -c", &["strace"], "strace -c -o /tmp/s true; grep -q execve /tmp/s"),
    works(
        "gcov coverage",
        &["gcc", "gcov"],
        "gcc --coverage -o prog src/main.c; ./prog; gcov -o . prog-main.gcda >/dev/null; ls *.gcov",
    ),
    works(
        "a static and a shared library",
        &["gcc", "ar"],
        "echo 'int f(void){return 0;}' > f.c; gcc -c f.c; ar rcs libf.a f.o; gcc -shared -fPIC -o libf.so f.c; \
         echo 'int f(void);int main(){return f();}' > u.c; gcc u.c -o u ./libf.so; ./u",
    ),
    works(
        "PostgreSQL without a container",
        &["psql"],
        "PATH=$PATH:$(ls -d /usr/lib/postgresql/*/bin | tail -1); initdb -D pg -A trust >/dev/null; \
         pg_ctl -D pg -w -l /tmp/log -o '-k /tmp -p 5439 -c listen_addresses=127.0.0.1' start; \
         psql -h 127.0.0.1 -p 5439 -d postgres -c 'create table t(x int); insert into t values (1); select * from t'; pg_ctl -D pg -m fast stop",
    ),
    works(
        "redis without a container",
        &["redis-server", "redis-cli"],
        "redis-server --port 6390 --daemonize yes --dir /tmp; sleep 0.5; redis-cli -p 6390 set a b; redis-cli -p 6390 shutdown nosave",
    ),
    works(
        "chromium --headless, with --no-sandbox",
        &["chromium"],
        "echo '<p id=x>hi</p>' > p.html; timeout 60 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --dump-dom \"file://$PWD/p.html\" | grep -q hi",
    ),
    works(
        "node: cluster, http2",
        &["node"],
        "echo 'const c = require(\"cluster\"); if (c.isPrimary) c.fork().on(\"exit\", k => process.exit(k - 3)); else process.exit(3)' > c.js; node c.js; \
         node -e 'const h = require(\"http2\").createServer(); h.listen(0, \"::1\", () => h.close())'",
    ),
    works(
        "gdbserver",
        &["gcc", "gdb", "gdbserver"],
        "gcc -g -o prog src/main.c; gdbserver --once 127.0.0.1:19999 ./prog & sleep 1; \
         gdb -batch -ex 'target remote 127.0.0.1:19999' -ex c ./prog | grep -q 'exited normally'",
    ),
    works(
        "keytool, jshell",
        &["keytool", "jshell"],
        "keytool -genkeypair -alias a -keyalg RSA -storepass changeit -dname CN=a -keystore ks; echo 'System.out.println(6 * 7)' | jshell -s - | grep -q 42",
    ),
    works(
        "dpkg-buildpackage",
        &["dpkg-buildpackage", "fakeroot", "gcc"],
        "mkdir -p w/debian/source; cd w; echo '3.0 (native)' > debian/source/format
printf 'Source: w\\nMaintainer: A <a@b.example>\\nBuild-Depends: gcc\\n\\nPackage: w\\nArchitecture: any\\nDescription: w\\n' > debian/control
printf 'w (1) unstable; urgency=low\\n\\n  * x\\n\\n -- A <a@b.example>  Mon, 01 Jan 2024 00:00:00 +0000\\n' > debian/changelog
printf '#!/usr/bin/make -f\\nclean build binary-arch:\\nbinary:\\n\\tinstall -D -g games ../file d/usr/games/w; mkdir d/DEBIAN\\n\\tdpkg-gencontrol -Pd\\n\\tdpkg-deb -b d ..\\n' > debian/rules
chmod +x debian/rules; dpkg-buildpackage -us -uc -b; dpkg-deb -c ../w_1_*.deb | grep -q root/games",
    ),
];
