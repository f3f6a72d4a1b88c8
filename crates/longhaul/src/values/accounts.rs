//! The text of a rule that maps one account to another: `FROM:TO`.
//!
//! In: one rule. Out: an [`AccountRule`], or a [`Flaw`]. It asks no database.

use longhaul_core::{Account, Word};
use longhaul_engine::AccountRule;

use crate::error::Flaw;

/// Reads a rule: a name, a number or `*`, a colon, and a name or a number.
pub(crate) fn account_rule(text: &str) -> Result<AccountRule, Flaw> {
    let flaw = || Flaw::Form { given: text.to_owned(), form: "FROM:TO, each a name or a number, or * for any FROM" };
    let (from, to) = text.split_once(':').ok_or_else(flaw)?;
    let account = |text: &str| {
        let account = match text.parse::<u32>() {
            Ok(u32::MAX) => return None,
            Ok(id) => Account::of_id(id),
            Err(_) => Account { id: None, name: Some(Word::try_from(text).ok()?) },
        };
        (!text.is_empty() && text != "*" && !text.contains(':')).then_some(account)
    };
    let from = if from == "*" { None } else { Some(account(from).ok_or_else(flaw)?) };
    Ok(AccountRule { from, to: account(to).ok_or_else(flaw)? })
}
