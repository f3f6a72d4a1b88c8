//! `docs/CONFIG.md`: every key of `serve.toml`, `config.toml` and `hooks.toml`.
//!
//! It owns the form of that document. The tables of `serve.toml` come in from the declarations that
//! serde reads them into, the keys of `config.toml` from the loader, which has them of the command
//! line; a page goes to `reference`. It must not know any key. Docs end in `[default: VALUE]`.

use std::path::Path;

use longhaul_net::Identity;

use super::page::{Page, escaped};
use super::source::{Part, Shape, shapes};
use crate::config::{Daemon, client_keys};

const FILE_SOURCE: &str = "crates/longhaul/src/config/serve/file.rs";
const POLICY_SOURCE: &str = "crates/longhaul/src/config/serve/policy.rs";
const NETWORK_SOURCE: &str = "crates/longhaul/src/config/serve/network.rs";
const MOVER_SOURCE: &str = "crates/longhaul/src/config/serve/mover.rs";
const HOOKS_SOURCE: &str = "crates/longhaul/src/jobs/hooks/file.rs";
const WATCH_SOURCE: &str = "crates/longhaul/src/config/serve/watch.rs";

/// The struct of the whole file.
const FILE: &str = "File";

#[test]
fn config_md_is_what_the_loaders_say() {
    super::hold("CONFIG.md", &document());
}

#[test]
fn stated_defaults_change_nothing() {
    let known = declared();
    let stated = |name: &str| -> String {
        let literals = shape(&known, name).parts.iter().filter_map(|part| Some((part, default_of(&part.docs).1?)));
        literals.filter_map(|(part, default)| assignment(&part.name, default)).collect()
    };
    let key = Identity::generate().expect("random bytes").public();
    let whole = |file: &str, limits: &str, watch: &str, root: &str, client: &str| {
        let text = format!(
            "{file}[limits]\n{limits}[watch]\n{watch}[[root]]\nname = \"r\"\ntargets = [\"/\"]\n{root}[[client]]\nname = \"c\"\n\
             key = \"{key}\"\n{client}"
        );
        let daemon = Daemon::parse_alone(Path::new("serve.toml"), &text);
        let daemon = daemon.unwrap_or_else(|error| panic!("{text}{error}"));
        format!("{:?} {:?} {:?}", daemon.config, daemon.identity, (daemon.state, daemon.admin_socket, daemon.watching))
    };
    let [file, limits, watch, root, client] = [FILE, "Limits", "Watch", "Root", "Client"].map(stated);
    for (stated, least) in [(&file, 4), (&limits, 8), (&watch, 3), (&root, 3), (&client, 3)] {
        assert!(stated.lines().count() >= least, "fewer defaults than there are: {stated}");
    }
    assert_eq!(whole(&file, &limits, &watch, &root, &client), whole("", "", "", "", ""));
}

fn document() -> String {
    let mut page = Page::new("Configuration files");
    page.paragraph(
        "All files are TOML. A key that is not listed here is an error that names its line and column. Sizes: `MiB` is \
         binary, `MB` decimal, bare `K` `M` `G` binary. Rates say bits or bytes: `100Mbit/s`, `12.5MB/s`. Times: \
         `90s`, `10m`, `2h`, `14d`. [SERVING.md](SERVING.md) says what an administrator has to decide, and who may own \
         and write these files.",
    );
    serve_toml(&mut page);
    config_toml(&mut page);
    hooks_toml(&mut page);
    page.end()
}

fn serve_toml(page: &mut Page) {
    let known = declared();
    page.heading("`serve.toml`");
    page.paragraph(
        "The daemon's file: `longhaul serve --config FILE`, else `/etc/longhaul/serve.toml`, else \
         `$XDG_CONFIG_HOME/longhaul/serve.toml`. `longhaul serve --check-config` says what is wrong with it.",
    );
    let file = shape(&known, FILE);
    let (tables, keys): (Vec<&Part>, Vec<&Part>) =
        file.parts.iter().partition(|part| known.iter().any(|shape| shape.name == bare(&part.kind) && is_table(shape)));
    page.paragraph(&file.docs);
    page.table(HEADS, &keys.iter().flat_map(|part| rows(&known, part, "")).collect::<Vec<_>>());
    for table in tables {
        let brackets = if table.kind.starts_with("Vec<") { ("[[", "]]") } else { ("[", "]") };
        page.subheading(&format!("`{}{}{}`", brackets.0, table.name, brackets.1));
        page.paragraph(&table.docs);
        let parts = &shape(&known, bare(&table.kind)).parts;
        page.table(HEADS, &parts.iter().flat_map(|part| rows(&known, part, "")).collect::<Vec<_>>());
    }
}

