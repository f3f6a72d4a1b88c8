//! Hooks: programs and servers that movers tell of campaigns, named by keys alone.
//!
//! Takes the datasets of `jobs`, a program and a server of the test's own; gives tests. Must not
//! know the rules of the queue.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::process::Signal;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

use super::{PATIENCE, plant, queue};
use crate::fixture::{Host, files};

/// A server that gives these answers, one after the other, and passes on what it was sent.
fn server(answers: &'static [&'static str]) -> (String, Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/told?by=longhaul", listener.local_addr().unwrap());
    let (told, heard) = channel();
    thread::spawn(move || {
        for answer in answers {
            told.send(hear(listener.accept().unwrap().0, answer).unwrap()).unwrap();
        }
    });
    (url, heard)
}

/// Reads one request, and gives this answer.
fn hear(stream: impl Read + Write, answer: &str) -> std::io::Result<(String, Value)> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.expect("a length")];
    reader.read_exact(&mut body)?;
    write!(reader.get_mut(), "HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n")?;
    reader.get_mut().flush()?;
    Ok((head, serde_json::from_slice(&body).unwrap()))
}

/// Has `openssl` make an authority, another one, and a certificate for `localhost` by the first.
fn certificates(at: &Path) {
    let made = |arguments: &str| {
        let done = std::process::Command::new("openssl").args(arguments.split(' ')).current_dir(at).output().unwrap();
        assert!(done.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&done.stderr));
    };
    files::write(at.join("names"), "subjectAltName=DNS:localhost\n");
    for name in ["authority", "other"] {
        made(&format!("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.crt"));
    }
    made("req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr");
    let signs = "-CA authority.crt -CAkey authority.key -CAcreateserial -days 2 -extfile names -out server.crt";
    made(&format!("x509 -req -in server.csr {signs}"));
}

/// The same server with TLS, by a certificate for `localhost`. Connections that come to nothing
/// are no requests.
fn private_server(at: &Path) -> (String, Receiver<(String, Value)>) {
    let chain = CertificateDer::pem_file_iter(at.join("server.crt")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(at.join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://localhost:{}/told", listener.local_addr().unwrap().port());
    let (told, heard) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let session = ServerConnection::new(config.clone()).unwrap();
            let Ok(one) = hear(StreamOwned::new(session, stream.unwrap()), "200 OK") else { continue };
            if told.send(one).is_err() {
                return;
            }
        }
    });
    (url, heard)
}

