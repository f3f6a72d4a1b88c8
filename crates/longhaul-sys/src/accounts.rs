//! Names and numbers of users and groups, as the system's databases have them: files, and whatever
//! directory service the host asks.
//!
//! In: a name or a number. Out: the other. Every call may take as long as that service does.

use std::ffi::{CStr, CString};
use std::io;
use std::ptr;

/// The name of a user. `None`: the system knows none of this number.
///
/// # Errors
/// The system's error, if its databases cannot be asked.
pub fn user_name(id: u32) -> io::Result<Option<Vec<u8>>> {
    look_up(
        // SAFETY: `entry`, `room` and `found` are valid for writes for the whole call, and `room`
        // has the length that is given.
        |entry, room, found| unsafe { libc::getpwuid_r(id, entry, room.as_mut_ptr().cast(), room.len(), found) },
        // SAFETY: the call succeeded, so that the name is a C string within `room`, which lives on.
        |entry: &libc::passwd| unsafe { CStr::from_ptr(entry.pw_name) }.to_bytes().to_vec(),
    )
}

/// The number of a user. `None`: the system knows none of this name.
///
/// # Errors
/// The system's error, if its databases cannot be asked.
pub fn user_id(name: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    look_up(
        // SAFETY: as in `user_name`; `name` is a C string that outlives the call.
        |entry, room, found| unsafe {
            libc::getpwnam_r(name.as_ptr(), entry, room.as_mut_ptr().cast(), room.len(), found)
        },
        |entry: &libc::passwd| entry.pw_uid,
    )
}

/// A user of the system, as its databases have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The name, by which its supplementary groups are found.
    pub name: CString,
    /// Its number.
    pub uid: u32,
    /// The number of its first group.
    pub gid: u32,
}

/// The user of this name, or else of this number. `None`: the system knows no such user.
///
/// # Errors
/// The system's error, if its databases cannot be asked.
pub fn account(text: &str) -> io::Result<Option<Account>> {
    match (Account::of_name(text)?, text.parse()) {
        (None, Ok(id)) => Account::of_number(id),
        (named, _) => Ok(named),
    }
}

impl Account {
    /// The user of this name. `None`: the system knows none.
    ///
    /// # Errors
    /// The system's error, if its databases cannot be asked.
    pub fn of_name(name: &str) -> io::Result<Option<Account>> {
        let Ok(name) = CString::new(name) else { return Ok(None) };
        look_up(
            // SAFETY: as in `user_id`.
            |entry, room, found| unsafe {
                libc::getpwnam_r(name.as_ptr(), entry, room.as_mut_ptr().cast(), room.len(), found)
            },
            Account::of_entry,
        )
    }

    /// The user of this number. `None`: the system knows none.
    ///
    /// # Errors
    /// The system's error, if its databases cannot be asked.
    pub fn of_number(uid: u32) -> io::Result<Option<Account>> {
        look_up(
            // SAFETY: as in `user_name`.
            |entry, room, found| unsafe { libc::getpwuid_r(uid, entry, room.as_mut_ptr().cast(), room.len(), found) },
            Account::of_entry,
        )
    }

    fn of_entry(entry: &libc::passwd) -> Account {
        // SAFETY: as in `user_name`.
        let name = unsafe { CStr::from_ptr(entry.pw_name) }.to_owned();
        Account { name, uid: entry.pw_uid, gid: entry.pw_gid }
    }

