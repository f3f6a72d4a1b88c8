//! Tests of where an order may lead, and of what is asked of a name server for it.

use longhaul_core::Word;

use super::*;

fn order(host: &str, port: u16) -> Order {
    let (grant, host) = (SignedGrant::default(), Word::try_from(host).expect("a word"));
    Order { host, port, grant, rules: Vec::new(), lanes: 0, retry_seconds: 0 }
}

fn place(orders: &OrderPlaces) -> Share {
    orders.begin(PublicKey::from_bytes([7; 32])).expect("a place")
}

fn rules(texts: &[&str]) -> Vec<DialRule> {
    texts.iter().map(|text| DialRule::parse(text, 7214).expect("a rule")).collect()
}

#[tokio::test]
async fn a_host_that_no_rule_can_allow_is_refused_without_a_lookup() {
    let orders = OrderPlaces::default();
    // A lookup is broken off, which shows where there is one.
    orders.close_lookups();
    for (dial, host, port, want) in [
        (&[][..], "dtn.example.org", 7214, FaultCode::Denied),
        (&["dtn.example.org"], "evil.example.org", 7214, FaultCode::Denied),
        (&["dtn.example.org"], "dtn.example.org", 7215, FaultCode::Denied),
        (&["dtn.example.org"], "dtn.example.org", 7214, FaultCode::TimedOut),
        (&["dtn.example.org"], "DTN.example.org.", 7214, FaultCode::TimedOut),
        (&["dtn.example.org", "192.0.2.0/24:80"], "evil.example.org", 7214, FaultCode::Denied),
        (&["192.0.2.0/24"], "any.example.org", 7214, FaultCode::TimedOut),
        (&["192.0.2.0/24"], "127.0.0.1", 7214, FaultCode::Denied),
    ] {
        let found = addresses((&rules(dial), &orders), &order(host, port), place(&orders)).await;
        let code = found.map(|(addresses, _)| addresses).map_err(|fault| fault.code);
        assert_eq!(code, Err(want), "{dial:?}: {host} at {port}");
    }
}

#[tokio::test]
async fn an_allowed_address_is_found_and_a_refusal_names_none() {
    let orders = OrderPlaces::default();
    let found = addresses((&rules(&["127.0.0.1:99"]), &orders), &order("127.0.0.1", 99), place(&orders)).await;
    let found = found.map(|(addresses, _)| addresses).map_err(|fault| fault.code);
    assert_eq!(found, Ok(vec![([127, 0, 0, 1], 99).into()]));
    let found = addresses((&rules(&["192.0.2.0/24"]), &orders), &order("localhost", 7214), place(&orders)).await;
    let fault = found.expect_err("it is at this host");
    assert_eq!(fault.code, FaultCode::Denied);
    assert!(!fault.message.contains("127.0.0.1") && !fault.message.contains("::1"), "{}", fault.message);
}