/// Writes a program that keeps what it is told, and does this besides.
fn program(host: &Host, name: &str, besides: &str) -> PathBuf {
    let (path, kept) = (host.path(name), host.path(format!("{name}.told")));
    let text = format!("#!/bin/sh\ncat >> '{}'\nenv | sort > '{}.env'\n{besides}\n", kept.display(), kept.display());
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The documents that a program was told, in the order of what they tell of.
fn told(host: &Host, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(host.path(format!("{name}.told"))).unwrap_or_default();
    let mut all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let number = |one: &Value| one["notice"].as_str().unwrap().split('-').nth(1).unwrap().parse::<u64>().unwrap();
    all.sort_by_key(number);
    all
}

fn write_hooks(host: &Host, text: &str) {
    fs::create_dir_all(host.config_home().join("longhaul")).unwrap();
    fs::write(host.config_home().join("longhaul/hooks.toml"), text).unwrap();
}

/// The hooks of a campaign as `job show` has them: key, waiting, given up, failure.
fn shown(host: &Host, name: &str) -> Vec<(String, u64, u64, String)> {
    let hooks = host.run(["job", "show", "--json", name]).succeed().events_of("job_hook");
    let of = |hook: &Value| {
        let text = |key: &str| hook[key].as_str().unwrap_or_default().to_owned();
        (text("hook"), hook["waiting"].as_u64().unwrap(), hook["given_up"].as_u64().unwrap(), text("failure"))
    };
    hooks.iter().map(of).collect()
}

#[test]
fn a_program_and_a_server_are_told_of_shards_and_of_the_end_of_a_campaign() {
    let host = Host::new();
    plant(&host.path("ds"));
    let program = program(&host, "tell", "sleep 600 &");
    let (url, heard) = server(&["204 No Content"]);
    let text = format!(
        "[[hook]]\nname = 'tell'\ncommand = ['{}', 'a b']\n[[hook]]\nname = 'chat'\nurl = '{url}'\n",
        program.display()
    );
    write_hooks(&host, &text);
    let add = ["job", "add", "--name", "all", "--hook", "tell:shard,campaign,fault", "--hook", "chat:campaign"];
    host.run(add).args(["--shard-files", "60", "ds", "to"]).env("SECRET", "x").succeed();
    host.run(["job", "plan", "all"]).succeed();
    // It was planned, and is gone.
    fs::remove_file(host.path("ds/0/00")).unwrap();
    host.run(["job", "run", "--drain"]).env("SECRET", "x").fail(23);
    let told = told(&host, "tell");
    let events: Vec<_> =
        told.iter().map(|one| (one["event"].as_str().unwrap(), one["state"].as_str().unwrap())).collect();
    assert_eq!(events, [("shard", "partial"), ("shard", "done"), ("campaign", "done")]);
    assert_eq!((&told[0]["counts"]["failed"]["files"], &told[2]["counts"]["total"]["files"]), (&1.into(), &101.into()));
    assert_eq!(
        (&told[2]["campaign"]["name"], &told[2]["shard"], &told[0]["v"]),
        (&"all".into(), &Value::Null, &1.into())
    );
    let environment = fs::read_to_string(host.path("tell.told.env")).unwrap();
    assert!(environment.contains("LONGHAUL_HOOK=tell\n") && !environment.contains("SECRET"), "{environment}");
    let (head, body) = heard.recv_timeout(PATIENCE).unwrap();
    assert!(head.starts_with("POST /told?by=longhaul HTTP/1.1\r\n"), "{head}");
    assert_eq!((&body["event"], &body["hook"]), (&"campaign".into(), &"chat".into()));
    let none = String::new;
    assert_eq!(shown(&host, "all"), [("tell".to_owned(), 0, 0, none()), ("chat".to_owned(), 0, 0, none())]);
}

#[test]
fn a_server_with_tls_is_told_if_an_authority_vouches_for_it_and_no_other_one_is() {
    let host = Host::new();
    plant(&host.path("ds"));
    certificates(&host.path(""));
    let (url, heard) = private_server(&host.path(""));
    // The certificate is one for `localhost`.
    let address = url.replace("localhost", "127.0.0.1");
    let hook =
        |name: &str, url: &str, more: &str| format!("[[hook]]\nname = '{name}'\nurl = '{url}'\ntries = 1\n{more}\n");
    let by = |name: &str| format!("authorities = '{}'", host.path(name).display());
    let texts = [
        hook("known", &url, &by("authority.crt")),
        hook("other", &url, &by("other.crt")),
        hook("strange", &url, ""),
        hook("named", &address, &by("authority.crt")),
        hook("none", &url, &by("nothing.crt")),
    ];
    write_hooks(&host, &texts.concat());
    let hooks = ["known", "other", "strange", "named", "none"].map(|name| format!("--hook={name}:campaign"));
    host.run(["job", "add", "--name", "all", "ds", "to"]).args(&hooks).succeed();
    host.run(["job", "plan", "all"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    let (head, body) = heard.recv_timeout(PATIENCE).unwrap();
    assert!(head.starts_with("POST /told HTTP/1.1\r\n"), "{head}");
    assert_eq!((&body["event"], &body["hook"]), (&"campaign".into(), &"known".into()));
    let shown = shown(&host, "all");
    let ends: Vec<_> = shown.iter().map(|(name, waiting, given_up, _)| (name.as_str(), *waiting, *given_up)).collect();
    assert_eq!(
        ends,
        [("known", 0, 0), ("other", 0, 1), ("strange", 0, 1), ("named", 0, 1), ("none", 0, 1)],
        "{shown:?}"
    );
    assert!(shown[1..4].iter().all(|(.., why)| why.contains("certificate")), "{shown:?}");
    assert!(shown[4].3.contains("nothing.crt"), "{shown:?}");
    assert!(heard.try_recv().is_err(), "nothing was told to a server for which nobody vouches");
}

#[test]
fn a_hook_that_fails_fails_no_campaign_and_is_told_again_by_a_later_mover() {
    let host = Host::new();
    plant(&host.path("ds"));
    let (url, heard) = server(&["503 Not Now", "200 OK"]);
    let bad = program(&host, "bad", "echo out of paper >&2; exit 3");
    let text = format!(
        "[[hook]]\nname = 'chat'\nurl = '{url}'\n[[hook]]\nname = 'bad'\ntries = 1\ncommand = ['{}']\n",
        bad.display()
    );
    write_hooks(&host, &text);
    host.run(["job", "add", "--name", "all", "--hook", "chat", "--hook", "bad", "--hook", "nobody", "ds", "to"])
        .succeed();
    host.run(["job", "plan", "all"]).succeed();
    let outcome = host.run(["job", "run", "--drain"]).succeed();
    assert!(outcome.stderr.contains("the hook 'bad' was not told"), "{}", outcome.stderr);
    let hooks = shown(&host, "all");
    assert_eq!((hooks[0].1, hooks[0].3.as_str()), (1, "127.0.0.1 answered 503 Service Unavailable"));
    assert_eq!((hooks[1].1, hooks[1].2), (0, 1), "{hooks:?}");
    assert!(hooks[1].3.ends_with("ended with exit status: 3: out of paper"), "{hooks:?}");
    assert_eq!((hooks[2].1, hooks[2].2), (1, 0), "no mover has it: it waits");
    // Its pause passes.
    let rows = rusqlite::Connection::open(queue(&host)).unwrap();
    rows.execute("UPDATE notice SET not_before = 0", []).unwrap();
    host.run(["job", "run", "--drain"]).succeed();
    let bodies = [(); 2].map(|()| heard.recv_timeout(PATIENCE).unwrap().1);
    assert_eq!(bodies[0]["notice"], bodies[1]["notice"], "it is the same one");
    assert_eq!((&bodies[0]["try"], &bodies[1]["try"]), (&1.into(), &2.into()));
    assert_eq!(shown(&host, "all")[0].1, 0);
    assert_eq!(told(&host, "bad").len(), 1, "it was given up");
}

#[test]
fn a_hook_under_way_is_told_again_behind_a_mover_that_was_killed_and_one_that_hangs_is_ended() {
    let host = Host::new();
    files::make(host.path("ds/f"), 1, 1000);
    let program =
        program(&host, "slow", &format!("test -e '{0}' || {{ touch '{0}'; sleep 30; }}", host.path("mark").display()));
    write_hooks(&host, &format!("[[hook]]\nname = 'slow'\ncommand = ['{}']\n", program.display()));
    host.run(["job", "add", "--name", "all", "--hook", "slow", "ds", "to"]).succeed();
    host.run(["job", "plan", "all"]).succeed();
    let running = host.run(["job", "run", "--drain"]).start();
    let until = std::time::Instant::now() + PATIENCE;
    while !host.path("mark").exists() {
        assert!(std::time::Instant::now() < until, "the hook was not begun");
        thread::sleep(std::time::Duration::from_millis(5));
    }
    running.signal(Signal::KILL);
    running.finish();
    assert_eq!(shown(&host, "all")[0].1, 1);
    let rows = rusqlite::Connection::open(queue(&host)).unwrap();
    rows.execute_batch("UPDATE notice SET not_before = 0; UPDATE leader SET until = 0").unwrap();
    host.run(["job", "run", "--drain"]).succeed();
    let tries: Vec<_> = told(&host, "slow").iter().map(|one| one["try"].as_u64().unwrap()).collect();
    assert_eq!(tries, [1, 2]);

    fs::remove_file(host.path("mark")).unwrap();
    write_hooks(&host, &format!("[[hook]]\nname = 'slow'\ntimeout = '1s'\ncommand = ['{}']\n", program.display()));
    host.run(["job", "add", "--name", "more", "--hook", "slow", "ds", "more"]).succeed();
    host.run(["job", "cancel", "more"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    assert_eq!(shown(&host, "more")[0].3, "it took longer than 1 s");
}

#[test]
fn a_campaign_cannot_name_a_program_or_a_url_and_a_file_that_others_may_write_is_refused() {
    let host = Host::new();
    files::make(host.path("ds/f"), 1, 1000);
    for hook in ["/bin/sh", "http://127.0.0.1/", "a b", "-x", "tell:boot"] {
        let outcome = host.run(["job", "add", &format!("--hook={hook}"), "ds", "to"]).fail(2);
        assert!(outcome.stderr.contains("is no hook"), "{hook}: {}", outcome.stderr);
    }
    host.run(["job", "add", "--name", "all", "--hook", "tell", "ds", "to"]).succeed();
    // Whoever may write to the queue can say no more than a key either.
    let rows = rusqlite::Connection::open(queue(&host)).unwrap();
    rows.execute("UPDATE campaign SET hooks = '/bin/sh:shard'", []).unwrap();
    host.run(["job", "show", "all"]).fail(7);
    write_hooks(&host, "");
    let file = host.config_home().join("longhaul/hooks.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    host.run(["job", "run", "--drain"]).fail(2);
}

#[test]
fn a_notice_whose_row_makes_no_sense_is_given_up_and_silences_no_other_one() {
    let host = Host::new();
    files::make(host.path("ds/f"), 1, 1000);
    let program = program(&host, "tell", "");
    write_hooks(&host, &format!("[[hook]]\nname = 'tell'\ncommand = ['{}']\n", program.display()));
    for name in ["bent", "good"] {
        host.run(["job", "add", "--name", name, "--hook", "tell", "ds", name]).succeed();
        host.run(["job", "cancel", name]).succeed();
    }
    let rows = rusqlite::Connection::open(queue(&host)).unwrap();
    rows.execute("UPDATE notice SET kind = 99 WHERE number = (SELECT min(number) FROM notice)", []).unwrap();
    host.run(["job", "run", "--drain"]).succeed();
    let names: Vec<_> = told(&host, "tell").iter().map(|one| one["campaign"]["name"].clone()).collect();
    assert_eq!(names, ["good"]);
    let left: (i64, i64) =
        rows.query_row("SELECT kind, given_up FROM notice", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(left, (99, 1));
}