fn config_toml(page: &mut Page) {
    page.heading("`config.toml`");
    page.paragraph(
        "The client's file, `$XDG_CONFIG_HOME/longhaul/config.toml`: one key for each option of `push`, `pull` and \
         `copy`. A flag wins over the environment (`--chunk-size` is `LONGHAUL_CHUNK_SIZE` there), the environment \
         over the file. In a key `_` stands for `-` as well.",
    );
    let rows: Vec<_> = client_keys()
        .into_iter()
        .map(|key| {
            let (meaning, default) = default_of(&key.help);
            let default = default.or_else(|| key.is_switch.then_some("false")).unwrap_or("none");
            [format!("`{}`", key.name), key.form.to_owned(), escaped(default), escaped(meaning)]
        })
        .collect();
    page.table(HEADS, &rows);
}

fn hooks_toml(page: &mut Page) {
    page.heading("`hooks.toml`");
    page.paragraph(
        "The hooks of movers on this host, `$XDG_CONFIG_HOME/longhaul/hooks.toml`, or `longhaul job run --hooks FILE`; \
         [REPLICATE.md](REPLICATE.md#hooks) says what they are told. It has one table `[[hook]]` for each.",
    );
    let known = declared();
    let keys = &shape(&known, "HookEntry").parts;
    page.table(HEADS, &keys.iter().flat_map(|part| rows(&known, part, "")).collect::<Vec<_>>());
}

const HEADS: [&str; 4] = ["key", "type", "default", "meaning"];

/// The structs and enums that serde reads.
fn declared() -> Vec<Shape> {
    let texts = [FILE_SOURCE, POLICY_SOURCE, WATCH_SOURCE, NETWORK_SOURCE, MOVER_SOURCE, HOOKS_SOURCE].map(super::read);
    texts.iter().flat_map(|text| shapes(text)).filter(|shape| shape.has("Deserialize")).collect()
}

fn shape<'a>(known: &'a [Shape], name: &str) -> &'a Shape {
    known.iter().find(|shape| shape.name == name).unwrap_or_else(|| panic!("there is no {name}"))
}

/// Whether the shape is a table, and no choice between forms of a value.
fn is_table(shape: &Shape) -> bool {
    !shape.has("untagged")
}

/// The row of a key, and of the keys of tables that it may hold.
fn rows(known: &[Shape], part: &Part, prefix: &str) -> Vec<[String; 4]> {
    assert!(!part.docs.is_empty(), "{} has no docs", part.name);
    let (meaning, default) = default_of(&part.docs);
    let is_needed = !part.kind.starts_with("Option<") && !part.has("default");
    let default = match (is_needed, default) {
        (true, _) => "required".to_owned(),
        (false, Some("none")) => "none".to_owned(),
        (false, Some(text)) if text.contains('`') => text.to_owned(),
        (false, Some(text)) => format!("`{text}`"),
        (false, None) => panic!("the docs of {} state no default", part.name),
    };
    let name = format!("{prefix}{}", part.name);
    let mut found = vec![[format!("`{name}`"), form(known, &part.kind), default, meaning.to_owned()]];
    let choice = known.iter().find(|shape| shape.name == bare(&part.kind) && !is_table(shape));
    for table in choice.into_iter().flat_map(|choice| &choice.parts) {
        if let Some(shape) = known.iter().find(|shape| shape.name == table.kind) {
            found.extend(shape.parts.iter().flat_map(|part| rows(known, part, &format!("{name}."))));
        }
    }
    found
}

/// The type in words of TOML.
fn form(known: &[Shape], kind: &str) -> String {
    let kind = unwrapped(kind);
    if let Some(of) = kind.strip_prefix("Vec<").and_then(|kind| kind.strip_suffix('>')) {
        return format!("list of {}s", form(known, of));
    }
    match kind {
        "Text" | "String" | "PathBuf" => "string".to_owned(),
        "i64" => "integer".to_owned(),
        "bool" => "boolean".to_owned(),
        "BTreeMap<Text, Vec<Text>>" => "table of lists of strings".to_owned(),
        _ if is_table(shape(known, kind)) => "table".to_owned(),
        _ => shape(known, kind).parts.iter().map(|part| form(known, &part.kind)).collect::<Vec<_>>().join(" or "),
    }
}

/// A type without what makes it optional or remembers its place.
fn unwrapped(mut kind: &str) -> &str {
    for holder in ["Option<", "Spanned<"] {
        kind = kind.strip_prefix(holder).and_then(|kind| kind.strip_suffix('>')).unwrap_or(kind);
    }
    kind
}

fn bare(kind: &str) -> &str {
    let kind = unwrapped(kind);
    kind.strip_prefix("Vec<").and_then(|kind| kind.strip_suffix('>')).unwrap_or(kind)
}

/// A text without its last words in brackets, and the default that these state.
fn default_of(text: &str) -> (&str, Option<&str>) {
    let Some((meaning, rest)) = text.rsplit_once("[default: ") else { return (text, None) };
    match rest.trim_end().strip_suffix(']') {
        Some(default) => (meaning.trim_end(), Some(default)),
        None => (text, None),
    }
}

/// The line that gives a key this value, if that is one of TOML.
fn assignment(name: &str, value: &str) -> Option<String> {
    let line = format!("{name} = {value}\n");
    line.parse::<toml::Table>().is_ok().then_some(line)
}
