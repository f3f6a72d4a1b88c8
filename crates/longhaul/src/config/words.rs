//! The deserializer's errors in the words of TOML.
//!
//! In: serde's message, in words of Rust's types. Out: the same in words of TOML. An unknown
//! message is passed on as it is.

/// The message as it is printed.
pub(super) fn plain(message: &str) -> String {
    let message = message.trim();
    let text = known(message).unwrap_or_else(|| message.to_owned());
    text.replace('`', "'")
}

fn known(message: &str) -> Option<String> {
    if let Some((given, wanted)) =
        message.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected "))
    {
        return Some(format!("expected {}, not {}", wanted_words(wanted), given_words(given)));
    }
    if let Some(name) = message.strip_prefix("missing field ") {
        return Some(format!("the key {name} is missing here"));
    }
    if let Some((key, keys)) = message.strip_prefix("unknown field ").and_then(|rest| rest.split_once(", expected ")) {
        let keys = keys.strip_prefix("one of ").unwrap_or(keys).replace('`', "");
        return Some(format!("unknown key {key}; the keys here are {keys}"));
    }
    match message {
        "data did not match any variant of untagged enum Number" => {
            Some("expected a number, or a text as \"30min\"".to_owned())
        }
        "data did not match any variant of untagged enum Mask" => {
            Some("expected \"0755\", \"keep\" or { dirs = \"0755\", files = \"0644\" }".to_owned())
        }
        _ => None,
    }
}

fn wanted_words(wanted: &str) -> &str {
    match wanted {
        "a sequence" => "a list in brackets, as [\"one\", \"two\"]",
        "a string" | "path string" | "a borrowed string" => "a text in quotes",
        "i64" | "u64" | "u32" | "usize" => "a whole number",
        "a boolean" => "true or false",
        "a map" => "a table",
        _ if wanted.starts_with("struct ") => "a table",
        _ => wanted,
    }
}

fn given_words(given: &str) -> String {
    match given.split_once(' ') {
        Some(("string", text)) => format!("the text {text}"),
        Some(("integer" | "boolean", value)) => value.to_owned(),
        Some(("floating", value)) => value.strip_prefix("point ").unwrap_or(value).to_owned(),
        _ if given == "sequence" => "a list".to_owned(),
        _ if given == "map" => "a table".to_owned(),
        _ => given.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_the_deserializer_become_words_of_the_file() {
        for (said, want) in [
            (
                "invalid type: string \"a\", expected a sequence",
                "expected a list in brackets, as [\"one\", \"two\"], not the text \"a\"",
            ),
            ("invalid type: string \"many\", expected i64", "expected a whole number, not the text \"many\""),
            ("invalid type: floating point `1.5`, expected i64", "expected a whole number, not '1.5'"),
            ("invalid type: integer `5`, expected a string", "expected a text in quotes, not '5'"),
            (
                "invalid type: map, expected a sequence",
                "expected a list in brackets, as [\"one\", \"two\"], not a table",
            ),
            ("invalid type: sequence, expected struct Limits", "expected a table, not a list"),
            ("missing field `name`", "the key 'name' is missing here"),
            (
                "unknown field `colour`, expected one of `name`, `key`",
                "unknown key 'colour'; the keys here are name, key",
            ),
            ("data did not match any variant of untagged enum Number", "expected a number, or a text as \"30min\""),
            ("invalid table header", "invalid table header"),
        ] {
            assert_eq!(plain(said), want);
        }
    }
}