    /// The groups that it is in, `gid` among them.
    ///
    /// # Errors
    /// The system's error; `InvalidData` for a user of too many groups.
    pub fn groups(&self, gid: u32) -> io::Result<Vec<u32>> {
        let mut groups = vec![0; GROUPS_BEGIN];
        loop {
            let mut count = libc::c_int::try_from(groups.len()).map_err(|_| too_many_groups())?;
            // SAFETY: the name is a C string, and there is room for `count` groups. The call writes
            // no more, and then the number that there are.
            let got = unsafe { libc::getgrouplist(self.name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
            if got >= 0 {
                groups.truncate(usize::try_from(got).unwrap_or_default());
                return Ok(groups);
            }
            if groups.len() > GROUPS_MAX {
                return Err(too_many_groups());
            }
            groups.resize(groups.len() * 4, 0);
        }
    }
}

fn too_many_groups() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a user of more groups than a process can have")
}

/// The name of a group. `None`: the system knows none of this number.
///
/// # Errors
/// The system's error, if its databases cannot be asked.
pub fn group_name(id: u32) -> io::Result<Option<Vec<u8>>> {
    look_up(
        // SAFETY: as in `user_name`.
        |entry, room, found| unsafe { libc::getgrgid_r(id, entry, room.as_mut_ptr().cast(), room.len(), found) },
        // SAFETY: as in `user_name`.
        |entry: &libc::group| unsafe { CStr::from_ptr(entry.gr_name) }.to_bytes().to_vec(),
    )
}

/// The number of a group. `None`: the system knows none of this name.
///
/// # Errors
/// The system's error, if its databases cannot be asked.
pub fn group_id(name: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    look_up(
        // SAFETY: as in `user_id`.
        |entry, room, found| unsafe {
            libc::getgrnam_r(name.as_ptr(), entry, room.as_mut_ptr().cast(), room.len(), found)
        },
        |entry: &libc::group| entry.gr_gid,
    )
}

/// Asks for an entry of a database, with as much room as it needs, and takes a part of it while the
/// room that it points into stands.
fn look_up<E, T>(
    ask: impl Fn(*mut E, &mut [u8], *mut *mut E) -> libc::c_int,
    take: impl FnOnce(&E) -> T,
) -> io::Result<Option<T>> {
    let mut room = vec![0_u8; ROOM_BYTES];
    loop {
        let mut entry = std::mem::MaybeUninit::<E>::zeroed();
        let mut found: *mut E = ptr::null_mut();
        match ask(entry.as_mut_ptr(), &mut room, &mut found) {
            0 if found.is_null() => return Ok(None),
            // SAFETY: the call succeeded and found an entry, so it has written `entry`.
            0 => return Ok(Some(take(unsafe { entry.assume_init_ref() }))),
            libc::ERANGE if room.len() < ROOM_BYTES_MAX => room.resize(room.len() * 4, 0),
            libc::EINTR => {}
            // Databases say in any of these ways that they have no such entry.
            libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Ok(None),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Room for an entry: enough for all but groups of many members.
const ROOM_BYTES: usize = 4 << 10;
/// Room for the groups of a user: enough for most.
const GROUPS_BEGIN: usize = 64;
/// The groups that a process can have (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;
/// The most room that an entry is given: a group of a hundred thousand members.
const ROOM_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_by_name_and_number_and_nobody_knows_a_name_that_none_has() {
        assert_eq!(user_name(0).expect("asked").as_deref(), Some(&b"root"[..]));
        assert_eq!((user_id("root").expect("asked"), group_id("root").expect("asked")), (Some(0), Some(0)));
        assert_eq!(group_name(0).expect("asked").as_deref(), Some(&b"root"[..]));
        for name in ["no such account", "a\0b", ""] {
            assert_eq!((user_id(name).expect("asked"), group_id(name).expect("asked")), (None, None), "{name:?}");
        }
        assert_eq!(user_name(u32::MAX - 7).expect("asked"), None);
    }

    #[test]
    fn an_account_is_found_by_its_name_and_by_its_number_and_has_its_groups() {
        let root = Account { name: c"root".to_owned(), uid: 0, gid: 0 };
        for (text, found) in
            [("root", Some(&root)), ("0", Some(&root)), ("no such account", None), ("4294967288", None)]
        {
            assert_eq!(account(text).expect("asked").as_ref(), found, "{text:?}");
        }
        assert_eq!(Account::of_name("0").expect("asked"), None);
        assert!(root.groups(0).expect("asked").contains(&0));
    }
}
