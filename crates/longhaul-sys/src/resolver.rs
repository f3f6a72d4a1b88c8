//! The C library's words for a name that cannot be looked up.
//!
//! Takes the error of a lookup; gives `net` whether the same name may be found later. The standard
//! library keeps of `getaddrinfo`'s code only its text. Must not know sockets.

use std::ffi::CStr;
use std::io;

/// Whether a lookup failed because no DNS server answered, not because there is no such name.
pub fn lookup_may_succeed_later(error: &io::Error) -> bool {
    error.raw_os_error().is_some() || [libc::EAI_AGAIN, libc::EAI_MEMORY].iter().any(|code| said_of(error, *code))
}

/// Whether the error has the words of this code of `getaddrinfo`.
fn said_of(error: &io::Error, code: libc::c_int) -> bool {
    // SAFETY: gai_strerror takes any number, and returns a constant text of the C library that is
    // never freed.
    let words = unsafe { CStr::from_ptr(libc::gai_strerror(code)) };
    words.to_str().is_ok_and(|words| !words.is_empty() && error.to_string().ends_with(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dns_server_that_does_not_answer_is_told_from_a_name_that_does_not_exist() {
        for (code, later) in
            [(libc::EAI_AGAIN, true), (libc::EAI_NONAME, false), (libc::EAI_FAIL, false), (libc::EAI_SERVICE, false)]
        {
            // SAFETY: as above.
            let words = unsafe { CStr::from_ptr(libc::gai_strerror(code)) }.to_str().expect("text");
            // As the standard library words it.
            let error = io::Error::other(format!("failed to lookup address information: {words}"));
            assert_eq!(lookup_may_succeed_later(&error), later, "{words}");
        }
        assert!(lookup_may_succeed_later(&io::Error::from_raw_os_error(libc::EMFILE)));
    }
}
