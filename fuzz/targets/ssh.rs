//! The first messages of an ssh session, and its signals: whatever decodes encodes to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_proto::wire::frame::LENGTH_BYTES;
use longhaul_proto::wire::ssh::{ClientHello, FarHello, SSH_LINE, SIGNAL_BYTES, SshSignal};

fuzz_target!(|bytes: &[u8]| {
    let begins = SSH_LINE.len() + LENGTH_BYTES;
    if let Ok(hello) = ClientHello::decode(bytes) {
        let encoded = hello.encode().expect("it came in a message");
        assert_eq!(ClientHello::decode(&encoded[begins..]), Ok(hello));
    }
    if let Ok(hello) = FarHello::decode(bytes) {
        let encoded = hello.encode().expect("it came in a message");
        assert_eq!(FarHello::decode(&encoded[begins..]), Ok(hello));
    }
    if let Some(signal) = bytes.first_chunk::<SIGNAL_BYTES>().and_then(|bytes| SshSignal::decode(*bytes)) {
        assert_eq!(SshSignal::decode(signal.encode()), Some(signal));
    }
});
