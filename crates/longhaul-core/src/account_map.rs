//! The mapping of users and groups from the source's host to the destination's.
//!
//! In: rules of a user. Out: the account that another one becomes. It asks no system: a name that a
//! rule gives is looked up where the owner is set. The side whose user gave the rules applies them,
//! be it the sender or the receiver.

use serde::{Deserialize, Serialize};

use crate::extras::{Account, Extras, Grantee};

/// How accounts are mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccountMap {
    /// Rules for users. The first that fits decides.
    pub users: Vec<AccountRule>,
    /// Rules for groups.
    pub groups: Vec<AccountRule>,
    /// Whether accounts that no rule fits go by their numbers, whatever their names.
    pub numbers_only: bool,
}

/// The account that another one becomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRule {
    /// The account at the source. `None`: any.
    pub from: Option<Account>,
    /// The account at the destination.
    pub to: Account,
}

impl AccountMap {
    /// Whether every account stays as it is.
    pub fn is_empty(&self) -> bool {
        *self == AccountMap::default()
    }

    /// Maps the accounts in the extras of an entry.
    pub fn map(&self, extras: &mut Extras) {
        if self.is_empty() {
            return;
        }
        if let Some(owner) = &mut extras.owner {
            self.map_one(&self.users, &mut owner.user);
            self.map_one(&self.groups, &mut owner.group);
        }
        let lists = [&mut extras.access, &mut extras.default];
        for grant in lists.into_iter().flatten().flat_map(|list| &mut list.grants) {
            match &mut grant.to {
                Grantee::User(user) => self.map_one(&self.users, user),
                Grantee::OtherGroup(group) => self.map_one(&self.groups, group),
                Grantee::Owner | Grantee::Group | Grantee::Mask | Grantee::Others => {}
            }
        }
    }

    fn map_one(&self, rules: &[AccountRule], account: &mut Account) {
        if let Some(rule) = rules.iter().find(|rule| rule.from.as_ref().is_none_or(|from| from.is_of(account))) {
            account.clone_from(&rule.to);
        } else if self.numbers_only && account.id.is_some() {
            account.name = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extras::{AccessList, Grant, Owner};
    use crate::text::Word;

    fn account(id: impl Into<Option<u32>>, name: &str) -> Account {
        let name = (!name.is_empty()).then(|| Word::try_from(name).expect("a word"));
        Account { id: id.into(), name }
    }

    #[test]
    fn the_first_rule_that_fits_decides_by_number_or_by_name() {
        let rule = |from: Option<Account>, to| AccountRule { from, to };
        let map = AccountMap {
            users: vec![
                rule(Some(account(None, "ann")), account(7, "")),
                rule(Some(account(2, "")), account(None, "bob")),
                rule(None, account(9, "")),
            ],
            groups: Vec::new(),
            numbers_only: true,
        };
        for (from, to) in [
            (account(1, "ann"), account(7, "")),
            (account(2, "ann"), account(7, "")),
            (account(2, "carl"), account(None, "bob")),
            (account(3, ""), account(9, "")),
        ] {
            let mut extras = Extras {
                owner: Some(Owner { user: from.clone(), group: account(5, "lab") }),
                access: Some(AccessList {
                    grants: vec![Grant { to: Grantee::User(from.clone()), may: Default::default() }],
                }),
                ..Extras::default()
            };
            map.map(&mut extras);
            let owner = extras.owner.expect("as before");
            assert_eq!((&owner.user, &owner.group), (&to, &account(5, "")), "{from:?}");
            assert_eq!(extras.access.expect("as before").grants[0].to, Grantee::User(to), "{from:?}");
        }
        let mut named_only =
            Extras { owner: Some(Owner { user: account(1, "x"), group: account(None, "lab") }), ..Extras::default() };
        map.map(&mut named_only);
        assert_eq!(named_only.owner.expect("as before").group, account(None, "lab"), "it has no number to go by");
    }
}
