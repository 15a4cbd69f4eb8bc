//! Verbs.
pub fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|verb| verb == crate::sandbox::init::VERB) {
        return crate::sandbox::init::main().into();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let code = runtime.block_on(debug(&arguments[2..]));
    code.into()
}
async fn debug(argv: &[String]) -> u8 {
    use crate::sandbox::plan::*;
    use std::os::fd::AsFd;
    let context = crate::session::Context::find().unwrap();
    let policy = crate::policy::ProcessPolicy::default();
    let ruled = |v: u64| Some(crate::policy::Ruled { value: v, rule: crate::types::RuleRef::default_rule("x") });
    let limits = crate::policy::Limits { memory: ruled(2900 << 20), pids: ruled(512), open_files: ruled(4096), cpu_percent: ruled(400) };
    let (i, o, e) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let env = vec![format!("HOME={}", context.home.display()), "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into(), "TERM=xterm".into()];
    let start = crate::session::launch::Start {
        label: "agent", policy: &policy, limits: &limits, for_agent: true, terminal: Terminal::Keep,
        program: Program { path: argv[0].clone().into(), argv: argv.to_vec(), env, workdir: context.project.clone() },
        pinned: vec![], program_roots: vec![], descriptors: vec![], project_access: Some(Access::ReadWrite), own_state: vec![], grants: vec![], denied: vec![],
        unmasked: vec![], execute: vec![], files: vec![], extra: vec![], names: Default::default(), listen: vec![],
        stdio: [i.as_fd(), o.as_fd(), e.as_fd()], allow_degraded: false,
    };
    let layout = crate::session::launch::prepare(&context, &start);
    let _p = crate::session::placeholders::Placeholders::make(&context.state, &crate::session::placeholders::wanted(&layout.placeholders)).unwrap();
    let t = std::time::Instant::now();
    match crate::session::launch::start(&context, start, layout, &format!("agentsh-{}-0", std::process::id())).await {
        Ok(mut running) => {
            let t1 = t.elapsed();
            let code = running.child.exit().await;
            if std::env::var("DBG").is_ok() { eprintln!("{:?} total {:?} {:?}", t1, t.elapsed(), running.enforcement); }
            if let Some(e) = running.child.execution_error() { eprintln!("{e}"); }
            code
        }
        Err(error) => { eprintln!("{error}"); 125 }
    }
}
