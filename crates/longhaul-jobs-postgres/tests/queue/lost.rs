//! Commits whose answer is lost on the way: what was committed is not done again, and what was not
//! is.
//!
//! In: a way to the server on which a commit, or its answer, can be lost. Out: rows that are there
//! once. Must not know how the store finds out.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use longhaul_jobs::{Site, SiteId, Store};

use crate::open;
use crate::postgres::Postgres;

/// The fate of the next commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Next {
    Passes,
    /// It does not arrive, and both ends hear of that.
    IsLost,
    /// It arrives, and its answer does not.
    IsUnanswered,
    /// It does not arrive, and the server does not hear that its client is gone.
    HangsAtTheServer,
}

/// A way to a server's socket.
struct Way {
    port: u16,
    next: Arc<AtomicU8>,
}

impl Way {
    fn to(socket: PathBuf) -> Way {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (port, next) = (listener.local_addr().unwrap().port(), Arc::new(AtomicU8::new(Next::Passes as u8)));
        let known = Arc::clone(&next);
        std::thread::spawn(move || {
            // Until the test ends.
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = UnixStream::connect(&socket) else { continue };
                let mute = Arc::new(AtomicBool::new(false));
                let (client_too, server_too) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (next, mute_too) = (Arc::clone(&known), Arc::clone(&mute));
                std::thread::spawn(move || carry_there(client, server, &next, &mute));
                std::thread::spawn(move || carry_back(server_too, client_too, &mute_too));
            }
        });
        Way { port, next }
    }

    fn next(&self, next: Next) {
        self.next.store(next as u8, Ordering::SeqCst);
    }
}

/// Carries what a client says, and loses what it is told to lose.
fn carry_there(mut client: TcpStream, mut server: UnixStream, next: &AtomicU8, mute: &AtomicBool) {
    let mut piece = [0; 65536];
    while let Ok(length @ 1..) = client.read(&mut piece) {
        let said = &piece[..length];
        let lost = if said.windows(7).any(|word| word == b"COMMIT\0") {
            next.swap(Next::Passes as u8, Ordering::SeqCst)
        } else {
            Next::Passes as u8
        };
        if lost == Next::IsUnanswered as u8 {
            mute.store(true, Ordering::SeqCst);
        } else if lost != Next::Passes as u8 {
            client.shutdown(Shutdown::Both).unwrap();
            if lost == Next::HangsAtTheServer as u8 {
                // Nobody closes it before the server does.
                std::mem::forget(server);
                return;
            }
            break;
        }
        if server.write_all(said).is_err() {
            break;
        }
    }
    server.shutdown(Shutdown::Both).unwrap_or_default();
    client.shutdown(Shutdown::Both).unwrap_or_default();
}

fn carry_back(mut server: UnixStream, mut client: TcpStream, mute: &AtomicBool) {
    let mut piece = [0; 65536];
    while let Ok(length @ 1..) = server.read(&mut piece) {
        if mute.load(Ordering::SeqCst) || client.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    client.shutdown(Shutdown::Both).unwrap_or_default();
    if mute.load(Ordering::SeqCst) {
        server.shutdown(Shutdown::Both).unwrap_or_default();
    }
}

/// Adds a site in a transaction to whose commit something happens, and gives how often it was run
/// and how many sites there are.
fn add_site_when(server: &Postgres, next: Next, earlier: usize) -> (usize, usize) {
    let way = Way::to(server.socket());
    let url = format!("postgres://{}@127.0.0.1:{}/postgres?sslmode=disable", crate::postgres::ADMIN, way.port);
    let mut store = open(&url).unwrap();
    let site = |at: u64| Site { id: SiteId(at), name: format!("site {at}"), movers_in: 1, movers_out: 1 };
    for at in 0..earlier {
        store.transact(|rows| rows.put_site(&site(at as u64))).unwrap();
    }
    way.next(next);
    let mut runs = 0;
    let number = store.transact(|rows| {
        runs += 1;
        let number = 100 + rows.next_number()?;
        rows.put_site(&site(number))?;
        Ok(number)
    });
    let number = number.unwrap();
    let sites = store.transact(|rows| rows.sites()).unwrap();
    assert_eq!(sites.last().unwrap().id, SiteId(number), "what was answered is what is there");
    (runs, sites.len())
}

#[test]
fn a_commit_that_was_lost_on_its_way_is_done_again_and_one_that_arrived_is_not() {
    // With an earlier mark of the store at the server, and without.
    for earlier in [0, 2] {
        let server = Postgres::start();
        let when = |next| add_site_when(&server, next, earlier);
        assert_eq!(when(Next::Passes), (1, earlier + 1));
        assert_eq!(when(Next::IsLost), (2, earlier + 2));
        assert_eq!(when(Next::IsUnanswered), (1, earlier + 3));
    }
}

#[test]
fn a_commit_that_hangs_at_the_server_is_waited_for() {
    let server = Postgres::start();
    assert_eq!(add_site_when(&server, Next::HangsAtTheServer, 0), (2, 1));
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM longhaul.site"), "1");
}
