use super::super::*;
#[test]
#[ignore]
fn smoke() {
    let args: Vec<String> = std::env::var("PINCMD").unwrap().split(' ').map(String::from).collect();
    let env = BTreeMap::new();
    let cwd = std::env::var("PINCWD").unwrap();
    let path = std::env::var("PATH").unwrap();
    let r = Request{program:&args[0], args:&args[1..], cwd: Path::new(&cwd), path_env: OsStr::new(&path), home: Path::new("/root"), env:&env, accept_missing_package:false};
    let t = std::time::Instant::now();
    match resolve(&r, &mut NoCache, &mut |_| ()) {
        Ok(r) => {
            eprintln!("{:?} {} {:?} {:?} env={:?} cwd={:?}\n roots={:?}\n unpinned={:?} digest={}", r.launcher, r.identity, r.program, r.argv, r.env, r.cwd, r.read_roots, r.unpinned, r.digest);
            for f in &r.files { eprintln!("  {:?} {:?} {} sys={}", f.path, f.role, f.size, f.system_owned); }
            for t in &r.trees { eprintln!("  tree {} {:?} {} files {:?} {} pk", t.name, t.root, t.manifest.len(), t.source, t.packages.len()); }
            eprintln!("took {:?}", t.elapsed());
            let t = std::time::Instant::now();
            eprintln!("unchanged {:?} {:?}", r.unchanged_since(), t.elapsed());
        }
        Err(e) => eprintln!("error: {e}"),
    }
}
