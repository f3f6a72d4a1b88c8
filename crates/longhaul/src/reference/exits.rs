//! `docs/EXIT-CODES.md`: every exit code and every fault code.
//!
//! It owns the form of that document. Names and docs come in from the declarations of `Exit` and
//! `FaultCode`, all else from the values themselves; a page goes to `reference`. It must not know
//! which fault leads where.

use longhaul_core::{Blame, Fault, FaultCode};

use super::page::Page;
use super::source::{Part, docs_of, shapes};
use crate::exit::Exit;

const EXIT_SOURCE: &str = "crates/longhaul/src/exit.rs";
const FAULT_SOURCE: &str = "crates/longhaul-core/src/fault.rs";

#[test]
fn exit_codes_md_is_what_the_enums_say() {
    super::hold("EXIT-CODES.md", &document());
}

fn document() -> String {
    let (exit_text, fault_text) = (super::read(EXIT_SOURCE), super::read(FAULT_SOURCE));
    let faults: Vec<(FaultCode, String)> =
        variants(&fault_text, "FaultCode").into_iter().map(|part| (fault_code(&part.name), part.docs)).collect();
    let mut page = Page::new("Exit codes");
    page.paragraph(
        "The `summary` event of `--json` has the number as `exit` and the name as `status`. Numbers and names are \
         only ever added.",
    );
    exits(&mut page, &exit_text, &faults);
    page.heading("Faults");
    page.paragraph(
        "A `fault` event has the name as `code`. Where the same command may succeed later with nothing changed by \
         hand, it has `retry: true`.",
    );
    let row = |(code, docs): &(FaultCode, String)| {
        let exit = Exit::from(*code);
        let retry = Fault::new(*code, Blame::Local, "").retry();
        [
            format!("`{}`", code.name()),
            docs.clone(),
            YES_OR_NO[usize::from(retry)].to_owned(),
            format!("{} `{}`", exit.code(), exit.status()),
        ]
    };
    page.table(["code", "meaning", "retry", "exit code"], &faults.iter().map(row).collect::<Vec<_>>());
    page.end()
}

fn exits(page: &mut Page, text: &str, faults: &[(FaultCode, String)]) {
    let declared = variants(text, "Exit");
    let names: Vec<&str> = declared.iter().map(|part| part.name.as_str()).collect();
    let listed: Vec<String> = EXITS.iter().map(|exit| format!("{exit:?}")).collect();
    assert_eq!(names, listed, "EXITS does not list the variants of Exit");
    let rows: Vec<_> = EXITS
        .iter()
        .zip(&declared)
        .map(|(exit, part)| {
            let leading = faults.iter().filter(|(code, _)| Exit::from(*code) == *exit);
            let codes: Vec<_> = leading.map(|(code, _)| format!("`{}`", code.name())).collect();
            [
                exit.code().to_string(),
                format!("`{}`", exit.status()),
                part.docs.clone(),
                YES_OR_NO[usize::from(exit.resumable())].to_owned(),
                codes.join(", "),
            ]
        })
        .collect();
    page.heading("Codes");
    page.paragraph("A code is resumable if the same command, run again with nothing changed, continues the run.");
    page.table(["exit", "status", "meaning", "resumable", "faults that lead to it"], &rows);
    page.paragraph(&docs_of(text, "pub fn of_report"));
}

fn variants(text: &str, name: &str) -> Vec<Part> {
    let shape = shapes(text).into_iter().find(|shape| shape.name == name);
    let parts = shape.unwrap_or_else(|| panic!("there is no {name}")).parts;
    assert!(parts.iter().all(|part| !part.docs.is_empty()), "a variant of {name} has no docs");
    parts
}

fn fault_code(variant: &str) -> FaultCode {
    serde_json::from_value(variant.into()).unwrap_or_else(|error| panic!("{variant}: {error}"))
}

/// The words for false and true.
const YES_OR_NO: [&str; 2] = ["no", "yes"];

/// Every exit code, in the order of their declaration.
const EXITS: [Exit; 13] = [
    Exit::Complete,
    Exit::Unclassified,
    Exit::Usage,
    Exit::NotFound,
    Exit::Denied,
    Exit::Temporary,
    Exit::Mismatch,
    Exit::Unable,
    Exit::Partial,
    Exit::Changed,
    Exit::Interrupted,
    Exit::BrokenPipe,
    Exit::Terminated,
];
