//! Users and groups of this host: their names, and the numbers of names that come from elsewhere.
//!
//! In: owners that the system tells, and accounts that travelled. Out: accounts with names, and
//! numbers. Each is looked up once and remembered, a bounded number of them; the directory service
//! of a host may be slow.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::sync::{Mutex, PoisonError};

use longhaul_core::{Account, Grantee, Owner, Word};
use longhaul_sys::accounts;
use rustix::fs::Stat;

/// The names of accounts that a scan has met.
#[derive(Debug, Default)]
pub(crate) struct AccountNames {
    users: HashMap<u32, Option<Word>>,
    groups: HashMap<u32, Option<Word>>,
}

impl AccountNames {
    /// The owner of a file.
    pub(crate) fn owner(&mut self, stat: &Stat) -> Owner {
        Owner { user: self.user(stat.st_uid), group: self.group(stat.st_gid) }
    }

    /// The party with the names of its account.
    pub(crate) fn grantee(&mut self, grantee: Grantee) -> Grantee {
        match grantee {
            Grantee::User(Account { id: Some(id), .. }) => Grantee::User(self.user(id)),
            Grantee::OtherGroup(Account { id: Some(id), .. }) => Grantee::OtherGroup(self.group(id)),
            other => other,
        }
    }

    fn user(&mut self, id: u32) -> Account {
        let name = remembered(&mut self.users, id, |id| word(accounts::user_name(*id)));
        Account { id: Some(id), name }
    }

    fn group(&mut self, id: u32) -> Account {
        let name = remembered(&mut self.groups, id, |id| word(accounts::group_name(*id)));
        Account { id: Some(id), name }
    }
}

/// The numbers of accounts that came from elsewhere.
#[derive(Debug, Default)]
pub(crate) struct AccountNumbers {
    users: Mutex<HashMap<Word, Option<u32>>>,
    groups: Mutex<HashMap<Word, Option<u32>>>,
}

impl AccountNumbers {
    /// The number of a user here: of its name, or else its own. `None`: it has neither.
    pub(crate) fn user(&self, user: &Account) -> Option<u32> {
        number(&self.users, user, |name| accounts::user_id(name))
    }

    /// The number of a group here.
    pub(crate) fn group(&self, group: &Account) -> Option<u32> {
        number(&self.groups, group, |name| accounts::group_id(name))
    }
}

fn number(
    known: &Mutex<HashMap<Word, Option<u32>>>,
    account: &Account,
    ask: impl FnOnce(&Word) -> io::Result<Option<u32>>,
) -> Option<u32> {
    let named = account.name.as_ref().and_then(|name| {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        remembered(&mut known, name.clone(), |name| ask(name).unwrap_or_default())
    });
    named.or(account.id)
}

/// A name that can travel.
fn word(name: io::Result<Option<Vec<u8>>>) -> Option<Word> {
    let name = String::from_utf8(name.ok()??).ok()?;
    Word::try_from(name.as_str()).ok().filter(|name| !name.is_empty())
}

/// The value that is known of a key, or the one that `ask` says of it from now on.
fn remembered<K: Clone + Eq + Hash, V: Clone>(known: &mut HashMap<K, V>, key: K, ask: impl FnOnce(&K) -> V) -> V {
    if let Some(value) = known.get(&key) {
        return value.clone();
    }
    if known.len() >= ACCOUNTS_REMEMBERED_MAX {
        known.clear();
    }
    let value = ask(&key);
    known.insert(key, value.clone());
    value
}

/// Accounts that are remembered: more than most hosts have, in some MiB. A peer may name any.
const ACCOUNTS_REMEMBERED_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_goes_before_a_number_and_an_unknown_name_leaves_the_number() {
        let name = |name: &str| Some(Word::try_from(name).expect("a word"));
        let numbers = AccountNumbers::default();
        for (account, want) in [
            (Account { id: Some(7), name: name("root") }, Some(0)),
            (Account { id: Some(7), name: name("no such account") }, Some(7)),
            (Account { id: None, name: name("no such account") }, None),
            (Account::of_id(8), Some(8)),
        ] {
            assert_eq!((numbers.user(&account), numbers.group(&account)), (want, want), "{account:?}");
        }
    }

    #[test]
    fn a_peer_that_names_ever_new_accounts_fills_no_memory() {
        let mut known = HashMap::new();
        for key in 0..3 * ACCOUNTS_REMEMBERED_MAX {
            assert_eq!(remembered(&mut known, key, |key| key + 1), key + 1);
            assert!(known.len() <= ACCOUNTS_REMEMBERED_MAX);
        }
    }
}
