//! The first words of a stranger over TCP: any bytes. The greeting ends, with a lane or
//! an error, and never hears more than a hello may be long.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use longhaul_net::{GreetLimits, Greeted, Identity, ServerTls, greet_tunnelled};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

static SERVER: LazyLock<(Runtime, ServerTls)> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let limits = GreetLimits { opening_bytes: 40, ..GreetLimits::default() };
    let identity = Identity::generate().expect("a key");
    (runtime, ServerTls::new(&identity, limits).expect("configurations"))
});

fuzz_target!(|bytes: &[u8]| {
    let (runtime, tls) = &*SERVER;
    runtime.block_on(async {
        let (near, mut far) = UnixStream::pair().expect("a pair");
        let addr = ([192, 0, 2, 1], 7).into();
        let saying = async {
            let _ = far.write_all(bytes).await;
            let _ = far.shutdown().await;
            let mut answer = Vec::new();
            let _ = far.read_to_end(&mut answer).await;
            assert!(answer.len() <= ANSWER_BYTES_MAX, "{} bytes were answered to {}", answer.len(), bytes.len());
        };
        let greeting = async {
            match greet_tunnelled(near, addr, tls).await {
                Ok(Greeted::SafeLane(_, opening)) => assert_eq!(opening.len(), 40),
                Ok(Greeted::Control(_) | Greeted::PrivateLane(..)) => panic!("no key was proved"),
                Err(_) => {}
            }
        };
        tokio::join!(saying, greeting);
    });
});

/// The longest flight of a handshake.
const ANSWER_BYTES_MAX: usize = 16 << 10;
