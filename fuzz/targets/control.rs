//! One control message: length, number, body. A message that decodes encodes to the same message,
//! within bounded memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use longhaul_core::limits::MESSAGE_BYTES_MAX;
use longhaul_fuzz::within;
use longhaul_proto::Message;
use longhaul_proto::wire::frame::{LENGTH_BYTES, announced};

/// The memory of one message. The smallest elements take some 50 times their bytes; a growing
/// vector holds up to three times its content.
const HELD_MAX: usize = 200 * MESSAGE_BYTES_MAX;

fuzz_target!(|bytes: &[u8]| {
    let Some((length, body)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return };
    let Ok(len) = announced(*length) else { return };
    let body = body.get(..len).unwrap_or(body);
    within(HELD_MAX, || {
        let Ok(message) = Message::decode(body) else { return };
        let again = message.encode();
        assert_eq!(Message::decode(&again[LENGTH_BYTES..]).as_ref(), Ok(&message));
    });
});
