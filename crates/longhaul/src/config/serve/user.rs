//! The user of this host as which a client's sessions run.
//!
//! In: `user`, or `uid` and `gid`, of a `[[client]]`. Out: the numbers, or what is wrong with them.
//! A name that the system does not know, or that stands for root, gets no session at all: a
//! mistake in a mapping of users denies. It asks the system's databases, and opens nothing.

use longhaul_engine::accounts::Account;
use longhaul_engine::{Bounds, ClientConfig, ClientUser, Rights};
use toml::Spanned;

use super::file::{Text, Wrong, at, wrong};
use super::grants::KnownRoots;

/// The user that a client's table names, if it names one. Clients before it are in `before`.
pub(super) fn judge(
    name: Option<&Text>,
    uid: Option<&Spanned<i64>>,
    gid: Option<&Spanned<i64>>,
    before: &[ClientConfig],
) -> Result<Option<ClientUser>, Wrong> {
    let gid_given = gid.map(group).transpose()?;
    let (user, fault): (ClientUser, &dyn Fn(String) -> Wrong) = match (name, uid) {
        (Some(_), Some(uid)) => return Err(wrong(uid, "user and uid are there both: leave one out")),
        (None, None) => return gid.map_or(Ok(None), |gid| Err(wrong(gid, "a gid is for a client with a uid"))),
        (Some(name), None) => (named(name, gid_given)?, &|message| wrong(name, message)),
        (None, Some(uid)) => (numbered(uid, gid_given)?, &|message| wrong(uid, message)),
    };
    if user.gid == 0 {
        return Err(fault("the primary group of this user is root's: give another gid".to_owned()));
    }
    let of_same = before.iter().filter_map(|known| Some((known, known.user.as_ref()?)));
    if let Some((other, _)) = of_same.into_iter().find(|(_, known)| known.uid == user.uid && known.gid != user.gid) {
        let other = other.name.escape_debug();
        return Err(fault(format!("client '{other}' has this user with another group, and all share a process")));
    }
    Ok(Some(user))
}

/// Refuses roots that clients with a user cannot have.
pub(super) fn need_plain(root: &Text, roots: &KnownRoots<'_>, rights: Rights) -> Result<(), Wrong> {
    if roots.is_set(root.get_ref()) {
        let message = "a target set has files of one user for all: give this client no user, or another root";
        return Err(wrong(root, message));
    }
    let bounds = roots.bounds(root.get_ref());
    if (rights.create || rights.modify) && bounds.is_some_and(Bounds::bounds_storage) {
        let message = format!("root '{}' has stored, files or reserve, {UNCOUNTED}", root.get_ref().escape_debug());
        return Err(wrong(root, message));
    }
    Ok(())
}

/// Refuses bounds that clients with a user cannot have.
pub(super) fn need_unbounded(client: &Text, bounds: &Bounds) -> Result<(), Wrong> {
    if bounds.bounds_storage() {
        let message = format!("client '{}' has stored, files or reserve, {UNCOUNTED}", client.get_ref().escape_debug());
        return Err(wrong(client, message));
    }
    Ok(())
}

/// The user of a name.
fn named(name: &Text, gid: Option<u32>) -> Result<ClientUser, Wrong> {
    let text = name.get_ref();
    let shown = text.escape_debug();
    let is_name = !text.is_empty()
        && text.len() <= USER_NAME_BYTES_MAX
        && !text.starts_with(['-', '.'])
        && !text.chars().any(|c| c.is_control() || c.is_whitespace() || [':', '/', ',', '\\'].contains(&c))
        && text.chars().any(|c| !c.is_ascii_digit());
    if !is_name {
        return Err(wrong(name, format!("'{shown}' is not the name of a user")));
    }
    let known = Account::of_name(text);
    let known = at(name, known.map_err(|error| format!("the system cannot be asked for user '{shown}': {error}")))?;
    let Some(Account { uid, gid: primary, .. }) = known else {
        return Err(wrong(name, format!("this host knows no user '{shown}'")));
    };
    if uid == 0 || uid == u32::MAX {
        return Err(wrong(name, format!("user '{shown}' has the number {uid}, as which no client is served")));
    }
    Ok(ClientUser { uid, gid: gid.unwrap_or(primary), name: Some(text.clone()) })
}

/// The user of a number.
fn numbered(number: &Spanned<i64>, gid: Option<u32>) -> Result<ClientUser, Wrong> {
    let uid = match u32::try_from(*number.get_ref()) {
        Ok(0) => return Err(wrong(number, "no client is served as root")),
        Ok(uid @ 1..UID_MIN) => {
            let message = format!("uid {uid} is below {UID_MIN}, where the system's own users are: name it by user");
            return Err(wrong(number, message));
        }
        Ok(uid) if uid < u32::MAX => uid,
        _ => return Err(wrong(number, "a uid is a number from 1000 on")),
    };
    let known = Account::of_number(uid);
    let known = at(number, known.map_err(|error| format!("the system cannot be asked for user {uid}: {error}")))?;
    let name = known.as_ref().and_then(|known| known.name.clone().into_string().ok());
    match gid.or(known.map(|known| known.gid)) {
        Some(gid) => Ok(ClientUser { uid, gid, name }),
        None => Err(wrong(number, format!("this host knows no user {uid}: give its gid too"))),
    }
}

fn group(number: &Spanned<i64>) -> Result<u32, Wrong> {
    let gid = u32::try_from(*number.get_ref()).ok().filter(|gid| (1..u32::MAX).contains(gid));
    gid.ok_or_else(|| wrong(number, "a gid is the number of a group other than root's"))
}

/// Why they cannot.
const UNCOUNTED: &str = "which are not kept for a client with a user: leave them out and use the quotas of the file system, or \
                         give this client no user";
/// Users of people have numbers from here on (`UID_MIN` of login.defs).
const UID_MIN: u32 = 1000;
/// The longest name of a user that systems take (`LOGIN_NAME_MAX`).
const USER_NAME_BYTES_MAX: usize = 255;
