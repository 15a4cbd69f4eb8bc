//! The machine around the project: terminals, processes, sockets, the network.

use super::{Task, refused, works};

pub const TASKS: &[Task] = &[
    works(
        "node http server + curl on localhost",
        &["node", "curl"],
        "node -e 'require(\"http\").createServer((q,s)=>s.end(\"hi\")).listen(3999)' & p=$!; \
         for i in 1 2 3 4 5 6 7 8 9 10; do curl -sf http://localhost:3999 && break; sleep 0.3; done | grep -q hi; kill $p",
    ),
    works(
        "python http.server + wget",
        &["python3", "wget"],
        "python3 -m http.server 3998 --bind 127.0.0.1 >/dev/null 2>&1 & p=$!; \
         wget -q --tries=10 --retry-connrefused --waitretry=1 -O - http://127.0.0.1:3998/file | grep -q one; kill $p",
    ),
    works(
        "a socket of the file system",
        &["python3"],
        "python3 -c '
import socket, threading
s = socket.socket(socket.AF_UNIX); s.bind(\"s.sock\"); s.listen()
threading.Thread(target=lambda: s.accept()[0].send(b\"x\")).start()
c = socket.socket(socket.AF_UNIX); c.connect(\"s.sock\"); assert c.recv(1) == b\"x\"'; rm s.sock",
    ),
    works(
        "tmux",
        &["tmux"],
        "tmux -L t new-session -d 'sleep 5'; tmux -L t list-sessions; tmux -L t kill-server",
    ),
    works("script(1)", &["script"], "script -qec 'tty' /dev/null | grep -q /dev/pts"),
    works("id, whoami, hostname, uname, date", &[], "id -u; whoami; hostname; uname -a; date; test \"$(hostname -f)\" = \"$(hostname)\"; getent hosts \"$(hostname)\""),
    works("ps, top", &["ps", "top"], "ps aux | grep -q ps; top -bn1 | grep -q PID"),
    works("df, du, free, nproc", &["df", "du", "free"], "df .; du -s .; free; nproc"),
    works(
        "kill, wait, traps, job control",
        &[],
        "sleep 60 & kill %1 2>/dev/null || kill $!; wait $! || true",
    ),
    works(
        "setsid, nohup, a daemon",
        &["setsid"],
        "setsid sleep 0.1; nohup true >/dev/null 2>&1; (sleep 0.1 &)",
    ),
    works("ssh -V, gpg --version", &["ssh", "gpg"], "ssh -V; gpg --version"),
    works(
        "ssh-keygen, git signed with it",
        &["ssh-keygen", "git"],
        "ssh-keygen -q -t ed25519 -N '' -f /tmp/k; echo x >> file; \
        git -c gpg.format=ssh -c user.signingKey=/tmp/k.pub commit -q -S -am x",
    ),
    works("vim -es", &["vim"], "vim -es -c '%s/one/1/' -c wq file; grep -q 1 file"),
    works("less, man in a pipe", &["less"], "less file | grep -q one"),
    works("mktemp, /tmp, /dev/shm", &[], "t=$(mktemp -d); echo x > $t/x; echo x > /dev/shm/x"),
    works(
        "/proc/self, /sys/devices, /etc/os-release",
        &[],
        "cat /proc/self/status /proc/cpuinfo >/dev/null; cat /etc/os-release",
    ),
    works("agentsh why says what is allowed", &[], "/run/agentsh/agentsh why . | grep -q allowed"),
    works(
        "a development server that this machine reaches (--publish)",
        &["python3", "curl"],
        "python3 -m http.server 3997 --bind 127.0.0.1 >/dev/null 2>&1 & p=$!; \
         for i in 1 2 3 4 5 6 7 8 9 10; do curl -sf http://localhost:3997/file && break; sleep 0.3; done | grep -q one; kill $p",
    )
    .with(&["--publish", "3997:0"]),
    works("gpg: a key, a signature", &["gpg"], "gpg --batch --quiet --passphrase '' --quick-gen-key 'A <a@b.example>' ed25519; gpg --batch --yes -s file; gpg --verify file.gpg"),
    works("openssl: a key and a certificate", &["openssl"], "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=x -keyout /tmp/k -out /tmp/c -days 1; openssl verify -CAfile /tmp/c /tmp/c"),
    works("ss, lsof, ip of one's own", &["ss", "lsof"], "ss -ltn; lsof -p $$"),
    works("diff, patch, ed, bc, xxd", &["diff", "patch", "ed"], "cp file g; echo x >> g; diff -u file g > p || true; patch -s file p; grep -q x file; printf 'a\\ny\\n.\\nw\\nq\\n' | ed -s file"),
    works("sha256sum, split, sort -u, tee, cut", &[], "sha256sum file > s; sha256sum -c s; split -l 1 file part-; sort -u file | tee t | cut -c1 | head -1"),
    works("timeout, env -i, a here-document, a subshell", &["timeout"], "timeout 5 true; env -i /bin/sh -c true; cat <<END | grep -q here\nhere\nEND"),
    works("a coprocess, a named pipe and process substitution", &["bash"], "bash -c 'diff <(echo a) <(echo a); coproc cat; echo x >&${COPROC[1]}; read -u ${COPROC[0]} y; test $y = x'"),
    works("xargs -P, parallel jobs", &[], "seq 20 | xargs -P 8 -I{} sh -c 'echo {} > job-{}'; test $(ls job-* | wc -l) = 20"),
    works("a large pipe and a large file", &[], "head -c 50000000 /dev/zero | gzip | gunzip | wc -c | grep -qx 50000000"),
    works("TZ, LANG, umask, ulimit", &[], "TZ=Asia/Tokyo date; LC_ALL=C.UTF-8 sort file; umask 027; touch u; ulimit -n"),
    refused("unshare -r (containers)", &["unshare"], "unshare -r true", "no policy allows it: run it outside"),
    works("watch -g", &["watch"], "(sleep 1; echo x > seen) & TERM=xterm timeout 5 watch -t -n 0.3 -g cat seen >/dev/null"),
    works("a program of go install or pip --user runs in this run", &[], "mkdir -p ~/.local/bin; printf '#!/bin/sh\\necho ran\\n' > ~/.local/bin/t; chmod +x ~/.local/bin/t; ~/.local/bin/t | grep -q ran"),
    refused("sudo", &["sudo"], "sudo -n true || /run/agentsh/agentsh why sudo", "no policy allows it"),
    refused("su, where there is no sudo", &["su"], "su -c true </dev/null || /run/agentsh/agentsh why su", "no policy allows it"),
    refused("docker ps", &["docker"], "docker ps || /run/agentsh/agentsh why docker", "no policy allows it"),
    refused(
        "curl of a site that no rule names",
        &["curl"],
        "curl -sS https://www.example.com/",
        "network.allow",
    ),
    refused(
        "a direct address",
        &["curl"],
        "curl -sS --max-time 5 http://192.0.2.1/ || /run/agentsh/agentsh why 192.0.2.1:80",
        "agentsh policy allow 192.0.2.1",
    ),
    refused(
        "a port of the host's loopback",
        &["curl"],
        "curl -sS --max-time 5 http://127.0.0.1:22/ || /run/agentsh/agentsh why localhost:22",
        "agentsh policy allow localhost:22",
    ),
    refused("npm publish", &["npm"], "npm publish --registry https://registry.example.com/", "network.allow"),
    refused("ssh to a host", &["ssh"], "ssh -o BatchMode=yes git@git.example.com true", "network.allow"),
    refused("mount", &["mount"], "mount -t tmpfs x src", "no policy allows it: mount it outside"),
];
