//! Pushes a directory to a daemon, with its progress on standard output:
//! `cargo run -p longhaul-engine --example push -- DIRECTORY HOST ROOT KEY_OF_DAEMON`
//!
//! In: the command line. Out: a transfer and its exit status. Shows the least that a program needs.

use std::sync::Arc;

use longhaul_core::{Blame, Fault, FaultCode, RelPath, Word};
use longhaul_engine::{Credentials, Event, Job, LocalSource, Observer, Reach, RemotePath, Settings, Stop, Trust};
use longhaul_net::{Identity, PublicKey};

struct Pinned(PublicKey);

impl Trust for Pinned {
    fn judge(&self, host: &str, _port: u16, key: &PublicKey) -> Result<(), Fault> {
        let refused = || Fault::new(FaultCode::Denied, Blame::Peer, format_args!("{host} shows another key: {key}"));
        if *key == self.0 { Ok(()) } else { Err(refused()) }
    }
}

struct Printer;

impl Observer for Printer {
    fn event(&self, event: Event) {
        match event {
            Event::Progress(now) => println!("{} of {} bytes are durable", now.bytes_durable, now.bytes_total),
            Event::Fault(fault) => eprintln!("{fault}"),
            _ => {}
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, host, root, key] = arguments.as_slice() else { return Err("DIRECTORY HOST ROOT KEY".into()) };
    let reach = Reach::Address { host: host.clone(), port: 7214 };
    let (identity, trust) = (Arc::new(Identity::generate()?), Arc::new(Pinned(key.parse()?)));
    println!("this run's key, which the daemon must know: {}", identity.public());
    let path = RemotePath { root: Word::try_from(root.as_str())?, path: RelPath::root(), slash: false };
    let job = Job::push(vec![LocalSource::named(directory)], reach, path);
    let (_trigger, stop) = Stop::new();
    let report = longhaul_engine::run(
        job,
        Some(Credentials { identity, trust, memory: None }),
        Settings::default(),
        Arc::new(Printer),
        stop,
    )
    .await;
    println!("{} files in {:.1} s", report.files_committed, report.seconds);
    report.fault.map_or(Ok(()), |fault| Err(fault.to_string().into()))
}
