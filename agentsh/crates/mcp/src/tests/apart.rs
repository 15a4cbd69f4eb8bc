//! Long messages are judged on another thread: only their sender waits.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};

use super::rig::{Rig, run, setup};
use crate::guard::{Guard, Precompute, Report, Subject};
use crate::types::ServerId;

/// Waits until it may go on; if no text is long, returns at once.
#[derive(Debug)]
struct Slow {
    begun: mpsc::Sender<()>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl Precompute for Slow {
    fn inspect(&self, subject: &Subject<'_>, _: &mut Report) {
        if subject.matter.value().is_some_and(|value| value.length() > 8000) {
            self.begun.send(()).unwrap();
            self.go_on.lock().unwrap().recv().unwrap();
        }
    }
}

fn call(id: u32, text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","arguments":{{"text":"{text}"}}}}}}"#
    )
}

fn two_connections() -> (Rig, Rig, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (setup_a, mut setup_b) = (setup(), setup());
    setup_b.options.server = ServerId("b".to_owned());
    let (begun, has_begun) = mpsc::channel();
    let (go, go_on) = mpsc::channel();
    let mut guard = Guard::new(&setup_a.policy);
    guard.add(Arc::new(Slow { begun, go_on: Mutex::new(go_on) }));
    let guard = Rc::new(RefCell::new(guard));
    (setup_a.open_with(Rc::clone(&guard)), setup_b.open_with(guard), has_begun, go)
}

async fn begins(has_begun: &mpsc::Receiver<()>) {
    super::rig::within("a judgement to begin", async {
        while has_begun.try_recv().is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[test]
fn long_call_delays_only_its_own_connection() {
    run(async || {
        let (mut a, mut b, has_begun, go) = two_connections();
        let (mut server_a, mut server_b) = (a.server().await, b.server().await);
        a.client.send(&call(1, &"long ".repeat(1800))).await;
        a.client.send(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#).await;
        begins(&has_begun).await;
        // Were it judged on the thread of both, this would wait for ever.
        b.round_trip(&mut server_b, 1).await;
        b.client.send(&call(2, "short")).await;
        assert_eq!(server_b.peer.next_json().await["id"], 2);
        go.send(()).unwrap();
        assert_eq!(server_a.peer.next_json().await["id"], 1);
        assert_eq!(server_a.peer.next_json().await["id"], 2);
    });
}

#[test]
fn long_result_is_judged_on_another_thread() {
    run(async || {
        let (mut a, mut b, has_begun, go) = two_connections();
        let (mut server_a, mut server_b) = (a.server().await, b.server().await);
        a.client.send(&call(1, "short")).await;
        assert_eq!(server_a.peer.next_json().await["id"], 1);
        let text = "long ".repeat(1800);
        let answer = format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
        );
        server_a.peer.send(&answer).await;
        begins(&has_begun).await;
        b.round_trip(&mut server_b, 1).await;
        go.send(()).unwrap();
        assert_eq!(a.client.next().await.as_deref(), Some(answer.as_str()));
    });
}

#[test]
fn judgement_that_panics_on_another_thread_is_repeated() {
    /// Breaks on every thread but one.
    #[derive(Debug)]
    struct OnlyHere(std::thread::ThreadId);

    impl Precompute for OnlyHere {
        fn inspect(&self, _: &Subject<'_>, _: &mut Report) {
            if std::thread::current().id() != self.0 {
                std::panic::resume_unwind(Box::new(()));
            }
        }
    }

    run(async || {
        let setup = setup();
        let mut guard = Guard::new(&setup.policy);
        guard.add(Arc::new(OnlyHere(std::thread::current().id())));
        let mut rig = setup.open_with(Rc::new(RefCell::new(guard)));
        let mut server = rig.server().await;
        rig.client.send(&call(1, &"long ".repeat(1800))).await;
        assert_eq!(server.peer.next_json().await["id"], 1);
    });
}
