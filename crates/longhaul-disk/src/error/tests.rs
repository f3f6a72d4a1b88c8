//! Tests of errors: kinds, faults, and the words of messages.

use longhaul_core::RelPath;

use super::*;

#[test]
fn errnos_become_kinds_and_faults() {
    for (errno, kind, code) in [
        (Errno::NOENT, ErrorKind::NotFound, FaultCode::NotFound),
        (Errno::DQUOT, ErrorKind::NoSpace, FaultCode::NoSpace),
        (Errno::NOSPC, ErrorKind::NoSpace, FaultCode::NoSpace),
        (Errno::ROFS, ErrorKind::ReadOnly, FaultCode::ReadOnly),
        (Errno::LOOP, ErrorKind::Escape, FaultCode::InTheWay),
        (Errno::IO, ErrorKind::Io, FaultCode::Io),
        (Errno::STALE, ErrorKind::Io, FaultCode::Io),
        (Errno::MFILE, ErrorKind::Exhausted, FaultCode::Exhausted),
        (Errno::NFILE, ErrorKind::Exhausted, FaultCode::Exhausted),
        (Errno::NOMEM, ErrorKind::Io, FaultCode::Io),
    ] {
        let error = DiskError::call("open", &b"a\nb"[..], errno);
        assert_eq!((error.kind(), error.fault().code), (kind, code));
    }
}

#[test]
fn whoever_has_too_many_files_open_is_told_which_limit_that_is() {
    let hint = |errno| DiskError::call("open", &b"a"[..], errno).fault().hint.map(|hint| hint.to_string());
    let (own, all) = (hint(Errno::MFILE).unwrap(), hint(Errno::NFILE).unwrap());
    assert!(own.contains("ulimit -n") && own.contains("LimitNOFILE=") && !own.contains("file-max"), "{own}");
    assert!(all.contains("fs.file-max") && !all.contains("ulimit"), "{all}");
}

#[test]
fn a_stale_handle_means_that_a_source_is_gone() {
    let failed = |errno| DiskError::call("read", &b"a"[..], errno).at_source().fault().code;
    assert_eq!((failed(Errno::STALE), failed(Errno::IO)), (FaultCode::Vanished, FaultCode::Io));
}

#[test]
fn messages_are_one_escaped_line_with_the_cause() {
    let fault = DiskError::call("open", &b"a\nb"[..], Errno::NOENT).fault();
    assert_eq!(fault.object, "a\\x0ab");
    assert!(fault.message.starts_with("cannot open 'a\\x0ab': No such file"), "{}", fault.message);
    assert_eq!(PathText::from(&RelPath::root()).to_string(), ".");
}
